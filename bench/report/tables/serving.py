"""Tables of the topic serving."""

import pandas as pd

from bench.report import tables
from bench.topics import serving as serving_analysis
from llm_measured.core import columns
from llm_measured.core.columns import Column

# Of each time: what is shown over requests. A tail stands where a level's requests bound it.
TIMES = {"ttft": "p50 p90 p99 max", "tpot": "p50 p90 p99 max", "itl_max": "p50", "e2e": "p90 p99 max"}
# The interval of a ratio over runs, and what it says.
VERDICTS = {
    f"{name}_{part}": Column(f"{title}, {words}")
    for name, title in (("faster", "throughput"), ("pace", "pace"))
    for part, words in (("low", "from"), ("high", "to"), ("verdict", "verdict"))
}
FIRST = "ttft_p50_s", "tpot_p50_s"  # the times that a page shows
SLOWEST = {
    f"{name}_max_s": Column(f"{title}, slowest", "ms", 1e3)
    for name, title in (("ttft", "TTFT"), ("tpot", "TPOT"), ("e2e", "E2E"))
}


def _times(table):
    """Names of the columns of times beside FIRST, without the percentiles that no level bounds."""
    names = [f"{name}_{which}_s" for name, each in TIMES.items() for which in each.split()]
    return " ".join(
        name
        for name in names
        if name not in FIRST and (not name.endswith(("p90_s", "p99_s")) or table[name].notna().any())
    )


@tables.of_machines
def serving(requests: pd.DataFrame) -> pd.DataFrame:
    """What came out under load: one row per engine, option and level on the default machine; its state and
    backlog, rates, times over the requests that count, goodput, and how late the client was.

    A level that is overloaded or too short is compared with nothing. Percentiles stand where the requests
    bound them, and beside them the slowest of the requests.
    """
    table = columns.apart(serving_analysis.levels(requests))
    every = ("every request of " + table["counted"].astype(str)).where(table["met"] == 1, "")
    half = (table["output_tokens_per_s_high"] - table["output_tokens_per_s_low"]) / 2
    return columns.shown(
        table.assign(user=1 / table["tpot_p50_s"], half=half, every=every),
        f"{columns.ENGINE} {columns.LOAD} output_tokens_per_s half {' '.join(FIRST)} goodput_per_s met state "
        f"user {_times(table)} every met_low met_high backlog requests counted failed late_max_s runs "
        f"{columns.WHERE} tensor_parallel {columns.replicas(table)}",
        backlog=Column("backlog", "%", 100),
        counted=Column("requests that count"),
        half=Column("±"),
        user=Column("user tokens/s"),
        itl_max_p50_s=Column("longest gap of a request, p50", "ms", 1e3),
        met=Column("within objectives", "%", 100),
        every=Column("objectives met by"),
        met_low=Column("over runs, from", "%", 100),
        met_high=Column("to", "%", 100),
        late_max_s=Column("client late, latest", "ms", 1e3),
        **SLOWEST,
    )


@tables.of_machines
def serving_goal(requests: pd.DataFrame) -> pd.DataFrame:
    """The largest load that holds a goal: one row per goal and curve, ours first, then the published ones.

    A level holds a goal where the 95 % interval (Student's t over three runs or more) of the share of its
    requests that meet it lies above the share that the goal takes, or every request meets it. It fails where
    the interval lies below; between the two nobody can tell.
    """
    table = serving_analysis.goal(requests)
    return columns.shown(
        table,
        f"goal {columns.ENGINE} largest_concurrency concurrency_fails concurrency_measured largest_rate "
        f"rate_fails rate_measured {columns.WHERE} tensor_parallel {columns.replicas(table)}",
        largest_concurrency=Column("largest concurrency that holds"),
        concurrency_fails=Column("concurrency that fails"),
        concurrency_measured=Column("measured up to"),
        largest_rate=Column("largest request rate that holds", "1/s"),
        rate_fails=Column("request rate that fails", "1/s"),
        rate_measured=Column("rate measured up to", "1/s"),
    )


@tables.listed
def serving_published() -> pd.DataFrame:
    """The published curves of three engines on H100: one row per curve and level of load; TPOT, TTFT where it
    was printed, output tokens/s."""
    return columns.shown(
        columns.apart(serving_analysis.published()),
        f"backend {columns.LOAD} tpot_p50_s ttft_p50_s per_device gpu model tensor_parallel source",
        tpot_p50_s=columns.column("tpot_s"),
        ttft_p50_s=columns.column("ttft_s"),
        per_device="output tokens/s per GPU",
    )


@tables.of_machines
def speculation_under_load(requests: pd.DataFrame) -> pd.DataFrame:
    """Drafting under load: one row per level in steady state of an option that drafts tokens, beside the same
    option without; ratios of means over runs, with their interval.

    An open loop yields the rate that it sends, so there only the pace can differ. A server does not report
    how many drafts were right, so the share of accepted ones is empty there.
    """
    table = columns.apart(serving_analysis.speculation(requests))
    return columns.shown(
        table,
        f"{columns.ENGINE} {columns.LOAD} output_tokens_per_s_plain output_tokens_per_s faster "
        "faster_verdict tpot_p50_s pace pace_verdict plain faster_low faster_high tpot_p50_s_plain pace_low "
        f"pace_high acceptance_rate {columns.WHERE} tensor_parallel {columns.replicas(table)}",
        **VERDICTS,
        plain=Column("beside"),
        output_tokens_per_s_plain="output tokens/s without drafts",
        output_tokens_per_s="output tokens/s with drafts",
        tpot_p50_s_plain="TPOT p50 without drafts",
        tpot_p50_s="TPOT p50 with",
    )


@tables.of_machines
def tensor_parallel(requests: pd.DataFrame) -> pd.DataFrame:
    """A model on more devices beside the fewest measured: one row per level, ours first, then the published
    curves."""
    table = columns.apart(serving_analysis.tensor_parallel(requests))
    return columns.shown(
        table,
        f"{columns.ENGINE} {columns.LOAD} tensor_parallel_fewest tensor_parallel output_tokens_per_s "
        "tpot_p50_s pace pace_verdict faster faster_verdict tpot_p50_s_fewest output_tokens_per_s_fewest "
        f"pace_low pace_high faster_low faster_high per_device_fewest per_device {columns.WHERE} "
        f"{columns.replicas(table)}",
        **VERDICTS,
        tensor_parallel_fewest="tensor parallel, fewest",
        tensor_parallel="tensor parallel, more",
        tpot_p50_s_fewest="TPOT p50, fewest",
        tpot_p50_s="TPOT p50, more",
        output_tokens_per_s_fewest="output tokens/s in all, fewest",
        output_tokens_per_s="output tokens/s in all, more",
        per_device_fewest="per device, fewest",
        per_device="per device, more",
    )
