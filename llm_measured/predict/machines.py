"""Accelerators, models and engines as the model of a step needs them: generation, class, kind, peak.

variants.csv counts who has measured each accelerator of a name that may mean several."""

import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pandas as pd

from llm_measured.core import hardware, names

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
OPERATIONS_PER_BYTE = {"GPU": 80.0, "integrated": 40.0, "CPU": 8.0}
OPERATIONS_PER_BYTE |= {"phone": 30.0, "NPU": 100.0, "ASIC": 150.0}
# Of a unified memory, what an accelerator may hold: macOS gives it three quarters until somebody raises the
# limit (iogpu.wired_limit_mb), as people with large models do; the system needs the rest.
UNIFIED_SHARE = 0.92


@dataclass(frozen=True)
class Machine:
    """An accelerator as a prediction sees it: bandwidths in bytes/s of the slowest and fastest memory that it
    is sold with; memory in bytes, NaN where nobody states it; `guessed`: what the name did not say; `others`:
    ids of the other variants that it may mean."""

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
    guessed: tuple[str, ...] = ()
    others: tuple[str, ...] = ()


def architecture(accelerator: str, family: str) -> str:
    """The generation of an accelerator's id, of one vendor's memory controllers and kernels; its family where
    no row of architectures.csv matches the id."""
    rules = _architectures().itertuples(index=False, name=None)
    return next((name for name, pattern in rules if re.match(pattern, accelerator)), family)


@cache
def _architectures() -> pd.DataFrame:
    return pd.read_csv(Path(__file__).with_name("architectures.csv"))


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
        "stated", "stated", "stated", "stated", "", rate, rate, memory_gb * 2**30, peak, guessed=(unknown,)
    )


@cache
def machine(name: str, memory_gb: float | None = None) -> Machine | str:
    """The accelerator that `name` means, or one sentence why nothing can be predicted for it."""
    try:
        read = names.accelerator(name, memory_gb)
    except names.UnknownName as unknown:
        return f"{unknown} Or state bandwidth_gb_per_s and memory_gb."
    known = hardware.by_accelerator().loc[sorted(read.candidates, key=_measured)[::-1]]
    if read.mixed:
        return f"{name[:60]!r} lists several kinds of accelerators; name one kind."
    rated = known[known["bandwidth_gb_per_s"].notna()]
    mobile = [one for one in known.index if one in _mobile()]
    guessed = []
    if len(rated):
        # One machine: the variant that most sources have measured, with its own bandwidth and memory.
        card = rated.iloc[0]
        low = high = float(card["bandwidth_gb_per_s"]) * 1e9
        decides = rated[["bandwidth_gb_per_s", "memory_gb"]].fillna(-1)
        others = tuple(rated.index[(decides != decides.iloc[0]).any(axis=1)])
        if others:
            taken = (
                "the variant that most have measured" if _measured(str(card.name))[0] else "one of several"
            )
            guessed.append(f"{card.name}, {taken}; it may be {' or '.join(others)}")
    elif mobile:
        card, others = known.loc[mobile[0]], ()
        low, high = (end * 1e9 for end in sorted(_mobile()[mobile[0]]))
        guessed.append(f"{high / 1e9:g} GB/s, the memory such devices are sold with")
    else:
        return (
            f"The memory bandwidth of {name[:60]!r} differs by machine, or nobody states it: state "
            "bandwidth_gb_per_s."
        )
    memory = _memory_bytes(card, read, memory_gb)
    guessed += [*_of_memory(card, read, memory_gb), *_unsure(card, read.memory_gb)]
    peaks = card[["fp16_dense_tflops", "fp16_acc16_dense_tflops"]].max()
    return Machine(
        str(card.name),
        read.family,
        architecture(str(card.name), read.family),
        kind(str(card.name)),
        str(card["vendor"]),
        low,
        high,
        memory,
        float(peaks) * 1e12 if peaks == peaks else high * OPERATIONS_PER_BYTE.get(str(card["kind"]), 80.0),
        read.count or 1,
        tuple(guessed),
        others,
    )


def _of_memory(card: pd.Series, read: names.Accelerator, memory_gb: float | None) -> list[str]:
    """What is said of memory that is sold in several sizes, where nobody stated which: the largest counts."""
    several = isinstance(card["memory_sold"], str) or card["kind"] in ("integrated", "phone", "NPU")
    most = card["memory_gb"]
    if read.memory_gb or memory_gb or not several or most != most:
        return []
    return [f"if it has {most:g} GB, the most that it is sold with"]


def _unsure(card: pd.Series, stated: float | None) -> list[str]:
    """What is said of figures that rest on no datasheet that somebody here has seen; of memory that the
    question states nothing."""
    figures = sorted(set(card["unsure"].split())) if isinstance(card["unsure"], str) else []
    figures = [figure for figure in figures if figure != "memory" or not stated]
    return [f"its {' and '.join(figures)} unsure: from memory of the maker's page"] if figures else []


@cache
def _mobile() -> dict[str, tuple[float, float]]:
    """GB/s of memory that phones and boards are sold with (the slower is sold too), where accelerators.csv
    has none: width of the bus times clock, from memory of the makers' pages."""
    file = Path(__file__).with_name("mobile.csv")
    return {name: (fast, slow) for name, fast, slow in pd.read_csv(file).itertuples(index=False)}


@cache
def _variants() -> dict[str, tuple[int, int]]:
    """Accelerator -> (sources, rows) that have measured it."""
    file = Path(__file__).with_name("variants.csv")
    return {name: tuple(counts) for name, *counts in pd.read_csv(file).itertuples(index=False)}


def _measured(accelerator: str) -> tuple[int, int]:
    return _variants().get(accelerator, (0, 0))


def _memory_bytes(card: pd.Series, read: names.Accelerator, memory_gb: float | None) -> float:
    """Bytes that weights and cache may fill: what is sold, or stated of memory sold in several sizes."""
    gib = read.memory_gb or memory_gb
    if card["kind"] == "CPU" and gib is None:
        return float("nan")
    sold = float(card["memory_gb"])
    sizes = {
        float(size) for size in str(card["memory_sold"]).split() if card["memory_sold"] == card["memory_sold"]
    }
    if read.memory_gb in sizes:
        gib = read.memory_gb
    elif gib is None or (card["kind"] == "GPU" and sold == sold and not read.modified):
        gib = sold
    # The makers' GB of a card are 2³⁰ bytes: a 16 GB card holds 17.2 · 10⁹.
    whole = gib * 2**30
    return whole * UNIFIED_SHARE if card["vendor"] == "Apple" else whole
