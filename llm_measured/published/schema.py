"""The columns of the observatory, each declared once; unknown is empty, and nothing computed is stored."""

from llm_measured.core.definitions import Column

COMPUTED = "computed when the table is built, never stored in a source's rows"


# Types: text, number (0 or more), count (a whole number), date (YYYY, YYYY-MM or YYYY-MM-DD), choice (one of
# `choices`); `unit` of numbers.


def _text(name: str, meaning: str, stored: bool = True) -> Column:
    return Column(name=name, type="text", meaning=meaning, stored=stored)


def _date(name: str, meaning: str) -> Column:
    return Column(name=name, type="date", meaning=meaning)


def _number(name: str, unit: str, meaning: str) -> Column:
    return Column(name=name, type="number", meaning=meaning, unit=unit)


def _count(name: str, unit: str, meaning: str) -> Column:
    return Column(name=name, type="count", meaning=meaning, unit=unit)


def _choice(name: str, meaning: str, *choices: str, stored: bool = True) -> Column:
    return Column(name=name, type="choice", meaning=meaning, choices=choices, stored=stored)


STATISTICS = {
    "mean": "mean over requests",
    "p50": "median over requests",
    "p90": "90th percentile over requests",
    "p95": "95th percentile over requests",
    "p99": "99th percentile over requests",
}
TIMES = {
    "ttft": "time to first token",
    "tpot": "time per output token after the first, of one request",
    "itl": "gap between two consecutive outputs of one request (`itl_counts` says of what)",
    "e2e": "time from request to last token",
}

