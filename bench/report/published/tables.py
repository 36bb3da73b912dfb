"""Tables of the page Published: at most twelve columns and forty rows each, n in every one."""

import json
from collections.abc import Callable

import pandas as pd

from bench import registry
from llm_measured.core import columns
from llm_measured.core.columns import Column
from llm_measured.published import answers, build, checks, names, reports, schema

MOST_ROWS = 40
INTERVAL = {"low": Column("95 % from"), "high": Column("to")}


def _listed(name: str) -> Callable:
    """Decorator: a table called `published-<name>`."""

    def declared(function: Callable[..., pd.DataFrame]) -> Callable[..., pd.DataFrame]:
        registry.table(function, f"published-{name}")
        return function

    return declared


@_listed("sources")
def sources() -> pd.DataFrame:
    """One row per source: what was read, kept, flagged and excluded, and under which licence."""
    table = reports.by_source(answers.rows())
    table["reason"] = table["left_out_for"].str.split("; ").str[0]
    table["kind"] = table["source"].map(answers.rows().groupby("source")["kind"].first())
    made = columns.shown(
        table,
        "source kind records left_out reason rows ok flagged excluded duplicates accelerators licence",
        kind="who measured",
        reason="most for",
    )
    made.attrs["whole"] = "All of them, to look one up."
    return made


@_listed("mbu-effects")
def mbu_effects() -> pd.DataFrame:
    """What MBU at batch 1 depends on, one row per effect."""
    return columns.shown(
        answers.mbu_effects(),
        "effect factor low high cells sources",
        factor="times the MBU",
        cells="n (cells)",
        **INTERVAL,
    )


@_listed("disagreement")
def disagreement() -> pd.DataFrame:
    """The pairs of sources that disagree most at one setting, one row per setting of a model or load."""
    table = answers.disagreement()
    table = table[table["level"] != "same accelerator"].sort_values("ratio", ascending=False)
    return columns.shown(
        table.head(MOST_ROWS),
        "setting first first_value first_rows second second_value second_rows ratio kinds",
        setting="setting (accelerator, model, bits …)",
        first="source",
        first_value="its median (tokens/s)",
        first_rows="n",
        second="other source",
        second_value="its median (tokens/s) ",
        second_rows="n ",
        ratio="larger ÷ smaller",
        kinds="who measured",
    )


@_listed("software")
def software() -> pd.DataFrame:
    """What the same settings gained between two dates: one row per source, engine and accelerator."""
    table = answers.software_summary()
    return columns.shown(
        table[table["settings"] >= answers.MANY].head(MOST_ROWS),
        "source kind engine accelerator settings rows days gain low high in_100_days",
        kind="who measured",
        settings="n (settings)",
        days="days between",
        gain="times as fast",
        in_100_days="the same pace in 100 days",
        **INTERVAL,
    )


@_listed("exchange")
def exchange() -> pd.DataFrame:
    """Throughput per accelerator at two speeds of a user: one row per accelerator and format."""
    slow, fast = f"at {answers.SLOW:g} tokens/s of a user", f"at {answers.FAST:g}"
    return columns.shown(
        answers.exchange(),
        "accelerator weights_format points configurations front slow fast kept low high",
        weights_format="format",
        points="n (points)",
        front="on the front",
        slow=f"tokens/s per accelerator {slow}",
        fast=fast,
        kept="share kept",
        **INTERVAL,
    )


@_listed("quantization")
def quantization() -> pd.DataFrame:
    """Fewer bits against 16: one row per source and engine."""
    return columns.shown(
        answers.quantization_summary(),
        "source kind engine models settings promised gained low high share",
        kind="who measured",
        settings="n (settings)",
        promised="times fewer bytes, median",
        gained="times as fast, median",
        share="share of the promise, of logarithms",
        **INTERVAL,
    )


