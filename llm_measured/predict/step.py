"""Bytes, layers and links that a step passes, and the seconds that they would take at full speed.

    step = (weights + KV cache) ÷ (bandwidth × efficiency) + layers × time of a layer + links
           + (users − 1) × ((operations of a token + of a prompt ÷ tokens of an answer) ÷ those of a
                            second + host time of a sequence)

and never less than operations ÷ peak. Weights are those that a step of so many users touches: of a mixture
each user's token takes its own experts. The cache is that of all users. While one user's answer is generated
each other user sends a prompt, whose operations delay everybody's step; how many operations a second has
(`reached_flops`) is what prompts alone reach on such hardware. Accelerators that
share each matrix (tensor parallel) read side by side; those that hold each its layers read one after the
other, so bandwidth does not add up. What does not fit is read from the host's memory, in series: whole
layers, of a mixture experts. How fast hardware and engines pass all that is `fit`."""

import numpy as np
import pandas as pd

from llm_measured.predict import machines

LAYER_S = 20e-6  # where the time of a layer starts from
REDUCTION_S = 10e-6  # and that of one reduction over links: two a layer in tensor parallel
SEQUENCE_S = 20e-6  # and the host's for one more sequence: its next token, its page of the cache, its event
PARTS = ("weights", "cache", "layers", "links", "arithmetic", "sequences", "prompts", "host")
NOTHING = -60.0  # logarithm of no time at all


def width(setups: pd.DataFrame) -> np.ndarray:
    """How many accelerators read at the same time."""
    return np.where(setups["split"] == "layers", 1.0, setups["accelerators"].to_numpy(dtype=float))


def touched(setups: pd.DataFrame) -> tuple[np.ndarray, np.ndarray]:
    """Parameters that a step reads: (those that every token passes, of a mixture those of the experts that at
    least one user's token passes)."""
    total, active, always, read, users = (
        setups[name].to_numpy(dtype=float)
        for name in ("parameters", "active", "always", "read_parameters", "users")
    )
    experts = np.maximum(total - always, 1.0)
    missed = (1 - np.clip((active - always) / experts, 0, 1)) ** users
    # The input embedding, which is looked up, is one of what every token passes.
    mixed = (setups["mixture"] == "mixture").to_numpy()
    return np.maximum(always - (active - read), 0.1 * always), np.where(mixed, experts * (1 - missed), 0.0)


def weight_bytes(setups: pd.DataFrame) -> np.ndarray:
    """Bytes of all weights, as their file has them."""
    return (setups["parameters"] * setups["bits"] / 8).to_numpy(dtype=float)


def cache_bytes(setups: pd.DataFrame) -> np.ndarray:
    """Bytes of the KV cache of all users at their context."""
    return (setups["users"] * setups["context"] * setups["cache_bytes_per_token"]).to_numpy(dtype=float)


def capacity(setups: pd.DataFrame) -> np.ndarray:
    """Bytes that the accelerators hold together; infinite where nobody says."""
    return (setups["memory_bytes"] * setups["accelerators"]).fillna(np.inf).to_numpy(dtype=float)


ROOM = 1.02  # of the weights' bytes: buffers that every engine keeps beside them


def outside(setups: pd.DataFrame) -> np.ndarray:
    """Share of the weights that does not fit beside the cache; 0 where nobody says how much there is."""
    whole = weight_bytes(setups) * ROOM
    return np.clip((whole + cache_bytes(setups) - capacity(setups)) / whole, 0, 1)


def most_users(setups: pd.DataFrame) -> np.ndarray:
    """How many users' caches fit beside the weights; infinite where nobody says how much there is."""
    left = capacity(setups) - weight_bytes(setups) * ROOM
    each = (setups["context"] * setups["cache_bytes_per_token"]).to_numpy(dtype=float)
    return np.where(left < 0, 0.0, np.floor(left / np.maximum(each, 1.0)))


