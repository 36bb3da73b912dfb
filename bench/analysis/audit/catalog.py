"""What a published name means: number format, device and model shape, from data/gpus.csv, data/models.csv
and data/audits/.

Every figure is the one that gives a benchmark the most room: the fastest variant of a device, the fewest
bytes of a format.
"""

import re
from functools import cache

import pandas as pd

from bench import metrics
from bench.paths import ROOT

# The first pattern that a text matches decides; bits per weight are the least that the format stores.
FORMATS = [
    (r"nvfp4|mxfp4|fp4|nf4|w4a\d+|int4|awq|gptq(?!.*(8bit|8-bit|int8))|4-?bits?|4bpw|q4f16|marlin|iq4", 4.0),
    (r"bitsandbytes-8|int8|8-?bits?|fp8|e4m3|e5m2|w8a\d+|float8|smoothquant|8bpw", 8.0),
    (r"bfloat16|float16|\bbf16\b|\bfp16\b|\bf16\b|\bhalf\b|16-?bits?|q0f16", 16.0),
    (r"float32|\bfp32\b|\bf32\b|32-?bits?", 32.0),
]
NAME_CHARS = 300  # of a name that are looked at: patterns must not take long on a hostile one
UNQUANTISED = {"", "-", "none", "default", "unquantized", "unquantised", "full", "auto"}
# The cache's own format says nothing of the weights.
OF_CACHE = re.compile(
    r"\bkv[-_ ]?(cache)?[-_ =:]*(dtype|type)?[-_ =:]*[a-z]*\d+(_e\dm\d)?|[a-z]*\d+[-_ ]kv\b", re.I
)
# Billions of parameters that a token passes, where a name states all of them or none.
ACTIVE = [
    (r"gpt-oss-120b", 5.1),
    (r"gpt-oss-20b", 3.6),
    (r"deepseek-v2-lite", 2.4),
    (r"deepseek-(coder-)?v2", 21),
    (r"deepseek-(?!.*distill).*(v3|r1)|kimi-k2", 32),
    (r"dbrx", 36),
    (r"grok-1", 79),
    (r"phi-3-5-moe", 6.6),
    (r"glm-4-5-air", 12),
    (r"glm-4-[5-9]", 32),
    (r"minimax-m2", 10),
]
SPECULATIVE = re.compile(r"specul|ngram|n-gram|eagle|medusa|draft|lookahead|lookup|\bmtp\b", re.I)


def slug(text):
    """`text`, as much of it as a name has, in small letters, its other signs as single hyphens."""
    return re.sub(r"[^a-z0-9]+", "-", str(text)[:NAME_CHARS].lower()).strip("-")


def bits(text):
    """Bits per weight that `text` names (`Q4_K_M` 4, `bfloat16` 16), None where it names no format."""
    plain = slug(OF_CACHE.sub(" ", str(text)[:NAME_CHARS]))
    gguf = re.search(r"(?:^|-)i?q([2-8])(?:-|$)", plain)
    if gguf:
        return float(gguf[1])
    stated = re.search(r"(?:^|[^0-9a-z])([1-8])-?bits?(?:-|$)", plain)
    if stated:
        return float(stated[1])
    words = plain + " " + plain.replace("-", " ")
    return next((size for pattern, size in FORMATS if re.search(pattern, words)), None)


@cache
def _table(name):
    """data/audits/<name>.csv, figures that it leaves empty taken from data/<...>.csv."""
    own = pd.read_csv(ROOT / "data" / "audits" / f"{name}.csv")
    key, file = ("gpu", "gpus") if name == "devices" else ("model", "models")
    known = pd.read_csv(ROOT / "data" / f"{file}.csv").set_index(key)
    for column in [c for c in own.columns if c in known.columns and c != "source"]:
        own[column] = own[column].astype(object).where(own[column].notna(), own[key].map(known[column]))
    return own.to_dict("records")


@cache
def device(text):
    """Datasheet of the device that `text` names: dict of gpu, memory_bytes, bandwidth_bytes_per_s,
    flops_per_s (dense, 16 bits), count.

    `count` is the number in "8x H100" or "H100 x 8", None where there is none; None instead of a dict where
    no device is recognised.
    """
    plain = slug(text)
    row = next((row for row in _table("devices") if re.search(row["pattern"], plain)), None)
    if not row:
        return None
    name = str(text)[:NAME_CHARS].lower()
    count = re.search(r"(?:^|\()(\d{1,3}) ?[x×*] ?[a-z]", name) or re.search(r"[x×*] ?(\d{1,3})$", name)
    flops = row["fp16_dense_tflops"]
    return {
        "gpu": row["gpu"],
        "memory_bytes": float(row["memory_gb"]) * 1e9,
        "bandwidth_bytes_per_s": float(row["bandwidth_gb_per_s"]) * 1e9,
        "flops_per_s": float(flops) * 1e12 if pd.notna(flops) else float("nan"),
        "count": int(count[1]) if count else None,
    }


@cache
def model(text):
    """Shape of the model that `text` names, as `metrics.matrices`, with step_parameters,
    kv_values_per_token and `model`.

    Where only a size is in the name ("13B", "30B-A3B"), or the model is one of ACTIVE, nine tenths of what a
    token passes are step_parameters and the rest of the shape is absent (`exact` False): a name rounds up at
    most so far. None where nothing is recognised.
    """
    plain = slug(text)
    row = next((row for row in _table("models") if re.search(rf"(^|-)({row['pattern']})($|-)", plain)), None)
    if not row:
        return _by_size(plain)
    names = (
        "layers hidden_size intermediate_size attention_heads kv_heads head_dim vocab_size mlp_matrices"
    ).split()
    sizes = metrics.matrices(**{name: int(row[name]) for name in names})
    step = sizes["block_parameters"] + sizes["head_parameters"]
    kv = metrics.kv_values_per_token(int(row["layers"]), int(row["kv_heads"]), int(row["head_dim"]))
    return sizes | {"model": row["model"], "exact": True, "step_parameters": step, "kv_values_per_token": kv}


def _by_size(plain):
    active = re.search(r"(?:^|-)a(\d+(?:-\d)?)b(?:-|$)", plain)
    experts = re.search(r"(?:^|-)\d+x(\d+(?:-\d)?)b(?:-|$)", plain)
    dense = re.search(r"(?:^|-)(\d+(?:-\d)?)b(?:-|$)", plain)
    known = next((billions for pattern, billions in ACTIVE if re.search(pattern, plain)), None)
    found = active or experts or dense
    if not found and not known:
        return None
    billions = known or float(found[1].replace("-", "."))
    return {
        "model": found[0].strip("-").upper() if found else f"{billions:g}B",
        "exact": False,
        "step_parameters": 0.9e9 * billions,
        "kv_values_per_token": 0.0,
    }


def speculative(*texts):
    """Whether a text names speculative decoding, in which one step gives several tokens."""
    return any(SPECULATIVE.search(str(text)[:NAME_CHARS]) for text in texts)
