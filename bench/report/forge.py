"""What a forge shows of the repository without building anything: results and data dictionary as Markdown.

python -m bench.report.forge        writes data/results.md and data/dictionary.md from the committed tables
"""

from pathlib import Path

import pandas as pd

from bench import headlines, html, paths, site
from bench.observations import schema, store
from bench.paths import DATA
from bench.report import cards
from bench.topics import declared, quality
from bench.topics.humaneval import PROBLEMS
from llm_measured.core import metrics
from llm_measured.core.files import write_whole
from llm_measured.published import lookup
from llm_measured.published import schema as published_schema

RESULTS, DICTIONARY = "results.md", "dictionary.md"


def markdown(rows: pd.DataFrame) -> str:
    """`rows` as a table of Markdown."""
    heads = list(rows)
    lines = [heads, ["---"] * len(heads), *rows.astype(str).to_numpy().tolist()]
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines)


def published() -> pd.DataFrame:
    """Return the number of each card and each model that the page Cards shows, in 4 bits, with its mark."""
    table = cards.numbers().pivot(index="device", columns="model", values="text")
    order = [name for name in cards.devices()["device"] if name in table.index]
    table = table.reindex(index=order, columns=list(cards.SHOWN)).fillna("–")
    return table.rename_axis("card").reset_index()


def own() -> pd.DataFrame:
    """Our own runs of the largest model on the default machine: a row per engine and number format, the
    fastest first."""
    rows = headlines.largest(site.machine(site.table("sizes")))
    half = rows["output_tokens_per_s_interval"].map(html.number)
    return pd.DataFrame(
        {
            "engine": rows["backend"],
            "number format": rows["option"],
            "tokens/s": rows["output_tokens_per_s"].map(html.number) + " ± " + half,
            "TTFT (ms)": (1e3 * rows["ttft_s"]).map(html.number),
            "runs": rows["runs"],
            f"problems of {PROBLEMS}": site.or_not_measured(rows["solved"]),
            "perplexity, times the reference's": site.or_not_measured(rows["perplexity_ratio"]),
            "9 × 8 = ?": site.or_not_measured(
                rows["product"].replace(quality.NOT_REACHED, "not reached in so many tokens")
            ),
            "model": rows["model"],
            "machine": rows["machine"],
        }
    )


def results() -> str:
    """The text of RESULTS."""
    ratio, count = lookup.bias(site.published("lookup"))
    return "\n\n".join(
        [
            "# Results",
            "## What others measured: tokens/s of one user, 4 bits",
            "A number is a row that somebody measured, two where sources lie far apart, with a star of "
            "another setup (format, engine or variant), with a ring of "
            f"{lookup.CROWD} alone, which has {ratio:.2f} times what others measured ({count} cells); – is "
            "not measured. Every card, with all sources and rows, is on the page *Cards* of the built site; "
            "every number by source is in `data/tables/published_lookup.csv`.",
            markdown(published()),
            "## What we measured",
            "Means over runs ± 95 %. All weights start from one 4-bit file, which the reference holds in "
            "float32: what that file lost is in no row. Other machines and models are in `data/tables/`.",
            markdown(own()),
        ]
    ) + "\n"  # fmt: skip


def dictionary() -> str:
    """The text of DICTIONARY: the columns of a run's CSV, of each table, then of the published table."""
    runs = pd.DataFrame(
        [
            (c.name, c.group, c.type, c.stored_unit, c.meaning)
            for c in (*schema.DECLARED, *schema.FROM_SIDECAR)
        ],
        columns="column group type unit meaning".split(),
    )
    known, derived = set(runs["column"]), []
    for name in (each for each in store.load(paths=[]) if each not in known):
        metric = metrics.METRICS[name]
        meaning = f"{metric.meaning}: {metric.formula}" if metric.formula else metric.meaning
        derived.append((name, "derived", "number", metric.stored_unit, meaning))
    runs = pd.concat([runs, pd.DataFrame(derived, columns=list(runs))])
    others = pd.DataFrame([(c.name, c.type, c.unit, c.meaning) for c in published_schema.COLUMNS])
    others.columns = ["column", "type", "unit", "meaning"]
    return "\n\n".join(
        [
            "# Data dictionary",
            "## Requests of our own runs (`_llama-inference/*/*.csv`)",
            markdown(runs),
            "## Tables (`data/tables/`)",
            "A row per configuration, machine and level, made from the runs by `make tables`; times in "
            "seconds, sizes in bytes. `python -m bench.topics.tables own` makes them of your own runs.",
            *(
                part
                for name, columns in declared.of_tables().items()
                for part in (f"### `{name}.csv`", markdown(columns))
            ),
            "## Published measurements (`data/observatory/rows/*.csv.gz`)",
            markdown(others),
        ]
    ) + "\n"  # fmt: skip


def texts() -> dict[str, str]:
    """{name of a file in data/: its text}, of the committed tables."""
    with site.reading(paths.TABLES):
        return {RESULTS: results(), DICTIONARY: dictionary()}


def write(folder: Path = DATA) -> None:
    """Write both files."""
    for name, text in texts().items():
        write_whole(folder / name, text)


if __name__ == "__main__":
    write()
