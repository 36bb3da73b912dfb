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
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from bench import prefix_cache, workloads
from bench.analysis import conversations as conversations_analysis
from bench.backends.common import checkpoints
from bench.definitions import Fields
from bench.experiments.client_accuracy import MODEL
from bench.instrument import peers, reference_server
from bench.workloads import conversations

FILE = conversations_analysis.PROOF / "conversation_peers.csv"
SESSIONS, RATE = 40, 4.0
BLOCKS, BLOCK_TOKENS = 20_000, 16
TTFT_S, ITL_S, PREFILL_S = 0.02, 0.005, 2e-4
VOCABULARY = range(100_000)
SHAPE: Fields = {
    "turns": "uniform 2 6",
    "first_tokens": "lognormal 48 0.7",
    "answer_tokens": "lognormal 24 0.5",
}
SHAPE |= {"groups": 4, "think_s": "exponential 0.5", "due": "gap", "history": "own"}


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
        seen: list[Any] = []  # words: the tokens of the reference server where a prompt comes as text
        for number, turn in enumerate(session.turns, start=1):
            answer: tuple[Any, ...] = ("token",) * turn.new_tokens
            seen += ["user", *decode(turn.added).split(), "assistant"]
            found.append(
                prefix_cache.Request(tuple(seen), turn.new_tokens, session.number, number, answer=answer)
            )
            seen += answer
    return found


def judged(name: str, workload: workloads.Workload) -> Fields:
    """One row of the comparison: what the client `name` sent and reports, against what the server knows."""
    client = peers.get(name)
    options = ["--ttft-s", TTFT_S, "--itl-s", ITL_S, "--prefill-s-per-token", PREFILL_S]
    options += ["--cache-blocks", BLOCKS, "--block-tokens", BLOCK_TOKENS]
    with tempfile.TemporaryDirectory() as folder:
        own = Path(folder) / "client"
        own.mkdir()
        with reference_server.running(Path(folder) / "server.txt", *options) as url:
            tokenizer = checkpoints.checkpoint(MODEL).path
            talks = peers.Talks(url, reference_server.MODEL, workload, decode, own, tokenizer)
            told = client.converse(talks)
            truth = reference_server.truth(url)
    return {"client": name, "version": client.version()} | compared(workload, told, truth)


def compared(workload: workloads.Workload, told: list[peers.Told], truth: list[Fields]) -> Fields:
    """Columns of a row: requests planned, sent (all that came), as_planned (whose prompt is that of a turn)
    and within (whose hit is between its bounds); hit rates by tokens, true and reported; by how much the
    reported TTFT is longer than the true one, think time than the planned, and by how much first turns came
    later than the promptest of them, ms."""
    planned = prompts(workload)
    bounds = prefix_cache.expected(planned, prefix_cache.Declared("blocks", BLOCK_TOKENS))
    turns = [(request.session, request.turn) for request in planned]
    place = dict(zip(map(_digest, planned), turns))
    seen = {place[row["digest"]]: row for row in truth if row["digest"] in place}
    hits = [(seen[turn]["cached"], pair) for turn, pair in zip(turns, bounds) if turn in seen]
    reports = {(one.session, one.turn): one for one in told if (one.session, one.turn) in seen}
    cached = {turn: one.cached_tokens for turn, one in reports.items() if one.cached_tokens is not None}
    errors = {"ttft": [one.ttft_s - _first_token_s(seen[turn]) for turn, one in reports.items()]}
    first = {session.number: session.turns[0].at_s or 0.0 for session in workload.sessions}
    late = [seen[number, 1]["arrived_s"] - at_s for number, at_s in first.items() if (number, 1) in seen]
    errors["start"] = [each - min(late) for each in late]
    errors["think"] = [
        seen[session.number, number]["arrived_s"]
        - 1e-9 * seen[session.number, number - 1]["sent_ns"][-1]
        - (turn.gap_s or 0.0)
        for session in workload.sessions
        for number, turn in enumerate(session.turns, start=1)
        if {(session.number, number), (session.number, number - 1)} <= seen.keys()
    ]
    return {
        "planned": len(planned),
        "sent": len(truth),
        "as_planned": len(seen),
        "within": sum(low <= hit <= high for hit, (low, high) in hits),
        "hit_rate_true": _share(truth, [row["cached"] for row in truth]),
        "hit_rate_reported": _share([seen[turn] for turn in cached], list(cached.values())),
    } | {
        f"{name}_error_p{percentile}_ms": float(1e3 * np.percentile(own, percentile)) if own else np.nan
        for name, own in errors.items()
        for percentile in (50, 99)
    }


def _digest(request):
    """That of a prompt, as /truth says it."""
    return hashlib.sha256(json.dumps(list(request.ids)).encode()).hexdigest()


def _first_token_s(row):
    """The true TTFT of a row of /truth."""
    return 1e-9 * row["sent_ns"][0] - row["arrived_s"]


def _share(rows, cached):
    """Cached tokens of all prompt tokens of `rows`."""
    return sum(cached) / sum(row["prompt_tokens"] for row in rows) if rows else np.nan


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
