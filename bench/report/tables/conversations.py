"""Tables of the topic conversations."""

import pandas as pd

from bench import inputs
from bench.report import tables
from llm_measured.core import columns
from llm_measured.core.columns import Column


def _share(title: str) -> Column:
    return Column(title, unit="%", factor=100)


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
