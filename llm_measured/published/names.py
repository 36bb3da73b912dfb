"""Raw names of accelerators and models, looked up in the repository's two tables, and of engines, by the
rules here; every raw name is kept."""

import pandas as pd

from llm_measured.core import hardware, names
from llm_measured.published import schema, spelling

# How readers know the engines; a front end with one engine below it counts as that one.
LABELS = {
    "lm studio": "LM Studio",
    "lm studio mlx": "LM Studio",
    "ollama": "Ollama",
    "llama.cpp": "llama.cpp",
    "llamafile": "llama.cpp",
    "llama.rn": "llama.cpp",
    "mlx": "MLX",
    "vllm-mlx": "MLX",
    "sglang": "SGLang",
    "tensorrt-llm": "TensorRT-LLM",
    "vllm": "vLLM",
    "exllama": "ExLlama",
    "deepspeed": "DeepSpeed",
    "fastertransformer": "FasterTransformer",
    "transformers": "Transformers",
    "neuronx": "Transformers NeuronX",
}


def looked_up(frame: pd.DataFrame) -> pd.DataFrame:
    """`frame` with accelerator, accelerator_family and model filled from the raw names (what an importer
    states itself stays), and with the one spelling of formats, backend and version."""
    frame = frame.copy()
    keys = list(zip(frame["accelerator_raw"], frame["accelerator_memory_gb"]))
    read = {key: placed(*key) for key in set(keys)}
    family = {row.accelerator: row.family for row in hardware.accelerators().itertuples()}
    stated = frame["accelerator"]
    frame["accelerator"] = [own if own is not None else read[key][0] for own, key in zip(stated, keys)]
    frame["accelerator_family"] = [
        family.get(own) or read[key][1] for own, key in zip(frame["accelerator"], keys)
    ]
    models = {name: model(name) for name in set(frame["checkpoint_raw"]) if name is not None}
    frame["model"] = [
        own if own is not None else models.get(name)
        for own, name in zip(frame["model"], frame["checkpoint_raw"])
    ]
    return spelling.beside(frame)


def engine(name: str | None) -> str | None:
    """The engine that `name` says as readers know it, else the name itself."""
    if name is None:
        return None
    return LABELS.get(names.engine(name).name, name)


def placed(name: str | None, memory_gb: float) -> tuple[str | None, str | None]:
    """(id, UNKNOWN_VARIANT where the name may be several, None where no table knows it; family)."""
    if name is None:
        return None, None
    try:
        read = names.accelerator(name, memory_gb)
    except names.UnknownName:
        return None, None
    return read.candidates[0] if len(read.candidates) == 1 else schema.UNKNOWN_VARIANT, read.family


def model(name: str) -> str | None:
    """The id in models.csv that `name` says; None where it says none or several."""
    try:
        read = names.model(name)
    except names.UnknownName:
        return None
    return read.candidates[0] if len(read.candidates) == 1 else None


def listed(frame: pd.DataFrame) -> pd.DataFrame:
    """One row per raw name; columns what (accelerator or model), raw, placed (id, `variant unknown` or
    empty), rows, sources."""
    parts = []
    for what, raw, placed in (
        ("accelerator", "accelerator_raw", "accelerator"),
        ("model", "checkpoint_raw", "model"),
    ):
        rows = frame[[raw, placed, "source"]].copy()
        rows[placed] = rows[placed].fillna("")
        rows[raw] = rows[raw].fillna("")
        found = (
            rows.groupby([raw, placed])["source"]
            .agg(["size", lambda s: ", ".join(sorted(set(s)))])
            .reset_index()
        )
        found.columns = ["raw", "placed", "rows", "sources"]
        parts.append(found.assign(what=what))
    columns = ["what", "raw", "placed", "rows", "sources"]
    return pd.concat(parts)[columns].sort_values(["what", "placed", "raw"]).reset_index(drop=True)


def unplaced(frame: pd.DataFrame) -> pd.DataFrame:
    """The raw names that no rule knows, or that may be several variants, as `listed` has them."""
    table = listed(frame)
    return table[table["placed"].isin(["", schema.UNKNOWN_VARIANT])].reset_index(drop=True)
