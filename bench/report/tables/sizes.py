"""Tables of the topic sizes: models that people use, in one short form."""

import pandas as pd

from bench.report import captions, tables, words
from bench.topics import estimates, machines
from bench.topics import sizes as sizes_analysis
from llm_measured.core import columns
from llm_measured.core.columns import Column


def of_machines(table: pd.DataFrame, requests: pd.DataFrame) -> pd.DataFrame:
    """`table` (columns gpu and host) as a page parts it: machines in their order, gpu as their label."""
    measured = requests[requests["experiment"] == "sizes"]
    labels = {
        tuple(rows[machines.MACHINE].iloc[0]): label for label, rows in machines.labelled(measured, False)
    }
    place = {machine: number for number, machine in enumerate(labels)}
    keys = [tuple(row) for row in table[machines.MACHINE].itertuples(index=False)]
    table = table.assign(gpu=[labels[key] for key in keys], machine=[place[key] for key in keys])
    table = table.sort_values("machine", kind="stable", ignore_index=True)
    table.attrs = {"of_machines": True, "machines": list(labels.values()) if len(labels) > 1 else []}
    return table


def _shown(table: pd.DataFrame, names: str, **own: Column | str) -> pd.DataFrame:
    shown = columns.shown(table, names, **own)
    shown.attrs = table.attrs
    return shown


@tables.listed
def sizes(requests: pd.DataFrame) -> pd.DataFrame:
    """Models of several sizes: one row per machine, model, engine, option and version, the largest model
    first, then the fastest; speed, memory, the answer to 9 × 8 and solved problems."""
    table = of_machines(sizes_analysis.summary(requests), requests)
    return _shown(
        table.assign(
            solved_words=[pass_words(row) for _, row in table.iterrows()],
            compared=[captions.compared(row) for _, row in table.iterrows()],
        ),
        f"{columns.ENGINE} output_tokens_per_s output_tokens_per_s_interval ttft_s ttft_s_interval tpot_s "
        "tpot_s_interval peak_memory_bytes product solved_words compared runs note pass_at_1 pass_low "
        f"pass_high scored_on backend_version {columns.WHERE}",
        output_tokens_per_s_interval=Column("±", "tokens/s"),
        ttft_s_interval=Column("± TTFT", "ms", 1e3),
        tpot_s_interval=Column("± TPOT", "ms", 1e3),
        product=Column("9 × 8 = ?"),
        solved_words=Column("pass@1 (95 %)"),
        compared=Column("compared"),
        note=Column("note"),
        pass_at_1=Column("pass@1", "%", 100),
        pass_low=Column("pass@1 from", "%", 100),
        pass_high=Column("pass@1 to", "%", 100),
        scored_on=Column("solved on"),
    )


def pass_words(row: pd.Series) -> str:
    """`61 % (53 to 68)`, with the device where another machine solved them; `not scored`; nothing for random
    weights."""
    if row["weights"] != "real":
        return ""
    if pd.isna(row["pass_at_1"]):
        return "not scored"
    share, low, high = (f"{100 * row[name]:.0f}" for name in ("pass_at_1", "pass_low", "pass_high"))
    return f"{share} % ({low} to {high})" + (f", on {row['scored_on']}" if row["scored_on"] else "")


@tables.listed
def sizes_order(requests: pd.DataFrame) -> pd.DataFrame:
    """Whose order changes with the size of the model: one row per machine and pair of options whose verdict
    differs between the models, reversed pairs first; the ratio of their output tokens/s in each model."""
    every = sizes_analysis.changes(requests)
    changed = of_machines(every[every["change"] != sizes_analysis.SAME], requests)
    keys = ["gpu", "first", "second", "change"]
    models = changed.sort_values("parameters_b")["model"].drop_duplicates()
    named = {model: f"{sizes_analysis.size_words(model)}, times" for model in models}
    rows = [
        dict(zip(keys, key)) | {named[row["model"]]: _ratio(row) for _, row in own.iterrows()}
        for key, own in changed.groupby(keys, sort=False)
    ]
    table = pd.DataFrame(rows, columns=[*keys, *named.values()])
    for side in ("first", "second"):
        table[side] = [f"{backend} {option}" for backend, option, _ in table[side]]
    table = table.assign(last=table["change"] != sizes_analysis.REVERSED)
    table = table.sort_values("last", kind="stable", ignore_index=True)
    shown = table[["first", "second", *named.values(), "change", "gpu"]].rename(
        columns={"second": "over", "gpu": tables.DEVICE}
    )
    shown.attrs = changed.attrs
    return shown


def _ratio(row: pd.Series) -> str:
    """`1.8 (1.6 to 2.1)`, with the verdict where the two do not differ significantly."""
    if row["verdict"] in (estimates.NEVER_MET, estimates.ONE_EACH):
        return row["verdict"]
    text = f"{words.two(row['ratio'])} ({words.two(row['low'])} to {words.two(row['high'])})"
    return text + (" n.s." if row["verdict"] == estimates.EQUAL else "")


def order_sentence(requests: pd.DataFrame) -> str:
    """How many pairs keep their verdict in every model, how many are reversed; empty without two models."""
    every = sizes_analysis.changes(requests)
    each = every.drop_duplicates(["gpu", "host", "first", "second"])
    if each.empty:
        return ""
    count = each["change"].value_counts()
    same, back = count.get(sizes_analysis.SAME, 0), count.get(sizes_analysis.REVERSED, 0)
    rest = len(each) - same - back
    return (
        f"Of {words.plural(len(each), 'pair')} of options, each compared within a model, {same} have the "
        f"same verdict at every size, {back} are reversed, and {rest} differ significantly at some "
        "sizes only."
    )


@tables.listed
def sizes_law(requests: pd.DataFrame) -> pd.DataFrame:
    """What the engine costs and what the memory gives: one row per machine, engine, version and bits of a
    weight with three sizes or more, each coefficient with its 95 % interval."""
    table = of_machines(sizes_analysis.laws(requests), requests)
    return _shown(
        table,
        "backend bits layer_s layer_s_low layer_s_high bandwidth_bytes_per_s bandwidth_bytes_per_s_low "
        "bandwidth_bytes_per_s_high residual models points backend_version gpu",
        bits=Column("bits"),
        layer_s=Column("cost of a layer", "µs", 1e6),
        layer_s_low=Column("cost, from", "µs", 1e6),
        layer_s_high=Column("cost, to", "µs", 1e6),
        bandwidth_bytes_per_s=Column("bandwidth reached", "GB/s", 1e-9),
        bandwidth_bytes_per_s_low=Column("bandwidth, from", "GB/s", 1e-9),
        bandwidth_bytes_per_s_high=Column("bandwidth, to", "GB/s", 1e-9),
        residual=Column("largest error of the fit", "%", 100),
        models=Column("models"),
        points=Column("points"),
    )


@tables.listed
def sizes_predicted(requests: pd.DataFrame) -> pd.DataFrame:
    """The largest model's time per token, predicted from the smaller ones, beside the measured one: one row
    per machine, engine and option."""
    table = of_machines(sizes_analysis.predictions(requests), requests)
    return _shown(
        table.assign(size=table["model"].map(sizes_analysis.size_words)),
        f"{columns.ENGINE} size predicted_s predicted_low predicted_high tpot_s error from_models gpu",
        size=Column("size"),
        predicted_s=Column("predicted TPOT", "ms", 1e3),
        predicted_low=Column("from", "ms", 1e3),
        predicted_high=Column("to", "ms", 1e3),
        tpot_s="measured TPOT",
        error=Column("error", "%", 100),
        from_models=Column("predicted from"),
    )
