"""Tables of the topic serving."""

from bench.analysis import serving as serving_analysis
from bench.report import columns, tables
from bench.report.columns import Column

QUANTILES = {"ttft": (50, 90, 99), "tpot": (50, 90, 99), "itl_p99": (50,), "e2e": (99,)}


@tables.listed
def serving(requests):
    """What came out under load: one row per engine, option and level on the machine in focus; rates,
    percentiles over requests, goodput, and how late the client was."""
    table = columns.apart(serving_analysis.levels(requests))
    times = " ".join(f"{name}_p{q}_s" for name, each in QUANTILES.items() for q in each)
    shown = columns.of(
        f"{columns.ENGINE} {columns.LOAD} requests failed output_tokens_per_s user {times} "
        f"goodput_per_s late_p99_s runs {columns.WHERE} tensor_parallel {columns.replicas(table)}",
        user=Column("user tokens/s"),
        itl_p99_p50_s=columns.column("itl_p99_s"),
        e2e_p99_s=Column("E2E p99", "ms", 1e3),
    )
    return columns.renamed(table.assign(user=1 / table["tpot_p50_s"]), shown)


@tables.listed
def serving_goal(requests):
    """The largest load that holds a goal: one row per goal and curve, ours first, then the published ones."""
    table = serving_analysis.goal(requests)
    shown = columns.of(
        f"goal {columns.ENGINE} largest_concurrency concurrency_measured largest_rate "
        f"rate_measured {columns.WHERE} tensor_parallel {columns.replicas(table)}",
        goal=Column("goal"),
        largest_concurrency=Column("largest concurrency"),
        concurrency_measured=Column("concurrency measured up to"),
        largest_rate=Column("largest request rate", "1/s"),
        rate_measured=Column("rate measured up to", "1/s"),
    )
    return columns.renamed(table, shown)


@tables.listed
def serving_published(requests=None):
    """The published curves of three engines on H100: one row per curve and level of load; TPOT, TTFT where it
    was printed, output tokens/s."""
    shown = columns.of(
        f"backend {columns.LOAD} tpot_p50_s ttft_p50_s per_device gpu model tensor_parallel source",
        tpot_p50_s=columns.column("tpot_s"),
        ttft_p50_s=columns.column("ttft_s"),
        per_device="output tokens/s per GPU",
    )
    return columns.renamed(columns.apart(serving_analysis.published()), shown)


@tables.listed
def speculation_under_load(requests):
    """Drafting under load: one row per level of an option that drafts tokens, beside the same option without.

    A server does not report how many drafts were right, so the share of accepted ones is empty there.
    """
    table = columns.apart(serving_analysis.speculation(requests))
    shown = columns.of(
        f"{columns.ENGINE} plain {columns.LOAD} output_tokens_per_s_plain output_tokens_per_s "
        f"faster tpot_p50_s_plain tpot_p50_s pace acceptance_rate {columns.WHERE} tensor_parallel "
        f"{columns.replicas(table)}",
        plain=Column("beside"),
        output_tokens_per_s_plain="output tokens/s without drafts",
        output_tokens_per_s="output tokens/s with drafts",
        tpot_p50_s_plain="TPOT p50 without drafts",
        tpot_p50_s="TPOT p50 with",
    )
    return columns.renamed(table, shown)


@tables.listed
def server_cost(requests):
    """What an engine's own server costs: one row per engine and option, one request at a time in process and
    through the server, medians over pairs of runs that began close to each other."""
    shown = columns.of(
        f"{columns.ENGINE} ttft_s_inside ttft_s ttft_cost_s tpot_s_inside tpot_s tpot_factor "
        f"minutes pairs {columns.WHERE}",
        ttft_s_inside="TTFT in process",
        ttft_s="TTFT through the server",
        ttft_cost_s=Column("more", "ms", 1e3),
        tpot_s_inside="TPOT in process",
        tpot_s="TPOT through the server",
        tpot_factor=Column("times"),
        minutes=Column("minutes between the runs"),
    )
    return columns.renamed(serving_analysis.server_cost(requests), shown)


@tables.listed
def tensor_parallel(requests):
    """A model on more devices beside the fewest measured: one row per level, ours first, then the published
    curves."""
    table = columns.apart(serving_analysis.tensor_parallel(requests))
    shown = columns.of(
        f"{columns.ENGINE} {columns.LOAD} tensor_parallel_fewest tensor_parallel tpot_p50_s_fewest "
        "tpot_p50_s pace output_tokens_per_s_fewest output_tokens_per_s faster per_device_fewest "
        f"per_device {columns.WHERE} {columns.replicas(table)}",
        tensor_parallel_fewest="tensor parallel, fewest",
        tensor_parallel="tensor parallel, more",
        tpot_p50_s_fewest="TPOT p50, fewest",
        tpot_p50_s="TPOT p50, more",
        output_tokens_per_s_fewest="output tokens/s in all, fewest",
        output_tokens_per_s="output tokens/s in all, more",
        per_device_fewest="per device, fewest",
        per_device="per device, more",
    )
    return columns.renamed(table, shown)
