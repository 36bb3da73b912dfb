"""Whether the load client replays a trace as it is: `python -m bench.experiments.replay_proof`.

The reference server is the judge: its kernel stamps each request as it arrives, on the clock that the
schedule counts in. Writes data/proof/replay.csv: a made trace of 100 requests/s for ten minutes, with bursts,
and parts of real traces at three time scales. Exits with 1 where a request leaves later than promised, or
where what was sent is not as bursty as its schedule.
"""

import argparse
import sys
import tempfile
from pathlib import Path

import numpy as np
import pandas as pd

from bench import prefix_cache, workloads
from bench.analysis import conversations
from bench.backends.common import servers
from bench.instrument import reference_server
from bench.instrument.load import parallel, sessions
from bench.paths import ROOT
from bench.workloads import replay, timing, traces

FILE = conversations.PROOF / "replay.csv"
RATE, MINUTES, BURST_EVERY_S, BURST = 100.0, 10.0, 15.0, 50
REAL = "mooncake_conversation.jsonl.xz", "azure_conv.csv.xz", "azure_code.csv.xz"
SCALES, GAP_CAP_S = (0.5, 1.0, 4.0), 5.0


def made(rate: float, seconds: float, seed: int = 30) -> workloads.Workload:
    """Requests with a moment each, `rate` per second in the mean: Poisson arrivals, and every BURST_EVERY_S
    seconds BURST requests within a hundredth of a second."""
    random = np.random.default_rng(seed)
    bursts = np.arange(BURST_EVERY_S, seconds, BURST_EVERY_S)
    together = (bursts[:, None] + random.uniform(0, 0.01, (len(bursts), BURST))).ravel()
    alone = random.uniform(0, seconds, max(0, round(rate * seconds) - len(together)))
    ids = (1, 2, 3)
    moments = np.sort(np.concatenate([together, alone])).tolist()
    turns = (workloads.Turn(ids, ids, 2, moment) for moment in moments)
    return workloads.Workload(tuple(workloads.Session(k, (turn,)) for k, turn in enumerate(turns, start=1)))


def real(file: str, scale: float, first_s: float, seconds: float) -> workloads.Workload:
    """The requests of the trace `file` that begin within `seconds` of it from `first_s` on, at time scale
    `scale`, with the shortest prompts that there can be; no two turns of a session farther apart than
    GAP_CAP_S of it."""
    return replay.workload(
        traces.read(file),
        range(100),
        ("proof",),
        10**9,
        block_tokens=2,
        length_scale=1e-9,  # lengths say nothing about moments
        first_s=first_s,
        last_s=first_s + seconds,
        time_scale=scale,
        seed=30,
        gap_cap_s=GAP_CAP_S,
    )


def sent(workload: workloads.Workload) -> tuple[np.ndarray, np.ndarray, dict]:
    """(moments at which requests were due, moments at which the server saw them, the client's report), s from
    the start, in the order of what was due. RuntimeError where a request failed."""
    level = sessions.SessionLevel(workload, prefix_cache.Declared(), "proof", "trace")
    quick = "--ttft-s", 0.001, "--itl-s", 0.001
    with (
        tempfile.TemporaryDirectory() as folder,
        reference_server.running(Path(folder) / "server.txt", *quick) as url,
    ):
        calls = sessions.calls(servers.Served(url, "completions", "m", {}), level, str)
        rows, report = parallel.run(url, calls, "completions", timeout_s=60)
        reported = reference_server.truth(url)
    failed = [row["error"] for row in rows if row["error"]]
    if failed:
        raise RuntimeError(f"{len(failed)} of {len(rows)} requests failed: {failed[0]}")
    came = {(int(each["session"]), int(each["turn"])): each["arrived_s"] for each in reported}
    due_s = np.array([turn.at_s for _, _, turn in level.turns])
    arrived = np.array([came[session, turn] for session, turn, _ in level.turns])
    waited = np.array([row["waited_s"] for row in rows])
    taken_up = np.array([row["sent_s"] - row["late_s"] - max(row["waited_s"], 0.0) for row in rows])
    start = np.min(taken_up - due_s)  # the client's own, to what the quickest request took to be sent
    order = np.argsort(due_s)
    return (due_s + waited)[order], (arrived - start)[order], report


def judged(name: str, scale: float, workload: workloads.Workload) -> dict:
    """One row of the proof."""
    due_s, arrived_s, report = sent(workload)
    late = arrived_s - due_s
    row = {"trace": name, "time_scale": scale, "requests": len(due_s)}
    row |= {"seconds": round(float(due_s.max()), 1)}
    row |= {f"late_p{q}_ms": 1e3 * np.percentile(late, q) for q in (50, 99)}
    row |= {"late_max_ms": 1e3 * late.max()}
    row |= {"client_late_p99_ms": 1e3 * report["late_p99_s"], "first_in_line": report["first_in_line"]}
    for window_s in conversations.WINDOWS_S:
        for what, moments in (("schedule", due_s), ("sent", arrived_s)):
            row[f"dispersion_{window_s}s_{what}"] = timing.dispersion(
                np.maximum(moments, 0.0) / scale, window_s, due_s.max() / scale
            )
    return row


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--minutes", type=float, default=MINUTES, help="of the made trace")
    parser.add_argument("--real-s", type=float, default=60.0, help="seconds of each real trace")
    parser.add_argument("--traces", default=str(ROOT / "data" / "traces"), help="folder of the real traces")
    parser.add_argument("--out", default=str(FILE))
    arguments = parser.parse_args()
    rows = [judged("made", 1.0, made(RATE, 60 * arguments.minutes))]
    print(rows[0], flush=True)
    for name in REAL if arguments.real_s else ():
        for scale in SCALES:
            file = f"{arguments.traces}/{name}"
            rows.append(judged(name.rpartition("/")[2], scale, real(file, scale, 600.0, arguments.real_s)))
            print(rows[-1], flush=True)
    table = pd.DataFrame(rows)
    table.to_csv(arguments.out, index=False, float_format="%.6g")
    print(table.to_string())
    if sentences := conversations.broken(table):
        sys.exit("\n".join(sentences))


if __name__ == "__main__":
    main()
