"""Sentences of the page Published, computed from the frames of `answers`: each with n, interval and what
limits it."""

import numpy as np
import pandas as pd

from bench import html, naming
from llm_audit import checks as audit
from llm_observatory import answers, checks, schema

Sentences = list[str]


def _number(value: float) -> str:
    return html.number(float(f"{value:.3g}"))


def _interval(low: float, high: float) -> str:
    return f"({_number(low)} to {_number(high)})" if low == low and high == high else "(no interval: too few)"


def _row(table: pd.DataFrame, column: str, value: object) -> pd.Series | None:
    found = table[table[column] == value]
    return found.iloc[0] if len(found) else None


def overview() -> Sentences:
    """What is in the table."""
    every = answers.rows()
    verdicts = every["audit"].value_counts()
    kinds = every.groupby("kind")["source"].nunique()
    certain = every.loc[~every["accelerator"].isin([schema.UNKNOWN_VARIANT, "cpu"]), "accelerator"]
    placed = 1 - every.loc[every["checkpoint_raw"].notna(), "model"].isna().mean()
    return [
        f"**{len(every):,} measured points** of {every['source'].nunique()} sources, on {certain.nunique()} "
        f"accelerators whose variant is certain and {every['model'].nunique()} models; {100 * placed:.0f} % "
        "of the rows name a model of the table.",
        f"{verdicts.get('ok', 0):,} rows stand, {verdicts.get('flagged', 0):,} are flagged and "
        f"{verdicts.get('excluded', 0):,} "
        f"excluded by checks; {every['duplicate_of'].notna().sum():,} repeat another row to the digit.",
        "Who measured: "
        + ", ".join(
            f"{name} {kinds[name]} source{'s' if kinds[name] > 1 else ''} "
            f"({(every['kind'] == name).sum():,} rows)"
            for name in kinds.index
        )
        + ". A vendor sells the accelerator or makes the engine.",
    ]


def mbu() -> Sentences:
    """Question 1."""
    groups, cells, effects = (
        answers.mbu_by_group(),
        answers.of_weight(answers.decode_cells()),
        answers.mbu_effects(),
    )
    every = answers.mbu_by_accelerator()
    low, high = answers.resampled(every["mbu"].to_numpy())
    middle = f"{_number(every['mbu'].median())} {_interval(low, high)}"
    sentences = [
        f"Decoding one sequence, the median accelerator reaches **{middle} of its datasheet's bandwidth** "
        f"({len(every)} accelerators, {len(cells)} medians of {cells['source'].nunique()} sources, "
        f"{cells['rows'].sum():,} rows; weights that take {answers.LEAST_STEP_MS:g} ms or more to read)."
    ]
    best, worst = groups.loc[groups["mbu"].idxmax()], groups.loc[groups["mbu"].idxmin()]
    sentences.append(
        f"By vendor and year the medians go from {_number(worst['mbu'])} "
        f"{_interval(worst['low'], worst['high'])} for {worst['group']} (n = {worst['accelerators']}) to "
        f"{_number(best['mbu'])} {_interval(best['low'], best['high'])} for {best['group']} (n = "
        f"{best['accelerators']})."
    )
    size = _row(effects, "effect", "weights that take twice as long to read")
    year = _row(effects, "effect", "measured a year later")
    source, card = (_row(effects, "effect", f"one {n} against another") for n in ("source", "accelerator"))
    sentences.append(
        f"Weights that take twice as long to read give {_number(size['factor'])} "
        f"{_interval(size['low'], size['high'])} times the MBU, and a year between measurements "
        f"{_number(year['factor'])} {_interval(year['low'], year['high'])} times. One source differs from "
        f"the next by a factor of {_number(source['factor'])}, one accelerator by {_number(card['factor'])} "
        f"(a standard deviation each; n = {effects['cells'].iloc[0]} cells of {effects['sources'].iloc[0]} "
        "sources)."
    )
    engines = effects[effects["effect"].str.contains(" instead of ")]
    for row in engines.itertuples():
        verdict = "cannot be distinguished" if row.low < 1 < row.high else "differ"
        sentences.append(
            f"{row.effect}: {_number(row.factor)} {_interval(row.low, row.high)} times the MBU on the same "
            f"accelerator; the two {verdict}."
        )
    return sentences


