"""Shapes of models and what is known of devices: what the step-time model multiplies with efficiencies."""

import json
from collections import namedtuple
from functools import cache
from pathlib import Path

from bench import inputs, metrics, naming

Shape = namedtuple(
    "Shape", "model layers hidden_size intermediate_size heads_values kv_heads block head kv_values tied"
)
Shape.__doc__ = (
    "A dense Transformer: sizes as in config.json; parameters of all layers (block) and of the head; "
    "K and V numbers per token."
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


@cache
def shape(model):
    """`Shape` of a row of data/planner_models.csv or data/models.csv, or of a config.json; ValueError naming
    what exists or is lacking.
    """
    if str(model).endswith(".json"):
        return _from_config(Path(model))
    for name in ("planner_models", "models"):
        known = inputs.table(name).set_index("model")
        if model in known.index:
            return _shape(model, known.loc[model].to_dict())
    every = [*inputs.table("planner_models")["model"], *inputs.table("models")["model"]]
    naming.choose("model (or path of a config.json)", model, every)


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
            f"{path} describes a mixture of experts ({experts[0]}), which the step-time model "
            f"does not know; plan a dense model."
        )
    if lacking:
        raise ValueError(
            f"{path} lacks {', '.join(lacking)}, without which no step time follows; take the "
            f"config.json of a decoder."
        )
    row = {name: config[field] for name, field in HUB.items()}
    return _shape(
        path.stem, row | {"mlp_matrices": 3, "tied_embeddings": config.get("tie_word_embeddings", False)}
    )


def weight_bytes(model, weights):
    """Bytes of all weights: layers in their precision, head and embedding in 16 bits as engines keep them."""
    return model.block * WEIGHT_BYTES[naming.choose("precision", weights, WEIGHT_BYTES)] + model.head * (
        2 if model.tied else 4
    )


def device(name):
    """What data/planner_devices.csv and data/gpus.csv state: memory_bytes, bandwidth_bytes_per_s,
    peak_16_flops_per_s and so on, link_bytes_per_s; ValueError naming what exists.
    """
    known = _devices()
    return known[naming.choose("GPU", name, known)]


@cache
def _devices():
    """Rows of data/planner_devices.csv with bandwidth and rates of data/gpus.csv, in bytes/s and FLOP/s."""
    sheet = inputs.table("gpus").set_index("gpu")
    found = {}
    for row in inputs.table("planner_devices").to_dict("records"):
        gpu = sheet.loc[row["gpu"]]
        rates = {f"peak_{bits}_flops_per_s": gpu[f"fp{bits}_dense_tflops"] * 1e12 for bits in (16, 8)}
        bandwidth = gpu["bandwidth_gb_per_s"] * 1e9
        found[row["device"]] = row | rates | {"bandwidth_bytes_per_s": bandwidth}
    return found


def peak(machine, weights):
    """FLOP/s of the device's matrix units at that precision; where it has none for it, weights are unpacked
    to the next wider one.
    """
    for name in list(RATES)[list(RATES).index(weights) :: -1]:
        if machine[RATES[name]] > 0:
            return machine[RATES[name]]
