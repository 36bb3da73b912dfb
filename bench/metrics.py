"""TTFT, TPOT, ITL, output rate, KV bytes, FLOPs, MBU, MFU: one declaration per metric, and its function.

`METRICS` maps a name to its `Metric`: what tables, figure axes and the method page call it. Functions take
numbers, NumPy arrays or pandas Series alike, in seconds, bytes and rates per second, and give NaN where an
input is missing.
"""

import numpy as np

from bench import definitions
from bench.definitions import metric

METRICS = definitions.METRICS
unit_of = definitions.unit_of
# What `matrices` takes, as columns of data/models.csv.
SHAPE = """
    layers hidden_size intermediate_size attention_heads kv_heads head_dim vocab_size mlp_matrices
""".split()


@metric(
    "Time to first token",
    "request sent -> first token available to the caller",
    symbol="TTFT",
    display_unit="ms",
    factor=1e3,
)
def ttft_s(sent_s, arrivals_s):
    """Time to first token, s: request sent -> first token available to the caller; NaN without arrivals."""
    return arrivals_s[0] - sent_s if len(arrivals_s) else np.nan


@metric(
    "Inter-token latencies",
    "every gap between consecutive tokens; n tokens have n - 1 gaps",
    symbol="ITL",
    display_unit="ms",
    factor=1e3,
)
def itl_s(arrivals_s):
    """Inter-token latencies, s: every gap between consecutive tokens; n tokens have n - 1 gaps."""
    return np.diff(np.asarray(arrivals_s, dtype=float))


@metric("The q-th percentile of raw values, linear between neighbours")
def percentile(values, q):
    """The q-th percentile of raw values, linear between neighbours; NaN if there are none."""
    values = np.asarray(values, dtype=float)
    return float(np.percentile(values, q)) if values.size else np.nan


@metric(
    "Time per output token after the first",
    "(e2e - ttft) / (output_tokens - 1)",
    source="MLPerf and vLLM",
    symbol="TPOT",
    display_unit="ms",
    factor=1e3,
)
def tpot_s(ttft_s, e2e_s, output_tokens):
    """Time per output token after the first, s: (e2e - ttft) / (output_tokens - 1), as MLPerf and vLLM define
    it; NaN below 2 tokens."""
    gaps = np.asarray(output_tokens, dtype=float) - 1
    return (np.asarray(e2e_s, dtype=float) - ttft_s) / np.where(gaps > 0, gaps, np.nan)


@metric(
    "Output tokens per second of a request, prompt tokens not counted",
    "output_tokens / e2e",
    symbol="output tokens/s",
)
def output_tokens_per_s(output_tokens, e2e_s):
    """Output tokens per second of a request, prompt tokens not counted: output_tokens / e2e."""
    return output_tokens / np.asarray(e2e_s, dtype=float)


@metric(
    "Predicted time of a whole answer",
    "TTFT + TPOT x output tokens",
    source="MosaicML 2023",
    symbol="latency",
    display_unit="s",
)
def latency_s(ttft_s, tpot_s, output_tokens):
    """Predicted time of a whole answer, s: TTFT + TPOT x output tokens (MosaicML 2023)."""
    return ttft_s + tpot_s * output_tokens


@metric(
    "Numbers that one token adds to the KV cache",
    "2 (K and V) x layers x KV heads x head size (grouped-query aware)",
)
def kv_values_per_token(layers, kv_heads, head_dim):
    """Numbers that one token adds to the KV cache: 2 (K and V) x layers x KV heads x head size (grouped-query
    aware)."""
    return 2 * layers * kv_heads * head_dim


@metric(
    "Bytes of KV cache for tokens tokens",
    "tokens x numbers per token x bytes of a number",
    source="MosaicML 2023",
    symbol="KV cache",
    display_unit="MB",
    factor=1e-6,
)
def kv_cache_bytes(tokens, kv_values_per_token, value_bytes):
    """Bytes of KV cache for `tokens` tokens: tokens x numbers per token x bytes of a number (MosaicML
    2023)."""
    return tokens * kv_values_per_token * value_bytes


@metric("Mean number of tokens in the KV cache over the decode steps of a request")
def mean_context_tokens(prompt_tokens, output_tokens):
    """Mean number of tokens in the KV cache over the decode steps of a request.

    Step k of 1 .. output_tokens - 1 reads prompt_tokens + k cached tokens: the mean is prompt_tokens +
    output_tokens / 2.
    """
    return prompt_tokens + np.asarray(output_tokens, dtype=float) / 2


@metric(
    "Model bandwidth utilisation",
    "(weight bytes + KV bytes read per step) / TPOT / bandwidth. In (0, 1]",
    source="MosaicML 2023",
    symbol="MBU",
)
def mbu(weight_bytes, kv_bytes, tpot_s, bandwidth_bytes_per_s):
    """Model bandwidth utilisation: (weight bytes + KV bytes read per step) / TPOT / bandwidth (MosaicML
    2023). In (0, 1]."""
    return (weight_bytes + kv_bytes) / tpot_s / bandwidth_bytes_per_s


