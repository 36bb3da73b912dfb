"""What comparisons of load clients have shown."""

from bench import inputs
from bench.analysis import machines
from bench.machine import identity

TTFT_S, ITL_S = 0.05, 0.01


def at(streams):
    """`1 stream`, `1,000 streams`."""
    return f"{streams:,.0f} stream" + ("" if streams == 1 else "s")


# What a comparison has shown: rows of `store.load_accuracy` in, numbers out.

OURS, REFERENCE = "ours", "vllm_bench"
# The goal that was set before it was measured: at GOAL_STREAMS streams errors of at most so many ms; at every load that a peer sustains at most so
# large a part of the reference's error, and of the best peer's error and CPU time; below the published Rust client's figures everywhere.
GOAL_STREAMS, GOAL_TTFT_MS, GOAL_ITL_MS = 1000, 5.0, 1.0
GOAL_OF_REFERENCE, GOAL_OF_BEST, GOAL_OF_CPU = 1 / 10, 1 / 5, 1 / 5
RUST = "vllm-bench (Rust)"


def here(table):
    """The comparison that is shown: on the machine in focus, of those with the most loads that succeeded, the latest; one row per client and load."""
    table = machines.focus(table, identity.host())
    if table.empty:
        return table
    runs = (
        table.assign(good=table["error"] == "")
        .groupby("run")
        .agg(good=("good", "sum"), measured=("measured", "first"))
    )
    return table[table["run"] == runs.sort_values(["good", "measured"]).index[-1]].sort_values(
        ["client", "streams"], ignore_index=True
    )


def published():
    """The published comparison of a Python client with a Rust one, in the columns of `here`; the excess is over the gap that the server was set to."""
    table = inputs.table("published/client_accuracy_rust_vs_python").rename(
        columns={"concurrency": "streams"}
    )
    return table.assign(itl_p99_excess_ms=table["itl_p99_ms"] - ITL_S * 1e3, error="")


def sustained(table):
    """Rows of `here` without an error in which no request failed."""
    return table[(table["error"] == "") & (table["failed"] == 0)]


def against(table):
    """One row per peer and load that it sustained beside ours: streams, client, both errors of TTFT (ms, absolute), peer's error and CPU time per
    token as multiples of ours."""
    good = sustained(table)
    ours = good[good["client"] == OURS][["streams", "ttft_error_ms", "cpu_us_per_token"]]
    both = good[good["client"] != OURS].merge(ours, on="streams", suffixes=("", "_ours"))
    own, theirs = both["ttft_error_ms_ours"].abs(), both["ttft_error_ms"].abs()
    both = both.assign(
        own_ms=own,
        peer_ms=theirs,
        error_ratio=theirs / own,
        cpu_ratio=both["cpu_us_per_token"] / both["cpu_us_per_token_ours"],
    )
    return both[
        ["streams", "client", "version", "own_ms", "peer_ms", "error_ratio", "cpu_ratio"]
    ].sort_values(["streams", "client"], ignore_index=True)


def goal(table):
    """Where the goal was missed: sentences' ends, none where it was met; None where it was not put to the test (no row of ours at GOAL_STREAMS, no peer)."""
    mine, beside = table[table["client"] == OURS].set_index("streams"), against(table)
    if GOAL_STREAMS not in mine.index or beside.empty:
        return None
    missed = [
        f"{at(streams)} not sustained"
        for streams in mine.index.difference(sustained(table).query("client == @OURS")["streams"])
    ]
    top = mine.loc[GOAL_STREAMS]
    if abs(top["ttft_error_ms"]) > GOAL_TTFT_MS or top["itl_p99_excess_ms"] > GOAL_ITL_MS:
        missed.append(f"limits of {GOAL_TTFT_MS:g} and {GOAL_ITL_MS:g} ms exceeded at {at(GOAL_STREAMS)}")
    for streams, peers in beside.groupby("streams"):
        missed += [f"{what} at {at(streams)}" for what in _above_peers(peers)]
    rust = published().query("client == @RUST").set_index("streams")
    for streams, row in mine.loc[mine.index.intersection(rust.index)].iterrows():
        missed += [
            f"{what} above the Rust client's at {at(streams)}" for what in _above(row, rust.loc[streams])
        ]
    return missed


def _above_peers(peers):
    """Which parts of the goal were missed beside the peers of one load."""
    best, reference = peers.loc[peers["peer_ms"].idxmin()], peers[peers["client"] == REFERENCE]
    if len(reference) and (reference["error_ratio"] < 1 / GOAL_OF_REFERENCE).any():
        yield f"TTFT error above {GOAL_OF_REFERENCE:.2g} of {REFERENCE}'s"
    if best["error_ratio"] < 1 / GOAL_OF_BEST:
        yield f"TTFT error above {GOAL_OF_BEST:.2g} of the best peer's ({best['client']})"
    if best["cpu_ratio"] < 1 / GOAL_OF_CPU:
        yield f"CPU time per token above {GOAL_OF_CPU:.2g} of the best peer's ({best['client']})"


def _above(row, rust):
    """Which figures of ours are not below the published ones; of the ITL what exceeds the server's, because a late server is not the client's error."""
    if not abs(row["ttft_error_ms"]) < rust["ttft_error_ms"]:
        yield "TTFT error"
    if not row["itl_p99_excess_ms"] < rust["itl_p99_excess_ms"]:
        yield "ITL p99"
