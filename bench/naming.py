"""Names and their parsers: a word of a list, a run's id, an option's name, a device's slug."""

import difflib
import re

import pandas as pd


def choose(kind, wanted, known):
    """`wanted` if it is one of `known`; else a ValueError that lists what exists and guesses what was
    meant."""
    known = list(known)
    if wanted in known:
        return wanted
    near = difflib.get_close_matches(str(wanted), known, n=1)
    hint = f" Did you mean {near[0]!r}?" if near else ""
    raise ValueError(f"Unknown {kind} {wanted!r}.{hint} There is: {', '.join(known)}.")


def safe(name):
    """`name` as it may stand in a file's name: hub:meta-llama/Llama-2-7b-hf ->
    hub-meta-llama-Llama-2-7b-hf."""
    return re.sub(r"[^A-Za-z0-9._]+", "-", name)


def run_id(experiment, backend, model, option, gpu, host, n):
    """`<backend>/<experiment>-<model>-<option>-<gpu>-<host>-<n>`: the run's path without its suffix."""
    return f"{backend}/{experiment}-{safe(model)}-{option}-{gpu}-{host}-{n}"


def named(table):
    """`table` with the devices in the option's name where several were used at once (`float16 TP 2`): what is
    told apart by engine and option is then told apart by them as well."""
    several = pd.Series("", table.index)
    for column, letters in (("tensor_parallel", "TP"), ("data_parallel", "DP")):
        several += (f" {letters} " + table[column].astype(int).astype(str)).where(table[column] > 1, "")
    return table.assign(option=table["option"] + several) if (several != "").any() else table


def label(row):
    """`backend option` of a row of `latency_analysis.runs` or `latency_analysis.summary`; synthetic weights
    are marked as such."""
    return f"{row['backend']} {row['option']}" + (" (synthetic)" if row["weights"] == "synthetic" else "")


def bits(option):
    """Bits per weight that the name of an option states, None if it states none: bfloat16 -> 16, int8_float32
    -> 8, Q4_0 -> 4."""
    name = option.partition(" ")[0]  # without the number of devices (`naming.named`)
    return next((int(n) for n in re.findall(r"\d+", name) if int(n) in (2, 3, 4, 5, 6, 8, 16, 32)), None)


def is_cpu(slug):
    """Whether a device's slug is that of a CPU: it ends with the number of its cores (`slug`)."""
    return bool(re.search(r"-\d+c$", slug))
