"""Columns of the observations, one declaration each: name, group, type, since which layout.

Observations are never rewritten, so a column that came later is absent from the files written before it;
older layouts follow from `since`, and what a file lacks is read as empty (as 1 for a number of devices). The
unit is the suffix of the name.
"""

from collections.abc import Iterable

import pandas as pd

from llm_measured.core.definitions import Column, Fields


# Groups: identity, condition, measured, speculation, scores, served, energy; sidecar (in no CSV).
# Types: text, number, or devices: a count of devices, 1 where a file does not say.
def _columns(group: str, since: int, *declarations: tuple[str, str, str]) -> list[Column]:
    return [
        Column(name=name, group=group, type=kind, since=since, meaning=meaning)
        for name, kind, meaning in declarations
    ]


DECLARED = [
    *_columns(
        "identity",
        1,
        ("run_id", "text", "the run's path without its suffix"),
        ("experiment", "text", "an experiment of study.yaml, or memory"),
        ("backend", "text", "engine: a file of bench/backends/"),
        ("backend_version", "text", "version of the engine as it states it"),
        ("option", "text", "one of the engine's OPTIONS"),
        ("model", "text", "a row of core/models.csv, hub:<name> or shape:<name>"),
        ("weights", "text", "real or synthetic"),
        ("gpu", "text", "slug of the device"),
        (
            "host",
            "text",
            "short random id of the checkout; older ones are read with an h before them, too",
        ),
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
        ("itl_p50_s", "number", "median gap between tokens; through a server between arrivals, from four on"),
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
    *_columns(
        "condition",
        9,
        ("workload", "text", "conversations, or the trace's file; empty where every prompt is new"),
        ("arrivals", "text", "how sessions arrive: poisson, constant, or trace"),
        ("history", "text", "earlier answers in a prompt: given (the workload's), or own (the server's)"),
        ("session_rate", "number", "sessions that arrive per second"),
        ("cache_capacity_tokens", "number", "declared size of the prefix cache, 0: off; empty: not known"),
        ("session", "number", "number of the session within its run, the same with every declared cache"),
        ("turn", "number", "number of the request within its session, from 1"),
    ),
    *_columns(
        "served",
        9,
        ("waited_s", "number", "by how much a turn was due before the answer before it had come"),
        (
            "expected_cached_tokens_low",
            "number",
            "prompt tokens that a cache has surely seen before, without eviction; fixed before the run",
        ),
        (
            "expected_cached_tokens_high",
            "number",
            "prompt tokens that a cache may have seen before: more is not this load's; fixed before the run",
        ),
    ),
    *_columns(
        "served",
        10,
        (
            "first_event_tokens",
            "number",
            "tokens that came with the first arrival; 1 where a file does not say",
        ),
        ("answer_ttft_s", "number", "time to the first token after the reasoning; empty without reasoning"),
        ("unmeasured", "text", "why TPOT, or TTFT as well, is empty for a good answer"),
        ("retries", "number", "connections that failed before the server worked on the request"),
        ("uncertain", "text", "what a changed request body no longer fixes: length, greedy"),
    ),
    *_columns(
        "served",
        12,
        ("arrival_tokens_mean", "number", "tokens that arrived together, in the mean over arrivals"),
        ("arrival_tokens_max", "number", "most tokens that arrived together"),
        ("late_arrivals", "number", "arrivals of several tokens that the load client itself read late"),
        ("level_ended", "text", "why the level of load ended early: it has no rate; empty where it did not"),
    ),
    *_columns(
        "scores",
        11,
        ("passed", "number", "1: the answer's program passed its problem's tests, 0: it did not"),
        ("failure", "text", "why it did not: its error, or how it ended"),
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
# Fields that a sidecar has since a layout that it claims itself (`layout`); one that claims none is older.
SIDECAR_SINCE = {"layout": 7, "order": 7, "judge": 8, "counters": 9}
LAYOUT = max(*SIDECAR_SINCE.values(), *(column.since for column in DECLARED))
# What a sidecar adds to every row of its run when it is read; in no CSV.
FROM_SIDECAR = _columns(
    "sidecar",
    0,
    (
        "bandwidth_bytes_per_s",
        "number",
        "bandwidth that MBU is against: the 95 % quantile of the probes of the run's measuring session",
    ),
    ("datasheet_bandwidth_bytes_per_s", "number", "bandwidth of the device's datasheet"),
    ("weight_bytes", "number", "weights that a decode step reads"),
    ("kv_value_bytes", "number", "bytes of one number in the KV cache"),
    ("kv_values_per_token", "number", "numbers that one token adds to the KV cache"),
    ("threads", "number", "threads of the engine"),
    ("scored_run", "text", "run whose answers a run of humaneval-score has scored; empty elsewhere"),
    ("shared_by", "text", "what the run shared its machine with; empty where it had it to itself"),
    ("not_judged", "text", "why memory did not do for the check of the engine's tokens; empty elsewhere"),
    ("started", "text", "when the run began"),
    ("ended", "text", "when the run ended"),
    ("arithmetic", "text", "number format of the matrix multiplications"),
    ("peak_flops_per_s", "number", "fastest matrix multiplication measured in that format or a wider one"),
    ("block_parameters", "number", "parameters of all layers' matrices"),
    ("head_parameters", "number", "parameters of the output matrix"),
    ("attention_values", "number", "layers x query heads x head size"),
    ("probe_cpu_share", "number", "share of a core's time that the bandwidth probe itself had"),
    (
        "probe_ways",
        "number",
        "in how many ways the bandwidth probe read memory; 1 in older files (peak maybe too low)",
    ),
    ("slowest_probe_bytes_per_s", "number", "slowest bandwidth probe of the run's measuring session"),
    ("fastest_probe_bytes_per_s", "number", "fastest bandwidth probe of the run's measuring session"),
    ("gpu_idle_w", "number", "power of the GPUs with the engine loaded and idle, W"),
    ("cpu_idle_w", "number", "power of the CPU's packages with the engine loaded and idle, W"),
)
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
