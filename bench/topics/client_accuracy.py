"""Accuracy of load clients: rows of `store.load_accuracy` in, numbers out."""

from collections.abc import Iterator

import pandas as pd

from bench import inputs
from bench.observations import schema, store
from bench.topics import estimates, machines
from llm_measured.core.definitions import Fields

# The server under test answers with its first token after TTFT_S, and with another one every ITL_S.
TTFT_S, ITL_S = 0.05, 0.01
OURS, REFERENCE = "ours", "vllm_bench"
# The goal that was set before it was measured: at GOAL_STREAMS streams errors of at most so many ms; at every
# load that a peer sustains at most so large a part of the reference's error, and of the best peer's error and
# CPU time; below the published Rust client's figures everywhere.
GOAL_STREAMS, GOAL_TTFT_MS, GOAL_ITL_MS = 1000, 5.0, 1.0
GOAL_OF_REFERENCE, GOAL_OF_BEST, GOAL_OF_CPU = 1 / 10, 1 / 5, 1 / 5
RUST = "vllm-bench (Rust)"
LOAD = ["client", "version", "streams"]
ADDED = "gpu host run measured runs ttft_error_ms_interval ttft_off_ms machine".split()


def at(streams: float) -> str:
    """`1 stream`, `1,000 streams`."""
    return f"{streams:,.0f} stream" + ("" if streams == 1 else "s")


def on_default_machine(table: pd.DataFrame) -> pd.DataFrame:
    """The comparison that is shown: one row per client and load, means over its repeats.

    It is on the default machine (of those in `table`), and of those with the most loads that succeeded, the
    latest, with every other one of the same versions at the same loads. Columns of `table`, and runs,
    ttft_error_ms_interval (half width of the 95 % interval over runs; empty for one run) and ttft_off_ms (the
    mean of the absolute errors: those of two runs to either side do not make up for each other).
    """
    table = machines.default_machine(table, strict=False)  # the machine of BENCH_FRONT may have compared none
    if table.empty:
        return table.assign(runs=[], ttft_error_ms_interval=[], ttft_off_ms=[])
    runs = table.assign(good=table["error"] == "").groupby("run")
    runs = runs.agg(good=("good", "sum"), measured=("measured", "first"))
    compared = {run: set(zip(*map(rows.get, LOAD))) for run, rows in table.groupby("run")}
    chosen = compared[runs.sort_values(["good", "measured"]).index[-1]]
    repeats = table[[compared[run] == chosen for run in table["run"]]].sort_values("measured")
    return pd.DataFrame([_mean(rows) for _, rows in repeats.groupby(LOAD)])


def table(requests: pd.DataFrame) -> pd.DataFrame:
    """Return the comparisons beside `requests`, of every machine that has one: rows of `on_default_machine`.

    The column machine is the label of a device and its host, as in all tables.
    """
    every = machines.labelled(store.load_accuracy(requests.attrs.get("folder")), strict=False)
    parts = [on_default_machine(rows).assign(machine=label) for label, rows in every]
    return pd.concat(parts, ignore_index=True) if parts else pd.DataFrame(columns=[*schema.ACCURACY, *ADDED])


def _mean(rows: pd.DataFrame) -> Fields:
    """One row of the repeats of one load: means of what was measured, sums of requests and failures."""
    means = rows[schema.ACCURACY].select_dtypes("number").drop(columns=["requests", "failed"]).mean()
    mean, _, high = estimates.mean_interval(rows["ttft_error_ms"])
    lost = rows[rows["error"] != ""]
    of = f"{len(lost)} of {len(rows)} runs: " if len(lost) < len(rows) else ""
    return (
        rows.iloc[-1].to_dict()
        | means.to_dict()
        | {
            "requests": rows["requests"].sum(),
            "failed": rows["failed"].sum(),
            "error": of + lost["error"].iloc[-1] if len(lost) else "",
            "runs": len(rows),
            "ttft_error_ms_interval": high - mean,
            "ttft_off_ms": rows["ttft_error_ms"].astype(float).abs().mean(),
        }
    )


