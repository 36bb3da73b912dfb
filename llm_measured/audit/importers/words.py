"""What a column's name means: the study's words, and the names that other tools and tables use for the
same."""

import re
from typing import Any

WORDS = {
    "model": ["modell", "model", "model_mlc", "model_name", "model_id", "model_path", "checkpoint", "llm"],
    "gpu": [
        "accelerator_name",
        "accel_name",
        "gpu_info",
        "chip_name",
        "hardware_name",
        "hardware_gpu",
        "hardware_id",
        "device_name",
        "system_gpu",
        "hw",
        "gpu",
        "device",
        "hardware",
        "accelerator",
        "gpu_name",
        "gpu_type",
        "gpu_model",
        "chip",
    ],
    "tensor_parallel": [
        "num_of_hardware",
        "of_accelerators",
        "number_of_accelerators",
        "number_of_gpus",
        "num_of_gpus",
        "gpus_per_replica",
        "world_size",
        "num_accelerators",
        "nrgpus",
        "num_devices",
        "ngpu",
        "ngpus",
        "tensor_parallel",
        "tp",
        "tp_size",
        "tensor_parallel_size",
        "gpus",
        "num_gpus",
        "n_gpus",
        "gpu_count",
        "devices",
        "tensor_parallelism",
    ],
    "weights": [
        "weight_type",
        "weights_type",
        "weight_quantization",
        "model_quant",
        "quantization_type",
        "quantization_method",
        "quant_type",
        "model_dtype",
        "quant_format",
        "quant_level",
        "weights",
        "dtype",
        "precision",
        "quantization",
        "quantisation",
        "quant",
        "weight_format",
        "number_format",
        "data_type",
        "torch_dtype",
        "weight_dtype",
    ],
    "engine": [
        "engine",
        "backend",
        "framework",
        "server",
        "runtime",
        "inference_engine",
        "library",
        "platform",
    ],
    "engine_version": [
        "vllm_version",
        "engine_commit",
        "sglang_version",
        "engine_version",
        "version",
        "backend_version",
        "framework_version",
        "build_version",
    ],
    "option": ["option", "options", "config", "configuration", "note", "notes", "variant"],
    "name": ["name", "label", "benchmark", "experiment", "scenario"],
    "batch_size": ["batch_size", "batch", "bs", "batchsize"],
    "concurrency": [
        "number_of_concurrency",
        "parallel_requests",
        "concurrency_limit",
        "concurrency_level",
        "num_concurrent",
        "max_concurrent_requests_allowed",
        "parallelism",
        "num_workers",
        "virtual_users",
        "vus",
        "concurrent_users",
        "conc",
        "concurrency",
        "max_concurrency",
        "streams",
        "users",
        "num_users",
        "clients",
        "concurrent_requests",
        "num_concurrent_requests",
        "parallel",
        "concurrent",
    ],
    "request_rate": [
        "arrival_rate",
        "request_rate_per_s",
        "qps_target",
        "offered_load",
        "offered_qps",
        "requested_qps",
        "request_rate",
        "qps",
        "rate",
        "target_rate",
        "offered_rate",
        "requested_rate",
        "target_qps",
    ],
    "temperature": ["temperature", "temp"],
    "prompt_tokens": [
        "eingabe_token",
        "eingabe_tokens",
        "average_input_tokens_per_request",
        "avg_input_tokens_per_request",
        "input_tokens_per_request",
        "input_toks",
        "prompt_toks",
        "num_prompt_toks",
        "isl_mean",
        "avg_isl",
        "input_tokens_avg",
        "avg_prompt_tokens",
        "mean_prompt_tokens",
        "prompt_eval_count",
        "prompt_token_length",
        "input_token_count",
        "input_token_length",
        "prompt_n",
        "prompt_tokens",
        "input_tokens",
        "isl",
        "input_len",
        "input_length",
        "prompt_len",
        "prompt_length",
        "num_prompt_tokens",
        "num_input_tokens",
        "n_prompt",
        "context_tokens",
        "input_sequence_length",
        "mean_input_tokens",
        "avg_input_tokens",
        "prompt_token_count",
        "tokens_in",
        "number_input_tokens",
    ],
    "output_tokens": [
        "ausgabe_token",
        "ausgabe_tokens",
        "average_output_tokens_per_request",
        "avg_output_tokens_per_request",
        "output_tokens_per_request",
        "output_toks",
        "osl_mean",
        "avg_osl",
        "num_generated_tokens",
        "output_tokens_avg",
        "eval_count",
        "output_token_count",
        "output_token_length",
        "gen_tokens",
        "completion_token_count",
        "predicted_n",
        "tg_tokens",
        "avg_completion_tokens",
        "mean_completion_tokens",
        "output_tokens",
        "completion_tokens",
        "generated_tokens",
        "osl",
        "output_len",
        "output_length",
        "new_tokens",
        "tok_count",
        "token_count",
        "n_gen",
        "num_output_tokens",
        "num_tokens",
        "output_sequence_length",
        "mean_output_tokens",
        "avg_output_tokens",
        "tokens_generated",
        "generated_token_count",
        "tokens_out",
        "tokens",
        "number_output_tokens",
    ],
    "max_new_tokens": [
        "max_tokens_requested",
        "max_completion_tokens",
        "requested_tokens",
        "max_new_tokens",
        "max_tokens",
        "max_output_tokens",
        "requested_output_tokens",
        "asked_tokens",
    ],
    "requests": [
        "anfragen",
        "succeed_requests",
        "num_completed",
        "success_requests",
        "completed_requests",
        "successful_count",
        "success_count",
        "num_successful",
        "num_successful_requests",
        "requests",
        "num_requests",
        "completed",
        "n",
        "request_count",
        "successful_requests",
        "num_completed_requests",
        "successes",
        "n_requests",
    ],
    "failed": [
        "errors_count",
        "num_errors",
        "number_errors",
        "num_failed_requests",
        "rejected",
        "rejected_requests",
        "num_rejected",
        "failures_count",
        "error_requests",
        "timeouts",
        "failed",
        "errors",
        "failures",
        "num_failed",
        "error_count",
        "failed_requests",
    ],
    "asked": [
        "expected_number_of_requests",
        "num_requests_asked",
        "asked",
        "num_prompts",
        "requests_sent",
        "sent_requests",
        "total_requests",
        "num_requests_total",
        "submitted",
        "num_submitted",
        "num_requests_sent",
        "num_requests_started",
        "attempted",
        "issued",
        "requests_issued",
    ],
    "model_bytes": ["model_bytes", "model_size", "model_size_bytes"],
    "model_parameters": [
        "model_parameters",
        "model_n_params",
        "n_params",
        "num_parameters",
        "parameter_count",
    ],
    "runs": ["runs", "repeats", "repetitions", "trials"],
    "warmup_requests": ["warmup_requests", "warmup", "warmups", "num_warmup", "warm_up"],
    "energy_j": [
        "energy_per_req_j",
        "energy_per_request_j",
        "energy_per_request_joules",
        "energy_per_token_joules",
        "energy_joules",
        "energy_j",
        "joules_per_output_token",
        "joules_per_total_token",
        "joules_per_token",
    ],
    "power_w": [
        "gpu_power_avg_w",
        "avg_power_w",
        "power_avg_w",
        "average_power_w",
        "gpu_power_w",
        "mean_gpu_power_w",
        "power_draw_w",
        "power_w",
        "power",
        "watts",
        "mean_power_w",
    ],
    "requests_per_s": [
        "average_qps",
        "requests_throughput",
        "req_throughput",
        "mean_requests_per_s",
        "completed_requests_per_s",
        "achieved_qps",
        "throughput_req_per_s",
        "throughput_req_s",
        "throughput_requests_per_s",
        "request_throughput_req_s",
        "requests_per_s",
        "request_throughput",
        "req_per_s",
        "requests_per_second",
        "rps",
        "throughput_rps",
        "req_s",
        "achieved_rate",
    ],
    "output_tokens_per_s": [
        "throughput_average_tokens_per_s",
        "tput",
        "aggregate_tokens_per_s",
        "generation_tok_s",
        "throughput_tok_per_s",
        "output_tok_s",
        "output_tok_per_s",
        "output_toks_per_s",
        "token_throughput",
        "tokens_throughput",
        "generated_tokens_per_s",
        "generation_speed",
        "gen_tok_s",
        "output_tokens_per_s",
        "output_throughput",
        "tokens_per_s",
        "tok_s",
        "toks_per_s",
        "tokens_per_second",
        "throughput",
        "generation_tokens_per_s",
        "tps",
        "tok_per_s",
        "output_token_throughput",
        "throughput_tok_s",
        "throughput_tokens_per_s",
        "output_throughput_tokens_per_s",
        "throughput_tokens_s",
        "output_tps",
        "output_tokens_per_second",
        "generation_throughput",
        "tokens_s",
        "speed",
        "t_per_s",
        "mean_output_throughput_token_per_s",
        "mean_output_throughput",
        "system_output_throughput",
        "avg_tokens_per_s",
    ],
    "per_gpu": [
        "output_tokens_per_s_per_gpu",
        "tokens_per_s_per_gpu",
        "throughput_per_gpu",
        "output_tput_per_gpu",
    ],
    "total_tokens_per_s": [
        "total_tok_s",
        "total_tokens_throughput",
        "overall_tokens_per_s",
        "combined_throughput",
        "tokens_per_s_total",
        "total_tokens_per_s",
        "total_token_throughput",
        "total_throughput",
        "total_tps",
    ],
    "decode_rate": [
        "decode_rate",
        "predicted_tps",
        "predicted_tokens_per_s",
        "tg_tok_s",
        "tg_tokens_per_s",
        "decode_tps",
        "decode_throughput",
        "decode_tokens_per_s",
        "eval_rate",
        "predicted_per_s",
        "predicted_per_second",
        "decode_speed",
        "tg_tps",
        "gen_tps",
        "generation_tps",
        "decode_tok_s",
        "tokens_per_s_decode",
    ],
    "prompt_tokens_per_s": [
        "pp_tok_s",
        "pp_tokens_per_s",
        "prompt_per_s",
        "prompt_eval_tps",
        "prompt_tps",
        "pp_tps",
        "prefill_tps",
        "prompt_tok_s",
        "prefill_tok_s",
        "prefill_speed",
        "prompt_eval_rate",
        "input_token_throughput",
        "prompt_per_second",
        "input_tps",
        "prompt_tokens_per_s",
        "input_throughput",
        "input_tokens_per_s",
        "prefill_tokens_per_s",
        "prompt_throughput",
        "prefill_throughput",
    ],
    "total_prompt_tokens": [
        "total_input",
        "total_isl",
        "sum_input_tokens",
        "sum_prompt_tokens",
        "total_prompt_tokens",
        "total_input_tokens",
    ],
    "total_output_tokens": [
        "total_output",
        "total_osl",
        "sum_output_tokens",
        "sum_completion_tokens",
        "total_tokens_generated",
        "tokens_generated_total",
        "total_output_tokens",
        "total_generated_tokens",
        "total_completion_tokens",
    ],
    "cached_tokens": [
        "cached_tokens",
        "prefix_hit_tokens",
        "prompt_tokens_cached",
        "num_cached_tokens",
        "cache_hit_tokens",
        "cached_prompt_tokens",
    ],
    "cached_share": [
        "cached_share",
        "prefix_cache_hit_rate",
        "cache_hit_rate",
        "prefix_hit_rate",
        "hit_rate",
    ],
    "drafted_tokens": ["drafted_tokens"],
    "events": ["events", "chunks", "num_chunks", "stream_events", "sse_events"],
    "gaps": ["gaps"],
    "question": ["question", "prompt", "input", "prompt_text"],
    "answer": ["answer", "output", "response", "completion", "generated_text", "text"],
    "requests_per_min": ["requests_per_min", "num_completed_requests_per_min", "rpm", "requests_per_minute"],
    "error": ["error", "error_message", "exception"],
    "request": ["request", "request_id", "id"],
    "device_times": ["device_times"],
    "succeeded": ["success", "succeeded", "ok", "is_success", "status", "successful", "finish_status"],
}
BY_NAME = {name: word for word, names in WORDS.items() for name in names}
QUANTITIES = [
    ("prefill", r"prompt_eval(_duration|_time)?|prompt|prefill_duration|prompt_processing(_time)?"),
    (
        "decode",
        r"eval(_duration|_time)?|predicted|decode(_duration|_time)?|generation_duration|decoding(_time)?",
    ),
    (
        "ttft",
        r"ttft(_latency|_time)?|time_to_first_token(_latency)?|first_token(_latency|_time)?|"
        r"time_to_first|tt1t|prefill_(latency|time)|first_token_delay",
    ),
    (
        "tpot",
        r"tpot(_latency)?|time_per_output_token(_latency)?|time_per_token|per_token_latency|token_latency|"
        r"decode_latency_per_token|latency_per_token|per_output_token_latency|output_token_latency",
    ),
    ("itl", r"itl|inter_?token_?latency|inter_?token(_time)?|token_gap|inter_chunk_latency|package_latency"),
    ("sent", r"sent|start_time|start|sent_at|request_start(_time)?|timestamp|begun"),
    (
        "late",
        r"late|lateness|schedule_delay|dispatch_delay|queue|queue(d)?_time|queue_wait|client_queue(_time)?|"
        r"wait(ing)?_time",
    ),
    (
        "duration",
        r"duration|benchmark_duration|test_duration|time_taken_for_tests|wall_time|elapsed(_time)?"
        r"|wall|benchmark_time",
    ),
    (
        "e2e",
        r"e2el?|(e2e_|request_|end_to_end_|total_|generation_|inference_|answer_|response_|query_|batch_)?"
        r"latency|lat|request_time|total_time|time|response_time|e2e_time|request_duration|answer_time|"
        r"end_to_end(_time)?|time_taken|seconds|took|total_duration|wall_latency|req_latency|latenz",
    ),
    (
        "request_tokens_per_s",
        r"request_tokens_per_s|(output_)?tokens_per_s_per_(user|request)|per_request_tokens_per_s",
    ),
]
STATISTICS = {
    "mean": "_mean",
    "avg": "_mean",
    "average": "_mean",
    "std": "_sd",
    "stddev": "_sd",
    "sd": "_sd",
    "med": "_p50",
    "minimum": "_min",
    "maximum": "_max",
    "median": "_p50",
    "min": "_min",
    "max": "_max",
}
UNITS = {
    "ms": 1e-3,
    "millis": 1e-3,
    "milliseconds": 1e-3,
    "msec": 1e-3,
    "s": 1,
    "sec": 1,
    "secs": 1,
    "seconds": 1,
    "us": 1e-6,
    "ns": 1e-9,
    "min": 60,
    "minutes": 60,
    "second": 1,
    "millisecond": 1e-3,
    "microseconds": 1e-6,
    "nanoseconds": 1e-9,
}
PER_TOKEN = {"ms_per_token": 1e-3, "ms_per_tok": 1e-3, "s_per_token": 1, "seconds_per_token": 1}
# Rates whose name is put together from parts: how much of what in a second, of which tokens, of whom.
PER_SECOND = re.compile(
    r"(?P<tokens>tokens?_per_s|toks?_per_s|t_per_s|tps)|(?P<requests>(?:requests?|reqs?|quer(?:y|"
    r"ies)|samples?)_per_s|rps)"
)
OF_TOKENS = {
    "output_tokens_per_s": {"output", "out", "generation", "generated", "gen", "completion", "eval"},
    "decode_rate": {"decode", "decoding"},
    "prompt_tokens_per_s": {"input", "prompt", "prefill"},
    "total_tokens_per_s": {"total", "overall", "combined"},
}
OF_WHOM = {
    "request_tokens_per_s": {"user", "request", "interactivity"},
    "per_gpu": {"gpu", "device", "chip", "accelerator"},
}
SAYS_NOTHING = {"throughput", "tput", "rate", "speed", "token", "tokens", "request", "requests", "achieved"}
SAYS_NOTHING |= {"system", "per", "measured", "actual"}
LLAMA_BENCH = {"tg": "decode_rate", "pp": "prompt_tokens_per_s"}  # the names that it gives its tests
NAME_CHARS = 120  # of a column's name that are looked at
PARTS = ("prefill", "decode")  # of an answer's time, as a server clocks them
IN_SECONDS = ("sent", "late")  # without a unit these are taken as seconds


