"""Bytes, layers and links that a step passes, and the seconds that they would take at full speed.

    step = (weights + KV cache) ÷ (bandwidth × efficiency) + layers × time of a layer + links

and never less than operations ÷ peak. Weights are those that a step of so many users touches: of a mixture
each user's token takes its own experts. Accelerators that share each matrix (tensor parallel) read side by
side; those that hold each its layers read one after the other, so bandwidth does not add up. What does not
fit is read from the host's memory, in series. How fast hardware and engines pass all that is `fit`."""

import numpy as np
import pandas as pd

LAYER_S = 20e-6  # where the time of a layer starts from
REDUCTION_S = 10e-6  # and that of one reduction over links: two a layer in tensor parallel
PARTS = ("weights", "cache", "layers", "links")
NOTHING = -60.0  # logarithm of no time at all


def width(setups: pd.DataFrame) -> np.ndarray:
    """How many accelerators read at the same time."""
    return np.where(setups["split"] == "layers", 1.0, setups["accelerators"].to_numpy(dtype=float))


def touched(setups: pd.DataFrame) -> np.ndarray:
    """Parameters that a step reads: of a mixture those that at least one user's token passes."""
    total, active, users = (setups[name].to_numpy(dtype=float) for name in ("parameters", "active", "users"))
    share = 1 - (1 - np.minimum(active / total, 1)) ** users
    return setups["read_parameters"].to_numpy(dtype=float) * total * share / active


def weight_bytes(setups: pd.DataFrame) -> np.ndarray:
    """Bytes of all weights, as their file has them."""
    return (setups["parameters"] * setups["bits"] / 8).to_numpy(dtype=float)


def cache_bytes(setups: pd.DataFrame) -> np.ndarray:
    """Bytes of the KV cache of all users at their context, in 16 bits."""
    return (setups["users"] * setups["context"] * setups["cache_bytes_per_token"]).to_numpy(dtype=float)


def capacity(setups: pd.DataFrame) -> np.ndarray:
    """Bytes that the accelerators hold together; infinite where nobody says."""
    return (setups["memory_bytes"] * setups["accelerators"]).fillna(np.inf).to_numpy(dtype=float)


def outside(setups: pd.DataFrame, room: float) -> np.ndarray:
    """Share of the weights that does not fit beside the cache; `room`: buffers, as a factor of them."""
    whole = weight_bytes(setups) * room
    return np.clip((whole + cache_bytes(setups) - capacity(setups)) / whole, 0, 1)


def parts(setups: pd.DataFrame, offloaded: np.ndarray | None = None) -> np.ndarray:
    """Logarithms of the seconds of each of PARTS at full speed, a row per setup; `offloaded`: share of the
    weights that is read from the host's memory."""
    rate = setups["bandwidth"].to_numpy(dtype=float) * width(setups)
    share = np.zeros(len(setups)) if offloaded is None else offloaded
    host = setups["host_bandwidth"].to_numpy(dtype=float)
    weights = touched(setups) * setups["bits"].to_numpy(dtype=float) / 8
    layers = setups["layers"].to_numpy(dtype=float)
    linked = ((setups["split"] == "tensor") & (setups["accelerators"] > 1)).to_numpy()
    with np.errstate(divide="ignore"):
        cached = np.log(cache_bytes(setups) / rate)
    return np.column_stack(
        [
            np.log(weights * ((1 - share) / rate + share / host)),
            np.maximum(cached, NOTHING),
            np.log(layers * LAYER_S),
            np.where(linked, np.log(2 * layers * REDUCTION_S), NOTHING),
        ]
    )


def least(setups: pd.DataFrame, offloaded: np.ndarray | None = None) -> np.ndarray:
    """Seconds that no step can pass: its smallest bytes at the fastest variant's bandwidth, side by side or
    one after the other, or its operations at the peak."""
    fastest = setups.assign(bandwidth=setups["bandwidth_most"], bits=setups["least_bits"])
    reading = np.exp(parts(fastest, offloaded)[:, 0])
    return np.maximum(reading, operations(setups))


def operations(setups: pd.DataFrame) -> np.ndarray:
    """Seconds of a step's operations where a datasheet's 16-bit peak is at most doubled by each halving of
    the bits down to four."""
    faster = np.clip(16 / setups["bits"].to_numpy(dtype=float), 1, 4)
    rate = setups["peak_flops"].to_numpy(dtype=float) * faster * width(setups)
    return 2 * (setups["active"] * setups["users"]).to_numpy(dtype=float) / rate


START_S = 20e-3  # where the start of an answer begins: tokenizer, queue, first launch


def prompt_parts(setups: pd.DataFrame, offloaded: np.ndarray | None = None) -> np.ndarray:
    """Logarithms of the seconds of a prompt's operations at the 16-bit peak (column `prompt`: its tokens) and
    of its start, a row per setup; of layers on several accelerators one part works at a time."""
    rate = setups["peak_flops"].to_numpy(dtype=float) * width(setups)
    attention = 2 * setups["prompt"] * setups["layers"] * setups["hidden"]  # half of all pairs of tokens
    of_token = (2 * setups["active"] + attention).to_numpy(dtype=float)
    seconds = setups["prompt"].to_numpy(dtype=float) * of_token / rate
    return np.column_stack([np.log(seconds), np.full(len(setups), np.log(START_S))])