# Of a host's bandwidth what is reached beside the other parts: on experts, and on whole layers.
HOST_SHARES = (0.75, 0.5)
# Bytes/s of hosts of which nobody says more: two channels; eight or more, which hold what two do not.
HOSTS = (60e9, 280e9)
TWO_CHANNELS_HOLD = 64e9  # bytes
DESKTOP_BYTES = 1.5e9  # of a card that a desktop and an engine's buffers take where not all fits


def offloads(setups: pd.DataFrame) -> np.ndarray:
    """Whether what does not fit is read from the host's memory: one user, and an engine that leaves the rest
    there."""
    engines = setups["engine_family"].isin(machines.OFFLOADING)
    return (engines & (setups["users"] == 1)).to_numpy(dtype=bool)


def away_share(setups: pd.DataFrame, outside: np.ndarray) -> np.ndarray:
    """Share of the weights that is left on the host, as stated, and at least what does not fit (`outside`):
    buffers and a desktop take their part of the card then, and a layer takes its cache along."""
    whole = weight_bytes(setups)
    more = outside * whole + DESKTOP_BYTES
    moved = more / (whole + np.where(by_experts(setups), 0.0, cache_bytes(setups)))
    needed = np.where(outside > 0, np.minimum(moved, 1), 0.0)
    return np.where(offloads(setups), np.fmax(setups["host_share"], needed), 0.0)


def by_experts(setups: pd.DataFrame) -> np.ndarray:
    """Whether what does not fit is experts: of mixtures, but for ollama, which leaves whole layers."""
    return ((setups["mixture"] == "mixture") & (setups["engine"] != "ollama")).to_numpy()


def away_bytes(setups: pd.DataFrame, share: np.ndarray) -> np.ndarray:
    """Bytes that a step reads of what is outside (`share` of all weights): whole layers with their cache; or
    experts, and of what every token passes only where the experts are not enough."""
    always, experts = touched(setups)
    bytes_each = setups["bits"].to_numpy(dtype=float) / 8
    layers = share * ((always + experts) * bytes_each + cache_bytes(setups))
    total = setups["parameters"].to_numpy(dtype=float)
    of_experts = np.clip(1 - setups["always"].to_numpy(dtype=float) / total, 1e-9, 1 - 1e-9)
    away = np.minimum(share / of_experts, 1)
    rest = np.clip((share - of_experts) / (1 - of_experts), 0, 1)
    return np.where(by_experts(setups), (experts * away + always * rest) * bytes_each, layers)


def host_rate(setups: pd.DataFrame, share: np.ndarray) -> np.ndarray:
    """Bytes/s that a host's memory reaches: of what is stated, else of what its
    processor is sold with, else of what a host has that holds it."""
    large = share * weight_bytes(setups) > TWO_CHANNELS_HOLD
    usual = np.where(large, HOSTS[1], HOSTS[0])
    stated = setups["host_bandwidth"].fillna(setups["host_sold"])
    return host_share(setups) * stated.fillna(pd.Series(usual, setups.index)).to_numpy(dtype=float)


def host_share(setups: pd.DataFrame) -> np.ndarray:
    """Share of a host's bandwidth that is reached."""
    return np.where(by_experts(setups), *HOST_SHARES)