def meaning(name: str) -> tuple[str, Any] | None:
    """(word of the frame, factor to its unit) of a column's name, None where it means nothing here; factor
    None: no unit in the name."""
    plain = re.sub(r"\b(50|90|95|99) ?%", r"p\1", str(name)[:NAME_CHARS].lower()).replace("/", "_per_")
    plain = re.sub(r"[^a-z0-9.]+", "_", plain).strip("_.").replace("._", "_")
    plain = re.sub(r"_per_(second|sec|s)(?![a-z0-9])", "_per_s", plain).replace("tok_per_s", "tokens_per_s")
    plain = re.sub(r"_(ms|s)_per_tok(en)?$", r"_\1", plain) if plain.startswith(("tpot", "itl")) else plain
    plain = re.sub(r"^tokens?_per_s$", "tokens_per_s", plain)
    if plain in BY_NAME:
        return BY_NAME[plain], 1
    if plain in PER_TOKEN:
        return "tpot_s", PER_TOKEN[plain]
    bare, statistic = _statistic(plain)
    bare, unit = (bare, 1) if bare.endswith("_per_s") or "_per_s_per_" in bare else _unit(bare)
    bare, statistic = _statistic(bare) if not statistic else (bare, statistic)
    for quantity, pattern in QUANTITIES:
        if re.fullmatch(pattern, bare):
            return _word(quantity, statistic, unit, bare)
    if (
        statistic not in ("", "_sd") and BY_NAME.get(bare) == "output_tokens_per_s"
    ):  # a mean or percentile of rates is one over requests
        return f"request_tokens_per_s{statistic}", 1
    if statistic == "_mean" and bare in BY_NAME:
        return BY_NAME[bare], 1
    return _rate(plain)


