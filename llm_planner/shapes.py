"""Shapes of models and what is known of devices: what the step-time model multiplies with efficiencies."""

import json
import re
from collections import namedtuple
from functools import cache
from pathlib import Path

from llm_measured.core import hardware, metrics, naming
from llm_measured.core.definitions import Fields

Shape = namedtuple(
    "Shape", "model layers hidden_size intermediate_size heads_values kv_heads block head kv_values tied note"
)
Shape.__doc__ = (
    "A dense Transformer: sizes as in config.json; parameters of all layers (block) and of the head; "
    "K and V numbers per token; what of the model is not in these numbers, as a sentence."
)
FIELDS = (
    "layers hidden_size attention_heads kv_heads head_dim intermediate_size mlp_matrices vocab_size".split()
)
WEIGHT_BYTES = {"bf16": 2.0, "fp8": 1.0, "nvfp4": 0.5625}  # NVFP4: 4 bits, and 8 bits of scale for 16 of them
RATES = {"bf16": "peak_16_flops_per_s", "fp8": "peak_8_flops_per_s", "nvfp4": "peak_4_flops_per_s"}
HUB = dict(
    layers="num_hidden_layers",
    hidden_size="hidden_size",
    attention_heads="num_attention_heads",
    kv_heads="num_key_value_heads",
    head_dim="head_dim",
    intermediate_size="intermediate_size",
    vocab_size="vocab_size",
)

# Names of mixtures of experts, and of devices of other vendors than the one whose devices were fitted.
EXPERTS = re.compile(
    r"mixtral|\bmoe\b|\d+x\d+b|-a\d+(\.\d+)?b\b|deepseek-(v[23]|r1)|gpt-oss|dbrx|grok|llama-4|kimi-k2", re.I
)
# Names of formats that engines have and no measured row does.
FORMATS = re.compile(r"(w\d+a\d+|u?int\d|awq|gptq|gguf|i?q\d|mxfp\d|fp[34]\b|nf4|bnb|hqq|exl\d|marlin)", re.I)
# Names of models whose attention is latent, and of models in which some layers see a window only.
LATENT = re.compile(r"minicpm-?3|deepseek-(v[23]|r1)|kimi-k2|-mla\b", re.I)
WINDOWS = re.compile(r"mistral-7b(-instruct)?-v0\.1|ministral|gemma-?[234]|phi-3-(mini|small)|gpt-oss", re.I)
# Fields of a config.json that say what the step-time model does not know.
OTHER_KINDS = {
    "kv_lora_rank": "latent attention (MLA)",
    "ssm_cfg": "layers without attention",
    "mamba_d_state": "layers without attention",
    "linear_num_value_heads": "linear attention",
    "cross_attention_layers": "attention to images",
    "encoder_layers": "an encoder",
}
SUCH_AS = 4  # models that a sentence names where none is near what was asked for
VENDORS = {
    "AMD": re.compile(r"^(amd|mi\d|radeon|instinct|rx\W?\d)", re.I),
    "Intel": re.compile(r"^(intel|gaudi|arc\b|ponte|max\W?1\d\d\d)", re.I),
    "Google": re.compile(r"^(google|tpu|trillium|ironwood)", re.I),
    "AWS": re.compile(r"^(aws|trn\d|inf\d|trainium|inferentia)", re.I),
    "Apple": re.compile(r"^(apple|m\d\b)", re.I),
}


@cache
def _models():
    """Rows of core/models.csv with a whole shape that are no mixture of experts, by name."""
    known = hardware.by_model()
    known = known[known[FIELDS].notna().all(axis=1) & known["active_b"].isna()]
    return {name: row.to_dict() for name, row in known.iterrows()}


def names() -> list[str]:
    """Every dense model of core/models.csv whose shape is known."""
    return list(_models())


@cache
def shape(model: str) -> Shape:
    """`Shape` of a row of core/models.csv, or of a config.json; ValueError naming what exists or lacks."""
    if str(model).endswith(".json"):
        return _from_config(Path(model))
    if model in _models():
        return _shape(model, _models()[model])
    kind = (
        "is a mixture of experts, and how many of them a step reads"
        if EXPERTS.search(str(model))
        else "has latent attention (MLA), and what a step of it takes"
        if LATENT.search(str(model))
        else ""
    )
    if kind:
        raise ValueError(
            f"{model} {kind} was fitted to no measured row; plan a dense model such as "
            f"{', '.join(names()[-SUCH_AS:])}, or the config.json of another."
        )
    if WINDOWS.search(str(model)):
        raise ValueError(
            f"{model} has layers that see a sliding window only, and its sizes are not in the tables; give "
            "its config.json, and it is planned as if every layer saw the whole context."
        )
    return _shape(model, _models()[naming.choose("model (or path of a config.json)", model, names())])