@_listed("energy")
def energy() -> pd.DataFrame:
    """Joules per output token: one row per source, accelerator, what the power is of, and class of batch."""
    return columns.shown(
        answers.energy_summary().head(MOST_ROWS),
        "source kind accelerator scope batch models rows joules p10 p90 per_billion",
        kind="who measured",
        scope="power of",
        batch="in flight",
        rows="n (rows)",
        joules=Column("median", "J"),
        p10=Column("10th percentile", "J"),
        p90=Column("90th", "J"),
        per_billion=Column("median per 10⁹ active parameters", "J"),
    )


@_listed("prompt")
def prompt() -> pd.DataFrame:
    """Prefill against decode: one row per vendor and kind of hardware."""
    return columns.shown(
        answers.prompt_summary(),
        "group ratio low high least most accelerators sources rows",
        group="hardware",
        ratio="prompt ÷ output tokens/s, median",
        least="lowest accelerator",
        most="highest",
        accelerators="n (accelerators)",
        **INTERVAL,
    )


@_listed("wrong")
def wrong() -> pd.DataFrame:
    """Findings of every check over all sources: one row per check, with the share of a sample read by hand
    that was right."""
    rows = answers.rows()
    counted = checks.counted(rows)
    read = pd.read_csv(build.DATA / "reviewed.csv").set_index("check")
    table = []
    for (check, arithmetic), part in counted.groupby(["check", "arithmetic"], sort=False):
        by = part.groupby("verdict")["rows"].sum()
        top = part.sort_values("rows", ascending=False)
        has = check in read.index
        table.append(
            {
                "check": check.replace("_", " "),
                "arithmetic": arithmetic,
                **{v: int(by.get(v, 0)) for v in (checks.EXCLUDED, checks.FLAGGED, checks.NOTE)},
                "sources": part["source"].nunique(),
                "most": ", ".join(f"{r.source} {r.rows}" for r in top.head(2).itertuples()),
                "read": f"{read.at[check, 'right']} of {read.at[check, 'drawn']}" if has else "",
                "remark": read.at[check, "remark"] if has else "",
            }
        )
    return columns.shown(
        pd.DataFrame(table),
        "check arithmetic excluded flagged note sources most read remark",
        arithmetic="arithmetic that must hold",
        note="notes",
        most="most rows",
        read="right, of those read",
        remark="what the reading showed",
    )


@_listed("audited")
def audited() -> pd.DataFrame:
    """Findings in every source: one row per source, those without a finding included."""
    rows = answers.rows()
    counted = checks.counted(rows)
    counted = counted[counted["check"] != checks.STATED]
    by = counted.groupby(["source", "verdict"])["rows"].sum()
    table = []
    for source, part in rows.groupby("source"):
        heavy = counted[(counted["source"] == source) & (counted["verdict"] != checks.NOTE)]
        heavy = heavy.sort_values(["rows", "check"], ascending=[False, True])
        table.append(
            {
                "source": source,
                "rows": len(part),
                **{v: int(by.get((source, v), 0)) for v in (checks.EXCLUDED, checks.FLAGGED, checks.NOTE)},
                "most": ", ".join(
                    f"{r.check.replace('_', ' ')} {r.rows}" for r in heavy.head(3).itertuples()
                ),
            }
        )
    made = columns.shown(
        pd.DataFrame(table),
        "source rows excluded flagged note most",
        rows="rows",
        excluded="impossible",
        flagged="contradictory",
        note="notes",
        most="found by",
    )
    made.attrs["whole"] = "All of them, to look one up."
    return made