def _rate(plain):
    """The meaning of a rate whose name is put together from parts, None where a part means nothing here or
    two parts say different things."""
    test = re.fullmatch(r"(tg|pp)_?\d+(_t_per_s|_tokens_per_s)?", plain)
    if test:
        return LLAMA_BENCH[test[1]], 1
    bare, statistic = _statistic(plain)
    unit = PER_SECOND.search(bare)
    if not unit or statistic == "_sd" or (bare[: unit.start()] + bare[unit.end() :]).count("per_s"):
        return None
    words = [w for w in (bare[: unit.start()] + "_" + bare[unit.end() :]).split("_") if w]
    of_tokens = {word for word, parts in OF_TOKENS.items() if parts & set(words)}
    of_whom = {word for word, parts in OF_WHOM.items() if parts & set(words)}
    if {"prompt", "eval"} <= set(words):  # llama.cpp's word for reading the prompt
        of_tokens -= {"output_tokens_per_s"}
    known = SAYS_NOTHING.union(*OF_TOKENS.values(), *OF_WHOM.values())
    # "tokens/s (total)" may be all tokens, or the output of all requests.
    unclear = "total" in words[1:] or len(of_tokens) > 1 or len(of_whom) > 1
    if set(words) - known or unclear:
        return None
    if unit["requests"]:
        return None if of_tokens or of_whom & {"per_gpu"} else ("requests_per_s", 1)
    if of_whom:
        (whom,) = of_whom
        if of_tokens - {"output_tokens_per_s", "decode_rate"}:
            return None
        return (f"{whom}{statistic}" if whom != "per_gpu" else whom), 1
    if statistic not in ("", "_mean"):
        return None
    return next(iter(of_tokens), "output_tokens_per_s"), 1


