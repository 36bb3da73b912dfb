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

import numpy as np

from bench.instrument import peers

ENVIRONMENT = "aiperf"
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
