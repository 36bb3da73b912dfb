"""TTFT, TPOT, ITL, output rate, KV bytes, FLOPs, MBU, MFU: one declaration per metric, and its function.

`METRICS` maps a name to its `Metric`: what tables, figure axes and the method page call it. Functions take
numbers, NumPy arrays or pandas Series alike, in seconds, bytes and rates per second, and give NaN where an
input is missing.
"""

from dataclasses import dataclass

import numpy as np

METRICS = {}
# What `matrices` takes, as columns of data/models.csv.
SHAPE = """
    layers hidden_size intermediate_size attention_heads kv_heads head_dim vocab_size mlp_matrices
""".split()
# A name's suffix is its unit; the longer ones are looked for first.
UNITS = {
    "_tokens_per_s": "tokens/s",
    "_bytes_per_s": "bytes/s",
    "_flops_per_s": "FLOP/s",
    "_per_s": "1/s",
    "_tokens": "tokens",
    "_bytes": "bytes",
    "_s": "s",
    "_j": "J",
}


def unit_of(name):
    """Unit that the suffix of a column or metric states; empty where it states none."""
    return next((unit for suffix, unit in UNITS.items() if name.endswith(suffix)), "")


@dataclass(frozen=True)
class Metric:
    """What is known of one metric. Stored values are in `unit`; readers see `symbol` and values times
    `factor` in `display_unit`."""

    name: str
    title: str  # in words
    formula: str = ""
    source: str = ""
    symbol: str = ""  # short, for tables and axes
    display_unit: str = ""
    factor: float = 1
    function: object = None  # None: a column that is measured, or a statistic of one

    @property
    def unit(self):
        """Unit of the stored values, by the name's suffix."""
        return unit_of(self.name)

    @property
    def label(self):
        """Symbol with the display unit: `TTFT (ms)`."""
        return f"{self.symbol} ({self.display_unit})" if self.display_unit else self.symbol


def declare(name, title, formula="", **known):
    """Add a metric that has no function of its own to METRICS and return it; ValueError for a second
    declaration."""
    if name in METRICS:
        raise ValueError(f"The metric {name} is declared twice in bench/metrics.py.")
    METRICS[name] = Metric(name, title, formula, **known)
    return METRICS[name]


def metric(title, formula="", **known):
    """Decorator: the function computes the metric of its name, declared as in `declare`."""

    def declared(function):
        declare(function.__name__, title, formula, function=function, **known)
        return function

    return declared


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
    tokens = np.asarray(output_tokens, dtype=float)
    return np.asarray(gpu_energy_j, dtype=float) / np.where(tokens > 0, tokens, np.nan)


@metric("Perplexity of a text", "exp(mean negative log-likelihood per token, in nats)", symbol="perplexity")
def perplexity(nll_nats_per_token):
    """Perplexity of a text: exp(mean negative log-likelihood per token, in nats)."""
    return np.exp(nll_nats_per_token)


@metric("Half width of Student's t-interval of the mean over runs")
def t_interval(values, confidence=0.95):
    """Half width of Student's t-interval of the mean over runs; NaN for fewer than two runs."""
    from scipy.special import stdtrit  # the quantile of scipy.stats.t, without the long import of scipy.stats

    values = np.asarray(values, dtype=float)
    values = values[~np.isnan(values)]
    if values.size < 2:
        return np.nan
    return float(stdtrit(values.size - 1, (1 + confidence) / 2) * values.std(ddof=1) / np.sqrt(values.size))


# Columns that are measured, and statistics of them: no formula of their own.
for _q in ("p50", "p90", "p99", "max"):
    declare(
        f"itl_{_q}_s", f"{_q} of the gaps between tokens", symbol=f"ITL {_q}", display_unit="ms", factor=1e3
    )
for _name, _symbol in (("ttft", "TTFT"), ("tpot", "TPOT"), ("e2e", "E2E")):
    for _q in ("p50", "p90", "p99"):
        declare(
            f"{_name}_{_q}_s",
            f"{_q} of {_symbol} over requests",
            symbol=f"{_symbol} {_q}",
            display_unit="ms",
            factor=1e3,
        )
declare("e2e_s", "Time of a whole answer", "request sent -> last token", symbol="latency", display_unit="s")
declare(
    "step_s",
    "Time of a decode step",
    "median gap between tokens",
    symbol="decode step",
    display_unit="ms",
    factor=1e3,
)
declare("load_s", "Time to load the engine", symbol="load", display_unit="s")
declare("peak_memory_bytes", "Largest memory held", symbol="peak memory", display_unit="MB", factor=1e-6)
declare("weight_bytes", "Weights read per decode step", symbol="weights read", display_unit="MB", factor=1e-6)
declare("gpu_energy_j", "GPU energy of a request", symbol="GPU energy", display_unit="J")
declare("cpu_energy_j", "CPU energy of a request", symbol="CPU energy", display_unit="J")
declare("mbu_datasheet", "MBU against the datasheet's bandwidth", symbol="MBU, datasheet")
declare("mfu_prefill", "MFU of reading the prompts", symbol="MFU, prefill")
declare("mfu_decode", "MFU of a decode step", symbol="MFU, decode")
declare("requests_per_s", "Requests answered per second", symbol="requests/s")
declare(
    "goodput_per_s",
    "Requests per second that meet every objective",
    symbol="goodput",
    display_unit="requests/s",
)
declare(
    "late_p99_s",
    "p99 of how late the load client was",
    symbol="client late, p99",
    display_unit="ms",
    factor=1e3,
)
