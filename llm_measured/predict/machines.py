"""Accelerators, models and engines as the model of a step needs them: generation, class, kind, peak."""

import re
from dataclasses import dataclass
from functools import cache

import pandas as pd

from llm_measured.core import hardware, names

# Generations of one vendor's memory controllers and kernels, by the accelerator's id.
ARCHITECTURES = [
    ("Hopper", r"gh200|h[12]00|h800|h20-"),
    ("Blackwell server", r"g?b[23]00"),
    ("Blackwell", r"rtx-pro-|rtx-50"),
    ("DGX Spark", r"dgx-spark|jetson-agx-thor"),
    ("Ampere server", r"a100|a800|a30$|cmp-170"),
    ("Ada", r"l40|l20|l4$|rtx-40|.*-ada$"),
    ("Ampere", r"rtx-30|rtx-a\d|a10g?$|a16|a2$|a40"),
    ("Jetson", r"jetson"),
    ("Turing", r"t4$|rtx-20|gtx-16|titan-rtx|quadro-rtx"),
    ("Volta", r"v100|titan-v"),
    ("Pascal", r"p100|p40|p4$|gtx-10|titan-xp|quadro-p"),
    ("GCN", r"mi[56]0$|radeon-vii|rx-vega"),
    ("CDNA", r"mi\d"),
    ("RDNA 4", r"rx-9|ai-pro-r9"),
    ("RDNA 3", r"rx-7|pro-w7"),
    ("RDNA 2", r"rx-[56]|pro-[vw]6"),
    ("Strix Halo", r"ryzen-ai-max"),
    ("Arc", r"arc-"),
    *((f"Apple M{n}", rf"m{n}($|-\d+c|-(pro|max|ultra))") for n in range(1, 6)),
]
# Models whose layers are other than attention over everything and a gated MLP.
MODEL_KINDS = [
    (
        "linear attention",
        r"qwen3(\.[5-9]|-[5-9]-)|qwen3-(coder-)?next|nemotron-(3|nano|cascade)|lfm|rwkv|"
        r"granite-4.0-h|.*mamba",
    ),
    ("sliding windows, large vocabulary", r"gemma"),
    ("sliding windows, experts", r"gpt-oss"),
    ("latent attention", r"deepseek-(v[23]|r1$)|kimi-k2|glm-(4\.7-flash|5)|moonlight"),
]
# Cards and modules for servers, whatever their generation.
SERVER = (
    r"gh200|g?[bh][123]00|h20|[ahv]800|v100|a100|p(100|40|4)$|l(4|40|40s|20)$|a(2|10|10g|16|30|40)$|t4$|"
    r"mi\d|gaudi|max-\d"
)
# Engines of the general kind: they run any model, operation by operation.
FRAMEWORKS = {"transformers", "deepspeed", "onnxruntime"}
# Engines that give each of several accelerators its layers, so that they read one after the other.
BY_LAYERS = {"llama.cpp", "exllama", "autoawq", "transformers"}
# llama.cpp split each matrix before it split by layers (its pull request 4766, January 2024).
LAYERS_SINCE = 2024.0
# Engines that leave in the host's memory what does not fit.
OFFLOADING = {"llama.cpp", "ktransformers", "transformers", "any"}
# 16-bit operations per byte of bandwidth, by kind of accelerator, where no datasheet states the peak: only
# the time of a prompt needs it, and the fit corrects it by class and generation.
OPERATIONS_PER_BYTE = {
    "GPU": 80.0,
    "integrated": 40.0,
    "CPU": 8.0,
    "phone": 30.0,
    "NPU": 100.0,
    "ASIC": 150.0,
}
# GB/s of memory that phones and boards are sold with, where accelerators.csv has none: the width of their bus
# times its clock, from memory of the makers' pages; the second figure is the slower memory that is sold too.
MOBILE_GB_PER_S = {
    "snapdragon-8-gen-2": (67.2, 51.2),
    "snapdragon-8-gen-3": (76.8, 67.2),
    "snapdragon-8-elite": (84.8, 76.8),
    "snapdragon-8-elite-gen-5": (84.8, 76.8),
    "galaxy-s24-ultra": (76.8, 67.2),
    "exynos-2400": (68.3, 68.3),
    "mt6899": (68.3, 51.2),
    "a19-pro": (76.8, 76.8),
    "rk3588": (34.1, 21.3),
    "rk3576": (17.1, 12.8),
    "rk3562": (8.5, 6.4),
    "xdna2": (128.0, 89.6),
}
# Of a unified memory, what an accelerator may hold: macOS gives it three quarters until somebody raises the
# limit (iogpu.wired_limit_mb), as people with large models do; the system needs the rest.
UNIFIED_SHARE = 0.92


@dataclass(frozen=True)
class Machine:
    """An accelerator as a prediction sees it: bandwidths in bytes/s of the slowest and fastest variant that
    the name may mean; memory in bytes, NaN where nobody states it; `guessed`: what the name did not say."""

    name: str
    family: str
    architecture: str
    kind: str
    vendor: str
    low: float
    high: float
    memory_bytes: float
    peak_flops: float
    count: int = 1
    guessed: str = ""


def architecture(accelerator: str, family: str) -> str:
    """The generation of an accelerator's id; its family where no rule knows it."""
    return next((name for name, pattern in ARCHITECTURES if re.match(pattern, accelerator)), family)


