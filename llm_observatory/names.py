"""Raw names of accelerators and models, looked up in the repository's two tables, and of engines, by the
rules here; every raw name is kept."""

import re

import pandas as pd

from bench import hardware
from llm_observatory import schema

# What an engine's name says, the first that fits: a front end counts as the engine below it, where it has
# only one (LM Studio and Ollama have several).
ENGINES = [
    (re.compile(pattern, re.I), name)
    for pattern, name in (
        (r"lm.?studio", "LM Studio"),
        (r"ollama", "Ollama"),
        (r"llama[.-]?cpp|llama-(?:bench|server)|llamafile|llama\.rn|lemonade", "llama.cpp"),
        (r"mlx", "MLX"),
        (r"sglang", "SGLang"),
        (r"\btrt|tensorrt|dynamo-trt|trtllm", "TensorRT-LLM"),
        (r"vllm", "vLLM"),
        (r"exllama", "ExLlama"),
        (r"deepspeed|ds-(?:inference|zero)", "DeepSpeed"),
        (r"fastertransformer", "FasterTransformer"),
        (r"^torch$|transformers|^hf\b|accelerate|fastchat", "Transformers"),
        (r"neuron", "Transformers NeuronX"),
    )
]


def looked_up(frame: pd.DataFrame) -> pd.DataFrame:
    """`frame` with accelerator, accelerator_family and model filled from the raw names; what an importer
    states itself stays."""
    frame = frame.copy()
    keys = list(zip(frame["accelerator_raw"], frame["accelerator_memory_gb"]))
    found = {key: _accelerator(*key) for key in set(keys)}
    family = {row.accelerator: row.family for row in hardware.accelerators().itertuples()}
    stated = frame["accelerator"]
    frame["accelerator"] = [
        own if own is not None else (found[key].accelerator if found[key] else None)
        for own, key in zip(stated, keys)
    ]
    frame["accelerator_family"] = [
        family.get(own) or (found[key].family if found[key] else None)
        for own, key in zip(frame["accelerator"], keys)
    ]
    models = {name: hardware.model(name) for name in set(frame["checkpoint_raw"]) if name is not None}
    frame["model"] = [
        own if own is not None else models.get(name)
        for own, name in zip(frame["model"], frame["checkpoint_raw"])
    ]
    return frame


def engine(name: str | None) -> str | None:
    """The engine that `name` says, by the rules of ENGINES, else the name itself."""
    if name is None:
        return None
    neuron = "neuron" in name.lower()  # AWS's Transformers is an engine of its own
    rules = ENGINES[-1:] if neuron else ENGINES
    return next((known for pattern, known in rules if pattern.search(name)), name)


def _accelerator(name: str | None, memory_gb: float) -> hardware.Accelerator | None:
    if name is None:
        return None
    return hardware.accelerator(name, None if memory_gb != memory_gb else memory_gb)


def listed(frame: pd.DataFrame) -> pd.DataFrame:
    """One row per raw name; columns what (accelerator or model), raw, placed (id, `variant unknown` or
    empty), rows, sources."""
    parts = []
    for what, raw, placed in (
        ("accelerator", "accelerator_raw", "accelerator"),
        ("model", "checkpoint_raw", "model"),
    ):
        names = frame[[raw, placed, "source"]].copy()
        names[placed] = names[placed].fillna("")
        names[raw] = names[raw].fillna("")
        found = (
            names.groupby([raw, placed])["source"]
            .agg(["size", lambda s: ", ".join(sorted(set(s)))])
            .reset_index()
        )
        found.columns = ["raw", "placed", "rows", "sources"]
        parts.append(found.assign(what=what))
    columns = ["what", "raw", "placed", "rows", "sources"]
    return pd.concat(parts)[columns].sort_values(["what", "placed", "raw"]).reset_index(drop=True)


def unplaced(frame: pd.DataFrame) -> pd.DataFrame:
    """The raw names that no rule knows, or that may be several variants, as `listed` has them."""
    names = listed(frame)
    return names[names["placed"].isin(["", schema.UNKNOWN_VARIANT])].reset_index(drop=True)
