"""TTFT, TPOT, ITL, output rate, KV bytes, MBU: pure functions. Times in seconds, sizes in bytes, rates per second.

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


def kv_cache_bytes(tokens, kv_values_per_token, value_bytes):
    """Bytes of KV cache for `tokens` tokens; kv_values_per_token = 2 x layers x KV heads x head size (grouped-query aware)."""
    return tokens * kv_values_per_token * value_bytes


def mean_context_tokens(prompt_tokens, output_tokens):
    """Mean number of tokens in the KV cache over the decode steps of a request.

    Step k of 1 .. output_tokens - 1 reads prompt_tokens + k cached tokens: the mean is prompt_tokens + output_tokens / 2.
    """
    return prompt_tokens + np.asarray(output_tokens, dtype=float) / 2


def mbu(weight_bytes, kv_bytes, tpot_s, bandwidth_bytes_per_s):
    """Model bandwidth utilisation: (weight bytes + KV bytes read per step) / TPOT / bandwidth (MosaicML 2023). In (0, 1]."""
    return (weight_bytes + kv_bytes) / tpot_s / bandwidth_bytes_per_s


def t_interval(values, confidence=0.95):
    """Half width of Student's t-interval of the mean over runs; NaN for fewer than two runs."""
    from scipy.stats import t

    values = np.asarray(values, dtype=float)
    values = values[~np.isnan(values)]
    if values.size < 2:
        return np.nan
    return float(t.ppf((1 + confidence) / 2, values.size - 1) * values.std(ddof=1) / np.sqrt(values.size))
