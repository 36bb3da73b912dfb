"""Tables of the topic conversations."""

import pandas as pd

from bench import columns, naming
from bench.analysis import conversations as conversations_analysis
from bench.columns import Column
from bench.report import tables


def _share(title: str) -> Column:
    return Column(title, unit="%", factor=100)


HIT_RATES = {
    "by_tokens": _share("hit rate by tokens"),
    "mean_over_requests": _share("mean over requests"),
    "requests_with_a_hit": _share("requests with a hit"),
}


@tables.of_machines
def conversations(requests: pd.DataFrame) -> pd.DataFrame:
    """Loads of sessions: one row per configuration, load and cache, means over runs; three hit rates, what
    was expected by tokens, the wait, and sessions per second that met every objective. Without loads whose
    rate is a share of a capacity that every run measures anew (`findings.bursts`)."""
    shown = columns.of(
        f"backend option workload session_rate cache_capacity_tokens {' '.join(HIT_RATES)} expected_high "
        "ttft_p50_s session_goodput_per_s runs",
        session_rate=Column("sessions", "1/s"),
        cache_capacity_tokens=Column("cache (0: off)", "tokens"),
        expected_high=_share("at most, by tokens"),
        session_goodput_per_s=Column("goodput", "sessions/s"),
        **HIT_RATES,
    )
    table = naming.named(conversations_analysis.levels(requests))
    table = table[table["experiment"].isin(conversations_analysis.OF_ONE_RATE)]
    if table.empty:
        return columns.renamed(pd.DataFrame(columns=list(shown)), shown)
    table = table.assign(
        workload=table["workload"] + ", " + table["arrivals"] + ", history " + table["history"]
    )
    keys = ["backend", "option", "workload", "session_rate", "cache_capacity_tokens"]
    means = {name: (name, "mean") for name in shown if name not in (*keys, "runs")}
    grouped = table.groupby(keys, dropna=False, sort=True)
    return columns.renamed(grouped.agg(**means, runs=("run_id", "nunique")).reset_index(), shown)


@tables.listed
def trace_dispersion() -> pd.DataFrame:
    """How bursty the traces in data/ are, as recorded and with their ticks spread: variance over mean of the
    number of requests in windows of so many seconds; 1 is a Poisson process."""
    return columns.shown(
        conversations_analysis.of_traces(),
        "trace window_s recorded spread",
        window_s=Column("window", "s"),
        recorded="as recorded",
        spread="ticks spread",
    )


@tables.listed
def trace_hits() -> pd.DataFrame:
    """What a cache could answer of Mooncake's conversations: one row per size of the cache, least recently
    used blocks, requests in their order; three hit rates in %."""
    shown = {"cache_tokens": Column("cache", "tokens")} | HIT_RATES
    return columns.renamed(conversations_analysis.mooncake_hits(), shown)


@tables.listed
def replay_proof() -> pd.DataFrame:
    """How a replay leaves the client: one row per trace and time scale; how late the kernel of the reference
    server had the requests (of all moments, ms), and variance over mean of their number per window of trace
    time, as scheduled (ticks spread) and as sent."""
    shown = columns.of(
        "trace time_scale requests seconds late_p50_ms late_p99_ms late_max_ms",
        seconds=Column("span", "s"),
        late_p50_ms=Column("late, median", "ms"),
        late_p99_ms=Column("late, 99th percentile", "ms"),
        late_max_ms=Column("late, at most", "ms"),
    )
    for window_s in conversations_analysis.WINDOWS_S:
        for what in ("schedule", "sent"):
            shown[f"dispersion_{window_s}s_{what}"] = Column(f"in {window_s} s, {what}")
    return _of_proof("replay", shown)


@tables.listed
def conversation_peers() -> pd.DataFrame:
    """Load clients on the same conversations, the reference server as judge: one row per client; requests
    that had the prompt of a turn and hits between their bounds, of those planned; hit rates by tokens, as
    the server knows and as the client reports; how much longer than they are it reports TTFTs, and how much
    longer than planned it thinks (medians and 99th percentiles)."""
    shown = columns.of(
        "client version planned sent as_planned within hit_rate_true hit_rate_reported ttft_error_p50_ms "
        "ttft_error_p99_ms think_error_p50_ms think_error_p99_ms",
        planned="turns planned",
        sent="requests sent",
        as_planned="prompts as planned",
        within="hits as expected",
        hit_rate_true=_share("hit rate"),
        hit_rate_reported=_share("hit rate reported"),
        ttft_error_p50_ms=Column("TTFT error, median", "ms"),
        ttft_error_p99_ms=Column("TTFT error, 99th percentile", "ms"),
        think_error_p50_ms=Column("think time error, median", "ms"),
        think_error_p99_ms=Column("think time error, 99th percentile", "ms"),
    )
    return _of_proof("conversation_peers", shown)


def _of_proof(name, shown):
    return columns.renamed(conversations_analysis.proof(name).reindex(columns=list(shown)), shown)