def _shape(model, row):
    sizes = metrics.matrices(**{name: int(row[name]) for name in FIELDS})
    return Shape(
        model,
        int(row["layers"]),
        int(row["hidden_size"]),
        int(row["intermediate_size"]),
        sizes["attention_values"],
        int(row["kv_heads"]),
        sizes["block_parameters"],
        sizes["head_parameters"],
        metrics.kv_values_per_token(int(row["layers"]), int(row["kv_heads"]), int(row["head_dim"])),
        bool(row["tied_embeddings"]),
        note if isinstance(note := row.get("note"), str) else "",
    )


def _from_config(path):
    try:
        config = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as failure:
        raise ValueError(f"{path} cannot be read as a config.json of the hub: {failure}.") from None
    config.setdefault("num_key_value_heads", config.get("num_attention_heads"))
    if config.get("head_dim") is None and config.get("num_attention_heads"):
        config["head_dim"] = config.get("hidden_size", 0) // config["num_attention_heads"]
    lacking = [name for name in HUB.values() if not config.get(name)]
    experts = [name for name in config if "expert" in name and config[name]]
    if experts:
        raise ValueError(
            f"{path} describes a mixture of experts ({experts[0]}), and how many of them a step reads was "
            "fitted to no measured row; plan a dense model."
        )
    other = [name for name in OTHER_KINDS if config.get(name)]
    if other:
        raise ValueError(
            f"{path} describes {OTHER_KINDS[other[0]]} ({other[0]}), and what a step of it takes was fitted "
            "to no measured row; plan a model whose layers all have plain attention."
        )
    if lacking:
        raise ValueError(
            f"{path} lacks {', '.join(lacking)}, without which no step time follows; take the "
            f"config.json of a decoder."
        )
    row = {name: config[field] for name, field in HUB.items()} | {"note": _windows(path.stem, config)}
    return _shape(
        path.stem, row | {"mlp_matrices": 3, "tied_embeddings": config.get("tie_word_embeddings", False)}
    )


def _windows(model, config):
    """What a sliding window changes, as a sentence; "" where the config has none."""
    layers = config.get("layer_types") or []
    window = config.get("sliding_window") if config.get("use_sliding_window", True) else None
    if not window or (layers and "sliding_attention" not in layers):
        return ""
    return (
        f"{model} has layers that see the last {window} tokens only: it is predicted as if every layer saw "
        "the whole context, so that longer prompts and answers take at most as long as it says."
    )


def precision(name: str) -> str:
    """`name` if it is one of `WEIGHT_BYTES`; ValueError that says what is missing of another format."""
    if str(name).lower() in WEIGHT_BYTES or not FORMATS.match(str(name)):
        return naming.choose("precision", name, WEIGHT_BYTES)
    raise ValueError(
        f"No measured row has weights in {name}, so that how fast an engine unpacks them was not fitted; "
        f"plan one of: {', '.join(WEIGHT_BYTES)}."
    )


def weight_bytes(model: Shape, weights: str) -> float:
    """Bytes of all weights: layers in their precision, head and embedding in 16 bits as engines keep them."""
    return model.block * WEIGHT_BYTES[naming.choose("precision", weights, WEIGHT_BYTES)] + model.head * (
        2 if model.tied else 4
    )


def devices() -> dict[str, str]:
    """The devices that serving points were measured on: name in the planner's tables -> name for readers."""
    return {name: row["gpu"] for name, row in _devices().items()}


def device(name: str) -> Fields:
    """What core/accelerators.csv states of a device: device and gpu (its names), memory_bytes (as the driver
    reports it), bandwidth_bytes_per_s, peak_16_flops_per_s and so on, link_bytes_per_s (in one direction);
    ValueError naming what exists.
    """
    known = _devices()
    vendor = next((vendor for vendor, names in VENDORS.items() if names.search(str(name))), None)
    if vendor and name not in known:
        raise ValueError(
            f"{name} is a device of {vendor}, of which no measured serving point is in the table, so "
            f"nothing was fitted; plan one of: {', '.join(known)}."
        )
    return known[naming.choose("GPU", name, known)]


@cache
def _devices():
    """Rows of core/accelerators.csv whose memory and links are known, by the name that the planner's tables
    have, in bytes/s and FLOP/s."""
    known = hardware.accelerators()
    found = {}
    for row in known[known["driver_memory_bytes"].notna()].to_dict("records"):
        # data/planner_*.csv and the notebook say a100_80gb, which is the SXM board.
        name = row["accelerator"].replace("a100-sxm", "a100").replace("-", "_")
        rates = {f"peak_{bits}_flops_per_s": row[f"fp{bits}_dense_tflops"] * 1e12 for bits in (16, 8, 4)}
        found[name] = rates | {
            "device": name,
            "gpu": row["name"],
            "memory_bytes": row["driver_memory_bytes"],
            "link_bytes_per_s": row["link_gb_per_s"] * 1e9,
            "bandwidth_bytes_per_s": row["bandwidth_gb_per_s"] * 1e9,
        }
    return found


def peak(machine: Fields, weights: str) -> float:
    """FLOP/s of the device's matrix units at that precision; where it has none for it, weights are unpacked
    to the next wider one.
    """
    for name in list(RATES)[list(RATES).index(weights) :: -1]:
        if machine[RATES[name]] > 0:
            break
    return machine[RATES[name]]
