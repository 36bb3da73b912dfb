"""What the time of a step, and of a prompt, hangs on: effects on the parts of `step`."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
import pandas as pd

from llm_measured.predict import step


@dataclass(frozen=True)
class Effect:
    """One part of the model: every level of `columns` has its own effect on the logarithm of `on`, times the
    column `factor`; `width` is how far levels differ, as a standard deviation, before the rows have
    said it."""

    name: str
    on: str
    columns: tuple[str, ...]
    width: float
    factor: str = "one"


@dataclass(frozen=True)
class Model:
    """Effects, what each may be on (its sign in the logarithm of every part) and the parts' logarithms of
    seconds at full speed, of setups and the share of the weights that is offloaded; `hidden`: places of the
    parts of which the longest hides the others."""

    name: str
    effects: tuple[Effect, ...]
    on: Mapping[str, tuple[int, ...]]
    parts: Callable[[pd.DataFrame, np.ndarray | None], np.ndarray]
    hidden: tuple[int, ...] = ()

    def __hash__(self) -> int:
        return hash(self.name)

    @cached_property
    def askable(self) -> tuple[Effect, ...]:
        """Effects that a question decides; how a source differs from others widens intervals."""
        return tuple(effect for effect in self.effects if effect.on != "source")


# What an effect is on, and its sign in the logarithm of the seconds of each of step.PARTS.
_ON_STEP = {
    "bandwidth": (-1, -1, 0, 0, 0, 0, 0, 0),
    "cache": (0, -1, 0, 0, 0, 0, 0, 0),
    "layer": (0, 0, 1, 0, 0, 0, 0, 0),
    "link": (0, 0, 0, 1, 0, 0, 0, 0),
    "arithmetic": (0, 0, 0, 0, 1, 0, 0, 0),
    "sequences": (0, 0, 0, 0, 0, 1, 0, 0),
    "prompts": (0, 0, 0, 0, 0, 0, 1, 0),
    "source": (1, 1, 1, 1, 1, 1, 1, 1),
}
_TABLE = pd.read_csv(Path(__file__).with_name("effects.csv"), keep_default_na=False)


def _declared(model: str) -> tuple[Effect, ...]:
    """The effects that effects.csv declares of a model of a step or of a prompt."""
    rows = _TABLE[_TABLE["model"] == model].drop(columns="model").to_dict("records")
    return tuple(Effect(**row | {"columns": tuple(row["columns"].split())}) for row in rows)


_STEP = _declared("step")
# While weights are read the operations on those before them go on.
_HIDDEN = (step.PARTS.index("weights"), step.PARTS.index("arithmetic"))
# Three fits of one step: one user; several at once, with one user of the engines that serve; and phones,
# processors and NPUs, which have kernels of their own, whose formats cost arithmetic and not bytes alone.
# Fitted together each was worse on sources left out (one user 22 % for 19, several 33 % for 29).
ONE = Model("one", _STEP, _ON_STEP, step.parts, _HIDDEN)
STEP = Model("several", _STEP, _ON_STEP, step.parts, _HIDDEN)
SMALL = Model("small", _STEP, _ON_STEP, step.parts, _HIDDEN)
SMALL_CLASSES = r"CPU|phone|NPU"
SERVING = ["vllm", "sglang", "tensorrt-llm", "lmdeploy", "tgi", "deepspeed", "fastertransformer"]
SERVING += ["transformers"]


def is_small(table: pd.DataFrame) -> pd.Series:
    """Which setups the model SMALL answers."""
    return table["accelerator_class"].str.contains(SMALL_CLASSES)


def answered_by(table: pd.DataFrame) -> dict[Model, np.ndarray]:
    """The models of a step, each with which setups it answers."""
    small, alone = is_small(table).to_numpy(), (table["users"] == 1).to_numpy()
    return {ONE: ~small & alone, STEP: ~small & ~alone, SMALL: small}


def learnt_by(table: pd.DataFrame) -> dict[Model, np.ndarray]:
    """The models of a step, each with which cases it learns from."""
    serving = table["engine_family"].isin(SERVING).to_numpy()
    by = answered_by(table)
    return by | {STEP: by[STEP] | (by[ONE] & serving)}


# The time of a prompt is its operations over the peak that is reached, and a start.
PROMPT = Model(
    "prompt",
    _declared("prompt"),
    {"peak": (-1, 0), "start": (0, 1), "source": (1, 1)},
    step.prompt_parts,
)


def factors(table: pd.DataFrame) -> dict[str, np.ndarray]:
    """What an `Effect` is multiplied by in each setup, by the name that it gives (no unit)."""
    crowd = table["crowd"] if "crowd" in table else pd.Series(False, table.index)
    log_accelerators = np.log(table["accelerators"].to_numpy(dtype=float))
    return {
        "one": np.ones(len(table)),
        "several_tensor": log_accelerators * (table["split"] == "tensor").to_numpy(),
        "several_layers": log_accelerators * (table["split"] == "layers").to_numpy(),
        "crowd": (crowd & ~is_small(table)).to_numpy(dtype=float),  # of a question never
        "users": np.log(table["users"].to_numpy(dtype=float)),
        "several_users": (table["users"] > 1).to_numpy(dtype=float),
    }


def levels(table: pd.DataFrame, columns: tuple[str, ...]) -> list[str]:
    """The level of each row for an effect of `columns`."""
    if not columns:
        return [""] * len(table)
    return ["|".join(parts) for parts in zip(*(table[c].astype(str) for c in columns))]
