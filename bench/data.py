"""The immutable inputs in data/, each read through `table`."""

import hashlib

import pandas as pd

from bench import ROOT
from bench.backends import choose

DATA = ROOT / "data"


def table(name):
    """DataFrame of data/<name>.csv, e.g. `prompts` or `published/husain_llama2_7b_latency`; ValueError naming what exists."""
    known = sorted(p.relative_to(DATA).with_suffix("").as_posix() for p in DATA.rglob("*.csv"))
    return pd.read_csv(DATA / f"{choose('table', name, known)}.csv")


def digest(name):
    """SHA-256 of data/<name>.csv: which inputs a run used."""
    return hashlib.sha256((DATA / f"{name}.csv").read_bytes()).hexdigest()


def prompts(which="latency"):
    """Texts of the prompt set `which`, indexed by prompt number."""
    every = table("prompts")
    choose("prompt set", which, every["set"].unique())
    return every[every["set"] == which].set_index("prompt")["text"]


def older_layout(path):
    """A CSV of the older llama-inference layout (tok_count, time, question, answer, note; any order) with tokens_per_s.

    One row per request, `time` in seconds. Rows with no time or a time of zero cannot have a rate: ValueError naming them.
    """
    rows = pd.read_csv(path)
    lacking = {"tok_count", "time", "question", "answer", "note"} - set(rows.columns)
    if lacking:
        raise ValueError(f"{path} is not of the older llama-inference layout: it lacks the columns {', '.join(sorted(lacking))}.")
    bad = rows.index[~(pd.to_numeric(rows["time"], errors="coerce") > 0)]
    if len(bad):
        raise ValueError(f"{path}: the rows {', '.join(str(i + 2) for i in bad)} have no positive time; measure them again or remove them.")
    return rows.assign(tokens_per_s=rows["tok_count"] / rows["time"])


def older_mean_tokens_per_s(paths):
    """Published figure of the older study for the files `paths`: the mean over rows of tok_count / time, in tokens/s."""
    return pd.concat([older_layout(p) for p in paths])["tokens_per_s"].mean()
