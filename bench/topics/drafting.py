"""Options that draft tokens which the model then checks (speculative decoding), beside the same option
without."""

import re

import pandas as pd

from bench import backends
from bench.observations import derived
from bench.topics import estimates, latency, machines
from llm_measured.core import naming


def drafts(backend: str, option: str) -> bool:
    """Whether `option` of an engine drafts tokens, as its adapter declares; False without an adapter here."""
    try:
        return backends.get(backend).drafts(naming.plain_option(option))
    except Exception:  # whatever a contributed adapter does wrong, the observations stay readable
        return False


def undrafted(option: str) -> str:
    """Name of the same option without drafts: `Q8_0-ngram` -> `Q8_0`, `Q8_0-ngram (2.0)` -> `Q8_0 (2.0)`."""
    own, space, more = option.partition(" ")
    return re.sub(r"-[^-]*$", "", own) + space + more


ALIKE = ["alike", "answers"]


def table(requests: pd.DataFrame) -> pd.DataFrame:
    """Return `beside_plain` of the latency study, of `sizes`, and of `drafts`, which asks problems of
    HumanEval (column experiment), the largest gain first."""
    forms = {"latency": requests, "sizes": latency.of_sizes(requests)}
    forms["drafts"] = requests[requests["experiment"] == "drafts"].assign(experiment="latency")
    parts = [beside_plain(rows).assign(experiment=name) for name, rows in forms.items()]
    every = pd.concat([part for part in parts if len(part)] or parts[:1], ignore_index=True)
    return every.sort_values("ratio", ascending=False, kind="stable", ignore_index=True)


def beside_plain(requests: pd.DataFrame) -> pd.DataFrame:
    """Options that draft beside the same option without, in output tokens/s of one request at a time.

    `requests`: those of `latency` in one form of prompts (`latency.of_sizes` for the short one). One row per
    machine, model, option that drafts and version; columns `latency.VERSIONED`, plain (the other option),
    acceptance_rate, `estimates.RATIO` (the drafting one over the plain one), alike (prompts whose answers are
    the same in every run of both, token for token) and answers (prompts that both were asked). A prompt that
    failed once counts for no option of that machine and model.
    """
    rows = derived.judged(machines.every(requests, "latency"))
    prompts = pd.MultiIndex.from_frame(rows[["gpu", "host", "model", "prompt"]])
    rows = rows[~prompts.isin(prompts[rows["error"] != ""])]
    table = latency.summary(rows)
    table = table[table["acceptance_rate"].notna() & (table["shared_by"] == "")]
    table = table.assign(plain=table["option"].astype(str).map(undrafted))
    fitted, found = latency.compared(rows, latency.RATE), []
    for row in table.to_dict("records"):
        own = tuple(row[name] for name in latency.VERSIONED)
        other = tuple({**row, "option": row["plain"]}[name] for name in latency.VERSIONED)
        if other in fitted.places:
            found.append(row | fitted.compare(own, other) | dict(zip(ALIKE, _alike(rows, own, other))))
    names = [*latency.VERSIONED, "plain", "acceptance_rate", *estimates.RATIO, *ALIKE]
    return pd.DataFrame(found, columns=names)


def _alike(rows, own, other):
    """(prompts with one and the same answer in all runs of both configurations, prompts of both)."""
    each = [rows[(rows[latency.VERSIONED] == list(key)).all(axis=1)] for key in (own, other)]
    answers = [part.groupby("prompt")["output_ids"].agg(frozenset) for part in each]
    both = answers[0].index.intersection(answers[1].index)
    same = sum(len(answers[0][prompt] | answers[1][prompt]) == 1 for prompt in both)
    return same, len(both)
