"""Columns of the observations, declared once in columns.csv: name, group, type, since which layout, meaning.

Observations are never rewritten, so a column that came later is absent from the files written before it;
older layouts follow from `since`, and what a file lacks is read as empty (as 1 for a number of devices). The
unit is the suffix of the name. The group sidecar is in no CSV of a run: what a sidecar adds to each of its
rows when it is read.
"""

from collections.abc import Iterable

import pandas as pd

from llm_measured.core import definitions
from llm_measured.core.definitions import Fields

# Types: text, number, or devices: a count of devices, 1 where a file does not say.
EVERY = definitions.declared(__file__, "columns.csv")
DECLARED = [column for column in EVERY if column.group != "sidecar"]
FROM_SIDECAR = [column for column in EVERY if column.group == "sidecar"]
COLUMNS = [column.name for column in DECLARED]
# What files of every layout have, the newest first.
LAYOUTS = [
    [column.name for column in DECLARED if column.since <= layout]
    for layout in range(max(column.since for column in DECLARED), 0, -1)
]
# Identity as every layout has it: what a run's path must agree with.
IDENTITY = [column.name for column in DECLARED if column.group == "identity" and column.since == 1]
DEVICES = {column.name for column in DECLARED if column.type == "devices"}
SIDECAR = """
    packages git machine busy_cores bandwidth_probes_bytes_per_s datasheet_bandwidth_bytes_per_s weight_bytes
    kv_value_bytes kv_values_per_token parameters settings threads model_sha256 prompts_sha256 started ended
""".split()
# Fields that a sidecar has since a layout that it claims itself (`layout`); one that claims none is older.
SIDECAR_SINCE = {"layout": 7, "order": 7, "judge": 8, "counters": 9}
LAYOUT = max(*SIDECAR_SINCE.values(), *(column.since for column in DECLARED))
CONTEXT = [column.name for column in FROM_SIDECAR]
TEXT = {column.name for column in (*DECLARED, *FROM_SIDECAR) if column.type == "text"}
# One row per load client and number of streams: `bench.experiments.client_accuracy` says what they mean.
ACCURACY = """
    client version streams requests failed events_per_s ttft_true_ms ttft_error_ms ttft_error_connected_ms
    itl_p99_ms itl_p99_excess_ms cpu_us_per_token cpu_share peak_memory_bytes delay_mean_ms delay_p99_ms
    kernel_stamps server_core client_cores error
""".split()
PEAKS = ["roof", "threads", "value", "unit"]
# Read as text: a host such as 096e72 would be a number.
WORDS = dict.fromkeys("gpu host client version client_cores roof unit".split(), str)
CONFIGURATION = "backend option model weights gpu host tensor_parallel data_parallel".split()
SHAPE = "batch_size prompt_tokens max_new_tokens".split()
# What is compared with each other stands in one panel of a figure and one block of a table.
SETTING = ["gpu", "model", "weights"]
# Experiments whose rows are scores, no times -> the experiment whose stored answers they score.
SCORES = {"quality": "latency", "sizes_quality": "sizes"}
# Experiments that judge answers: no time of theirs is a measurement, and no neighbour spoils them.
EVALUATIONS = "humaneval", "humaneval-score"
UNTIMED = *SCORES, *EVALUATIONS
# Folders of what was measured of machines and of load clients: no runs.
NOT_RUNS = "hardware", "clients", "tables"
# The load of a level: of a closed loop, or of an open one.
LEVEL = ["concurrency", "request_rate"]


def frame(rows: Iterable[Fields]) -> pd.DataFrame:
    """Rows (dicts) as a DataFrame of the schema's columns and types; columns that a row lacks are empty."""
    return numbers(pd.DataFrame(rows).reindex(columns=COLUMNS))


def numbers(table: pd.DataFrame) -> pd.DataFrame:
    """`table` with its types: text as str, empty where missing; all others as numbers, NaN where missing.

    Numbers of devices are 1 where they are missing.
    """
    for column in table.columns:
        values = table[column]
        table[column] = values.fillna("").astype(str) if column in TEXT else pd.to_numeric(values)
    devices = DEVICES & set(table.columns)
    return table.assign(**{column: table[column].fillna(1).astype(int) for column in devices})
