"""What the page tables of one README have in common: one sequence, output tokens per second of all
accelerators."""

from typing import Any

from llm_measured.core.definitions import Value


def single(value: Value, **columns: Any) -> dict[str, Any]:
    """Columns of one number of one sequence; `columns` overrides."""
    return {
        "workload": "single",
        "concurrency": 1,
        "throughput_raw": value,
        "throughput_counts": "output",
        "throughput_scope": "all",
    } | columns