def disagreement() -> Sentences:
    """Question 2."""
    table = answers.disagreement_summary()
    said = {
        "same model": "one sequence, the same accelerator, model and bits (engines differ)",
        "same load": "a server, the same engine, lengths, concurrency and count as well",
        "same accelerator": "MBU of the same accelerator at batch 1, whatever model and engine",
    }
    sentences = []
    for row in table[table["settings"] >= answers.MANY].itertuples():
        origin = "of one origin" if row.one_origin else "of different origin"
        sentences.append(
            f"{said[row.level][0].upper()}{said[row.level][1:]}: two sources {origin} differ by a factor of "
            f"**{_number(row.median)}** {_interval(row.low, row.high)} in the median (n = {row.settings} "
            f"settings, {row.pairs} pairs, {row.sources} sources), at most {_number(row.worst)} "
            f"({row.worst_setting})."
        )
    pairs = answers.disagreement()
    part = pairs[(pairs["level"] == "same accelerator") & ~pairs["one_origin"]]
    for kinds, own in part.groupby("kinds"):
        low, high = answers.resampled(own["ratio"].to_numpy())
        sentences.append(
            f"Between {kinds} sources that factor is {_number(own['ratio'].median())} "
            f"{_interval(low, high)}, n = {len(own)} pairs."
        )
    return sentences


def disagreement_first() -> str:
    """The widest question of `disagreement` alone: sources of different origin on one accelerator."""
    table = answers.disagreement_summary()
    row = table[(table["level"] == "same accelerator") & ~table["one_origin"]].iloc[0]
    return (
        f"Two sources differ by a factor of **{_number(row['median'])}** "
        f"{_interval(row['low'], row['high'])} about the share of the bandwidth that one accelerator reaches "
        f"(median of {row['settings']} accelerators, {row['sources']} sources)."
    )


def software() -> Sentences:
    """Question 3."""
    every = answers.software()
    changed, again = every[every["changed"]], every[every["again"]]
    sentences = []
    for source, part in changed.groupby("source"):
        if len(part) < answers.MANY:
            continue
        effect = answers.pooled(
            np.log(part["gain"]), part["engine_family"].fillna("") + part["accelerator"].fillna("")
        )
        where = (
            f"{effect.sources} engines and accelerators"
            if effect.sources > 1
            else "one engine and accelerator"
        )
        interval = _interval(effect.low, effect.high)
        sentences.append(
            f"In **{source}**, the same setting is {_number(effect.factor)} {interval} times as fast after "
            f"{_number(part['days'].median())} days (median; n = {effect.rows} settings, {where})."
        )
    if len(again) >= answers.MANY:
        apart = np.expm1(np.abs(np.log(again["gain"])))
        sentences.append(
            f"Reruns of one version on another day differ by {100 * apart.median():.1f} % in the median and "
            f"by {100 * apart.quantile(0.9):.0f} % in a tenth of the settings (n = {len(again)}): what a "
            "gain has to exceed."
        )
    whole = answers.pooled(np.log(changed["gain"]), changed["source"])
    sentences.append(
        f"Over all sources, each a random effect: {_number(whole.factor)} {_interval(whole.low, whole.high)} "
        f"times (n = {whole.rows} settings, {whole.sources} sources whose spans differ)."
    )
    return sentences


