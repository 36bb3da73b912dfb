"""Columns of the observations, one declaration each: name, group, type, since which layout.

Observations are never rewritten, so a column that came later is absent from the files written before it;
older layouts follow from `since`, and what a file lacks is read as empty (as 1 for a number of devices). The
unit is the suffix of the name.
"""

from dataclasses import dataclass

import pandas as pd

from bench import metrics


@dataclass(frozen=True)
class Column:
    """One column of the CSV of a run."""

    name: str
    group: str  # identity, condition, measured, speculation, scores, served, energy
    type: str  # text, number, or devices: a count of devices, 1 where a file does not say
    since: int  # the layout that first had it
    meaning: str

    @property
    def unit(self):
        """Unit that the name's suffix states; empty where it states none."""
        return metrics.unit_of(self.name)


def _columns(group, since, *declarations):
    return [Column(name, group, kind, since, meaning) for name, kind, meaning in declarations]


DECLARED = [
    *_columns(
        "identity",
        1,
        ("run_id", "text", "the run's path without its suffix"),
        ("experiment", "text", "latency, quality, batching, memory, serving, served, overhead"),
        ("backend", "text", "engine: a file of bench/backends/"),
        ("backend_version", "text", "version of the engine as it states it"),
        ("option", "text", "one of the engine's OPTIONS"),
        ("model", "text", "a row of data/models.csv, hub:<name> or shape:<name>"),
        ("weights", "text", "real or synthetic"),
        ("gpu", "text", "slug of the device"),
        ("host", "text", "short random id of the checkout"),
        ("tensor_parallel", "devices", "devices that share the model"),
        ("request", "number", "number of the request within its run, from 1"),
    ),
    *_columns(
        "condition",
        1,
        ("prompt", "number", "number of the prompt in its set"),
        ("prompt_tokens", "number", "tokens of the prompt"),
        ("max_new_tokens", "number", "tokens that the answer must have"),
        ("batch_size", "number", "requests sent together"),
        ("concurrency", "number", "places of a closed loop; empty elsewhere"),
        ("request_rate", "number", "arrivals per second of an open loop; empty elsewhere"),
        ("temperature", "number", "0: greedy"),
    ),
    *_columns(
        "measured",
        1,
        ("sent_s", "number", "moment of sending, from the first request of the run"),
        ("ttft_s", "number", "time to first token; empty where an engine cannot stream"),
        ("e2e_s", "number", "time to the last token"),
        ("output_tokens", "number", "tokens of the answer"),
        ("itl_p50_s", "number", "median gap between tokens"),
        ("itl_p90_s", "number", "90th percentile of the gaps"),
        ("itl_p99_s", "number", "99th percentile of the gaps; fewer than 299 of them do not bound it"),
        ("itl_max_s", "number", "longest gap"),
        ("peak_memory_bytes", "number", "largest memory held"),
        ("load_s", "number", "time to load the engine or start the server"),
        ("answer", "text", "text of the answer"),
        ("output_ids", "text", "token ids of the answer, separated by spaces"),
        ("error", "text", "why the request failed; empty where it did not"),
    ),
    *_columns(
        "speculation",
        2,
        ("drafted_tokens", "number", "tokens guessed"),
        ("accepted_tokens", "number", "tokens that came with a pass because a guess was right"),
    ),
    *_columns(
        "scores",
        2,
        ("reference_nll_nats", "number", "mean NLL per token of the answer under the float32 reference"),
        ("own_nll_nats", "number", "mean NLL per token of the fixed text under the engine itself"),
    ),
    *_columns(
        "served",
        3,
        ("late_s", "number", "how late the load client took the request up"),
        ("connect_s", "number", "connection set-up; empty where an open connection served"),
        ("first_byte_s", "number", "time to the first byte of the response"),
        ("chunks", "number", "events with text"),
        ("cached_tokens", "number", "prompt tokens answered from a cache, as the server reports them"),
        ("finish_reason", "text", "why the server stopped"),
    ),
    *_columns("identity", 4, ("data_parallel", "devices", "replicas of the model behind one address")),
    *_columns(
        "condition",
        5,
        ("head_tokens", "number", "random tokens at the prompt's beginning, which no server has seen"),
    ),
    *_columns(
        "energy",
        6,
        ("gpu_energy_j", "number", "what the run's GPUs took for the request; empty where nobody can tell"),
        ("cpu_energy_j", "number", "what the CPU's packages took for it; empty where nobody can tell"),
    ),
]
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
# What a sidecar adds to every row of its run when it is read.
CONTEXT = """
    bandwidth_bytes_per_s datasheet_bandwidth_bytes_per_s weight_bytes kv_value_bytes kv_values_per_token
    threads started arithmetic peak_flops_per_s block_parameters head_parameters attention_values limit_bytes
    loaded_bytes probe_cpu_share probe_ways best_probe_bytes_per_s gpu_idle_w cpu_idle_w
""".split()
TEXT = {column.name for column in DECLARED if column.type == "text"} | {"started", "arithmetic"}
# One row per load client and number of streams: `bench.experiments.client_accuracy` says what they mean.
ACCURACY = """
    client version streams requests failed events_per_s ttft_true_ms ttft_error_ms ttft_error_connected_ms
    itl_p99_ms itl_p99_excess_ms cpu_us_per_token cpu_share peak_memory_bytes delay_mean_ms delay_p99_ms
    kernel_stamps server_core client_cores error
""".split()
ROOFS = ["roof", "threads", "value", "unit"]
# Read as text: a host such as 096e72 would be a number.
WORDS = {
    "gpu": str,
    "host": str,
    "client": str,
    "version": str,
    "client_cores": str,
    "roof": str,
    "unit": str,
}
CONFIGURATION = "backend option model weights gpu host tensor_parallel data_parallel".split()
SHAPE = "batch_size prompt_tokens max_new_tokens".split()
# What is compared with each other stands in one panel of a figure and one block of a table.
SETTING = ["gpu", "model", "weights"]


def frame(rows):
    """Rows (dicts) as a DataFrame of the schema's columns and types; columns that a row lacks are empty."""
    return numbers(pd.DataFrame(rows).reindex(columns=COLUMNS))


def numbers(table):
    """`table` with its types: text as str, empty where missing; all others as numbers, NaN where missing.

    Numbers of devices are 1 where they are missing.
    """
    for column in table.columns:
        values = table[column]
        table[column] = values.fillna("").astype(str) if column in TEXT else pd.to_numeric(values)
    devices = DEVICES & set(table.columns)
    return table.assign(**{column: table[column].fillna(1).astype(int) for column in devices})
