"""What load clients report of the same conversations, with the reference server's cache as judge:
`python -m bench.experiments.conversation_peers`.

Every client of `bench/instrument/peers/` that can hold conversations and is installed gets a reference server
of its own, with a cache that has room for everything, and the same sessions: text whose tokens are its words,
the server's answers for history, first turns at a moment, later ones a gap after the answer before. What the
server computed and when it was asked is known (`/truth`); a request is found there by the digest of the
prompt that it must have had. Writes data/proof/conversation_peers.csv, one row per client.
"""

import argparse
import hashlib
import json
import tempfile
import urllib.request
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas as pd

from bench import prefix_cache, processes, workloads
from bench.analysis import conversations as conversations_analysis
from bench.backends.common import checkpoints
from bench.definitions import Fields
from bench.experiments.client_accuracy import MODEL, OFFLINE, START_S
from bench.instrument import peers, reference_server
from bench.workloads import conversations

FILE = conversations_analysis.PROOF / "conversation_peers.csv"
SESSIONS, RATE = 40, 4.0
BLOCKS, BLOCK_TOKENS = 20_000, 16
TTFT_S, ITL_S, PREFILL_S = 0.02, 0.005, 2e-4
VOCABULARY = range(100_000)
SHAPE = {
    "turns": "uniform 2 6",
    "groups": 4,
    "first_tokens": "lognormal 48 0.7",
    "think_s": "exponential 0.5",
}
SHAPE |= {"answer_tokens": "lognormal 24 0.5", "due": "gap", "history": "own"}


def made(sessions: int = SESSIONS, rate: float = RATE) -> workloads.Workload:
    """The conversations that every client holds."""
    return conversations.make(VOCABULARY, ("peers",), sessions, rate, 10**6, seed=30, **SHAPE)


def decode(ids: Sequence[int]) -> str:
    """Text with a word for each of `ids`."""
    return " ".join(f"w{token}" for token in ids)


def prompts(workload: workloads.Workload) -> list[prefix_cache.Request]:
    """Each turn as the server must see it, in its own tokens: the words of its chat, roles included, with its
    own answers, of which every token is `token`."""
    found = []
    for session in workload.sessions:
        seen: list[str] = []
        for number, turn in enumerate(session.turns, start=1):
            answer = ("token",) * turn.new_tokens
            seen += ["user", *decode(turn.added).split(), "assistant"]
            found.append(
                prefix_cache.Request(tuple(seen), turn.new_tokens, session.number, number, answer=answer)
            )
            seen += answer
    return found


def judged(name: str, workload: workloads.Workload) -> Fields:
    """One row of the comparison: what the client `name` sent and reports, against what the server knows."""
    client, port = peers.get(name), processes.free_port()
    server = ["python", "-m", "bench.instrument.reference_server", "--port", port, "--ttft-s", TTFT_S]
    server += ["--itl-s", ITL_S, "--prefill-s-per-token", PREFILL_S]
    server += ["--cache-blocks", BLOCKS, "--block-tokens", BLOCK_TOKENS]
    with tempfile.TemporaryDirectory() as folder:
        own = Path(folder) / "client"
        own.mkdir()
        with processes.started(
            server, port, Path(folder) / "server.txt", START_S, environment=OFFLINE
        ) as url:
            tokenizer = checkpoints.checkpoint(MODEL).path
            talks = peers.Talks(url, reference_server.MODEL, workload, decode, own, tokenizer)
            told = client.converse(talks)
            with urllib.request.urlopen(f"{url}/truth", timeout=60) as answer:
                truth = json.load(answer)
    return {"client": name, "version": client.version()} | compared(workload, told, truth)


def compared(workload: workloads.Workload, told: list[peers.Told], truth: list[Fields]) -> Fields:
    """Columns of a row: requests planned, sent (all that came), as_planned (whose prompt is that of a turn)
    and within (whose hit is between its bounds); hit rates by tokens, true and reported; by how much the
    reported TTFT is longer than the true one, think time than the planned, and by how much first turns came
    later than the promptest of them, ms."""
    planned = prompts(workload)
    declared = prefix_cache.Declared("blocks", BLOCK_TOKENS)
    bounds = prefix_cache.expected(planned, declared)
    digest = lambda ids: hashlib.sha256(json.dumps(list(ids)).encode()).hexdigest()  # noqa: E731
    place = {digest(request.ids): (request.session, request.turn) for request in planned}
    seen = {place[row["digest"]]: row for row in truth if row["digest"] in place}
    limits = {(one.session, one.turn): pair for one, pair in zip(planned, bounds)}
    within = [limits[key][0] <= row["cached"] <= limits[key][1] for key, row in seen.items()]
    reports = [one for one in told if one.cached_tokens is not None and (one.session, one.turn) in seen]
    rate = lambda cached, keys: sum(cached) / sum(seen[key]["prompt_tokens"] for key in keys)  # noqa: E731
    row = {"planned": len(planned), "sent": len(truth), "as_planned": len(seen), "within": sum(within)}
    row["hit_rate_true"] = sum(one["cached"] for one in truth) / sum(one["prompt_tokens"] for one in truth)
    row["hit_rate_reported"] = (
        rate([one.cached_tokens for one in reports], [(one.session, one.turn) for one in reports])
        if reports
        else np.nan
    )
    ttft, think, late = [], [], []
    for one in told:
        if (one.session, one.turn) in seen:
            known = seen[one.session, one.turn]
            ttft.append(one.ttft_s - (1e-9 * known["sent_ns"][0] - known["arrived_s"]))
    for session in workload.sessions:
        for number, turn in enumerate(session.turns, start=1):
            here, before = (seen.get((session.number, k)) for k in (number, number - 1))
            if here and number == 1:
                late.append(here["arrived_s"] - turn.at_s)
            elif here and before:
                think.append(here["arrived_s"] - 1e-9 * before["sent_ns"][-1] - turn.gap_s)
    late = list(np.array(late) - min(late, default=0.0))
    for name, errors in (("ttft", ttft), ("think", think), ("start", late)):
        for percentile in (50, 99):
            value = float(1e3 * np.percentile(errors, percentile)) if errors else np.nan
            row[f"{name}_error_p{percentile}_ms"] = value
    return row


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    able = [name for name in peers.names() if hasattr(peers.get(name), "converse")]
    parser.add_argument(
        "clients", nargs="*", default=able, help=f"of {', '.join(able)}; all where none is named"
    )
    parser.add_argument("--sessions", type=int, default=SESSIONS)
    parser.add_argument("--out", default=str(FILE))
    arguments = parser.parse_args()
    workload, rows = made(arguments.sessions), []
    for name in arguments.clients:
        if why := peers.get(name).available():
            print(why)
            continue
        rows.append(judged(name, workload))
        print(rows[-1], flush=True)
    pd.DataFrame(rows).to_csv(arguments.out, index=False, float_format="%.6g")


if __name__ == "__main__":
    main()
