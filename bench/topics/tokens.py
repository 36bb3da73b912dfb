"""Whether an option writes the same greedy tokens on another processor: answers of the same prompts, compared
token for token."""

import pandas as pd

from bench.observations import derived
from bench.topics import latency, machines
from llm_measured.core import naming

SAME = ["backend", "option", "backend_version", "model", "weights", "max_new_tokens"]
COLUMNS = ["experiment", *SAME, "bits", "gpu", "host", "than_machine", "prompts", "same_answers"]


def table(requests: pd.DataFrame) -> pd.DataFrame:
    """Compare the answers of each option on each machine with those on the one that has most runs of it.

    A row per experiment (latency, sizes), option, version and other machine; columns COLUMNS: than_machine
    (whose answers are the measure), bits of a weight (empty: the name states none), prompts (that both were
    asked), same_answers (of these, the same tokens in every run of both). Random weights have no row.
    """
    labels = {
        tuple(rows[machines.MACHINE].iloc[0]): label for label, rows in machines.labelled(requests, False)
    }
    order = {machine: place for place, machine in enumerate(labels)}
    rows = []
    for experiment, form in (("latency", requests), ("sizes", latency.of_sizes(requests))):
        form = naming.named(derived.judged(form[form["experiment"] == "latency"]))
        form = form[(form["weights"] == "real") & (form["error"] == "")]
        for key, own in form.groupby(SAME, sort=True):
            answers = own.groupby([*machines.MACHINE, "prompt"])["output_ids"].agg(frozenset)
            measure, *others = sorted(own.groupby(machines.MACHINE).groups, key=order.__getitem__)
            for machine in others:
                both = pd.concat([answers[measure], answers[machine]], axis=1, join="inner")
                same = sum(len(first | second) == 1 for first, second in both.itertuples(index=False))
                named = [experiment, *key, naming.bits(key[1]), *machine, labels[measure], len(both), same]
                rows.append(named)
    return pd.DataFrame(rows, columns=COLUMNS)
