"""Names and their parsers: a word of a list, a run's id, an option's name, a device's slug."""

import difflib
import re
from collections.abc import Iterable

import pandas as pd

from llm_measured.core.definitions import Fields


def choose(kind: str, name: str, known: Iterable[str]) -> str:
    """`name` if it is one of `known`; else a ValueError that lists what exists and guesses what was
    meant."""
    known = list(known)
    if name in known:
        return name
    raise ValueError(f"Unknown {kind} {name!r}.{meant(name, known)} There is: {', '.join(known)}.")


def meant(name: str, known: Iterable[str]) -> str:
    """A question after the one of `known` that comes nearest to `name`; empty where none is near."""
    lower = {str(one).lower(): one for one in known}
    typed = str(name).lower()
    near = [lower[one] for one in difflib.get_close_matches(typed, lower, n=1)]
    near = near or [one for word, one in lower.items() if typed and word.startswith(typed)]
    return f" Did you mean {near[0]!r}?" if near else ""


def safe(name: str) -> str:
    """`name` as it may stand in a file's name: hub:meta-llama/Llama-2-7b-hf ->
    hub-meta-llama-Llama-2-7b-hf."""
    return re.sub(r"[^A-Za-z0-9._]+", "-", name)


def run_id(experiment: str, backend: str, model: str, option: str, gpu: str, host: str, n: int | str) -> str:
    """`<backend>/<experiment>-<model>-<option>-<gpu>-<host>-<n>`: the run's path without its suffix."""
    return f"{backend}/{experiment}-{safe(model)}-{option}-{gpu}-{host}-{n}"


def split_number(identifier: str) -> tuple[str, str]:
    """(identifier without its number, number as text) of a run's id."""
    stem, _, number = str(identifier).rpartition("-")
    return stem, number


def lettered_host(host: str) -> str:
    """Begin the id `host` of a checkout with a letter, as new ones do: 096e72 would be read as a number."""
    return host if host.startswith("h") or len(host) != 6 else f"h{host}"


def cpu_slug(name: str, cores: int) -> str:
    """Slug of a CPU: its name's words and the number of its cores, `epyc-zen4-2c`."""
    return f"{name}-{cores}c"


def is_cpu(slug: str) -> bool:
    """Whether a device's slug is that of a CPU: `cpu_slug` made it."""
    return bool(re.search(r"-\d+c$", slug))


def gpu_slug(name: str) -> str:
    """Slug of a GPU from the name that its driver gives: `NVIDIA H200` -> `h200`."""
    return slug(re.sub(r"NVIDIA|GeForce|Tesla", "", name))


def slug(name: str) -> str:
    """`name` in lower case, everything but letters and digits as single hyphens."""
    return re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")


# An option's name, as tables and figures show it: `float16`, or `float16 TP 2 DP 2` on several devices.
PARALLEL = {"tensor_parallel": "TP", "data_parallel": "DP"}


DATED = re.compile(r"[-@:_]20[0-9]{2}-?[0-9]{2}(-?[0-9]{2})?$|[-@][0-9]{4}$|:latest$|\.gguf$")


def same_model(one: str, other: str) -> bool:
    """Return whether two names mean one model: whatever their case and punctuation, the path or publisher
    before them, and a date after them."""
    last = [name.rstrip("/").rpartition("/")[2].lower() for name in (one, other)]
    plain = [re.sub(r"[^a-z0-9]", "", DATED.sub("", name)) for name in last]
    return plain[0] == plain[1]


def named(table: pd.DataFrame) -> pd.DataFrame:
    """`table` with the devices in the option's name where several were used at once (`float16 TP 2`).

    What is compared by engine and option is then compared by them as well.
    """
    several = pd.Series("", table.index)
    for column, letters in PARALLEL.items():
        several += (f" {letters} " + table[column].astype(int).astype(str)).where(table[column] > 1, "")
    return table.assign(option=table["option"] + several) if (several != "").any() else table


def plain_option(option: str) -> str:
    """The engine's own name of an option, without the number of devices that `named` adds."""
    return option.partition(" ")[0]


def label(row: pd.Series | Fields) -> str:
    """`backend option` of a row with the columns backend, option and weights; synthetic weights are marked as
    such."""
    return f"{row['backend']} {row['option']}" + (" (synthetic)" if row.get("weights") == "synthetic" else "")


def bits(option: str) -> int | None:
    """Bits per weight that an option's name states, None if none: bfloat16 -> 16, int8_float32 -> 8, Q4_0 ->
    4."""
    numbers = map(int, re.findall(r"\d+", plain_option(option)))
    return next((number for number in numbers if number in (2, 3, 4, 5, 6, 8, 16, 32)), None)


def listed(words: Iterable[str]) -> str:
    """`a`, `a and b`, `a, b and c`; nothing of none."""
    words = list(words)
    return " and ".join(filter(None, (", ".join(words[:-1]), *words[-1:])))
