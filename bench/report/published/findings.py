"""Sentences of the page Published, computed from the frames of `answers`: each with n, interval and what
limits it."""

import numpy as np
import pandas as pd

from bench import html
from llm_measured.audit import checks as audit
from llm_measured.core import naming
from llm_measured.published import answers, checks, schema

Sentences = list[str]


def _number(value: float) -> str:
    return html.number(float(f"{value:.3g}"))


def _interval(low: float, high: float) -> str:
    return f"({_number(low)} to {_number(high)})" if low == low and high == high else "(no interval: too few)"


def _row(table: pd.DataFrame, column: str, value: object) -> pd.Series | None:
    found = table[table[column] == value]
    return found.iloc[0] if len(found) else None


def overview() -> Sentences:
    """What is in the table, and who says what against it."""
    every = answers.rows()
    kinds = every.groupby("kind")["source"].nunique()
    certain = every.loc[~every["accelerator"].isin([schema.UNKNOWN_VARIANT, "cpu"]), "accelerator"]
    stands, checked, importer = verdicts(every)
    return [
        f"**{len(every):,} rows** of {every['source'].nunique()} sources, on {certain.nunique()} "
        f"accelerators whose variant is certain and {every['model'].nunique()} models. "
        f"{every['duplicate_of'].notna().sum():,} of them repeat another row, and in {_computed(every):,} "
        "the rate is computed from a latency.",
        f"{stands:,} rows have no finding against them. Checks flag or exclude {checked:,}; {importer:,} "
        "more are flagged only by a rule for one source, written by hand in its importer.",
        "Who measured: "
        + ", ".join(
            f"{name} {kinds[name]} source{'s' if kinds[name] > 1 else ''} "
            f"({(every['kind'] == name).sum():,} rows)"
            for name in kinds.index
        )
        + ". A vendor sells the accelerator or makes the engine.",
    ]


def verdicts(every: pd.DataFrame) -> tuple[int, int, int]:
    """(rows that are ok, that a check flags or excludes, and that an importer's own rule alone flags)."""
    found = checks.findings(every)
    heavy = found[found["verdict"] != checks.NOTE]
    by_check = heavy.loc[heavy["check"] != checks.STATED, "row"].nunique()
    return int((every["audit"] == "ok").sum()), by_check, heavy["row"].nunique() - by_check


def _computed(every: pd.DataFrame) -> int:
    return int(every["audit_notes"].str.contains("rate computed from the latency", na=False).sum())


def mbu() -> Sentences:
    """Question 1."""
    cells, effects = answers.of_weight(answers.decode_cells()), answers.mbu_effects()
    sentences = [mbu_first()]
    own = cells[~cells["source"].isin(answers.CROWDS)]
    if own["source"].nunique() >= answers.MANY:
        middle, low, high = answers.mbu_over_sources(own)
        rests = cells.groupby("accelerator")["source"].agg(lambda of: set(of) <= answers.CROWDS).sum()
        sentences.append(
            f"Without crowd-sourced rows it is {_number(middle)} {_interval(low, high)} "
            f"(n = {own['accelerator'].nunique()} accelerators, {own['source'].nunique()} sources): {rests} "
            "accelerators rest on runs sent in by strangers alone."
        )
    size = _row(effects, "effect", "weights that take twice as long to read")
    year = _row(effects, "effect", "measured a year later")
    counts = f"(n = {effects['cells'].iloc[0]} medians of {effects['sources'].iloc[0]} sources)"
    sentences += [
        f"Weights that take twice as long to read reach {_number(size['factor'])} "
        f"{_interval(size['low'], size['high'])} times the share {counts}.",
        f"At equal bytes, accelerator and engine, rows published a year later reach "
        f"{_number(year['factor'])} {_interval(year['low'], year['high'])} times the share: other models and "
        "sources, and no trend of any one.",
    ]
    return sentences + engines()


def mbu_first() -> str:
    """The share of the bandwidth that the median accelerator reaches, with its interval over sources."""
    cells = answers.of_weight(answers.decode_cells())
    middle, low, high = answers.mbu_over_sources(cells)
    return (
        f"Decoding one sequence, the median accelerator reaches **{_number(middle)} {_interval(low, high)} "
        f"of its datasheet's bandwidth** (n = {cells['accelerator'].nunique()} accelerators; interval over "
        f"{cells['source'].nunique()} sources)."
    )


