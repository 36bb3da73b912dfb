"""What a published name means: number format, device and model shape, by the one parser of
names and its tables (`llm_measured.core.names`).

Every figure is the one that gives a benchmark the most room: the fastest variant of a device, the fewest
bytes of a format.
"""

import re
from functools import cache

import pandas as pd

from llm_measured.core import hardware, metrics, names
from llm_measured.core.definitions import Fields

UNQUANTISED = {"", "-", "none", "default", "unquantized", "unquantised", "full", "auto"}
# A mixture of experts whose active parameters no name and no table states: nothing is known of its step.
MIXTURE = re.compile(r"moe|(^|-)\d+(-\d)?b?x\d+(-\d)?[be](-|$)|(^|-)\d+x\d+(-\d)?b|experts")
# Kinds of accelerators of which a machine may have several; of all others it has one.
CARDS = {"GPU", "ASIC"}
SPECULATIVE = re.compile(r"specul|ngram|n-gram|eagle|medusa|draft|lookahead|lookup|\bmtp\b", re.I)


@cache
def bits(text: str, published: bool = True) -> float | None:
    """Bits per weight that the smallest block of the format stores that `text` names (`Q4_K_M` 4.5,
    `bfloat16` 16), or in which the model that it names was `published`; None where it names no format."""
    try:
        return names.number_format(text).least_bits if text.strip() else None
    except names.UnknownName:
        pass
    try:
        read = names.number_format("", text) if published else None
    except names.UnknownName:
        return None
    # What makers publish in fewer bits are mixtures: a dense one of such a name (deepseek-r1:8b) is distilled
    return read.least_bits if read and not (read.assumed and not mixture(text)) else None


@cache
def device(text: str) -> Fields | None:
    """Datasheet of the device that `text` names: dict of gpu, memory_bytes, bandwidth_bytes_per_s,
    flops_per_s (dense, 16 bits, the faster accumulation), count.

    Of a name that may be several variants each figure is the most that one of them has. `count` is what the
    text states ("8x H100", "H100 x 8", "H100, H100"), 1 for what is built into a machine, None where it
    states none; None instead of a dict where no device is recognised, several kinds are listed, or it is a
    processor: its caches, whose bandwidth nobody states, hold small models.
    """
    try:
        read = names.accelerator(text)
    except names.UnknownName:
        return None
    table = hardware.by_accelerator()
    rows = table.loc[list(read.candidates)]
    most = rows.select_dtypes("number").max()
    if read.mixed or "CPU" in set(rows["kind"]) or not most["bandwidth_gb_per_s"] > 0:
        return None
    count = read.count
    cards = set(rows["kind"]) & CARDS
    if count is None and not cards:
        count = 1
    sold = rows["memory_gb"].dropna().unique()
    memory_gb = read.memory_gb if read.modified else float(most["memory_gb"])
    return {
        "gpu": rows["name"].iloc[0]
        if len(rows) == 1
        else read.family + (f" {sold[0]:g} GB" if len(sold) == 1 and cards else ""),
        "memory_bytes": memory_gb * 1e9,
        "bandwidth_bytes_per_s": float(most["bandwidth_gb_per_s"]) * 1e9,
        "flops_per_s": float(most[["fp16_dense_tflops", "fp16_acc16_dense_tflops"]].max()) * 1e12,
        "count": count,
    }


SHAPE = (
    "layers hidden_size intermediate_size attention_heads kv_heads head_dim vocab_size mlp_matrices".split()
)


@cache
def model(text: str) -> Fields | None:
    """Shape of the model that `text` names, as `metrics.matrices`, with step_parameters (of a mixture of
    experts those that a token passes), kv_values_per_token, `model`, and `mixture` (whether it is one).

    Where the table has only a size, or it stands in the name ("13B", "30B-A3B"), nine tenths of what a token
    passes are step_parameters and the rest of the shape is absent (`exact` False): a name rounds up at most
    so far, and of two readings the smaller accuses nobody. None where nothing is recognised, nor how much of
    a mixture is active.
    """
    try:
        read = names.model(text, sized=True)
    except names.UnknownName:
        return None
    rows = hardware.by_model().loc[list(read.candidates)]
    name = read.candidates[0] if read.candidates else f"{read.parameters_b:g}B"
    if len(rows) == 1 and rows[SHAPE].notna().all(axis=None):
        return _shape(name, rows.iloc[0], read.mixture)
    passed = min((size for size in (read.active_b, read.or_parameters_b) if size), default=None)
    if passed is None or (MIXTURE.search(names.slug(text)) and not read.mixture):
        return None
    return {
        "model": name,
        "exact": False,
        "listed": bool(read.candidates),
        "mixture": read.mixture,
        "step_parameters": 0.9e9 * passed,
        "kv_values_per_token": 0.0,
    }


def _shape(name: str, row: pd.Series, mixture: bool) -> Fields:
    sizes = metrics.matrices(**{column: int(row[column]) for column in SHAPE})
    return sizes | {
        "model": name,
        "exact": True,
        "listed": True,
        "mixture": mixture,
        "step_parameters": sizes["block_parameters"] + sizes["head_parameters"],
        "kv_values_per_token": metrics.kv_values_per_token(
            int(row["layers"]), int(row["kv_heads"]), int(row["head_dim"])
        ),
    }


def mixture(*texts: str) -> bool:
    """Whether a text names a mixture of experts, known or not."""
    shapes = (model(text) for text in texts if text)
    return any(MIXTURE.search(names.slug(text)) for text in texts) or any(s and s["mixture"] for s in shapes)


def speculative(*texts: str) -> bool:
    """Whether a text names speculative decoding, in which one step gives several tokens."""
    return any(SPECULATIVE.search(str(text)[: names.NAME_CHARS]) for text in texts)