@metric(
    "Sizes of a Transformer",
    "dict of block_parameters (all layers' matrices), head_parameters, attention_values",
)
def matrices(
    layers, hidden_size, intermediate_size, attention_heads, kv_heads, head_dim, vocab_size, mlp_matrices=3
):
    """Sizes of a Transformer: dict of block_parameters (all layers' matrices), head_parameters,
    attention_values.

    Block: layers x (query and output projections + key and value projections + those of the MLP, three where
    it is gated). Head: vocabulary x hidden size. Attention values: layers x query heads x head size. Norms
    are vectors and do not count.
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
def prefill_flops(block_parameters, head_parameters, attention_values, prompt_tokens):
    """Floating-point operations to read one prompt: 2 x block parameters x n + 2 x head parameters + 2 x
    attention values x n (n + 1).

    Block parameters are the matrices that every token passes, head parameters the output matrix (needed for
    the last token only), attention values = layers x query heads x head size: scores and weighted sum are 4
    operations each per cached token, causally.
    """
    n = np.asarray(prompt_tokens, dtype=float)
    return 2 * block_parameters * n + 2 * head_parameters + 2 * attention_values * n * (n + 1)


@metric(
    "Floating-point operations of one token's decode step",
    "2 x (block + head parameters) + 4 x attention values x context tokens",
)
def decode_flops(block_parameters, head_parameters, attention_values, context_tokens):
    """Floating-point operations of one token's decode step: 2 x (block + head parameters) + 4 x attention
    values x context tokens."""
    return 2 * (block_parameters + head_parameters) + 4 * attention_values * context_tokens


@metric(
    "Model FLOPs utilisation",
    "FLOPs / time / matrix-multiply peak. In (0, 1]",
    source="PaLM 2022",
    symbol="MFU",
)
def mfu(flops, seconds, peak_flops_per_s):
    """Model FLOPs utilisation: FLOPs / time / matrix-multiply peak (PaLM 2022). In (0, 1]."""
    return flops / seconds / peak_flops_per_s


@metric(
    "Floating-point operations per byte read from memory",
    "FLOPs / bytes",
    source="Roofline 2009",
    symbol="FLOPs per byte read",
)
def arithmetic_intensity(flops, memory_bytes):
    """Floating-point operations per byte read from memory: FLOPs / bytes (Roofline 2009)."""
    return flops / memory_bytes


@metric(
    "Arithmetic intensity above which arithmetic limits and below which memory does",
    "peak / bandwidth",
    source="Roofline 2009",
)
def ridge_point(peak_flops_per_s, bandwidth_bytes_per_s):
    """Arithmetic intensity above which arithmetic limits and below which memory does: peak / bandwidth
    (Roofline 2009)."""
    return peak_flops_per_s / bandwidth_bytes_per_s


@metric(
    "Largest batch whose weights and KV cache fit",
    "floor((memory - weights) / KV bytes of a request); 0 where the weights do not fit",
)
def largest_batch(memory_bytes, weight_bytes, kv_bytes_per_request):
    """Largest batch whose weights and KV cache fit: floor((memory - weights) / KV bytes of a request); 0
    where the weights do not fit.

    Activations, the engine's own buffers and fragmentation are not counted: real engines stop earlier.
    """
    return np.floor(
        np.maximum(np.asarray(memory_bytes, dtype=float) - weight_bytes, 0) / kv_bytes_per_request
    )


@metric(
    "Speculative decoding",
    "drafted tokens that the model accepted / tokens drafted. In [0, 1]",
    source="Leviathan 2023",
    symbol="drafts accepted",
    display_unit="%",
    factor=100,
)
def acceptance_rate(accepted_tokens, drafted_tokens):
    """Speculative decoding: drafted tokens that the model accepted / tokens drafted (Leviathan 2023). In [0,
    1]; NaN if none were drafted."""
    drafted = np.asarray(drafted_tokens, dtype=float)
    return np.asarray(accepted_tokens, dtype=float) / np.where(drafted > 0, drafted, np.nan)


@metric(
    "Forward passes after the first token",
    "output tokens - 1 - tokens that came with a pass because a draft was accepted",
)
def decode_steps(output_tokens, accepted_tokens):
    """Forward passes after the first token: output tokens - 1 - tokens that came with a pass because a draft
    was accepted."""
    return (
        np.asarray(output_tokens, dtype=float) - 1 - np.nan_to_num(np.asarray(accepted_tokens, dtype=float))
    )


@metric(
    "GPU energy per output token",
    "GPU energy of a request / its output tokens; idle power included",
    symbol="GPU energy per token",
    display_unit="J",
)
def energy_per_token_j(gpu_energy_j, output_tokens):
    """GPU energy per output token, J: GPU energy of a request / its output tokens; idle power included. NaN
    where the energy could not be read or there are no tokens."""
    return _per_token(gpu_energy_j, output_tokens)


@metric(
    "CPU energy per output token",
    "energy of the CPU's packages for a request / its output tokens; idle power included",
    symbol="CPU energy per token",
    display_unit="J",
)
def cpu_energy_per_token_j(cpu_energy_j, output_tokens):
    """CPU energy per output token, J: energy of the CPU's packages for a request / its output tokens; idle
    power included. NaN where the energy could not be read or there are no tokens."""
    return _per_token(cpu_energy_j, output_tokens)


def _per_token(joules, output_tokens):
    tokens = np.asarray(output_tokens, dtype=float)
    return np.asarray(joules, dtype=float) / np.where(tokens > 0, tokens, np.nan)


@metric("Perplexity of a text", "exp(mean negative log-likelihood per token, in nats)", symbol="perplexity")
def perplexity(nll_nats_per_token):
    """Perplexity of a text: exp(mean negative log-likelihood per token, in nats)."""
    return np.exp(nll_nats_per_token)
