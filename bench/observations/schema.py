"""Columns of the observations: rows, sidecars, and what is compared with each other."""

import pandas as pd

IDENTITY = (
    "run_id experiment backend backend_version option model weights gpu host tensor_parallel request".split()
)
CONDITION = "prompt prompt_tokens max_new_tokens batch_size concurrency request_rate temperature".split()
MEASURED = (
    "sent_s ttft_s e2e_s output_tokens itl_p50_s itl_p90_s itl_p99_s itl_max_s peak_memory_bytes load_s answer output_ids error"
).split()
# Observations are never rewritten, so a column that came later is absent from the files written before it,
# and read as empty.
LATER = "drafted_tokens accepted_tokens reference_nll_nats own_nll_nats".split()
SERVED = "late_s connect_s first_byte_s chunks cached_tokens finish_reason".split()
# How many replicas of the model stood behind one address. What a file does not say of devices was one.
SPREAD = ["data_parallel"]
COLUMNS = IDENTITY + CONDITION + MEASURED + LATER + SERVED + SPREAD
LAYOUTS = (
    COLUMNS,
    IDENTITY + CONDITION + MEASURED + LATER + SERVED,
    IDENTITY + CONDITION + MEASURED + LATER,
    IDENTITY + CONDITION + MEASURED,
)
ONE = {"tensor_parallel", "data_parallel"}
TEXT = {
    "run_id",
    "experiment",
    "backend",
    "backend_version",
    "option",
    "model",
    "weights",
    "gpu",
    "host",
    "answer",
    "output_ids",
    "error",
    "started",
    "arithmetic",
    "finish_reason",
}
SIDECAR = (
    "packages git machine busy_cores bandwidth_probes_bytes_per_s datasheet_bandwidth_bytes_per_s weight_bytes kv_value_bytes kv_values_per_token "
    "parameters settings threads model_sha256 prompts_sha256 started ended"
).split()
CONTEXT = (
    "bandwidth_bytes_per_s datasheet_bandwidth_bytes_per_s weight_bytes kv_value_bytes kv_values_per_token threads started "
    "arithmetic peak_flops_per_s block_parameters head_parameters attention_values limit_bytes loaded_bytes"
).split()
# One row per load client and number of streams: `bench.experiments.client_accuracy`, which says what they
# mean.
ACCURACY = (
    "client version streams requests failed events_per_s ttft_true_ms ttft_error_ms ttft_error_connected_ms itl_p99_ms itl_p99_excess_ms "
    "cpu_us_per_token cpu_share peak_memory_bytes delay_mean_ms delay_p99_ms kernel_stamps server_core client_cores error"
).split()


def frame(rows):
    """Rows (dicts) as a DataFrame of the schema's columns and types; columns that a row lacks are empty."""
    return numbers(pd.DataFrame(rows).reindex(columns=COLUMNS))


def numbers(table):
    """`table` with text columns as str, empty where missing, and all others as numbers, NaN where missing;
    numbers of devices are 1 there."""
    for column in table.columns:
        table[column] = (
            table[column].fillna("").astype(str) if column in TEXT else pd.to_numeric(table[column])
        )
    return table.assign(
        **{column: table[column].fillna(1).astype(int) for column in ONE & set(table.columns)}
    )


CONFIGURATION = "backend option model weights gpu host tensor_parallel data_parallel".split()
SHAPE = "batch_size prompt_tokens max_new_tokens".split()
# What is compared with each other stands in one panel of a figure and one block of a table.
SETTING = ["gpu", "model", "weights"]
