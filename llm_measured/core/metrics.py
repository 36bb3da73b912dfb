"""TTFT, TPOT, ITL, output rate, KV bytes, FLOPs, MBU, MFU: one declaration per metric, and its function.

`METRICS` maps a name to its `Column`: what tables, figure axes and the method page call it. Functions take
numbers, NumPy arrays or pandas Series alike, in seconds, bytes and rates per second, and give NaN where an
input is missing. Their docstrings begin with the declaration (`definitions.metric`).
"""

from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np

from llm_measured.core import definitions
from llm_measured.core.definitions import metric

# Numbers, NumPy arrays or pandas Series alike: what comes out is of the kind that went in.
Numbers: TypeAlias = Any
METRICS = definitions.METRICS
unit_of = definitions.unit_of
# What `matrices` takes, as columns of core/models.csv.
SHAPE = """
    layers hidden_size intermediate_size attention_heads kv_heads head_dim vocab_size mlp_matrices
""".split()


@metric(
    "Time to first token",
    "request sent -> first token available to the caller",
    title="TTFT",
    unit="ms",
    factor=1e3,
    better="lower",
)
def ttft_s(sent_s: float, arrivals_s: Sequence[float] | np.ndarray) -> float:
    """NaN without arrivals."""
    return arrivals_s[0] - sent_s if len(arrivals_s) else np.nan


@metric(
    "Inter-token latencies",
    "every gap between consecutive tokens; n tokens have n - 1 gaps",
    title="ITL",
    unit="ms",
    factor=1e3,
    better="lower",
)
def itl_s(arrivals_s: Sequence[float] | np.ndarray) -> np.ndarray:
    return np.diff(np.asarray(arrivals_s, dtype=float))


@metric("The q-th percentile of raw values, linear between neighbours")
def percentile(values: Sequence[float] | np.ndarray, q: float) -> float:
    """NaN without values."""
    values = np.asarray(values, dtype=float)
    return float(np.percentile(values, q)) if values.size else np.nan


@metric(
    "Time per output token after the first",
    "(e2e - ttft) / (output_tokens - tokens of the first event)",
    source="MLPerf and vLLM, whose first event has one token",
    title="TPOT",
    unit="ms",
    factor=1e3,
    better="lower",
)
def tpot_s(
    ttft_s: Numbers, e2e_s: Numbers, output_tokens: Numbers, first_event_tokens: Numbers = 1
) -> Numbers:
    """NaN where no token came after the first event."""
    gaps = np.asarray(output_tokens, dtype=float) - first_event_tokens
    return (np.asarray(e2e_s, dtype=float) - ttft_s) / np.where(gaps > 0, gaps, np.nan)


@metric(
    "Output tokens per second of a request, prompt tokens not counted",
    "output_tokens / e2e",
    title="output tokens/s",
    better="higher",
)
def output_tokens_per_s(output_tokens: Numbers, e2e_s: Numbers) -> Numbers:
    return output_tokens / np.asarray(e2e_s, dtype=float)


@metric(
    "Numbers that one token adds to the KV cache",
    "2 (K and V) x layers x KV heads x head size (grouped-query aware)",
)
def kv_values_per_token(layers: int, kv_heads: int, head_dim: int) -> int:
    return 2 * layers * kv_heads * head_dim


@metric(
    "Bytes of KV cache for tokens tokens",
    "tokens x numbers per token x bytes of a number",
    source="MosaicML 2023",
    title="KV cache",
    unit="MB",
    factor=1e-6,
    better="lower",
)
def kv_cache_bytes(tokens: Numbers, kv_values_per_token: Numbers, value_bytes: Numbers) -> Numbers:
    return tokens * kv_values_per_token * value_bytes


@metric("Mean number of tokens in the KV cache over the decode steps of a request")
def mean_context_tokens(prompt_tokens: Numbers, output_tokens: Numbers) -> Numbers:
    """Step k of 1 .. output_tokens - 1 reads prompt_tokens + k cached tokens: the mean is prompt_tokens +
    output_tokens / 2.
    """
    return prompt_tokens + np.asarray(output_tokens, dtype=float) / 2


@metric(
    "Model bandwidth utilisation",
    "(weight bytes + KV bytes read per step) / TPOT / bandwidth. In (0, 1]",
    source="MosaicML 2023",
    title="MBU",
    better="higher",
)
def mbu(weight_bytes: Numbers, kv_bytes: Numbers, tpot_s: Numbers, bandwidth_bytes_per_s: Numbers) -> Numbers:
    return (weight_bytes + kv_bytes) / tpot_s / bandwidth_bytes_per_s


@metric(
    "Sizes of a Transformer",
    "dict of block_parameters (all layers' matrices), head_parameters, attention_values",
)
def matrices(
    layers: int,
    hidden_size: int,
    intermediate_size: int,
    attention_heads: int,
    kv_heads: int,
    head_dim: int,
    vocab_size: int,
    mlp_matrices: int = 3,
) -> dict[str, int]:
    """Block: layers x (query and output projections + key and value projections + those of the MLP, three
    where it is gated), of all layers together. Head: vocabulary x hidden size. Attention values: layers x
    query heads x head size, no parameters: attention does 4 operations for each, per token of context
    (`decode_flops`). Norms are vectors and do not count.
    """
    attention = 2 * hidden_size * attention_heads * head_dim + 2 * hidden_size * kv_heads * head_dim
    return {
        "block_parameters": layers * (attention + mlp_matrices * hidden_size * intermediate_size),
        "head_parameters": vocab_size * hidden_size,
        "attention_values": layers * attention_heads * head_dim,
    }


