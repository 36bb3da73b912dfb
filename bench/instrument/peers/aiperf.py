"""**aiperf**: NVIDIA's load client, the successor of genai-perf: workers on aiohttp, record processors and
managers, a process each.

- Install: `snakemake --cores 1 .venvs/aiperf/ready` makes an environment of its own from
  `environments/aiperf.txt`.
- Documentation: <https://docs.nvidia.com/aiperf>
- Licence: Apache-2.0.
- A request begins before its connection is there, so opening it is part of its TTFT. A token is there when
  the worker has read the bytes of its event. Answers are evaluated by other processes while the load goes on.
- Traps: offline (`HF_HUB_OFFLINE`) it looks for its tokenizer in the hub's cache even where the tokenizer is
  a folder.
"""

import json
import os
import subprocess
from pathlib import Path

import numpy as np

from bench.instrument import peers

ENVIRONMENT = "aiperf"
CACHED = "usage_prompt_cache_read_tokens"  # of a record: what the server's usage says
VARIABLES = {"HF_HUB_OFFLINE": "", "TRANSFORMERS_OFFLINE": ""}


def available() -> str | None:
    return peers.missing(ENVIRONMENT)


def version() -> str:
    return peers.installed(ENVIRONMENT, "aiperf")


def command(work: peers.Work) -> list:
    options = {
        "--model": work.model,
        "--url": work.url,
        "--endpoint-type": "completions",
        "--concurrency": work.streams,
        "--request-count": work.requests,
        "--tokenizer": work.tokenizer,
        "--isl": 16,
        "--isl-stddev": 0,
        "--osl": work.tokens,
        "--osl-stddev": 0,
        "--export-level": "records",
        "--artifact-dir": work.folder,
        "--ui": "none",
    }
    flags = ["--streaming", "--no-gpu-telemetry", "--no-server-metrics"]
    return [peers.program(ENVIRONMENT, "aiperf"), "profile", *peers.words(options), *flags]


def converse(talks: peers.Talks) -> list[peers.Told]:
    """Its `multi_turn` data on a fixed schedule: a first turn at its timestamp, each further one a delay
    (both in ms) after the answer before, with the server's own answers for history, its default."""
    conversations = talks.folder / "conversations.jsonl"
    with conversations.open("w", encoding="utf-8") as out:
        for session in talks.workload.sessions:
            turns = [
                {"text": talks.decode(turn.added), "output_length": turn.new_tokens}
                | (
                    {"timestamp": 1e3 * (turn.at_s or 0.0)}
                    if turn.gap_s is None
                    else {"delay": 1e3 * turn.gap_s}
                )
                for turn in session.turns
            ]
            # It looks for a moment in the record itself before it reads the turns, and ignores it afterwards.
            moment = {"timestamp": 1e3 * (session.turns[0].at_s or 0.0)}
            out.write(json.dumps({"session_id": str(session.number), "turns": turns} | moment) + "\n")
    options = {
        "--model": talks.model,
        "--url": talks.url,
        "--endpoint-type": "chat",
        "--tokenizer": talks.tokenizer,
        "--input-file": conversations,
        "--custom-dataset-type": "multi_turn",
        "--export-level": "records",
        "--artifact-dir": talks.folder / "artifacts",
        "--ui": "none",
    }
    flags = ["--streaming", "--fixed-schedule", "--use-server-token-count", "--no-gpu-telemetry"]
    flags += ["--no-server-metrics"]
    command = [peers.program(ENVIRONMENT, "aiperf"), "profile", *peers.words(options), *flags]
    with open(talks.folder / "said.txt", "wb") as said:
        done = subprocess.run(list(map(str, command)), stdout=said, stderr=said, env=os.environ | VARIABLES)
    if done.returncode:
        raise RuntimeError(f"aiperf ended with {done.returncode}: {_tail(talks.folder / 'said.txt')}")
    told = []
    for line in (talks.folder / "artifacts" / "profile_export.jsonl").read_text().splitlines():
        record = json.loads(line)
        if not record.get("error"):
            about, metrics = record["metadata"], record["metrics"]
            place = int(about["conversation_id"]), about["turn_index"] + 1
            cached = metrics.get(CACHED, {}).get("value")
            told.append(peers.Told(*place, metrics["time_to_first_token"]["value"] / 1e3, cached))
    return told


def _tail(file: Path) -> str:
    return file.read_text(encoding="utf-8", errors="replace")[-1000:].strip()


def reported(work: peers.Work) -> peers.Reported:
    lines = (work.folder / "profile_export.jsonl").read_text().splitlines()
    good = [record for record in map(json.loads, lines) if not record.get("error")]
    begun = [record["metadata"]["request_start_ns"] for record in good]
    ttft_ms, gaps_ms = (
        [record["metrics"][name]["value"] for record in good]
        for name in ("time_to_first_token", "inter_chunk_latency")
    )
    gaps = np.concatenate([np.empty(0), *gaps_ms])
    return peers.Reported(np.array(ttft_ms) / 1e3, np.array(begun) * 1e-9, gaps / 1e3)
