"""How engines schedule and what the published loads were: settings that documentation and published launch
scripts state, not fits.

Sources: vLLM's and SGLang's documentation of their server arguments (`gpu_memory_utilization` 0.9,
`mem_fraction_static`, `chunked_prefill_size`); TensorRT-LLM's documentation of `trtllm-serve`
(`GUARANTEED_NO_EVICT` sets the whole answer's memory aside; the overlap scheduler plans a step ahead);
InferenceMAX's launch scripts (`RANDOM_RANGE_RATIO` 0.8, ten requests per place, `max_num_tokens`,
`batch_wait_timeout_iters` 20 for 1024/1024 below TP 8, `kv-cache-dtype`); AIConfigurator's `eval` (fixed
lengths, ten requests per place after two to warm up).
"""

from collections import namedtuple
from typing import Any

import numpy as np

from llm_measured.core import naming
from llm_planner import shapes, step_time

Policy = namedtuple(
    "Policy", "step_tokens chunked mixed slots kv_tokens reserve lag_steps wait_steps wait_tokens computed"
)
Policy.__doc__ = "What a scheduler may do, in the order of `scheduler`'s indices."
Case = namedtuple(
    "Case", "model gpu engine weights tensor_parallel concurrency input_tokens output_tokens collection"
)
Case.__doc__ = (
    "One load on one configuration: the columns of gpu_serving_measured.csv that are known before a "
    "measurement."
)
# memory_share of free memory (of_free) or of all; reserve: share of unwritten tokens that must fit before a
# request is taken up.
ENGINES = {
    "vllm": dict(
        mixed=1, chunked=1, reserve=0.0, lag_steps=0, memory_share=0.9, of_free=False, buffers_bytes=2.5e9
    ),
    "sglang": dict(
        mixed=0, chunked=1, reserve=0.5, lag_steps=1, memory_share=0.86, of_free=False, buffers_bytes=1.5e9
    ),
    "trtllm": dict(
        mixed=1, chunked=0, reserve=1.0, lag_steps=1, memory_share=0.9, of_free=True, buffers_bytes=2e9
    ),
}
Rules = namedtuple("Rules", "unstated prefill_latencies one_shot computed_share arrival_s front")
Rules.__doc__ = (
    "What was set by hand with all published rows in view. `unstated`: the precision of rows that state "
    "none. `prefill_latencies`: engine -> latencies of a layer that a step with prefill adds (vLLM captures "
    "parts of a prefill in CUDA graphs, the others launch it kernel by kernel). `one_shot`: the engine whose "
    "reductions of a decode step stay one shot in large batches (vLLM leaves that above 512 KB). "
    "`computed_share`: of a prompt that is computed where prompts repeat (`computed_share`). `arrival_s`: "
    "between two requests of a closed loop's start. `front`: whether a server's front sends one token after "
    "the other (`token_s`)."
)
RULES = Rules("bf16", {"vllm": 1, "sglang": 2, "trtllm": 4}, "trtllm", 0.1, 3e-4, True)
# Each of them undone, the others kept: `validation` shows the published rows with and without it.
WITHOUT = {
    "rows without a precision read as fp8": RULES._replace(unstated="fp8"),
    "a prefill adds one latency of a layer in every engine": RULES._replace(
        prefill_latencies=dict.fromkeys(ENGINES, 1)
    ),
    "no engine reduces in one shot": RULES._replace(one_shot=""),
    "no prompt is answered from the prefix cache": RULES._replace(computed_share=1.0),
    "a closed loop starts with a ramp of 20 ms between requests": RULES._replace(arrival_s=0.02),
    "sending a token takes a server's front no time": RULES._replace(front=False),
}
COLLECTIONS = "inferencemax", "aic"  # whose clients and launch scripts are known
DRAWN = "drawn lengths"  # a collection of which no more is known than that lengths are drawn
STEP_TOKENS = 8192
MANY = 64  # requests at once, above which errors are another kind's: queues, and hosts that are busy
ROOM_TOKENS = 512  # what AIConfigurator's launch configurations leave beside one prompt in a step
AIC_MEMORY_SHARE = {"trtllm": 0.8, "vllm": 0.9}
SLOTS = 1024