COLUMNS: tuple[Column, ...] = (
    # Where a row comes from
    _text(
        "row_id", "source, and a digest of the record as it stands in the file: stable while the record is"
    ),
    _text("source", "name of the importer and of the folder of raw data"),
    _text("source_file", "file in the source's folder"),
    _text("source_row", "line of that file (L13), or JSON pointer (/runs/3), or table and row of a database"),
    _text("source_url", "repository or page"),
    _text("source_commit", "commit of that repository"),
    _text("licence", "SPDX identifier of the licence of this file, `facts` where none allows copying it"),
    _date("retrieved", "day on which the raw file was fetched"),
    _text("original_id", "the source's own identifier of the measurement"),
    _text("duplicate_of", f"row_id of an earlier row with the same numbers to the digit ({COMPUTED})", False),
    _date("measured_on", "day of the measurement"),
    _date("published_on", "day of publication: of the page, of the file's commit"),
    _text("measured_by", "who measured: person, company or project"),
    _choice(
        "kind",
        "vendor sells the accelerator or makes the engine; official is a rule-bound body (MLPerf)",
        *("vendor", "independent", "community", "official"),
    ),
    _text(
        "comparable_within",
        "rows may be compared only with rows of the same value; empty: with any. MLPerf's rules need it",
    ),
    _text("submitter", "of an MLPerf result"),
    _text("division", "of an MLPerf result: closed, open, network"),
    _text("category", "of an MLPerf result: availability (available, preview, rdi) and suite"),
    _text("trademark", "the sentence that has to stand beside a shown MLPerf result"),
    # The machine
    _text(
        "accelerator",
        "id in core/accelerators.csv, or `variant unknown`, or empty where the name is not in it",
    ),
    _text("accelerator_family", "family in core/accelerators.csv, also where the variant is unknown"),
    _text("accelerator_raw", "the name as the source writes it"),
    _number("accelerator_memory_gb", "GB", "memory of one accelerator, where the source states it"),
    _count("accelerators", "count", "all accelerators that the throughput is of"),
    _count("accelerators_prefill", "count", "those that only read prompts, of a disaggregated system"),
    _count("accelerators_decode", "count", "those that only generate, of a disaggregated system"),
    _count("nodes", "count", "machines"),
    _number("power_limit_w", "W", "power limit of one accelerator, where it was set or stated"),
    _text("host_cpu", "processor of the machine"),
    _number("host_memory_gb", "GB", "memory of the machine beside the accelerators', where it is stated"),
    # The software
    _text("engine", "inference engine"),
    _text("engine_version", "its version or commit"),
    _text("backend", "its backend: CUDA, ROCm, Vulkan, Metal, CPU, NPU …"),
    _text("image", "container image"),
    _text("flags", "settings that change speed, as name=value; name=value"),
    # The model
    _text("model", "id in core/models.csv, or empty where the name is not in it"),
    _text("checkpoint_raw", "the model's name as the source writes it"),
    _number("parameters_b", "10⁹", "all parameters, where the source states them"),
    _number("active_b", "10⁹", "parameters that a token passes, where the source states them"),
    _number("weights_bytes", "bytes", "size of the weights, only from a file size that the source gives"),
    _text("offload", "weights that lay in the host's memory, as the source states it"),
    _number("host_weights_bytes", "bytes", "size of those weights, from the engine's log"),
    _text("weights_format", "number format of the weights as the source names it"),
    _text("kv_format", "number format of the KV cache"),
    _text("activation_format", "number format of the arithmetic"),
    _count("tp", "count", "tensor parallel"),
    _count("pp", "count", "pipeline parallel"),
    _count("ep", "count", "expert parallel"),
    _count("dp", "count", "data parallel: replicas"),
    _text("speculative", "method of speculative decoding; `none` only if the source says so"),
    # One spelling of what sources write in many ways: spellings.csv, core/formats.csv
    *(
        _text(name, f"{what} in one spelling, or empty where the source states none ({COMPUTED})", False)
        for name, what in (
            ("format_name", "number format of the weights"),
            ("kv_format_name", "number format of the KV cache"),
            ("backend_name", "backend"),
            ("version_name", "engine's version"),
        )
    ),
    # The load
    _choice(
        "workload",
        "how requests came: one at a time, all together, so many in flight, at their own times, in bulk",
        *("single", "static_batch", "closed_loop", "open_loop", "offline", "mlperf_server"),
        *("mlperf_interactive", "mlperf_single_stream"),
    ),
    _count("concurrency", "count", "requests in flight, as set"),
    _count("batch", "count", "sequences of a static batch, as set"),
    _count("max_num_seqs", "count", "most sequences that the engine may decode together"),
    _number("request_rate", "1/s", "arrivals, as set"),
    _number("in_flight_mean", "count", "requests or sequences in flight, as measured"),
    _number("input_tokens", "tokens", "prompt, of one request"),
    _number("output_tokens", "tokens", "answer, of one request"),
    _choice(
        "lengths",
        "what the two lengths are",
        *("exact", "mean", "max_of_uniform_0.8", "max", "dataset", "mixed"),
    ),
    _count("context_depth", "tokens", "tokens that stood in the KV cache before the measurement"),
    _count("prefill_chunk", "tokens", "prompt tokens that are processed together"),
    _choice("prefix_cached", "whether prompts could be found in a prefix cache", "yes", "no"),
    # What was measured
    _number("throughput_raw", "tokens/s", "the number as printed"),
    _choice("throughput_counts", "which tokens it counts", "output", "input+output"),
    _choice("throughput_scope", "what it is of", "all", "per_accelerator", "per_request"),
    _number("prompt_tokens_per_s", "tokens/s", "speed of prefill alone, of one accelerator group"),
    _choice(
        "prompt_rate_of",
        "what prompt_tokens_per_s is of: a whole prompt, or tokens read with context_depth in the cache",
        *("whole prompt", "at the depth"),
    ),
    *(
        _number(f"{time}_{statistic}_ms", "ms", f"{meaning}: {of}")
        for time, meaning in TIMES.items()
        for statistic, of in STATISTICS.items()
    ),
    _number("ttft_min_ms", "ms", "time to first token: least, or of the shortest prompt"),
    _number("ttft_max_ms", "ms", "time to first token: most, or of the longest prompt"),
    _choice("itl_counts", "what lies between two gaps", "token", "event"),
    _number("latency_raw_s", "s", "time of a whole batch, prompt and answer, as printed"),
    _choice("statistic", "what throughput or times are over runs", "mean", "median", "best", "single"),
    _count("runs", "count", "runs behind the number"),
    _number("spread", "unit of throughput_raw", "how far runs lie apart"),
    _choice("spread_kind", "what the spread is", "sd", "95 %", "min–max"),
    _number("power_w", "W", "mean power while it was measured"),
    _choice(
        "power_scope",
        "what the power is of",
        *("accelerators", "accelerator", "package", "wall", "peak_package", "system"),
    ),
    _number("energy_j_per_output_token", "J", "energy of one output token"),
    _number("energy_j_per_request", "J", "energy of one request"),
    _text("energy_of", "what the energy is of, where part of it was modelled or is not the accelerator's"),
    _number("peak_memory_bytes", "bytes", "most memory in use"),
    _number("quality", "", "a score of the same weights, as printed"),
    _text("quality_metric", "what that score is"),
    _count("requests", "count", "requests behind the number"),
    _count("failed", "count", "requests that failed"),
    _number("duration_s", "s", "length of the measurement"),
    # What is known against it
    _text(
        "as_printed",
        "columns that the file's own labels give another value than this row has, as a JSON object: what an "
        "importer corrected, with the reason in caveat",
    ),
    _text("caveat", "what the importer knows against this row, by a rule for this source alone"),
    _choice(
        "audit",
        f"verdict of the checks and of the importer ({COMPUTED})",
        *("ok", "flagged", "excluded"),
        stored=False,
    ),
    _text("audit_notes", f"each finding with its arithmetic ({COMPUTED})", False),
)
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
