"""What a published name means: number format, device (data/accelerators.csv) and model shape (data/models.csv
and data/audits/).

Every figure is the one that gives a benchmark the most room: the fastest variant of a device, the fewest
bytes of a format.
"""

import re
from functools import cache

import pandas as pd

from bench import hardware, metrics
from bench.definitions import Fields
from bench.paths import DATA

# The first pattern that a text matches decides; bits per weight are the least that the format stores.
FORMATS = [
    (
        r"nvfp4|mxfp4|fp4|nf4|w4a\d+|int4|awq|gptq(?!.*(8bit|8-bit|int8))|4-?bits?|4bpw|q4f16|marlin|iq4",
        4.0,
    ),
    (r"bitsandbytes-8|int8|8-?bits?|fp8|e4m3|e5m2|w8a\d+|float8|smoothquant|8bpw", 8.0),
    (r"bfloat16|float16|\bbf16\b|\bfp16\b|\bf16\b|\bhalf\b|16-?bits?|q0f16", 16.0),
    (r"float32|\bfp32\b|\bf32\b|32-?bits?", 32.0),
]
# In what a model was published, where nobody says in what it ran: its name is no label of a format.
PUBLISHED = [(r"gpt-oss", 4.0), (r"deepseek-(v3|r1)(?!.*(distill|qwen|llama))|kimi-k2", 8.0)]
LABEL_CHARS = 60  # of a label at most: what is longer is a remark, which names formats of other runs too
UNQUANTISED = {"", "-", "none", "default", "unquantized", "unquantised", "full", "auto"}
# The cache's own format says nothing of the weights.
OF_CACHE = re.compile(
    r"\bkv[-_ ]?(cache)?[-_ =:]*(dtype|type)?[-_ =:]*[a-z]*\d+(_e\dm\d)?|[a-z]*\d+[-_ ]kv\b", re.I
)
# A mixture of experts whose active parameters no name and no table states: nothing is known of its step.
MIXTURE = re.compile(r"moe|(^|-)\d+(-\d)?b?x\d+(-\d)?[be](-|$)|(^|-)\d+x\d+(-\d)?b|experts")
# Kinds of accelerators of which a machine may have several; of all others it has one.
CARDS = {"GPU", "ASIC"}
SPECULATIVE = re.compile(r"specul|ngram|n-gram|eagle|medusa|draft|lookahead|lookup|\bmtp\b", re.I)


@cache
def bits(text: str, published: bool = True) -> float | None:
    """Bits per weight that `text` names (`Q4_K_M` 4, `bfloat16` 16), or in which the model that it names was
    `published`; None where it names no format."""
    plain = hardware.slug(OF_CACHE.sub(" ", str(text)[: hardware.NAME_CHARS]))
    gguf = re.search(r"(?:^|-)i?q([2-8])(?:-|$)", plain)
    if gguf:
        return float(gguf[1])
    stated = re.search(r"(?:^|[^0-9a-z])([1-8])-?bits?(?:-|$)", plain)
    if stated:
        return float(stated[1])
    words = plain + " " + plain.replace("-", " ")
    patterns = FORMATS + (PUBLISHED if published else [])
    return next((size for pattern, size in patterns if re.search(pattern, words)), None)


@cache
def _models():
    """How people write the models of data/models.csv whose shape is known (pattern), with that shape."""
    return (
        pd.read_csv(DATA / "audits" / "models.csv")
        .merge(hardware.models().drop(columns="pattern"), on="model", validate="many_to_one")
        .to_dict("records")
    )


@cache
def device(text: str) -> Fields | None:
    """Datasheet of the device that `text` names (`bench.hardware`): dict of gpu, memory_bytes,
    bandwidth_bytes_per_s, flops_per_s (dense, 16 bits, the faster accumulation), count.

    Of a name that may be several variants each figure is the most that one of them has. `count` is the number
    in "8x H100", "H100 x 8" or "H100, H100", 1 for what is built into a machine, None where there is none;
    None instead of a dict where no device is recognised.
    """
    name = str(text)[: hardware.NAME_CHARS].lower()
    rows = hardware.candidates(name)
    most = rows.select_dtypes("number").max()
    if rows.empty or not most["bandwidth_gb_per_s"] > 0:
        return None
    count = re.search(r"(?:^|[\s(,])(\d{1,3}) ?[x×*] ?[a-z]", name) or re.search(r"[x×*] ?(\d{1,3})$", name)
    listed = len([part for part in name.split(",") if hardware.accelerator(part)])
    count = int(count[1]) if count else listed if listed > 1 else None
    if count is None and not set(rows["kind"]) & CARDS:
        count = 1
    memory = rows["memory_gb"].dropna().unique()
    return {
        "gpu": rows["name"].iloc[0]
        if len(rows) == 1
        else rows["family"].iloc[0] + (f" {memory[0]:g} GB" if len(memory) == 1 else ""),
        "memory_bytes": float(most["memory_gb"]) * 1e9,
        "bandwidth_bytes_per_s": float(most["bandwidth_gb_per_s"]) * 1e9,
        "flops_per_s": float(most[["fp16_dense_tflops", "fp16_acc16_dense_tflops"]].max()) * 1e12,
        "count": count,
    }


