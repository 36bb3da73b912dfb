"""The serving study: what is asked of a server, and what its answers say, level of load by level.

A level is a number of requests under one load: a closed loop with `concurrency` places, or an open loop with `request_rate` arrivals per second.
"""

import numpy as np
import pandas as pd

from bench import answers, data, dialects, load, metrics, results
from bench.backends import choose

HEAD_TOKENS = 8  # random tokens that begin a prompt: no two prompts share a prefix that a cache could answer
SATURATED = 0.05  # less than this more output tokens/s than at the best level before: more load gives hardly more
CLIMBS = 3  # levels in a row that must have given hardly more
BACKLOG = 0.25  # more than this share of an open loop's tokens still to be written when its last request comes: more comes than is answered
RATE_SECONDS = 20  # how long arrivals last in an open loop where the number of requests is left to the study
PLACES = 3  # requests per place in a closed loop, likewise
FEWEST = 16
LEVEL = "concurrency request_rate".split()


def lengths(which, requests, scale=1.0, most=None, seed=0):
    """[(prompt tokens, new tokens)] of `requests` requests: a row of data/lengths.csv, or any CSV with the columns prompt_tokens and new_tokens.

    A CSV is taken in its order, from the start again where it ends. `scale` multiplies every length; prompt and answer together keep
    below `most` tokens. The same for the same seed. ValueError naming what exists.
    """
    if str(which).endswith(".csv"):
        table = trace(which)
        drawn = table[["prompt_tokens", "new_tokens"]].to_numpy()[np.arange(requests) % len(table)].astype(float)
    else:
        known = data.table("lengths").set_index("lengths")
        row = known.loc[choose("distribution of lengths (or a .csv file of them)", which, known.index)]
        means = row[["prompt_tokens", "new_tokens"]].to_numpy(dtype=float)
        spread = np.random.default_rng(seed).exponential(1.0, (requests, 2)) if row["spread"] == "exponential" else np.ones((requests, 2))
        drawn = means * spread
    pairs = np.maximum(np.rint(drawn * scale), (HEAD_TOKENS, 2)).astype(int)
    if most:
        pairs = np.minimum(pairs, most // 2)
    return [tuple(map(int, pair)) for pair in pairs]


def trace(path):
    """A CSV of requests: prompt_tokens, new_tokens and, where arrivals are to be replayed, at_s. ValueError naming what it lacks."""
    try:
        table = pd.read_csv(path)
    except OSError as failure:
        raise ValueError(f"{str(path)!r} cannot be read as a CSV of requests (prompt_tokens, new_tokens, at_s): {failure}.") from None
    lacking = {"prompt_tokens", "new_tokens"} - set(table.columns)
    if lacking or table.empty:
        raise ValueError(f"{path} has no {' and no '.join(sorted(lacking)) or 'rows'}: it needs the columns prompt_tokens and new_tokens (and at_s for a replay).")
    if not (table[["prompt_tokens", "new_tokens"]].apply(pd.to_numeric, errors="coerce") > 0).all(axis=None):
        raise ValueError(f"{path} has rows in which prompt_tokens or new_tokens is no positive number.")
    return table


def prompts(checkpoint, sizes, first=0):
    """One `dialects.Prompt` per (prompt tokens, new tokens): random tokens that no other prompt has, then the study's text.

    `first` is the number of the first of them: numbers make prompts differ, in one level and between levels.
    """
    text = checkpoint.encode(data.text())
    ordinary = np.array(sorted(set(text)))
    made = []
    for number, (prompt_tokens, new_tokens) in enumerate(sizes, start=first):
        head = np.random.default_rng([7, number]).choice(ordinary, HEAD_TOKENS).tolist()
        start = (number * 37) % len(text)
        body = (text[start:] + text * (prompt_tokens // len(text) + 1))[: max(0, prompt_tokens - HEAD_TOKENS)]
        ids = (head + body)[:prompt_tokens]
        made.append(dialects.Prompt(tuple(ids), checkpoint.decode(ids), new_tokens))
    return made


class Level:
    """One load: its kind (`closed`, `open`, `replay`), its value, when its requests are due, and how many they are."""

    def __init__(self, kind, value, requests, at_s=None):
        self.kind, self.value, self.requests, self.at_s = kind, value, requests, at_s

    @property
    def condition(self):
        """The columns that say what the load was."""
        return {"concurrency": self.value} if self.kind == "closed" else {"request_rate": self.value}

    def __str__(self):
        return f"{self.value:g} at once" if self.kind == "closed" else f"{self.value:g} requests/s"


def plan(concurrency, rates, requests, arrivals, seed=0):
    """The levels of a run, the closed loop first, each from little load to much; `requests` 0 leaves their number to the load."""
    closed = [Level("closed", places, requests or max(FEWEST, PLACES * places)) for places in sorted(concurrency)]
    schedules = {"poisson": lambda *wanted: load.poisson(*wanted, seed), "constant": load.constant}
    schedule = schedules[choose("kind of arrivals", arrivals, schedules)]
    opened = []
    for rate in sorted(rates):
        count = requests or max(FEWEST, round(rate * RATE_SECONDS))
        opened.append(Level("open", rate, count, schedule(rate, count)))
    return closed + opened


def replay(path):
    """The one level that replays the arrivals of a trace; ValueError where it has none."""
    table = trace(path)
    if "at_s" not in table or len(table) < 2:
        raise ValueError(f"{path} has no column at_s with the moment of each request in seconds, or only one row; use arrivals 'poisson' or 'constant' instead.")
    at_s = pd.to_numeric(table["at_s"], errors="coerce").to_numpy(dtype=float)
    at_s = at_s - at_s.min()  # in the file's order, as the lengths are
    if not at_s.max() > 0:
        raise ValueError(f"{path} has rows without a moment in at_s, or all at the same one.")
    return [Level("replay", round((len(at_s) - 1) / at_s.max(), 3), len(at_s), at_s)]


def calls(served, level, wanted, first=1):
    """The requests of a level as `load.Call`s, numbered from `first`: one per `dialects.Prompt` in `wanted`."""
    made = []
    for k, prompt in enumerate(wanted):
        payload = dialects.request(served.dialect, served.url, prompt, served.model, served.body(prompt.new_tokens), served.token)
        counted = len(prompt.ids) if served.dialect in ("completions", "llamacpp") else None
        made.append(load.Call(first + k, payload, None if level.at_s is None else float(level.at_s[k]), counted, prompt.new_tokens))
    return made


def with_gaps(row, encode):
    """`row` of `answers.measured` with its inter-token columns, where events brought several tokens and only their text tells how many.

    The tokenizer counts them; where its count is not the server's, the columns stay empty.
    """
    at, texts = row.pop("pieces", (None, None))
    if texts is None:
        return row
    counts = [len(encode(text)) for text in texts]
    return row | (answers.gaps(at, counts) if sum(counts) == row["output_tokens"] and min(counts) > 0 else {})


def with_ids(row, encode):
    """`row` with the token ids of its text, where the server sent fewer ids than tokens; none where the tokenizer counts otherwise."""
    if row["error"] or len(row["output_ids"]) == row["output_tokens"]:
        return row
    ids = list(encode(row["text"]))
    return row | {"output_ids": ids if len(ids) == row["output_tokens"] else []}


def window(rows):
    """(first, last) moment between which a level's load was held: from its first request to the last one that was taken up, s."""
    return rows["sent_s"].min(), rows["sent_s"].max()


def steady_tokens_per_s(rows):
    """Output tokens/s of one level while its load was held: tokens of each request spread evenly from its first to its last.

    The end, when no more requests come and the server empties, does not count; where all requests began at once, everything does.
    """
    good = rows[rows["error"] == ""]
    if good.empty:
        return np.nan
    first, last = window(rows)
    began, ended = _spoken(good)
    if last - first < 0.5 * (ended.max() - first):
        last = ended.max()
    share = (np.minimum(ended, last) - began) / np.maximum(ended - began, 1e-9)
    return float((good["output_tokens"] * share.clip(0, 1)).sum() / (last - first))


def _spoken(rows):
    """Moments of the first and the last token of each request, s."""
    sent = rows["sent_s"] - _wait(rows)
    return sent + rows["ttft_s"], sent + rows["e2e_s"]


def _wait(rows):
    """By how much a scheduled request's times count from before it was sent, s."""
    opened = rows["request_rate"].notna()
    return (rows["late_s"].fillna(0) + rows["connect_s"].fillna(0)).where(opened, 0)


def backlog(rows):
    """Share of a level's output tokens that were not yet written when its last request was taken up; NaN without answers."""
    good = rows[rows["error"] == ""]
    if good.empty:
        return np.nan
    first, last = window(rows)
    began, ended = _spoken(good)
    written = ((last - began) / np.maximum(ended - began, 1e-9)).clip(0, 1)
    return 1 - float((good["output_tokens"] * written).sum() / good["output_tokens"].sum())


def saturated(levels):
    """Whether the last of `levels` (rows of one kind of loop, from little load to much) says that the server is saturated.

    In an open loop: more came than was answered, so a backlog has grown. In a closed loop: three levels in a row gave hardly more output tokens/s
    than the best before them; fewer may be a step between two kernels of the engine, after which it climbs on.
    """
    if levels[-1]["request_rate"].notna().any():
        return backlog(levels[-1]) > BACKLOG
    rates = [steady_tokens_per_s(rows) for rows in levels]
    return len(rates) > CLIMBS and all(rates[k] < (1 + SATURATED) * max(rates[:k]) for k in range(-CLIMBS, 0))


def meets(rows, slo):
    """Which requests met every objective of `slo` (ttft_s, tpot_s: upper bounds); a failed one met none."""
    good = rows["error"] == ""
    for name, bound in slo.items():
        good &= rows[name] <= bound
    return good


def levels(requests, slo=None):
    """One row per run and level: how much came out, how long it took in the 50th, 90th and 99th percentile, and what met the objectives.

    `requests` as `results.load` gives them. Goodput is requests/s that meet every objective, against the time from the first request to the last answer.
    """
    slo = data.study()["slo"] if slo is None else slo
    rows = requests[requests["experiment"] == "serving"]
    keys = ["run_id", *results.CONFIGURATION, *LEVEL]
    found = [dict(zip(keys, key)) | _level(level, slo) for key, level in rows.groupby(keys, sort=False, dropna=False)]
    return pd.DataFrame(found, columns=[*keys, *_level(rows.iloc[:0], slo)])


def _level(rows, slo):
    good = rows[rows["error"] == ""]
    wall = (good["sent_s"] + good["e2e_s"]).max() - rows["sent_s"].min() if len(good) else np.nan
    told = {
        "requests": len(rows), "failed": int((rows["error"] != "").sum()), "wall_s": wall, "requests_per_s": len(good) / wall,
        "output_tokens_per_s": steady_tokens_per_s(rows), "goodput_per_s": meets(rows, slo).sum() / wall,
        "prompt_tokens": good["prompt_tokens"].mean(), "new_tokens": good["output_tokens"].mean(), "started": rows["started"].max() if len(rows) else "",
    }  # fmt: skip
    for column in ("ttft_s", "tpot_s", "itl_p99_s", "e2e_s", "late_s", "connect_s"):
        told |= {f"{column[:-2]}_p{q}_s": metrics.percentile(good[column].dropna(), q) for q in (50, 90, 99)}
    acceptance = metrics.acceptance_rate(good["accepted_tokens"].sum(), good["drafted_tokens"].sum())
    return told | {"acceptance_rate": float(acceptance)}