@metric(
    "Floating-point operations to read one prompt",
    "2 x block parameters x n + 2 x head parameters + 2 x attention values x n (n + 1)",
)
def prefill_flops(
    block_parameters: Numbers, head_parameters: Numbers, attention_values: Numbers, prompt_tokens: Numbers
) -> Numbers:
    """Block parameters are the matrices that every token passes, head parameters the output matrix (needed
    for the last token only), attention values = layers x query heads x head size: scores and weighted sum are
    4 operations each per cached token, causally.
    """
    n = np.asarray(prompt_tokens, dtype=float)
    return 2 * block_parameters * n + 2 * head_parameters + 2 * attention_values * n * (n + 1)


@metric(
    "Floating-point operations of one token's decode step",
    "2 x (block + head parameters) + 4 x attention values x context tokens",
)
def decode_flops(
    block_parameters: Numbers, head_parameters: Numbers, attention_values: Numbers, context_tokens: Numbers
) -> Numbers:
    return 2 * (block_parameters + head_parameters) + 4 * attention_values * context_tokens


@metric(
    "Model FLOPs utilisation",
    "FLOPs / time / matrix-multiply peak. In (0, 1]",
    source="PaLM 2022",
    title="MFU",
    better="higher",
)
def mfu(flops: Numbers, seconds: Numbers, peak_flops_per_s: Numbers) -> Numbers:
    return flops / seconds / peak_flops_per_s


@metric(
    "Floating-point operations per byte read from memory",
    "FLOPs / bytes",
    source="Roofline 2009",
    title="FLOPs per byte read",
)
def arithmetic_intensity(flops: Numbers, memory_bytes: Numbers) -> Numbers:
    return flops / memory_bytes


@metric(
    "Arithmetic intensity above which arithmetic limits and below which memory does",
    "peak / bandwidth",
    source="Roofline 2009",
)
def ridge_point(peak_flops_per_s: Numbers, bandwidth_bytes_per_s: Numbers) -> Numbers:
    return peak_flops_per_s / bandwidth_bytes_per_s


@metric(
    "Largest batch whose weights and KV cache fit",
    "floor((memory - weights) / KV bytes of a request); 0 where the weights do not fit",
)
def largest_batch(memory_bytes: Numbers, weight_bytes: Numbers, kv_bytes_per_request: Numbers) -> Numbers:
    """Activations, the engine's own buffers and fragmentation are not counted: real engines stop earlier."""
    return np.floor(
        np.maximum(np.asarray(memory_bytes, dtype=float) - weight_bytes, 0) / kv_bytes_per_request
    )


@metric(
    "Speculative decoding",
    "drafted tokens that the model accepted / tokens drafted. In [0, 1]",
    source="Leviathan 2023",
    title="drafts accepted",
    unit="%",
    factor=100,
    better="higher",
)
def acceptance_rate(accepted_tokens: Numbers, drafted_tokens: Numbers) -> Numbers:
    """NaN if none were drafted."""
    drafted = np.asarray(drafted_tokens, dtype=float)
    return np.asarray(accepted_tokens, dtype=float) / np.where(drafted > 0, drafted, np.nan)


@metric(
    "Forward passes after the first token",
    "output tokens - 1 - tokens that came with a pass because a draft was accepted",
)
def decode_steps(output_tokens: Numbers, accepted_tokens: Numbers) -> Numbers:
    return (
        np.asarray(output_tokens, dtype=float) - 1 - np.nan_to_num(np.asarray(accepted_tokens, dtype=float))
    )


@metric(
    "GPU energy per output token",
    "GPU energy of a request / its output tokens; idle power included",
    title="GPU energy per token",
    unit="J",
    better="lower",
)
def energy_per_token_j(gpu_energy_j: Numbers, output_tokens: Numbers) -> Numbers:
    """NaN where the energy could not be read or there are no tokens."""
    return _per_token(gpu_energy_j, output_tokens)


@metric(
    "CPU energy per output token",
    "energy of the CPU's packages for a request / its output tokens; idle power included",
    title="CPU energy per token",
    unit="J",
    better="lower",
)
def cpu_energy_per_token_j(cpu_energy_j: Numbers, output_tokens: Numbers) -> Numbers:
    """NaN where the energy could not be read or there are no tokens."""
    return _per_token(cpu_energy_j, output_tokens)


def _per_token(joules: Numbers, output_tokens: Numbers) -> Numbers:
    tokens = np.asarray(output_tokens, dtype=float)
    return np.asarray(joules, dtype=float) / np.where(tokens > 0, tokens, np.nan)


@metric(
    "Perplexity of a text",
    "exp(mean negative log-likelihood per token, in nats)",
    title="perplexity",
    better="lower",
)
def perplexity(nll_nats_per_token: Numbers) -> Numbers:
    return np.exp(nll_nats_per_token)
