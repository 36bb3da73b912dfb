"""Seconds of a serving step from physics: bytes, operations, overhead and the links between tensor-parallel
GPUs.

    step = layers x (latency + latencies of two reductions) + sequences x host time
           + weights and GEMMs + KV read + links and activations + attention of the prefill

Bytes, operations and data on the links follow from the model's shape and the device's datasheet. Nine
coefficients per engine and device say how far the engine gets on it; they are fitted in `fit`. How steps
follow each other is `scheduler`.
"""

from collections import namedtuple
from collections.abc import Sequence

import numpy as np

from llm_planner import shapes

Coefficient = namedtuple("Coefficient", "name unit prior spread meaning")
# Priors are what is usual, not fitted; the spread is one standard deviation of the logarithm.
COEFFICIENTS = [
    Coefficient("layer_s", "s", 40e-6, 0.5, "latency of a layer's kernels in a decode step"),
    Coefficient(
        "eight_bit_share",
        "1",
        0.80,
        0.25,
        "of compute_share that is left where products have 8 bits or fewer",
    ),
    Coefficient("sequence_s", "s", 15e-6, 1.2, "host and sampling time of one sequence in a step"),
    Coefficient(
        "bandwidth_share",
        "1",
        0.80,
        0.15,
        "of the datasheet's bandwidth that reading weights and activations reaches",
    ),
    Coefficient(
        "kv_share", "1", 0.70, 0.25, "of the datasheet's bandwidth that reading the KV cache reaches"
    ),
    Coefficient(
        "compute_share",
        "1",
        0.60,
        0.20,
        "of the datasheet's dense rate that matrix products of a prefill reach",
    ),
    Coefficient(
        "link_share",
        "1",
        0.50,
        0.60,
        "of the datasheet's link rate that reductions reach; their latency is divided by it too",
    ),
    Coefficient(
        "token_s",
        "s",
        30e-6,
        1.0,
        "of the server's front (detokenizer, HTTP) for one token; tokens of all requests pass it one after "
        "the other",
    ),
    Coefficient(
        "request_s",
        "s",
        30e-3,
        0.7,
        "from a client's sending to the scheduler: network, tokenizer, queue between processes",
    ),
]
NAMES = [c.name for c in COEFFICIENTS]
REDUCTION_S = 4e-6  # latency of one reduction over NVLink at its best
# Times that a layer reads or writes a hidden state outside matrix products: norms, residuals, quantisation.
ACTIVATION_PASSES = 10
ATTENTION_SHARE = 0.8  # of the GEMM efficiency that attention kernels of a prefill reach

Setting = namedtuple("Setting", "shape machine weights kv_bytes tensor_parallel prefill_latencies one_shot")
Setting.__doc__ = (
    "A model on a device: `shapes.Shape`, `shapes.device`, precision, bytes of a KV number, "
    "GPUs that share a model, latencies of a layer that a step with prefill adds for lack of a CUDA graph; "
    "whether a decode step's reductions are one shot."
)


def cost(setting: Setting, coefficients: Sequence[float] | np.ndarray) -> np.ndarray:
    """The array of seconds that `scheduler.step_s` adds up, for `coefficients` in the order of
    COEFFICIENTS.
    """
    shape, machine, tp = setting.shape, setting.machine, setting.tensor_parallel
    layer, eight_bit, sequence, bandwidth, kv, compute, link, token, _ = coefficients
    rate = machine["bandwidth_bytes_per_s"]
    reductions = 2 * shape.layers if tp > 1 else 0
    step_bytes = shape.block * shapes.WEIGHT_BYTES[setting.weights] + shape.head * 2
    activations = (
        ACTIVATION_PASSES * shape.hidden_size
        + (4 * shape.intermediate_size + 4 * shape.heads_values / shape.layers) / tp
    )
    peak = shapes.peak(machine, setting.weights)
    # One shot: every GPU reads the data of all others; else two passes of its share.
    hidden_s = reductions * shape.hidden_size * 2 / (machine["link_bytes_per_s"] * link)
    passes_s = shape.layers * 2 * activations / (rate * bandwidth)
    return np.array(
        [
            shape.layers * layer + reductions * REDUCTION_S / link,
            shape.layers * layer * setting.prefill_latencies,
            sequence,
            step_bytes / tp / (rate * bandwidth),
            2 * shape.block / tp / (peak * compute * (1 if setting.weights == "bf16" else eight_bit)),
            shape.kv_values * setting.kv_bytes / min(tp, shape.kv_heads) / (rate * kv),
            hidden_s * 2 * (tp - 1) / tp + passes_s,
            4 * shape.heads_values / tp / (machine["peak_16_flops_per_s"] * compute * ATTENTION_SHARE),
            hidden_s * ((tp - 1) if setting.one_shot else 2 * (tp - 1) / tp) + passes_s,
            token,
        ]
    )


def kv_tokens(setting: Setting, memory_share: float, of_free: bool, buffers_bytes: float) -> float:
    """Tokens of KV cache that fit beside the weights: a share of what is free, or of all memory, less
    buffers; ValueError where none do.
    """
    shape, memory, tp = setting.shape, setting.machine["memory_bytes"], setting.tensor_parallel
    weights = shapes.weight_bytes(shape, setting.weights) / tp
    free = (
        memory_share * (memory - weights - buffers_bytes)
        if of_free
        else memory_share * memory - weights - buffers_bytes
    )
    per_token = shape.kv_values * setting.kv_bytes / min(tp, shape.kv_heads)
    if free < per_token:
        needed = (weights + buffers_bytes) / 1e9
        raise ValueError(
            f"{shape.model} in {setting.weights} does not fit on {tp} x "
            f"{setting.machine['device']}: each GPU would need {needed:.0f} GB of its "
            f"{memory / 1e9:.0f} GB before any KV cache; take more GPUs, fewer bits, or a larger device."
        )
    return free / per_token