def engines() -> Sentences:
    """Engines against llama.cpp inside sources that measured both; an interval from three sources on."""
    sentences = []
    for engine, part in answers.engine_contrasts().groupby("engine"):
        if len(part) < answers.MANY:
            continue
        effect = answers.pooled(np.log(part["ratio"]), part["source"])
        ends = _interval(effect.low, effect.high) if effect.sources > 1 else "(one source: no interval)"
        chips = part.groupby("accelerator")["ratio"].agg(["median", "size"]).sort_values("size")[::-1]
        listed = naming.listed(f"{_number(r.median)} on {r.Index}" for r in chips.head(3).itertuples())
        sentences.append(
            f"{engine} against llama.cpp on one accelerator and model: {_number(effect.factor)} {ends} "
            f"times the share (n = {len(part)} pairs): {listed}."
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
    table = table[table["settings"] >= answers.MANY]
    for row in table.sort_values("level", key=lambda level: level.map(list(said).index)).itertuples():
        origin = "of one origin" if row.one_origin else "of different origin"
        sentences.append(
            f"{said[row.level][0].upper()}{said[row.level][1:]}: two sources {origin} differ by a factor of "
            f"**{_number(row.median)}** {_interval(row.low, row.high)} in the median (n = {row.settings} "
            f"settings, {row.pairs} pairs, {row.sources} sources)."
        )
    return sentences


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
    groups = changed["source"] + changed["engine_family"].fillna("") + changed["accelerator"].fillna("")
    gains = np.exp(np.log(changed["gain"]).groupby(groups).mean())
    whole = answers.pooled(np.log(changed["gain"]), groups)
    sentences.append(
        f"Over all, each of {whole.sources} engines and accelerators counting alike: {_number(whole.factor)} "
        f"{_interval(whole.low, whole.high)} times (n = {whole.rows} settings); the lower half gained at "
        f"most {_number(gains.median())} times."
    )
    return sentences + reruns(again)


def reruns(again: pd.DataFrame) -> Sentences:
    """How far reruns of one version on another day lie apart in each source that has some; a source whose
    gains are stated and that has none is named."""
    sentences = []
    for source, part in again.groupby("source"):
        if len(part) >= answers.MANY:
            apart = np.expm1(np.abs(np.log(part["gain"])))
            sentences.append(
                f"Reruns of one version in **{source}** differ by {100 * apart.median():.1f} % in the "
                f"median; a tenth of them by {100 * apart.quantile(0.9):.0f} % or more (n = {len(part)} "
                "settings)."
            )
    every = answers.software()
    without = sorted(set(every.loc[every["changed"], "source"]) - set(again["source"]))
    if without:
        sentences.append(
            f"Of {naming.listed(without)} there are no reruns: how much of their gain is chance is unknown."
        )
    return sentences


def exchange() -> Sentences:
    """What it costs in throughput to serve each user faster."""
    table, pairs, load = answers.exchange(), answers.crossings(), answers.exchange_loads().iloc[0]
    both = table.dropna(subset=["kept"])
    points = answers.exchange_points()
    low, high = answers.resampled(both["kept"].to_numpy())
    sentences = [
        f"Raising the speed of one user from {answers.SLOW:g} to {answers.FAST:g} output tokens/s leaves "
        f"**{_number(both['kept'].median())} {_interval(low, high)} of the throughput** of an accelerator "
        f"(median of {len(both)} accelerators and formats).",
        f"All of it is {points['model'].iloc[0]} of one source, {points['source'].iloc[0]}: prompts and "
        f"answers up to {load['input_tokens']:g} and {load['output_tokens']:g} tokens, "
        f"n = {len(points)} points.",
    ]
    if len(both):
        most, least = both.loc[both["kept"].idxmax()], both.loc[both["kept"].idxmin()]
        sentences.append(
            f"It leaves most on {most['accelerator']} in {most['weights_format']} ({_number(most['kept'])}), "
            f"least on {least['accelerator']} in {least['weights_format']} ({_number(least['kept'])})."
        )
    if len(pairs):
        sentences.append(
            f"Of {len(pairs)} pairs of accelerators and formats, in {int(pairs['crosses'].sum())} each is "
            "ahead by 5 % or more at some speed of a user."
        )
    return sentences


def quantization() -> Sentences:
    """Question 7."""
    every = answers.quantization()
    effect = answers.pooled(np.log(every["gained"]), every["source"])
    sentences = [
        f"Weights with fewer bits than 16 are **{_number(effect.factor)} "
        f"{_interval(effect.low, effect.high)} times as fast** at batch 1 (n = {effect.rows} settings of "
        f"{effect.sources} sources, which count alike). Their bytes promise {_promised(every)} times."
    ]
    for bits, part in every.assign(bits=every["bits"].round()).groupby("bits"):
        if len(part) >= 10 and part["source"].nunique() > 1:
            found = answers.pooled(np.log(part["gained"]), part["source"])
            sentences.append(
                f"About {bits:g} bits: {_number(found.factor)} {_interval(found.low, found.high)} times, "
                f"promised {_promised(part)} (n = {found.rows}, {found.sources} sources)."
            )
    slower = (every["gained"] < 1).mean()
    sentences.append(f"In {100 * slower:.0f} % of these settings fewer bits are slower than 16.")
    return sentences


def _promised(part: pd.DataFrame) -> str:
    """Bytes of 16 bits ÷ bytes of the format, pooled over sources as the gain is."""
    return _number(answers.pooled(np.log(part["promised"]), part["source"]).factor)


def energy() -> Sentences:
    """Question 8."""
    every, effects = answers.energy(), answers.energy_effects()
    flight, size = effects.iloc[0], effects.iloc[1]
    sentences = [
        f"Twice the requests in flight cost **{_number(flight['factor'])} "
        f"{_interval(flight['low'], flight['high'])} times** the energy of an output token (n = "
        f"{effects['rows'].iloc[0]:,} rows; a slope per accelerator, interval over "
        f"{effects['sources'].iloc[0]} sources).",
        f"Twice the active parameters cost {_number(size['factor'])} {_interval(size['low'], size['high'])} "
        "times (the same rows).",
    ]
    for scope, part in every.groupby("scope"):
        by = part.groupby("source")["joules"].median()
        sentences.append(
            f"{'Power not said of what' if scope == 'not stated' else f'Power of {scope}'}, median J per "
            f"output token: {naming.listed(f'{source} {_number(value)}' for source, value in by.items())} "
            f"(n = {len(part):,} rows; models and loads differ)."
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
        f"{high['accelerators']}).",
        "The ratio is low where an accelerator has little arithmetic for its bandwidth.",
        "It grows with the prompt's length, and sources choose other lengths: compare orders of magnitude.",
    ]


def mlperf() -> Sentences:
    """MLPerf alone; question 10 inside its own groups."""
    table, every = answers.mlperf_groups(), answers.mlperf()
    low, high = answers.resampled(table["ratio"].to_numpy())
    sentences = [
        "Where four or more submitters ran one benchmark on as many of the same accelerators, the fastest is "
        f"**{_number(table['ratio'].median())} {_interval(low, high)} times** the slowest (median of "
        f"{len(table)} groups of one round, scenario and division).",
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
    impossible = heavy.groupby("check")["rows"].sum()
    by_check = [f"{name.replace('_', ' ')} {rows}" for name, rows in impossible.items()]
    unknown = every["accelerator"] == schema.UNKNOWN_VARIANT
    heard = counted[counted["verdict"] != checks.NOTE]
    stated = heard[heard["check"] == checks.STATED].sort_values("rows", ascending=False)
    kinds = heard[heard["check"] != checks.STATED].groupby("check")["rows"].sum()
    kinds = kinds.sort_values(ascending=False)
    return [
        f"In {labelled.sum():,} rows of {every.loc[labelled, 'source'].nunique()} sources a label is "
        "contradicted by its own source. They are read as the arithmetic says; the label is kept beside.",
        f"{heavy['rows'].sum():,} findings of {heavy['check'].nunique()} checks exclude a row, in "
        f"{heavy['source'].nunique()} sources: {naming.listed(by_check)}.",
        f"Importers flag {stated['rows'].sum():,} rows by rules for their source alone, "
        f"most of them {naming.listed(f'{r.source} ({r.rows:,})' for r in stated.head(4).itertuples())}.",
        "Checks that find most rows: "
        f"{', '.join(f'{name.replace(chr(95), chr(32))} {n:,}' for name, n in kinds.head(5).items())}.",
        f"{unknown.sum():,} rows name an accelerator that has several variants, without saying which: they "
        "enter no MBU.",
    ]