def precision(case: Case, rules: Rules = RULES) -> str:
    """The precision that is assumed for a case: the stated one, or what fits better where none is stated."""
    return naming.choose(
        "precision", rules.unstated if case.weights == "unstated" else case.weights, shapes.WEIGHT_BYTES
    )


def kv_bytes(case: Case, rules: Rules = RULES) -> int:
    """Bytes of one number in the KV cache: 8 bits where engine and scripts set them, else 16."""
    weights = precision(case, rules)
    if case.engine == "trtllm":
        return 2 if weights == "bf16" or (weights == "nvfp4" and case.collection == "aic") else 1
    return 1 if case.engine == "vllm" and case.gpu == "b200_sxm" else 2


def setting(case: Case, rules: Rules = RULES) -> step_time.Setting:
    machine = shapes.device(case.gpu)
    latencies = rules.prefill_latencies[naming.choose("engine", case.engine, ENGINES)]
    return step_time.Setting(
        shapes.shape(case.model),
        machine,
        precision(case, rules),
        kv_bytes(case, rules),
        int(case.tensor_parallel),
        latencies,
        case.engine == rules.one_shot,
    )


def error_group(case: Case) -> str:
    """Which rows' errors a case's interval is taken from first: those of its model, client and kind
    of load.
    """
    client = "later" if later_client(case) else case.collection
    return f"{case.model} {client} {'many' if case.concurrency > MANY else 'few'}"


def later_client(case: Case) -> bool:
    """Whether a case is of AIConfigurator's later runs, which have round lengths and another client."""
    return case.collection == "aic" and case.input_tokens % 1000 == 0


def computed_share(case: Case, rules: Rules = RULES) -> float:
    """Share of prompt tokens that are computed: AIConfigurator's later runs of vLLM and TensorRT-LLM were
    answered from the prefix cache.

    Nobody states it. Their TPOT is below what reading weights and KV cache and computing every prompt takes
    at the datasheet's full rates (Qwen3-32B in 8 bits on two H100, 48 at once, 4000/1000: 11.6 ms measured,
    12.3 ms at least).
    """
    return rules.computed_share if later_client(case) and case.engine in ("vllm", "trtllm") else 1.0


def policy(case: Case, slots: int = SLOTS, rules: Rules = RULES) -> np.ndarray:
    """The scheduler's `Policy` for a case as an array; ValueError where the model does not fit."""
    engine = dict(ENGINES[naming.choose("engine", case.engine, ENGINES)])
    memory: dict[str, Any] = {name: engine.pop(name) for name in ("memory_share", "of_free", "buffers_bytes")}
    wait_steps = wait_tokens = 0
    step_tokens = STEP_TOKENS
    if case.collection == "aic" and case.engine != "sglang":
        step_tokens = case.input_tokens + ROOM_TOKENS
        engine["lag_steps"] = 1
        memory["memory_share"] = AIC_MEMORY_SHARE[case.engine]
    elif case.engine == "trtllm" and case.collection == "inferencemax":
        step_tokens = (
            16384
            if case.gpu == "b200_sxm" and case.weights == "fp8"
            else case.input_tokens + case.output_tokens
        )
        if case.input_tokens == case.output_tokens == 1024 and case.tensor_parallel < 8:
            wait_steps, wait_tokens = 20, 0.9 * step_tokens
    elif case.engine == "vllm" and case.collection == "inferencemax":
        engine["lag_steps"] = 1  # --async-scheduling
    tokens = step_time.kv_tokens(setting(case, rules), **memory)
    made = Policy(
        step_tokens=step_tokens,
        slots=slots,
        kv_tokens=tokens,
        wait_steps=wait_steps,
        wait_tokens=wait_tokens,
        computed=computed_share(case, rules),
        **engine,
    )
    return np.array(made, dtype=float)


def lengths(case: Case, requests: int, seed: int = 1) -> tuple[np.ndarray, ...]:
    """(prompt tokens, new tokens) of `requests` requests: InferenceMAX draws 80 to 100 % of the nominal
    lengths, others send them exactly.
    """
    nominal = case.input_tokens, case.output_tokens
    if case.collection not in ("inferencemax", DRAWN) and not later_client(case):
        return tuple(np.full(requests, int(n)) for n in nominal)
    draw = np.random.default_rng(seed)
    return tuple(draw.integers(int(0.8 * n), int(n) + 1, requests) for n in nominal)
