"""Tables of the topic conversations."""

import pandas as pd

from bench import inputs
from bench.report import tables
from bench.topics import conversations as conversations_analysis
from llm_measured.core import columns, naming
from llm_measured.core.columns import Column


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
    rate is a share of a capacity that every run measures anew."""
    shown = columns.of(
        f"backend option workload session_rate cache_capacity_tokens {' '.join(HIT_RATES)} expected_low "
        "expected_high "
        "ttft_p50_s session_goodput_per_s runs",
        session_rate=Column("sessions", "1/s"),
        cache_capacity_tokens=Column("cache (0: off)", "tokens"),
        expected_low=_share("at least, by tokens"),
        expected_high=_share("at most, by tokens"),
        session_goodput_per_s=Column("goodput", "sessions/s"),
        **HIT_RATES,
    )
    table = naming.named(conversations_analysis.levels(requests))
    table = table[table["experiment"] == "conversations"]
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
def sessions_proof() -> pd.DataFrame:
    """Sessions as the reference server saw them: one row per replayed trace and time scale, then one per load
    client that held the same conversations.

    How late requests were (ms), and variance over mean of their number in 10 s of trace time, as scheduled
    and as sent. Prompts as planned, hits between their bounds, hit rate by tokens; by how much a client
    reports longer TTFTs than there were, and thinks longer than planned (99th percentiles).
    """
    replays = inputs.table("proof/replay").assign(client="ours", sent=lambda table: table["requests"])
    clients = inputs.table("proof/conversation_peers").assign(trace="made conversations")
    return columns.shown(
        pd.concat([replays, clients], ignore_index=True),
        "trace time_scale client sent late_p99_ms dispersion_10s_schedule dispersion_10s_sent as_planned "
        "within hit_rate_true ttft_error_p99_ms think_error_p99_ms",
        client=Column("load client"),
        sent=Column("requests"),
        late_p99_ms=Column("late, 99th percentile", "ms"),
        dispersion_10s_schedule=Column("variance/mean, schedule"),
        dispersion_10s_sent=Column("variance/mean, sent"),
        as_planned=Column("prompts as planned"),
        within=Column("hits as expected"),
        hit_rate_true=_share("hit rate"),
        ttft_error_p99_ms=Column("TTFT error, 99th percentile", "ms"),
        think_error_p99_ms=Column("think time error, 99th percentile", "ms"),
    )
