"""What a column's name means: the study's words, and the names that other tools and tables use for the
same."""

import re

WORDS = {
    "model": "model model_name model_id model_path checkpoint llm",
    "gpu": "gpu device hardware accelerator gpu_name gpu_type gpu_model chip",
    "tensor_parallel": "tensor_parallel tp tp_size tensor_parallel_size gpus num_gpus n_gpus gpu_count "
    "devices tensor_parallelism",
    "weights": "weights dtype precision quantization quantisation quant weight_format number_format "
    "data_type torch_dtype weight_dtype",
    "engine": "engine backend framework server runtime inference_engine library platform",
    "engine_version": "engine_version version backend_version framework_version",
    "option": "option options config configuration note notes variant",
    "name": "name label benchmark experiment scenario",
    "batch_size": "batch_size batch bs batchsize",
    "concurrency": "concurrency max_concurrency streams users num_users clients concurrent_requests "
    "num_concurrent_requests parallel concurrent",
    "request_rate": "request_rate qps rate target_rate offered_rate requested_rate target_qps",
    "temperature": "temperature temp",
    "prompt_tokens": (
        "prompt_tokens input_tokens isl input_len input_length prompt_len prompt_length num_prompt_tokens "
        "num_input_tokens n_prompt context_tokens "
        "input_sequence_length mean_input_tokens avg_input_tokens prompt_token_count tokens_in "
        "number_input_tokens"
    ),
    "output_tokens": (
        "output_tokens completion_tokens generated_tokens osl output_len output_length new_tokens "
        "tok_count token_count n_gen num_output_tokens "
        "num_tokens output_sequence_length mean_output_tokens avg_output_tokens tokens_generated "
        "generated_token_count tokens_out tokens number_output_tokens"
    ),
    "max_new_tokens": "max_new_tokens max_tokens max_output_tokens requested_output_tokens asked_tokens",
    "requests": "requests num_requests completed num_prompts n request_count successful_requests "
    "num_completed_requests successes n_requests",
    "failed": "failed failures num_failed error_count failed_requests",
    "runs": "runs repeats repetitions trials",
    "warmup_requests": "warmup_requests warmup warmups num_warmup warm_up",
    "power_w": "power_w power watts mean_power_w",
    "requests_per_s": "requests_per_s request_throughput req_per_s requests_per_second rps throughput_rps "
    "req_s achieved_rate",
    "output_tokens_per_s": (
        "output_tokens_per_s output_throughput tokens_per_s tok_s toks_per_s tokens_per_second throughput "
        "generation_tokens_per_s tps tok_per_s "
        "output_token_throughput throughput_tok_s throughput_tokens_per_s output_throughput_tokens_per_s "
        "throughput_tokens_s output_tps decode_tokens_per_s output_tokens_per_second "
        "generation_throughput tokens_s speed ts t_per_s mean_output_throughput_token_per_s "
        "mean_output_throughput system_output_throughput avg_tokens_per_s"
    ),
    "per_gpu": "output_tokens_per_s_per_gpu tokens_per_s_per_gpu throughput_per_gpu",
    "total_tokens_per_s": "total_tokens_per_s total_token_throughput total_throughput total_tps",
    "prompt_tokens_per_s": "prompt_tokens_per_s input_throughput input_tokens_per_s prefill_tokens_per_s "
    "prompt_throughput prefill_throughput",
    "total_prompt_tokens": "total_prompt_tokens total_input_tokens",
    "total_output_tokens": "total_output_tokens total_generated_tokens total_completion_tokens",
    "cached_tokens": "cached_tokens prefix_hit_tokens prompt_tokens_cached num_cached_tokens "
    "cache_hit_tokens cached_prompt_tokens",
    "cached_share": "cached_share prefix_cache_hit_rate cache_hit_rate prefix_hit_rate hit_rate",
    "drafted_tokens": "drafted_tokens",
    "events": "events chunks num_chunks stream_events sse_events",
    "gaps": "gaps",
    "question": "question prompt input prompt_text",
    "answer": "answer output response completion generated_text text",
    "requests_per_min": "requests_per_min num_completed_requests_per_min rpm requests_per_minute",
    "error": "error error_message exception",
    "request": "request request_id id",
    "device_times": "device_times",
}
BY_NAME = {name: word for word, names in WORDS.items() for name in names.split()}
QUANTITIES = [
    ("ttft", r"ttft|time_to_first_token|first_token(_latency|_time)?|time_to_first"),
    (
        "tpot",
        r"tpot|time_per_output_token|time_per_token|ms_per_token|per_token_latency|decode_latency_per_token",
    ),
    ("itl", r"itl|inter_?token_?latency|inter_?token(_time)?|token_gap|inter_chunk_latency"),
    ("sent", r"sent|start_time|start|sent_at|request_start(_time)?|timestamp|begun"),
    (
        "late",
        r"late|lateness|schedule_delay|dispatch_delay|queue|queue(d)?_time|queue_wait|client_queue(_time)?|"
        r"wait(ing)?_time",
    ),
    ("duration", r"duration|benchmark_duration|wall_time|elapsed(_time)?|wall|benchmark_time"),
    (
        "e2e",
        r"e2el?|(e2e_|request_|end_to_end_|total_)?latency|request_time|total_time|time|response_time|"
        r"end_to_end(_time)?",
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
}
NAME_CHARS = 120  # of a column's name that are looked at
IN_SECONDS = ("e2e", "sent", "duration", "late")  # without a unit these are taken as seconds


def meaning(name):
    """(word of the frame, factor to its unit) of a column's name, None where it means nothing here; factor
    None: no unit in the name."""
    plain = re.sub(r"[^a-z0-9.]+", "_", str(name)[:NAME_CHARS].lower().replace("/", "_per_")).strip("_")
    plain = re.sub(r"_per_(second|sec|s)\b", "_per_s", plain).replace("tok_per_s", "tokens_per_s")
    plain = re.sub(r"^tokens?_per_s$", "tokens_per_s", plain)
    if plain in BY_NAME:
        return BY_NAME[plain], 1
    bare, statistic = _statistic(plain)
    bare, unit = (bare, 1) if bare.endswith("_per_s") or "_per_s_per_" in bare else _unit(bare)
    bare, statistic = _statistic(bare) if not statistic else (bare, statistic)
    for quantity, pattern in QUANTITIES:
        if re.fullmatch(pattern, bare):
            return _word(quantity, statistic, unit)
    if (
        statistic and BY_NAME.get(bare) == "output_tokens_per_s"
    ):  # a mean or percentile of rates is one over requests
        return f"request_tokens_per_s{statistic}", 1
    if statistic == "_mean" and bare in BY_NAME:
        return BY_NAME[bare], 1
    return None


def _statistic(plain):
    """The name without its statistic, and the statistic as the frame writes it."""
    words = plain.split("_")
    for place in (0, -1):
        word = words[place]
        percentile = re.fullmatch(r"p(50|90|95|99)(\.0)?|(50|90|95|99)th|(50|90|95|99)p", word)
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


def _word(quantity, statistic, unit):
    if quantity == "request_tokens_per_s":
        return f"request_tokens_per_s{statistic}", 1
    if quantity in IN_SECONDS and unit is None:
        unit = 1
    if quantity == "late":
        return (
            "late_p99_s" if statistic == "_p99" else "late_mean_s" if statistic == "_mean" else "late_s"
        ), unit
    if quantity in ("sent", "duration"):
        return f"{quantity}_s", unit
    return f"{quantity}{statistic}_s", unit