def exchange() -> Sentences:
    """Question 5."""
    table, pairs, load = answers.exchange(), answers.crossings(), answers.exchange_loads().iloc[0]
    both = table.dropna(subset=["kept"])
    points = answers.exchange_points()
    low, high = answers.resampled(both["kept"].to_numpy())
    sentences = [
        f"Raising the speed of one user from {answers.SLOW:g} to {answers.FAST:g} output tokens/s leaves "
        f"**{_number(both['kept'].median())} {_interval(low, high)} of the throughput** of an accelerator, "
        f"in the median of {len(both)} accelerators and formats ({points['model'].iloc[0]}, prompts up to "
        f"{load['input_tokens']:g} and answers up to {load['output_tokens']:g} tokens, n = {len(points)} "
        f"points of {points['source'].iloc[0]}, one source: the interval is over accelerators).",
    ]
    if len(both):
        most, least = both.loc[both["kept"].idxmax()], both.loc[both["kept"].idxmin()]
        sentences.append(
            f"It leaves most on {most['accelerator']} in {most['weights_format']} ({_number(most['kept'])} "
            f"{_interval(most['low'], most['high'])}) and least on {least['accelerator']} in "
            f"{least['weights_format']} ({_number(least['kept'])} {_interval(least['low'], least['high'])})."
        )
    if len(pairs):
        sentences.append(
            f"Of {len(pairs)} pairs of fronts with a common range of speeds, {int(pairs['crosses'].sum())} "
            "cross by more than a twentieth on either side: which is ahead depends on the speed that a user "
            "is to have."
        )
    return sentences


def quantization() -> Sentences:
    """Question 7."""
    every = answers.quantization()
    effect = answers.pooled(np.log(every["gained"]), every["source"])
    sentences = [
        f"Weights with fewer bits than 16 are **{_number(effect.factor)} "
        f"{_interval(effect.low, effect.high)} times as fast** at batch 1 (n = {effect.rows} settings of "
        f"{effect.sources} sources, each a random effect); their bytes promise "
        f"{_number(every['promised'].median())} times in the median."
    ]
    for bits, part in every.assign(bits=every["bits"].round()).groupby("bits"):
        if len(part) >= 10 and part["source"].nunique() > 1:
            found = answers.pooled(np.log(part["gained"]), part["source"])
            sentences.append(
                f"About {bits:g} bits: {_number(found.factor)} {_interval(found.low, found.high)} times, "
                f"promised {_number(part['promised'].median())} (n = {found.rows}, {found.sources} sources)."
            )
    slower = (every["gained"] < 1).mean()
    sentences.append(f"In {100 * slower:.0f} % of these settings fewer bits are slower than 16.")
    return sentences


def energy() -> Sentences:
    """Question 8."""
    every, effects = answers.energy(), answers.energy_effects()
    flight, size = effects.iloc[0], effects.iloc[1]
    sentences = [
        f"Twice the requests in flight cost **{_number(flight['factor'])} "
        f"{_interval(flight['low'], flight['high'])} times** the energy of an output token, twice the active "
        f"parameters {_number(size['factor'])} {_interval(size['low'], size['high'])} times (n = "
        f"{effects['rows'].iloc[0]:,} rows, {effects['sources'].iloc[0]} sources, "
        f"{effects['groups'].iloc[0]} of source and accelerator, a slope in each)."
    ]
    for scope, part in every.groupby("scope"):
        by = part.groupby("source")["joules"].median()
        if len(by) < 2:
            sentences.append(
                ("What the power is of is not stated" if scope == "not stated" else f"Power of {scope}")
                + f": a median of {_number(by.iloc[0])} J per output token "
                f"({by.index[0]}, n = {len(part):,} rows)."
            )
            continue
        sentences.append(
            f"Power of {scope}: medians of {_number(by.min())} to {_number(by.max())} J per output token "
            f"over {naming.listed(list(by.index))} (n = {len(part):,} rows), of different models and loads."
        )
    return sentences


def prompt() -> Sentences:
    """Question 9."""
    table = answers.prompt_summary()
    shown = table[table["accelerators"] >= answers.MANY]
    if shown.empty:
        return []
    low, high = shown.iloc[0], shown.iloc[-1]
    return [
        f"One sequence's prompt is read {_number(low['ratio'])} {_interval(low['low'], low['high'])} times "
        f"as fast as its answer is written on {low['group']} (n = {low['accelerators']} accelerators), and "
        f"{_number(high['ratio'])} {_interval(high['low'], high['high'])} times on {high['group']} (n = "
        f"{high['accelerators']}): the lower, the shorter of arithmetic.",
        "The ratio grows with the prompt's length as far as a chunk of it fills the accelerator, and sources "
        "choose other lengths: compare groups by orders of magnitude.",
    ]