@_listed("corrected")
def corrected() -> pd.DataFrame:
    """What a file's own labels say otherwise than its rows: one row per source and column."""
    rows = answers.rows()
    told = rows.loc[rows["as_printed"].notna(), ["source", "as_printed"]]
    found = [
        (source, column, json.dumps(value, ensure_ascii=False))
        for source, text in told.itertuples(index=False)
        for column, value in json.loads(text).items()
    ]
    table = pd.DataFrame(found, columns=["source", "column", "printed"])
    table["column"] = table["column"].where(~table["column"].str.startswith("itl_"), "itl_…_ms")
    counts = table.groupby(["source", "column"]).agg(rows=("printed", "size"), example=("printed", "first"))
    # Of several columns of gaps a row counts once.
    lines = rows.loc[told.index].groupby("source").size()
    counts = counts.reset_index()
    counts["rows"] = counts[["rows"]].assign(most=counts["source"].map(lines)).min(axis=1).astype(int)
    counts["meaning"] = counts["column"].map(
        lambda c: schema.BY_NAME[c].meaning if c in schema.BY_NAME else "gaps"
    )
    return columns.shown(
        counts,
        "source column rows example meaning",
        example="the file's label, of the first",
        meaning="what the column is",
    )


@_listed("pitfalls")
def pitfalls() -> pd.DataFrame:
    """Mistakes found by hand, and the check that finds each again."""
    made = columns.shown(
        answers.pitfalls(),
        "source pitfall check as_printed as_read",
        pitfall="what is easily misread",
        check="found by",
        as_printed="rows found, labels believed",
        as_read="rows found, as read here",
    )
    made.attrs["whole"] = "All of them, to look one up."
    return made


@_listed("unplaced")
def unplaced() -> pd.DataFrame:
    """Raw names without a row in the tables of accelerators and models, most rows first."""
    table = names.unplaced(answers.rows()).sort_values("rows", ascending=False)
    table["placed"] = table["placed"].replace("", "not placed")
    table["raw"] = table["raw"].replace("", "(no name in the file)")
    return columns.shown(
        table.head(MOST_ROWS), "what raw placed rows sources", raw="name in the file", placed="placed as"
    )


@_listed("mlperf-results")
def mlperf_results() -> pd.DataFrame:
    """MLPerf's fastest result of each system in one benchmark, scenario, division and round: the group of
    results with most systems."""
    table = answers.mlperf()
    group = table.groupby("comparable_within")["system"].nunique().idxmax()
    return mlperf_of(group)


def mlperf_of(group: str) -> pd.DataFrame:
    """The results of one group of comparable MLPerf results, each system's fastest by count of
    accelerators."""
    table = answers.mlperf()
    own = table[table["comparable_within"] == group].sort_values("tokens_per_s", ascending=False)
    own = own.drop_duplicates(["system", "accelerators"]).sort_values(["system", "accelerators"])
    return columns.shown(
        own.head(MOST_ROWS),
        "submitter result division category round benchmark scenario system accelerators tokens_per_s",
        result="result id",
        system="accelerator",
        tokens_per_s="tokens/s of the system",
    )


@_listed("mlperf-spread")
def mlperf_spread() -> pd.DataFrame:
    """Groups of MLPerf results in which submitters differ most."""
    table = answers.mlperf_groups().sort_values("ratio", ascending=False)
    # A result id begins with its round.
    compared = table["benchmark"] + ", " + table["scenario"] + ", " + table["division"]
    return columns.shown(
        table.assign(benchmark=compared).head(20),
        "benchmark system accelerators submitters ratio fastest slowest",
        benchmark="benchmark, scenario, division",
        system="accelerator",
        submitters="n (submitters)",
        ratio="fastest ÷ slowest",
        fastest="fastest, result id",
        slowest="slowest, result id",
    )


@_listed("mlperf-power")
def mlperf_power() -> pd.DataFrame:
    """MLPerf's own measured power: one row per result that has it."""
    table = answers.mlperf()
    table = table[table["power_w"].notna()].sort_values(["round", "benchmark", "scenario", "submitter"])
    return columns.shown(
        table.head(MOST_ROWS),
        "submitter result category round benchmark scenario system accelerators tokens_per_s power_w",
        result="result id",
        system="accelerator",
        tokens_per_s="tokens/s of the system",
        power_w=Column("power of the system", "W"),
    )
