"""Raw names of accelerators and models, looked up in the repository's two tables, and of engines, by the
rules here; number format, KV format, backend and version in one spelling. Every raw text is kept beside it.

spellings.csv has, for each column, patterns of what sources write (whole texts, small and capital letters
alike) and the name; the first that fits counts, an empty name is a text that says nothing. `vendor` limits a
row to accelerators of that vendor. Number formats of weights are read with core/formats.csv."""

import re
from functools import cache
from pathlib import Path

import pandas as pd

from llm_measured.core import hardware
from llm_measured.core import names as parser
from llm_measured.published import schema

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
    return beside(frame)


def engine(name: str | None) -> str | None:
    """The engine that `name` says as readers know it, else the name itself."""
    if name is None:
        return None
    # A fork that is up to three times as fast with experts in the host's memory is no llama.cpp.
    if "ik_llama" in name:
        return "ik_llama.cpp"
    return LABELS.get(parser.engine(name).name, name)


def placed(name: str | None, memory_gb: float) -> tuple[str | None, str | None]:
    """(id, UNKNOWN_VARIANT where the name may be several, None where no table knows it; family)."""
    if name is None:
        return None, None
    try:
        read = parser.accelerator(name, memory_gb)
    except parser.UnknownName:
        return None, None
    return read.candidates[0] if len(read.candidates) == 1 else schema.UNKNOWN_VARIANT, read.family


def model(name: str) -> str | None:
    """The id in models.csv that `name` says; None where it says none or several."""
    try:
        read = parser.model(name)
    except parser.UnknownName:
        return None
    return read.candidates[0] if len(read.candidates) == 1 else None


SPELLED = {"kv_format": "kv_format_name", "backend": "backend_name", "engine_version": "version_name"}


@cache
def _rules(column: str) -> list[tuple[re.Pattern, str, str]]:
    table = pd.read_csv(Path(__file__).with_name("spellings.csv"), keep_default_na=False)
    rows = table[table["column"] == column].itertuples(index=False)
    return [(re.compile(row.pattern, re.I), row.name, row.vendor) for row in rows]


@cache
def spelled(column: str, text: str, vendor: str = "") -> str | None:
    """Return the one name of `text` in `column`, the text itself where no pattern fits, None where it says
    nothing."""
    for pattern, name, of in _rules(column):
        found = pattern.fullmatch(text.strip())
        if found and of in ("", vendor):
            return found.expand(name) or None
    return text


@cache
def weights(text: str, model: str, engine: str) -> parser.Format | None:
    """Return the number format that `text` names, None where it names none; a GGUF file of a model that is
    published in four bits is in these, whatever the rest of it is said to be in."""
    try:
        return parser.number_format(text, model, parser.engine(engine).family)
    except parser.UnknownName:
        return None


def formats(frame: pd.DataFrame) -> list[parser.Format | None]:
    """Return the number format of each row's weights, None where the row states none that is known."""
    told = frame[["weights_format", "checkpoint_raw", "engine"]].astype(object)
    told = told.where(told.notna(), "").itertuples(index=False)
    return [weights(*row) if row[0] else None for row in told]


def beside(frame: pd.DataFrame) -> pd.DataFrame:
    """Return `frame` with the one spelling in format_name, kv_format_name, backend_name, version_name."""
    vendors = hardware.accelerators().drop_duplicates("family").set_index("family")["vendor"]
    vendor = frame["accelerator_family"].map(vendors).fillna("")
    frame = frame.assign(format_name=pd.Series([f and f.name for f in formats(frame)], frame.index, object))
    for column, name in SPELLED.items():
        texts = [
            spelled(column, text, of if column == "backend" else "") if isinstance(text, str) else None
            for text, of in zip(frame[column], vendor)
        ]
        frame[name] = pd.Series(texts, frame.index, object)
    return frame
