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

import numpy as np

from bench import naming
from bench.analysis.planning import shapes, step_time

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
UNSTATED = "bf16"  # what fits better where rows state no precision: `validation.unstated_precision`
# Set by hand, not fitted: vLLM captures parts of a prefill in CUDA graphs, the others launch it kernel by
# kernel.
# Likewise: whose reductions of a decode step stay one shot in large batches; vLLM leaves that above 512 KB.
ONE_SHOT = "trtllm"
PREFILL_LATENCIES = {"vllm": 1, "sglang": 2, "trtllm": 4}
STEP_TOKENS = 8192
MANY = 64  # requests at once, above which errors are another kind's: queues, and hosts that are busy
ROOM_TOKENS = 512  # what AIConfigurator's launch configurations leave beside one prompt in a step
AIC_MEMORY_SHARE = {"trtllm": 0.8, "vllm": 0.9}
COMPUTED_SHARE = 0.1  # of a prompt that is computed where prompts repeat
SLOTS = 1024


def precision(case):
    """The precision that is assumed for a case: the stated one, or what fits better where none is stated."""
    return naming.choose(
        "precision", UNSTATED if case.weights == "unstated" else case.weights, shapes.WEIGHT_BYTES
    )


def kv_bytes(case):
    """Bytes of one number in the KV cache: 8 bits where engine and scripts set them, else 16."""
    weights = precision(case)
    if case.engine == "trtllm":
        return 2 if weights == "bf16" or (weights == "nvfp4" and case.collection == "aic") else 1
    return 1 if case.engine == "vllm" and case.gpu == "b200_sxm" else 2


def setting(case):
    """`step_time.Setting` of a case."""
    machine = shapes.device(case.gpu)
    latencies = PREFILL_LATENCIES[naming.choose("engine", case.engine, ENGINES)]
    return step_time.Setting(
        shapes.shape(case.model),
        machine,
        precision(case),
        kv_bytes(case),
        int(case.tensor_parallel),
        latencies,
        case.engine == ONE_SHOT,
    )


def stratum(case):
    """Which rows' errors a case's interval is taken from first: those of its model, client and kind
    of load.
    """
    client = "later" if later_client(case) else case.collection
    return f"{case.model} {client} {'many' if case.concurrency > MANY else 'few'}"


def later_client(case):
    """Whether a case is of AIConfigurator's later runs, which have round lengths and another client."""
    return case.collection == "aic" and case.input_tokens % 1000 == 0


def computed_share(case):
    """Share of prompt tokens that are computed: AIConfigurator's later runs of vLLM and TensorRT-LLM were
    answered from the prefix cache.

    Nobody states it. Their TPOT is below what reading weights and KV cache and computing every prompt takes
    at the datasheet's full rates (Qwen3-32B in 8 bits on two H100, 48 at once, 4000/1000: 11.6 ms measured,
    12.3 ms at least).
    """
    return COMPUTED_SHARE if later_client(case) and case.engine in ("vllm", "trtllm") else 1.0


def policy(case, slots=SLOTS):
    """The scheduler's `Policy` for a case as an array; ValueError where the model does not fit."""
    engine = dict(ENGINES[naming.choose("engine", case.engine, ENGINES)])
    memory = {name: engine.pop(name) for name in ("memory_share", "of_free", "buffers_bytes")}
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
    tokens = step_time.kv_tokens(setting(case), **memory)
    made = Policy(
        step_tokens=step_tokens,
        slots=slots,
        kv_tokens=tokens,
        wait_steps=wait_steps,
        wait_tokens=wait_tokens,
        computed=computed_share(case),
        **engine,
    )
    return np.array(made, dtype=float)


def lengths(case, requests, seed=1):
    """(prompt tokens, new tokens) of `requests` requests: InferenceMAX draws 80 to 100 % of the nominal
    lengths, others send them exactly.
    """
    nominal = case.input_tokens, case.output_tokens
    if case.collection != "inferencemax" and not later_client(case):
        return tuple(np.full(requests, int(n)) for n in nominal)
    draw = np.random.default_rng(seed)
    return tuple(draw.integers(int(0.8 * n), int(n) + 1, requests) for n in nominal)
