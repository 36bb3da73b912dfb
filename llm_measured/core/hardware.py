"""The table of accelerators and the table of models of the whole repository.

accelerators.csv has a row for each variant (SXM, PCIe, NVL; memory; Apple's core counts; a processor's kind
of memory), and one without an id for each family whose name alone does not say which. models.csv has a row
for each shape; fine-tunes of one shape share it. `llm_measured.core.names` reads what people write."""

import re
from functools import cache
from pathlib import Path

import pandas as pd


@cache
def table(name: str) -> pd.DataFrame:
    """A table of this folder, shared by all callers: nobody may change it."""
    return pd.read_csv(Path(__file__).with_name(f"{name}.csv"))


def accelerators() -> pd.DataFrame:
    """One row per variant; columns accelerator, name, family, vendor, kind, memory_gb, bandwidth_gb_per_s,
    …_dense_tflops by number format, tdp_w, year, pattern, source. Unknown is empty."""
    whole = table("accelerators")
    return whole[whole["accelerator"].notna()].reset_index(drop=True)


def models() -> pd.DataFrame:
    """One row per model shape; columns model, pattern, parameters_b, active_b (of mixtures of experts: what a
    token passes), layers … tied_embeddings where they are known, parameters_source."""
    return table("models").copy()


@cache
def by_accelerator() -> pd.DataFrame:
    """`accelerators` by id, shared by all callers: nobody may change it."""
    return accelerators().set_index("accelerator")


@cache
def by_model() -> pd.DataFrame:
    """`models` by name, shared by all callers: nobody may change it."""
    return models().set_index("model")


@cache
def accelerator_rules() -> list[tuple[re.Pattern, str | None, str]]:
    """(pattern of a slug, id or NaN for a family's own row, family), the first that fits decides."""
    return [
        (re.compile("|".join(f"(?:{p})" for p in row.pattern.split(" , "))), row.accelerator, row.family)
        for row in table("accelerators").itertuples()
        if isinstance(row.pattern, str)
    ]
