"""What an engine says that it computes with, compared with the checkpoint: a difference refuses the run.

An engine that reads config.json otherwise than its author meant (another rotary base, another number format)
is as fast as one that reads it right, and every token of it is wrong. So what an engine tells of itself, in
its objects, its files or at its address, is read back; what it does not tell stays unknown.
"""

import json
import math
import urllib.request
from typing import Any

from bench.backends.common.checkpoints import Checkpoint
from llm_measured.core.definitions import Value

FACTS = ("rope_theta", "dtype", "vocab_size", "end_token_ids")


def of_config(config: dict[str, Any]) -> dict[str, Any]:
    """The facts that a Hugging Face configuration names, as either transformers 4 or 5 writes it."""
    rope = config.get("rope_parameters") or {}
    ends = config.get("eos_token_id")
    found = {
        "rope_theta": rope.get("rope_theta", config.get("rope_theta")),
        "dtype": config.get("dtype") or config.get("torch_dtype"),
        "vocab_size": config.get("vocab_size"),
        "end_token_ids": ends if isinstance(ends, list | None) else [ends],
    }
    return {name: value for name, value in found.items() if value is not None}


def checked(
    engine: str, checkpoint: Checkpoint, reported: dict[str, Any], dtype: str | None = None
) -> dict[str, Any]:
    """`reported` (some of FACTS) as an entry for a sidecar's settings, if it is what the checkpoint says.

    `dtype` is the number format that the option stands for; without one none is compared. Ends of a sequence
    must be among the checkpoint's. ValueError, one sentence for all differences, where it is not so.
    """
    expected = of_config(checkpoint.config) | {"dtype": dtype, "end_token_ids": checkpoint.end_token_ids}
    reported = {name: reported[name] for name in FACTS if reported.get(name) is not None}
    if "dtype" in reported:
        reported["dtype"] = str(reported["dtype"]).removeprefix("torch.")
    wrong = [
        f"{LABELS[name]} {_shown(reported[name])} where {checkpoint.name} has {_shown(expected[name])}"
        for name in reported
        if expected.get(name) is not None and not _same(name, reported[name], expected[name])
    ]
    if wrong:
        raise ValueError(
            f"{engine} says that it computes with {' and '.join(wrong)}: its answers would not be this "
            "model's. It reads the checkpoint otherwise than this study does; take another version of it, or "
            "give it a copy with what it reads (bench/backends/common/copies.py)."
        )
    return {"read_back": reported} if reported else {}


LABELS = {
    "rope_theta": "a rotary base of",
    "dtype": "numbers of the format",
    "vocab_size": "a vocabulary of",
    "end_token_ids": "ends of a sequence",
}


def _same(name: str, reported: Value, expected: Value) -> bool:
    if name == "rope_theta":
        return math.isclose(float(reported), float(expected), rel_tol=1e-6)
    if name == "end_token_ids":
        return set(reported) <= set(expected)
    return reported == expected


def _shown(value: Value) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)


def fetched(address: str) -> dict[str, Any]:
    """The JSON object that a GET of `address` answers; empty where the server has no such answer."""
    try:
        with urllib.request.urlopen(address, timeout=30) as answer:
            found = json.load(answer)
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}