def mlperf() -> Sentences:
    """MLPerf alone; question 10 inside its own groups."""
    table, every = answers.mlperf_groups(), answers.mlperf()
    low, high = answers.resampled(table["ratio"].to_numpy())
    sentences = [
        "Where at least four submitters ran one benchmark and scenario of one round and division on the same "
        f"accelerators and count, the fastest is **{_number(table['ratio'].median())} {_interval(low, high)} "
        f"times** the slowest in the median (n = {len(table)} groups), at most "
        f"{_number(table['ratio'].max())}.",
        f"{len(every)} results of {every['round'].nunique()} rounds, {every['submitter'].nunique()} "
        "submitters; those that appear under two names of a benchmark are counted once.",
    ]
    own = table["maker_ratio"].dropna()
    if len(own) >= answers.MANY:
        low, high = answers.resampled(own.to_numpy())
        sentences.append(
            f"The accelerator's maker, where it submitted as well, has {_number(own.median())} "
            f"{_interval(low, high)} times the median of the others (n = {len(own)} groups)."
        )
    return sentences


def trademark() -> str:
    """The sentence that stands beside MLPerf's results."""
    text = answers.mlperf()["trademark"].dropna().iloc[0]
    return text[text.index("The MLPerf name") :]


def audited() -> Sentences:
    """Findings in all sources, for the page of the audit."""
    every = answers.rows()
    counted = checks.counted(every)
    counted = counted[counted["check"] != checks.STATED]
    sources = every["source"].nunique()
    found = {v: counted[counted["verdict"] == v] for v in (checks.EXCLUDED, checks.FLAGGED)}
    shared = {one.name for one in checks.CHECKS} & set(audit.REGISTRY)
    return [
        f"In {found[checks.EXCLUDED]['source'].nunique()} of {sources} sources ({len(every):,} rows) "
        f"{found[checks.EXCLUDED]['rows'].sum():,} findings say what cannot be, in "
        f"{found[checks.FLAGGED]['source'].nunique()} "
        f"{found[checks.FLAGGED]['rows'].sum():,} findings what contradicts itself.",
        f"{len(checks.CHECKS)} checks look at every row; {len(shared)} of them are the audit's own, by its "
        "functions and names: " + ", ".join(sorted(name.replace("_", " ") for name in shared)) + ".",
    ]


def wrong() -> Sentences:
    """Point 4: what is wrong with published numbers, counted."""
    every = answers.rows()
    counted = checks.counted(every)
    labelled = every["as_printed"].notna()
    heavy = counted[counted["verdict"] == checks.EXCLUDED]
    unknown = every["accelerator"] == schema.UNKNOWN_VARIANT
    kinds = (
        counted[counted["verdict"] != checks.NOTE].groupby("check")["rows"].sum().sort_values(ascending=False)
    )
    return [
        f"{labelled.sum():,} rows of {every.loc[labelled, 'source'].nunique()} sources carry a label that "
        "the file itself, or another file of the same source, contradicts; they are read as the arithmetic "
        "says, and the label is kept beside.",
        f"{heavy['rows'].sum():,} findings of {heavy['check'].nunique()} checks exclude a row, in "
        f"{heavy['source'].nunique()} sources: "
        + ", ".join(f"{r.source} {r.rows} ({r.check.replace('_', ' ')})" for r in heavy.itertuples())
        + ".",
        "Most rows are found by: "
        f"{', '.join(f'{name.replace(chr(95), chr(32))} {n:,}' for name, n in kinds.head(5).items())}.",
        f"{unknown.sum():,} rows name an accelerator that has several variants, without saying which: they "
        "enter no MBU.",
    ]