def _statistic(plain):
    """The name without its statistic, and the statistic as the frame writes it."""
    words = plain.split("_")
    for place in (0, -1):
        word = words[place]
        percentile = re.fullmatch(r"p(50|90|95|99)(\.0+)?|(50|90|95|99)th|(50|90|95|99)p", word)
        if percentile and len(words) > 1:
            rest = [
                w
                for w in (words[1:] if place == 0 else words[:-1])
                if w not in ("percentile", "percentiles", "quantile", "quantiles")
            ]
            return "_".join(rest), "_p" + next(g for g in percentile.groups() if g and g.isdigit())
        if word in STATISTICS and len(words) > 1:
            return "_".join(words[1:] if place == 0 else words[:-1]), STATISTICS[word]
    return plain, ""


def _unit(plain):
    head, _, tail = plain.rpartition("_")
    return (head, UNITS[tail]) if head and tail in UNITS else (plain, None)


def _word(quantity, statistic, unit, plain):
    if statistic == "_sd":
        return (f"{quantity}_sd_s", unit) if quantity in ("tpot", "e2e") else None
    if quantity == "request_tokens_per_s":
        return f"request_tokens_per_s{statistic}", 1
    if quantity in IN_SECONDS and unit is None:
        unit = 1
    if quantity in PARTS:
        # Without a unit the bare word may be a rate, a count or a text as well.
        return (f"{quantity}_s", unit) if unit is not None or plain.endswith(("_time", "_duration")) else None
    if quantity == "late":
        return (
            "late_p99_s" if statistic == "_p99" else "late_mean_s" if statistic == "_mean" else "late_s"
        ), unit
    if quantity in ("sent", "duration"):
        return f"{quantity}_s", unit
    return f"{quantity}{statistic}_s", unit