@cache
def model(text: str) -> Fields | None:
    """Shape of the model that `text` names, as `metrics.matrices`, with step_parameters (of a mixture of
    experts those that a token passes), kv_values_per_token, `model`, and `mixture` (whether it is one).

    Where only a size is in the name ("13B", "30B-A3B"), or the model is one of data/audits/mixtures.csv, nine
    tenths of what a token passes are step_parameters and the rest of the shape is absent (`exact` False): a
    name rounds up at most so far. None where nothing is recognised, nor how much of a mixture is active.
    """
    plain = hardware.slug(text)
    row = next((row for row in _models() if re.search(rf"(^|-)({row['pattern']})($|-)", plain)), None)
    if not row:
        return _mixture(plain) or _by_size(plain)
    names = [
        "layers",
        "hidden_size",
        "intermediate_size",
        "attention_heads",
        "kv_heads",
        "head_dim",
        "vocab_size",
        "mlp_matrices",
    ]
    sizes = metrics.matrices(**{name: int(row[name]) for name in names})
    step = sizes["block_parameters"] + sizes["head_parameters"]
    kv = metrics.kv_values_per_token(int(row["layers"]), int(row["kv_heads"]), int(row["head_dim"]))
    return sizes | {
        "model": row["model"],
        "exact": True,
        "mixture": row["active_b"] == row["active_b"],
        "step_parameters": step,
        "kv_values_per_token": kv,
    }


def _mixture(plain):
    """The shape of a model in data/audits/mixtures.csv."""
    row = next(
        (row for row in _mixtures() if re.search(rf"(^|-)({row['pattern']})(?![0-9])", plain)),
        None,
    )
    return row and _sized(row["model"], float(row["active_billions"]), mixture=True)


@cache
def _mixtures():
    return pd.read_csv(DATA / "audits" / "mixtures.csv").to_dict("records")


def _sized(name, billions, mixture):
    return {
        "model": name,
        "exact": False,
        "mixture": mixture,
        "step_parameters": 0.9e9 * billions,
        "kv_values_per_token": 0.0,
    }


def _by_size(plain):
    active = re.search(r"(?:^|-)a(\d+(?:-\d)?)([bm])(?:-|$)", plain)
    experts = re.search(r"(?:^|-)\d+x(\d+(?:-\d)?)b(?:-|$)", plain)
    dense = re.search(r"(?:^|-)(\d+(?:-\d+)?)b(?:-|$)", plain)
    if active:
        billions = float(active[1].replace("-", ".")) / (1e3 if active[2] == "m" else 1)
        return _sized(active[0].strip("-").upper(), billions, mixture=True)
    if experts:
        return _sized(experts[0].strip("-").upper(), float(experts[1].replace("-", ".")), mixture=True)
    if not dense or MIXTURE.search(plain):
        return None
    # "llama-3-8b" is 8 and "qwen-1-5b" 1.5 billion: the smaller reading accuses nobody.
    readings = [float(dense[1].replace("-", ".")), float(dense[1].rpartition("-")[2])]
    billions = min(size for size in readings if size > 0) if any(readings) else 0
    return _sized(dense[0].strip("-").upper(), billions, mixture=False) if billions else None


def mixture(*texts: str) -> bool:
    """Whether a text names a mixture of experts, known or not."""
    shapes = (model(text) for text in texts if text)
    return any(MIXTURE.search(hardware.slug(text)) for text in texts) or any(
        s and s["mixture"] for s in shapes
    )


def speculative(*texts: str) -> bool:
    """Whether a text names speculative decoding, in which one step gives several tokens."""
    return any(SPECULATIVE.search(str(text)[: hardware.NAME_CHARS]) for text in texts)
