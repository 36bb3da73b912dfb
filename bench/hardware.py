"""Accelerators and models of the whole repository: one table each, and the rules by which a raw name
finds its row.

data/accelerators.csv has a row for each variant (SXM, PCIe, NVL; memory; Apple's core counts), and one
without an id for each family whose name alone does not say which. data/models.csv has a row for each
shape; fine-tunes of one shape share it."""

import re
from dataclasses import dataclass
from functools import cache

import pandas as pd

from bench import naming
from bench.paths import DATA

UNKNOWN_VARIANT = "variant unknown"
NAME_CHARS = 300  # of a name that are looked at: patterns must not take long on a hostile one
# Bits per weight that a format stores, scales included. The first pattern that fits decides.
FORMATS = [
    (r"(?:^|[^\d.])(\d(?:\.\d+)?) ?bpw", None),
    (r"iq1_s", 1.56),
    (r"iq1_m", 1.75),
    (r"iq2_xxs", 2.06),
    (r"iq2", 2.4),
    (r"iq3_xxs", 3.06),
    (r"iq3", 3.5),
    (r"iq4", 4.25),
    (r"q2_k", 2.63),
    (r"q3_k", 3.44),
    (r"q4_k", 4.5),
    (r"q4_1", 5.0),
    (r"q4_0", 4.5),
    (r"q5_1", 6.0),
    (r"q5_[k0]", 5.5),
    (r"q6_k", 6.56),
    (r"q8_0|q8_k", 8.5),
    (r"mxfp4", 4.25),
    (r"nvfp4", 4.5),
    (r"\bfp4|w4a\d+|int4|awq|gptq|\bw4\b|autoround|4-?bit|\bq4\b|4 bit|q4f16", 4.0),
    (r"3-?bit", 3.0),
    (r"5-?bit|\bq5\b", 5.0),
    (r"6-?bit|\bq6\b", 6.0),
    (r"fp8|e4m3|int8|w8a\d+|8-?bit|\bq8\b|load_in_8bit|q8f16", 8.0),
    (r"bf16|bfloat16|fp16|float16|\bf16|torch\.bfloat16|q0f16", 16.0),
    (r"fp32|float32|\bf32", 32.0),
]


@dataclass(frozen=True)
class Accelerator:
    """What a raw name says: `accelerator` is an id of data/accelerators.csv or `UNKNOWN_VARIANT`."""

    accelerator: str
    family: str


def slug(text: str) -> str:
    """`text` in small letters, its other signs as single hyphens, as much of it as a name has."""
    return naming.slug(str(text)[:NAME_CHARS])


@cache
def _table(name: str) -> pd.DataFrame:
    return pd.read_csv(DATA / f"{name}.csv")


def accelerators() -> pd.DataFrame:
    """One row per variant; columns accelerator, name, family, vendor, kind, memory_gb, bandwidth_gb_per_s,
    …_dense_tflops by number format, tdp_w, year, pattern, source. Unknown is empty."""
    whole = _table("accelerators")
    return whole[whole["accelerator"].notna()].reset_index(drop=True)


def models() -> pd.DataFrame:
    """One row per model shape; columns model, pattern, parameters_b, active_b (of mixtures of experts: what a
    token passes), layers … tied_embeddings where they are known, parameters_source."""
    return _table("models").copy()


@cache
def _accelerator_rules() -> list[tuple[re.Pattern, str | None, str, float]]:
    whole = _table("accelerators")
    return [
        (
            re.compile("|".join(f"(?:{p})" for p in row.pattern.split(" , "))),
            row.accelerator,
            row.family,
            row.memory_gb,
        )
        for row in whole.itertuples()
        if isinstance(row.pattern, str)
    ]


@cache
def accelerator(name: str, memory_gb: float | None = None) -> Accelerator | None:
    """The accelerator that `name` says; None where no rule knows it.

    A name that fits a family but no variant of it is one of several: `memory_gb`, as drivers report it (up to
    a tenth less), decides where only one variant has it.
    """
    plain = slug(name)
    for pattern, variant, family, _ in _accelerator_rules():
        if pattern.search(plain):
            if isinstance(variant, str):
                return Accelerator(variant, family)
            return Accelerator(_by_memory(family, memory_gb) or UNKNOWN_VARIANT, family)
    return None


def candidates(name: str) -> pd.DataFrame:
    """Rows of `accelerators` that `name` may mean: one where its variant is certain, else those of its
    family, of which a memory in the name (`A100-80GB`) leaves only some; none where no rule knows it."""
    found, table = accelerator(name), accelerators()
    if found is None:
        return table[:0]
    if found.accelerator != UNKNOWN_VARIANT:
        return table[table["accelerator"] == found.accelerator]
    family = table[table["family"] == found.family]
    memory = re.search(r"(?<![\d.])(\d{1,3}) ?gb?(?![a-z])", str(name)[:NAME_CHARS].lower())
    own = family[family["memory_gb"] == float(memory[1])] if memory else family[:0]
    return own if len(own) else family


def bandwidth(name: str) -> float:
    """The datasheet's bytes/s of what `name` says; NaN where no rule knows it, or where the variants that it
    may mean differ."""
    found = candidates(name)["bandwidth_gb_per_s"].unique()
    return float(found[0]) * 1e9 if len(found) == 1 else float("nan")


def _by_memory(family: str, memory_gb: float | None) -> str | None:
    if not memory_gb or memory_gb != memory_gb:
        return None
    fits = [
        variant
        for _, variant, own, memory in _accelerator_rules()
        if own == family and isinstance(variant, str) and 0.9 * memory <= memory_gb <= 1.01 * memory
    ]
    return fits[0] if len(fits) == 1 else None


@cache
def _model_rules() -> list[tuple[re.Pattern, str]]:
    whole = _table("models")
    return [
        (re.compile(row.pattern), row.model) for row in whole.itertuples() if isinstance(row.pattern, str)
    ]


@cache
def model(name: str) -> str | None:
    """The id in data/models.csv that `name` says (an organisation before a slash left out), None where no
    rule knows it."""
    plain = slug(re.sub(r"^[\w.-]+/", "", str(name)[:NAME_CHARS]))
    return next((model for pattern, model in _model_rules() if pattern.fullmatch(plain)), None)


@cache
def bits(weights_format: str) -> float | None:
    """Bits per weight of a number format as sources write it (`Q4_K - Medium`, `w4a16`, `EXL2 3.0 bpw`), None
    where it names none."""
    text = str(weights_format)[:NAME_CHARS].lower()
    for pattern, size in FORMATS:
        found = re.search(pattern, text)
        if found:
            return float(found[1]) if size is None else size
    return None
