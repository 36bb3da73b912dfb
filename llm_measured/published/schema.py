"""The columns of the observatory, declared once in schema.csv; unknown is empty, nothing computed is stored.

schema.csv: type: text, number (0 or more), count (a whole number), date (YYYY, YYYY-MM or YYYY-MM-DD), choice
(one of `choices`); `unit` of numbers; `stored`: no where the build computes it."""

from llm_measured.core import definitions

COLUMNS = definitions.declared(__file__, "schema.csv")
STATISTICS = "mean", "p50", "p90", "p95", "p99"  # over requests
TIMES = "ttft", "tpot", "itl", "e2e"
STORED = [column.name for column in COLUMNS if column.stored]
BY_NAME = {column.name: column for column in COLUMNS}
NUMBERS = [column.name for column in COLUMNS if column.type in ("number", "count")]
# What a measurement gave, as opposed to what was set: what a duplicate repeats.
MEASURED = [
    *("throughput_raw", "prompt_tokens_per_s", "latency_raw_s", "in_flight_mean"),
    *(f"{time}_{statistic}_ms" for time in TIMES for statistic in STATISTICS),
    *("ttft_min_ms", "ttft_max_ms", "energy_j_per_output_token", "energy_j_per_request"),
]
UNKNOWN_VARIANT = "variant unknown"

JUDGED = {"audit", "audit_notes", "duplicate_of"}  # what `checks.judged` adds