def parts(setups: pd.DataFrame, offloaded: np.ndarray | None = None) -> np.ndarray:
    """Logarithms of the seconds of each of PARTS at full speed, a row per setup; `offloaded`: share of the
    weights that is read from the host's memory. The last but one three are what users beside the first
    add."""
    rate = setups["bandwidth"].to_numpy(dtype=float) * width(setups)
    share = np.zeros(len(setups)) if offloaded is None else offloaded
    weights = sum(touched(setups)) * setups["bits"].to_numpy(dtype=float) / 8
    away = away_bytes(setups, share)
    # A cache of fewer than eight bits takes less memory and no less time: it is unpacked first.
    unpacked = np.where(setups["kv_bits"] < 8, 16 / setups["kv_bits"], 1.0)
    cache = cache_bytes(setups) * np.where(by_experts(setups), 1.0, 1 - share)
    layers = setups["layers"].to_numpy(dtype=float)
    linked = (setups["split"] == "tensor") & (setups["accelerators"] > 1)
    others = setups["users"].to_numpy(dtype=float) - 1
    reached = setups["reached_flops"].fillna(setups["peak_flops"]).to_numpy(dtype=float) * width(setups)
    prompts = prompt_operations(setups) / setups["answer"].to_numpy(dtype=float)
    seconds = [
        (weights + cache_bytes(setups) - cache - away) / rate,
        cache * unpacked / rate,
        layers * LAYER_S,
        np.where(linked, 2 * layers * REDUCTION_S, 0),
        others * 2 * setups["active"].to_numpy(dtype=float) / reached,
        others * SEQUENCE_S,
        others * prompts / reached,
        away / host_rate(setups, share),
    ]
    with np.errstate(divide="ignore"):
        # Nothing left on the card may be a rounding error below zero.
        return np.maximum(np.log(np.maximum(np.column_stack(seconds), 0)), NOTHING)


def least(setups: pd.DataFrame, offloaded: np.ndarray | None = None) -> np.ndarray:
    """Seconds that no step can pass: the smallest bytes of one user's step at the fastest variant's
    bandwidth, side by side or one after the other, or all users' operations at the peak."""
    alike = {"users": 1.0}  # who all choose the same experts
    fastest = setups.assign(bandwidth=setups["bandwidth_most"], bits=setups["least_bits"], **alike)
    seconds = np.exp(parts(fastest, offloaded)[:, [0, PARTS.index("host")]])
    # A host's bandwidth bounds only where somebody states it, and then all of it.
    host = np.where(setups["host_bandwidth"].notna(), seconds[:, 1] * host_share(setups), 0.0)
    return np.maximum(seconds[:, 0] + host, operations(setups))


def operations(setups: pd.DataFrame) -> np.ndarray:
    """Seconds of a step's operations where a datasheet's 16-bit peak is at most doubled by each halving of
    the bits down to four."""
    faster = np.clip(16 / setups["bits"].to_numpy(dtype=float), 1, 4)
    rate = setups["peak_flops"].to_numpy(dtype=float) * faster * width(setups)
    return 2 * (setups["active"] * setups["users"]).to_numpy(dtype=float) / rate


def prompt_operations(setups: pd.DataFrame) -> np.ndarray:
    """Operations of one prompt (column `prompt`: its tokens)."""
    attention = 2 * setups["prompt"] * setups["layers"] * setups["hidden"]  # half of all pairs of tokens
    return (setups["prompt"] * (2 * setups["active"] + attention)).to_numpy(dtype=float)


START_S = 20e-3  # where the start of an answer begins: tokenizer, queue, first launch
PASS_TOKENS = 512.0  # of a prompt that are worked off together, each time with all weights
PASS_BYTES_PER_S = 60e9  # at which what is outside comes then, computed on the host or copied to the card


def prompt_parts(setups: pd.DataFrame, offloaded: np.ndarray | None = None) -> np.ndarray:
    """Logarithms of the seconds of a prompt's operations at the 16-bit peak (column `prompt`: its tokens) and
    of its start, a row per setup; of layers on several accelerators one part works at a time."""
    seconds = prompt_operations(setups) / (setups["peak_flops"].to_numpy(dtype=float) * width(setups))
    return np.column_stack([np.log(seconds), np.full(len(setups), np.log(START_S))])


def prompt_away_seconds(setups: pd.DataFrame, share: np.ndarray) -> np.ndarray:
    """Seconds that what is outside (`share` of the weights) adds to the time of a prompt."""
    passes = np.ceil(setups["prompt"].to_numpy(dtype=float) / PASS_TOKENS)
    return passes * share * weight_bytes(setups) / PASS_BYTES_PER_S
