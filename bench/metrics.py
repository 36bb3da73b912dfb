"""TTFT, TPOT, ITL, output rate, KV bytes, FLOPs, MBU, MFU: pure functions. Times in seconds, sizes in bytes, rates per second.

Every function takes numbers or NumPy arrays / pandas Series alike, and gives NaN where an input is missing.
"""

import numpy as np


def ttft_s(sent_s, arrivals_s):
    """Time to first token, s: request sent -> first token available to the caller; NaN without arrivals."""
    return arrivals_s[0] - sent_s if len(arrivals_s) else np.nan


def itl_s(arrivals_s):
    """Inter-token latencies, s: every gap between consecutive tokens; n tokens have n - 1 gaps."""
    return np.diff(np.asarray(arrivals_s, dtype=float))


def percentile(values, q):
    """The q-th percentile of raw values, linear between neighbours; NaN if there are none."""
    values = np.asarray(values, dtype=float)
    return float(np.percentile(values, q)) if values.size else np.nan


def tpot_s(ttft_s, e2e_s, output_tokens):
    """Time per output token after the first, s: (e2e - ttft) / (output_tokens - 1), as MLPerf and vLLM define it; NaN below 2 tokens."""
    gaps = np.asarray(output_tokens, dtype=float) - 1
    return (np.asarray(e2e_s, dtype=float) - ttft_s) / np.where(gaps > 0, gaps, np.nan)


def output_tokens_per_s(output_tokens, e2e_s):
    """Output tokens per second of a request, prompt tokens not counted: output_tokens / e2e."""
    return output_tokens / np.asarray(e2e_s, dtype=float)


def latency_s(ttft_s, tpot_s, output_tokens):
    """Predicted time of a whole answer, s: TTFT + TPOT x output tokens (MosaicML 2023)."""
    return ttft_s + tpot_s * output_tokens


def kv_values_per_token(layers, kv_heads, head_dim):
    """Numbers that one token adds to the KV cache: 2 (K and V) x layers x KV heads x head size (grouped-query aware)."""
    return 2 * layers * kv_heads * head_dim


def kv_cache_bytes(tokens, kv_values_per_token, value_bytes):
    """Bytes of KV cache for `tokens` tokens: tokens x numbers per token x bytes of a number (MosaicML 2023)."""
    return tokens * kv_values_per_token * value_bytes


def mean_context_tokens(prompt_tokens, output_tokens):
    """Mean number of tokens in the KV cache over the decode steps of a request.

    Step k of 1 .. output_tokens - 1 reads prompt_tokens + k cached tokens: the mean is prompt_tokens + output_tokens / 2.
    """
    return prompt_tokens + np.asarray(output_tokens, dtype=float) / 2


def mbu(weight_bytes, kv_bytes, tpot_s, bandwidth_bytes_per_s):
    """Model bandwidth utilisation: (weight bytes + KV bytes read per step) / TPOT / bandwidth (MosaicML 2023). In (0, 1]."""
    return (weight_bytes + kv_bytes) / tpot_s / bandwidth_bytes_per_s


def matrices(
    layers, hidden_size, intermediate_size, attention_heads, kv_heads, head_dim, vocab_size, mlp_matrices=3
):
    """Sizes of a Transformer: dict of block_parameters (all layers' matrices), head_parameters, attention_values.

    Block: layers x (query and output projections + key and value projections + those of the MLP, three where it is gated). Head: vocabulary x hidden size.
    Attention values: layers x query heads x head size. Norms are vectors and do not count.
    """
    attention = 2 * hidden_size * attention_heads * head_dim + 2 * hidden_size * kv_heads * head_dim
    return {
        "block_parameters": layers * (attention + mlp_matrices * hidden_size * intermediate_size),
        "head_parameters": vocab_size * hidden_size,
        "attention_values": layers * attention_heads * head_dim,
    }


def prefill_flops(block_parameters, head_parameters, attention_values, prompt_tokens):
    """Floating-point operations to read one prompt: 2 x block parameters x n + 2 x head parameters + 2 x attention values x n (n + 1).

    Block parameters are the matrices that every token passes, head parameters the output matrix (needed for the last token only),
    attention values = layers x query heads x head size: scores and weighted sum are 4 operations each per cached token, causally.
    """
    n = np.asarray(prompt_tokens, dtype=float)
    return 2 * block_parameters * n + 2 * head_parameters + 2 * attention_values * n * (n + 1)


def decode_flops(block_parameters, head_parameters, attention_values, context_tokens):
    """Floating-point operations of one token's decode step: 2 x (block + head parameters) + 4 x attention values x context tokens."""
    return 2 * (block_parameters + head_parameters) + 4 * attention_values * context_tokens


def mfu(flops, seconds, peak_flops_per_s):
    """Model FLOPs utilisation: FLOPs / time / matrix-multiply peak (PaLM 2022). In (0, 1]."""
    return flops / seconds / peak_flops_per_s


def arithmetic_intensity(flops, memory_bytes):
    """Floating-point operations per byte read from memory: FLOPs / bytes (Roofline 2009)."""
    return flops / memory_bytes


def ridge_point(peak_flops_per_s, bandwidth_bytes_per_s):
    """Arithmetic intensity above which arithmetic limits and below which memory does: peak / bandwidth (Roofline 2009)."""
    return peak_flops_per_s / bandwidth_bytes_per_s


def largest_batch(memory_bytes, weight_bytes, kv_bytes_per_request):
    """Largest batch whose weights and KV cache fit: floor((memory - weights) / KV bytes of a request); 0 where the weights do not fit.

    Activations, the engine's own buffers and fragmentation are not counted: real engines stop earlier.
    """
    return np.floor(
        np.maximum(np.asarray(memory_bytes, dtype=float) - weight_bytes, 0) / kv_bytes_per_request
    )


def acceptance_rate(accepted_tokens, drafted_tokens):
    """Speculative decoding: drafted tokens that the model accepted / tokens drafted (Leviathan 2023). In [0, 1]; NaN if none were drafted."""
    drafted = np.asarray(drafted_tokens, dtype=float)
    return np.asarray(accepted_tokens, dtype=float) / np.where(drafted > 0, drafted, np.nan)


def decode_steps(output_tokens, accepted_tokens):
    """Forward passes after the first token: output tokens - 1 - tokens that came with a pass because a draft was accepted."""
    return (
        np.asarray(output_tokens, dtype=float) - 1 - np.nan_to_num(np.asarray(accepted_tokens, dtype=float))
    )


def perplexity(nll_nats_per_token):
    """Perplexity of a text: exp(mean negative log-likelihood per token, in nats)."""
    return np.exp(nll_nats_per_token)


def t_interval(values, confidence=0.95):
    """Half width of Student's t-interval of the mean over runs; NaN for fewer than two runs."""
    from scipy.stats import t

    values = np.asarray(values, dtype=float)
    values = values[~np.isnan(values)]
    if values.size < 2:
        return np.nan
    return float(t.ppf((1 + confidence) / 2, values.size - 1) * values.std(ddof=1) / np.sqrt(values.size))
