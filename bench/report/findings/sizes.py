"""Sentences on what a larger model changes."""

import pandas as pd

from bench.analysis import latency as latency_analysis
from bench.analysis import machines
from bench.analysis import sizes as sizes_analysis
from bench.report.findings import words


def larger_models(requests: pd.DataFrame) -> list[str]:
    """What the same options make of each larger model: one sentence per model, [] where no option has
    measured two."""
    table = sizes_analysis.sizes(requests)
    if table.empty:
        return []
    groups = table.groupby(["larger_model", "larger_weights"], sort=False)
    each = latency_analysis.runs(machines.here(requests, "latency"))
    return [_sentence(requests, rows, _bound(rows, each)) for _, rows in groups]


def _bound(rows, each):
    """`, at most` where a run of the options and models of `rows`, among the runs `each`, was probed in one
    way only."""
    own = each[each["model"].isin([*rows["model"], *rows["larger_model"]])]
    own = own.merge(rows[sizes_analysis.OPTION], on=sizes_analysis.OPTION)
    return ", at most" if latency_analysis.probed_one_way(own) else ""


def _sentence(requests, rows, bound):
    first = rows.iloc[0]
    random = " (random weights)" if first["larger_weights"] == "synthetic" else ""
    more = words.range(rows["larger_weight_bytes"] / rows["weight_bytes"])
    longer = [f"{words.ratio(row)} with {words.name(row)}" for row in _ends(rows, "ratio")]
    used = [_used(row) for _, row in rows.iterrows()]
    options = words.plural(len(rows), "option")
    read, take = ("read", "take") if len(rows) > 1 else ("reads", "takes")
    return (
        f"{words.on(first)}, {options} {read} {more} as many bytes per token with {first['larger_model']}"
        f"{random} as with {first['model']}, and {take} {' to '.join(longer)} as long for an answer. "
        f"MBU{bound}: {words.listed(used)}.{_order(requests, rows)}"
    )


def _ends(rows, column):
    """The rows with the smallest and the largest of `column`; one where they are the same."""
    return [rows.loc[place] for place in dict.fromkeys((rows[column].idxmin(), rows[column].idxmax()))]


def _used(row: pd.Series) -> str:
    """`**engine option** 0.71 ± 0.02 instead of 0.45 ± 0.05`: its MBU with either model."""
    before = words.within(round(row["mbu"], 2), row["mbu_interval"])
    after = words.within(round(row["larger_mbu"], 2), row["larger_mbu_interval"])
    return f"{words.name(row)} {after} instead of {before}"


def _order(requests: pd.DataFrame, rows: pd.DataFrame) -> str:
    """What becomes of the order of each pair of options, where there are two with repeats."""
    found = sizes_analysis.order(requests, rows)
    pairs = sum(found.values())
    if not pairs:
        return ""
    verdicts = {
        "kept": "in the same order with both models",
        "turned": "in the other order with the larger one",
        "open": "cannot be distinguished with one of the models",
    }
    each = [f"{found[name]} {text}" for name, text in verdicts.items() if found[name]]
    return f" Of {words.plural(pairs, 'pair')} of options: {words.listed(each)}."
