"""Tables of the topic serving."""

from bench.analysis import serving as serving_analysis
from bench.report import columns as columns_report
from bench.report import tables


@tables.listed
def serving(requests):
    """One row per engine, option and level of load on the machine in focus: what came out, how long it took, and how late the client was."""
    table = columns_report.apart(serving_analysis.levels(requests))
    times = {"ttft": (50, 90, 99), "tpot": (50, 90, 99), "itl_p99": (50,), "e2e": (99,)}
    words = {"itl_p99": "ITL p99"}
    columns = columns_report.ENGINE | columns_report.LOAD | {
        "requests": ("requests", 1), "failed": ("failed", 1), "output_tokens_per_s": ("output tokens/s", 1), "user": ("user tokens/s", 1),
    } | {f"{name}_p{q}_s": (words.get(name, f"{name.upper()} p{q}") + " (ms)", 1e3) for name, qs in times.items() for q in qs} | {
        "goodput_per_s": ("goodput (requests/s)", 1), "late_p99_s": ("client late, p99 (ms)", 1e3), "runs": ("runs", 1),
    } | columns_report.WHERE | {"tensor_parallel": ("tensor parallel", 1)} | columns_report.replicas(table)  # fmt: skip
    return columns_report.renamed(table.assign(user=1 / table["tpot_p50_s"]), columns)


@tables.listed
def serving_goal(requests):
    """Per latency goal: the largest concurrency and the largest request rate that hold it, here and in the published curves."""
    table = serving_analysis.goal(requests)
    columns = {"goal": ("goal", None)} | columns_report.ENGINE | {
        "largest_concurrency": ("largest concurrency", 1), "concurrency_measured": ("concurrency measured up to", 1),
        "largest_rate": ("largest request rate (1/s)", 1), "rate_measured": ("rate measured up to (1/s)", 1),
    } | columns_report.WHERE | {"tensor_parallel": ("tensor parallel", 1)} | columns_report.replicas(table)  # fmt: skip
    return columns_report.renamed(table, columns)


@tables.listed
def serving_published(requests=None):
    """The published curves of three engines on H100: TPOT, TTFT where it was printed, output tokens/s, per level of load."""
    columns = {"backend": ("engine", None)} | columns_report.LOAD | {
        "tpot_p50_s": ("TPOT (ms)", 1e3), "ttft_p50_s": ("TTFT (ms)", 1e3), "per_device": ("output tokens/s per GPU", 1),
        "gpu": ("device", None), "model": ("model", None), "tensor_parallel": ("tensor parallel", 1), "source": ("source", None),
    }  # fmt: skip
    return columns_report.renamed(columns_report.apart(serving_analysis.published()), columns)


@tables.listed
def speculation_under_load(requests):
    """An option that drafts tokens beside the same option without, level by level; a server does not tell how many drafts were right."""
    table = columns_report.apart(serving_analysis.speculation(requests))
    columns = columns_report.ENGINE | {"plain": ("beside", None)} | columns_report.LOAD | {
        "output_tokens_per_s_plain": ("output tokens/s without drafts", 1), "output_tokens_per_s": ("output tokens/s with drafts", 1), "faster": ("times the throughput", 1),
        "tpot_p50_s_plain": ("TPOT p50 without drafts (ms)", 1e3), "tpot_p50_s": ("TPOT p50 with (ms)", 1e3), "pace": ("times as fast", 1),
        "acceptance_rate": ("drafts accepted (%)", 100),
    } | columns_report.WHERE | {"tensor_parallel": ("tensor parallel", 1)} | columns_report.replicas(table)  # fmt: skip
    return columns_report.renamed(table, columns)


@tables.listed
def server_cost(requests):
    """What an engine's own server costs: one request at a time in process and through it, in runs that began close to each other."""
    columns = columns_report.ENGINE | {
        "ttft_s_inside": ("TTFT in process (ms)", 1e3), "ttft_s": ("TTFT through the server (ms)", 1e3), "ttft_cost_s": ("more (ms)", 1e3),
        "tpot_s_inside": ("TPOT in process (ms)", 1e3), "tpot_s": ("TPOT through the server (ms)", 1e3), "tpot_factor": ("times", 1),
        "minutes": ("minutes between the runs", 1), "pairs": ("pairs", 1),
    } | columns_report.WHERE  # fmt: skip
    return columns_report.renamed(serving_analysis.server_cost(requests), columns)


@tables.listed
def tensor_parallel(requests):
    """A model on more devices beside the fewest measured, level by level: here, and in the published curves."""
    table = columns_report.apart(serving_analysis.tensor_parallel(requests))
    columns = columns_report.ENGINE | columns_report.LOAD | {
        "tensor_parallel_fewest": ("tensor parallel, fewest", 1), "tensor_parallel": ("tensor parallel, more", 1),
        "tpot_p50_s_fewest": ("TPOT p50, fewest (ms)", 1e3), "tpot_p50_s": ("TPOT p50, more (ms)", 1e3), "pace": ("times as fast", 1),
        "output_tokens_per_s_fewest": ("output tokens/s in all, fewest", 1), "output_tokens_per_s": ("output tokens/s in all, more", 1), "faster": ("times the throughput", 1),
        "per_device_fewest": ("per device, fewest", 1), "per_device": ("per device, more", 1),
    } | columns_report.WHERE | columns_report.replicas(table)  # fmt: skip
    return columns_report.renamed(table, columns)