def published() -> pd.DataFrame:
    """The published comparison of a Python client with a Rust one, in the columns of `on_default_machine`.

    The excess of ITL is over the gap that the server was set to.
    """
    table = inputs.table("published/client_accuracy_rust_vs_python")
    table = table.rename(columns={"concurrency": "streams"})
    return table.assign(itl_p99_excess_ms=table["itl_p99_ms"] - ITL_S * 1e3, error="")


def sustained(table: pd.DataFrame) -> pd.DataFrame:
    """Rows of `on_default_machine` without an error in which no request failed."""
    return table[(table["error"] == "") & (table["failed"] == 0)]


def against(table: pd.DataFrame) -> pd.DataFrame:
    """Peers beside ours: one row per peer and load that it sustained.

    Columns streams, client, version, own_ms and peer_ms (ttft_off_ms), error_ratio and
    cpu_ratio (the peer's error and CPU time per token / ours).
    """
    good = sustained(table)
    ours = good[good["client"] == OURS][["streams", "ttft_off_ms", "cpu_us_per_token"]]
    both = good[good["client"] != OURS].merge(ours, on="streams", suffixes=("", "_ours"))
    own, theirs = both["ttft_off_ms_ours"], both["ttft_off_ms"]
    cpu_ratio = both["cpu_us_per_token"] / both["cpu_us_per_token_ours"]
    both = both.assign(own_ms=own, peer_ms=theirs, error_ratio=theirs / own, cpu_ratio=cpu_ratio)
    columns = ["streams", "client", "version", "own_ms", "peer_ms", "error_ratio", "cpu_ratio"]
    return both[columns].sort_values(["streams", "client"], ignore_index=True)


def goal(table: pd.DataFrame) -> list[str] | None:
    """Where the goal was missed, in phrases; empty where it was met everywhere.

    None where it was not put to the test: without a row of ours at GOAL_STREAMS, or without a peer.
    """
    ours, beside = table[table["client"] == OURS].set_index("streams"), against(table)
    if GOAL_STREAMS not in ours.index or beside.empty:
        return None
    failed = ours.index.difference(sustained(table).query("client == @OURS")["streams"])
    missed = [f"{at(streams)} not sustained" for streams in failed]
    top = ours.loc[GOAL_STREAMS]
    if abs(top["ttft_error_ms"]) > GOAL_TTFT_MS or top["itl_p99_excess_ms"] > GOAL_ITL_MS:
        missed.append(f"limits of {GOAL_TTFT_MS:g} and {GOAL_ITL_MS:g} ms exceeded at {at(GOAL_STREAMS)}")
    for streams, peers in beside.groupby("streams"):
        missed += [f"{what} at {at(streams)}" for what in _above_peers(peers)]
    rust = published().query("client == @RUST").set_index("streams")
    for streams, row in ours.loc[ours.index.intersection(rust.index)].iterrows():
        above = _above(row, rust.loc[streams])
        missed += [f"{what} above the Rust client's at {at(streams)}" for what in above]
    return missed


def _above_peers(peers: pd.DataFrame) -> Iterator[str]:
    """Which parts of the goal were missed beside the peers of one load."""
    best, reference = peers.loc[peers["peer_ms"].idxmin()], peers[peers["client"] == REFERENCE]
    if len(reference) and (reference["error_ratio"] < 1 / GOAL_OF_REFERENCE).any():
        yield f"TTFT error above {GOAL_OF_REFERENCE:.2g} of {REFERENCE}'s"
    if best["error_ratio"] < 1 / GOAL_OF_BEST:
        yield f"TTFT error above {GOAL_OF_BEST:.2g} of the best peer's ({best['client']})"
    if best["cpu_ratio"] < 1 / GOAL_OF_CPU:
        yield f"CPU time per token above {GOAL_OF_CPU:.2g} of the best peer's ({best['client']})"


def _above(row: pd.Series, rust: pd.Series) -> Iterator[str]:
    """Which figures of ours are not below the published ones.

    Of the ITL, what exceeds the server's counts, because a late server is not the client's error.
    """
    if not abs(row["ttft_error_ms"]) < rust["ttft_error_ms"]:
        yield "TTFT error"
    if not row["itl_p99_excess_ms"] < rust["itl_p99_excess_ms"]:
        yield "ITL p99"