def kind(accelerator: str) -> str:
    """The class of an accelerator: who makes it, and whether for servers, as a card or in a processor."""
    card = hardware.by_accelerator().loc[accelerator]
    made = "server" if re.match(SERVER, accelerator) else {"GPU": "card"}.get(card["kind"], card["kind"])
    return str(made) if made in ("CPU", "phone") else f"{card['vendor']} {made}"


def model_kind(model: str) -> str:
    """The kind of layers that a model has; `plain` is attention in every layer."""
    return next((kind for kind, pattern in MODEL_KINDS if re.match(pattern, model)), "plain")


def engine_kind(family: str) -> str:
    """Whether a family of engines is a general framework or made for this; `any` where none is asked for."""
    return "any" if family == "any" else "framework" if family in FRAMEWORKS else "dedicated"


@cache
def stated(bandwidth_gb_per_s: float, memory_gb: float) -> Machine:
    """An accelerator that no table has, from what somebody states of it."""
    rate = bandwidth_gb_per_s * 1e9
    peak = rate * OPERATIONS_PER_BYTE["GPU"]
    unknown = "its generation is not known: only its bandwidth"
    return Machine(
        "stated", "stated", "stated", "stated", "", rate, rate, memory_gb * 2**30, peak, guessed=unknown
    )


@cache
def machine(name: str, memory_gb: float | None = None) -> Machine | str:
    """The accelerator that `name` means, or one sentence why nothing can be predicted for it."""
    try:
        read = names.accelerator(name, memory_gb)
    except names.UnknownName as unknown:
        return f"{unknown} Or state bandwidth_gb_per_s and memory_gb."
    known = hardware.by_accelerator().loc[list(read.candidates)]
    if read.mixed:
        return f"{name[:60]!r} lists several kinds of accelerators; name one kind."
    widths = known["bandwidth_gb_per_s"]
    guessed = ""
    if len(known) and widths.isna().all() and set(known.index) <= set(MOBILE_GB_PER_S):
        ends = [end for one in known.index for end in MOBILE_GB_PER_S[one]]
        guessed = f"{max(ends):g} GB/s, the memory such devices are sold with"
    elif len(known) and widths.notna().any():
        ends = widths.dropna().tolist()
        if len(set(ends)) > 1:
            guessed = f"{min(ends):g} to {max(ends):g} GB/s, as the name does not say which variant"
    else:
        return (
            f"The memory bandwidth of {name[:60]!r} differs by machine, or nobody states it: state "
            "bandwidth_gb_per_s."
        )
    first = read.candidates[0]
    guessed = "; ".join(
        filter(None, (guessed, *_of_memory(known, read, memory_gb), *_unsure(known, read.memory_gb)))
    )
    what = str(known["kind"].iloc[0])
    low, high = min(ends) * 1e9, max(ends) * 1e9
    peaks = known[["fp16_dense_tflops", "fp16_acc16_dense_tflops"]].max(axis=None)
    return Machine(
        first if len(known) == 1 else read.family,
        read.family,
        architecture(first, read.family),
        kind(first),
        str(known["vendor"].iloc[0]),
        low,
        high,
        _memory_bytes(known, read, memory_gb),
        float(peaks) * 1e12 if peaks == peaks else high * OPERATIONS_PER_BYTE.get(what, 80.0),
        read.count or 1,
        guessed,
    )


def _of_memory(known: pd.DataFrame, read: names.Accelerator, memory_gb: float | None) -> list[str]:
    """What is said of memory that is sold in several sizes, where nobody stated which: the largest counts."""
    several = known["memory_sold"].notna() | known["kind"].isin(["integrated", "phone", "NPU"])
    most = known["memory_gb"].max()
    if read.memory_gb or memory_gb or not several.any() or most != most:
        return []
    return [f"if it has {most:g} GB, the most that it is sold with"]


def _unsure(known: pd.DataFrame, stated: float | None) -> list[str]:
    """What is said of figures that rest on no datasheet that somebody here has seen; of memory that the
    question states nothing."""
    figures = sorted({word for text in known["unsure"].dropna() for word in text.split()})
    figures = [figure for figure in figures if figure != "memory" or not stated]
    return [f"its {' and '.join(figures)} unsure: from memory of the maker's page"] if figures else []


def _memory_bytes(known: pd.DataFrame, read: names.Accelerator, memory_gb: float | None) -> float:
    """Bytes that weights and cache may fill: what is sold, or stated of memory sold in several sizes."""
    kinds, sold = set(known["kind"]), float(known["memory_gb"].max())
    if "CPU" in kinds and memory_gb is None and read.memory_gb is None:
        return float("nan")
    gib = read.memory_gb or memory_gb
    sizes = {float(size) for text in known["memory_sold"].dropna() for size in str(text).split()}
    if read.memory_gb in sizes:
        gib = read.memory_gb
    elif gib is None or (kinds == {"GPU"} and sold == sold and not read.modified):
        gib = sold
    # The makers' GB of a card are 2³⁰ bytes: a 16 GB card holds 17.2 · 10⁹.
    whole = gib * 2**30
    return whole * UNIFIED_SHARE if known["vendor"].iloc[0] == "Apple" else whole
