"""What the time of a step, and of a prompt, hangs on: effects on the parts of `step`."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property

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
    def of_sources(self) -> tuple[Effect, ...]:
        """How a source differs from others, which no question can say: of a new one they widen intervals."""
        return tuple(effect for effect in self.effects if effect.on == "source")

    @cached_property
    def askable(self) -> tuple[Effect, ...]:
        """Effects that a question decides."""
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
_STEP = (
    Effect("efficiency", "bandwidth", (), 0.5),
    Effect("efficiency of several, side by side", "bandwidth", (), 0.15, "several_tensor"),
    Effect("efficiency of several by engine family", "bandwidth", ("engine_family",), 0.15, "several_tensor"),
    Effect("efficiency of several, by layers", "bandwidth", (), 0.08, "several_layers"),
    Effect("efficiency by kind of engine", "bandwidth", ("engine_kind",), 0.2),
    Effect("efficiency by engine family", "bandwidth", ("engine_family",), 0.2),
    Effect("efficiency by class", "bandwidth", ("accelerator_class",), 0.15),
    Effect("efficiency by generation", "bandwidth", ("architecture",), 0.12),
    Effect("efficiency by accelerator", "bandwidth", ("family",), 0.08),
    Effect("efficiency by kind of format", "bandwidth", ("scheme",), 0.1),
    Effect("efficiency by format", "bandwidth", ("format",), 0.1),
    Effect("efficiency by engine and kind of format", "bandwidth", ("engine_family", "scheme"), 0.15),
    Effect("efficiency by engine and class", "bandwidth", ("engine_family", "accelerator_class"), 0.1),
    Effect("efficiency by engine and generation", "bandwidth", ("engine", "architecture"), 0.1),
    Effect("efficiency by generation and format", "bandwidth", ("architecture", "scheme"), 0.08),
    Effect("efficiency of mixtures", "bandwidth", ("mixture",), 0.2),
    Effect("efficiency of mixtures by engine", "bandwidth", ("engine_family", "mixture"), 0.15),
    Effect("efficiency by kind of model", "bandwidth", ("model_kind",), 0.1),
    Effect("efficiency by engine", "bandwidth", ("engine",), 0.12),
    Effect("efficiency by era", "bandwidth", ("era",), 0.15),
    Effect("efficiency by engine and era", "bandwidth", ("engine_family", "era"), 0.15),
    Effect("cache", "cache", (), 0.4),
    Effect("cache by engine family", "cache", ("engine_family",), 0.4),
    Effect("cache by kind of model", "cache", ("model_kind",), 0.4),
    Effect("cache by engine and kind of model", "cache", ("engine", "model_kind"), 0.3),
    Effect("cache by model", "cache", ("model",), 0.3),
    Effect("cache by generation", "cache", ("architecture",), 0.2),
    Effect("layer", "layer", (), 2.0),
    Effect("layer by kind of engine", "layer", ("engine_kind",), 1.5),
    Effect("layer by engine family", "layer", ("engine_family",), 0.7),
    Effect("layer by class", "layer", ("accelerator_class",), 0.5),
    Effect("layer by generation", "layer", ("architecture",), 0.3),
    Effect("layer by engine and class", "layer", ("engine_family", "accelerator_class"), 0.4),
    Effect("layer of mixtures", "layer", ("mixture",), 0.5),
    Effect("layer of mixtures by engine", "layer", ("engine_family", "mixture"), 0.4),
    Effect("layer of mixtures by class", "layer", ("accelerator_class", "mixture"), 0.3),
    Effect("layer by kind of model", "layer", ("model_kind",), 0.4),
    Effect("layer by engine and kind of model", "layer", ("engine_family", "model_kind"), 0.3),
    Effect("layer by era", "layer", ("era",), 0.3),
    Effect("layer by engine and era", "layer", ("engine_family", "era"), 0.4),
    Effect("layer of mixtures by engine and era", "layer", ("engine_family", "mixture", "era"), 0.3),
    Effect("layer of several, by layers", "layer", (), 0.2, "several_layers"),
    Effect("layer by users", "layer", (), 0.2, "users"),
    Effect("link", "link", (), 1.0),
    Effect("link by class", "link", ("accelerator_class",), 0.6),
    Effect("link by engine family", "link", ("engine_family",), 0.5),
    Effect("link by number", "link", (), 0.4, "several_tensor"),
    Effect("link of mixtures", "link", ("mixture",), 0.4),
    Effect("link of mixtures by era", "link", ("mixture", "era"), 0.3),
    Effect("link by users", "link", (), 0.2, "users"),
    Effect("efficiency by users", "bandwidth", ("mixture",), 0.1, "users"),
    Effect("cache by users", "cache", (), 0.2, "users"),
    Effect("arithmetic", "arithmetic", (), 0.4, "several_users"),
    Effect("arithmetic by engine family", "arithmetic", ("engine_family",), 0.2, "several_users"),
    Effect("arithmetic by class", "arithmetic", ("accelerator_class",), 0.15, "several_users"),
    Effect("arithmetic by kind of format", "arithmetic", ("scheme",), 0.2, "several_users"),
    Effect("arithmetic of mixtures", "arithmetic", ("mixture",), 0.3, "several_users"),
    Effect("prompts", "prompts", (), 0.5, "several_users"),
    Effect("prompts by engine family", "prompts", ("engine_family",), 0.4, "several_users"),
    Effect("sequences", "sequences", (), 1.0, "several_users"),
    Effect("sequences by engine family", "sequences", ("engine_family",), 0.5, "several_users"),
    Effect("sequences by class", "sequences", ("accelerator_class",), 0.3, "several_users"),
    Effect("crowd", "source", (), 0.3, "crowd"),
    Effect("source", "source", ("source",), 0.25),
    Effect("source by users", "source", ("source",), 0.1, "users"),
    Effect("source and engine", "source", ("source", "engine_family"), 0.2),
    Effect("source and class", "source", ("source", "accelerator_class"), 0.12),
    Effect("source and model kind", "source", ("source", "mixture"), 0.12),
)
# While weights are read the operations on those before them go on.
_HIDDEN = (step.PARTS.index("weights"), step.PARTS.index("arithmetic"))
# Three fits of one step: one user; several at once, with one user of the engines that serve; and phones,
# processors and NPUs, which have kernels of their own, whose formats cost arithmetic and not bytes alone.
# Fitted together each was worse on sources left out (one user 22 % for 19, several 33 % for 29).
ONE = Model("one", _STEP, _ON_STEP, step.parts, _HIDDEN)
STEP = Model("several", _STEP, _ON_STEP, step.parts, _HIDDEN)
SMALL = Model("small", _STEP, _ON_STEP, step.parts, _HIDDEN)
SMALL_CLASSES = r"CPU|phone|NPU"
SERVING = [
    "vllm",
    "sglang",
    "tensorrt-llm",
    "lmdeploy",
    "tgi",
    "deepspeed",
    "fastertransformer",
    "transformers",
]


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
    (
        Effect("peak", "peak", (), 1.0),
        Effect("peak by engine family", "peak", ("engine_family",), 0.4),
        Effect("peak by class", "peak", ("accelerator_class",), 0.5),
        Effect("peak by generation", "peak", ("architecture",), 0.4),
        Effect("peak by accelerator", "peak", ("family",), 0.25),
        Effect("peak by engine and class", "peak", ("engine_family", "accelerator_class"), 0.3),
        Effect("peak by kind of format", "peak", ("scheme",), 0.2),
        Effect("peak by format", "peak", ("format",), 0.15),
        Effect("peak of mixtures", "peak", ("mixture",), 0.5),
        Effect("peak by kind of model", "peak", ("model_kind",), 0.2),
        Effect("peak of several", "peak", (), 0.3, "several_tensor"),
        Effect("start", "start", (), 1.0),
        Effect("start by engine family", "start", ("engine_family",), 0.7),
        Effect("start by class", "start", ("accelerator_class",), 0.5),
        Effect("source", "source", ("source",), 0.4),
        Effect("source and class", "source", ("source", "accelerator_class"), 0.2),
    ),
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
