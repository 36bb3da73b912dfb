"""What a forge shows of the repository without building anything: results and data dictionary as Markdown.

python -m bench.report.forge        writes data/results.md and data/dictionary.md from the committed tables
"""

from pathlib import Path

import pandas as pd

from bench import headlines, html, paths, site
from bench.paths import DATA
from bench.report import downloads, front
from bench.report.published import lookup
from bench.topics import tables
from bench.topics.humaneval import PROBLEMS
from llm_measured.core.files import write_whole
from llm_measured.published import schema

RESULTS, DICTIONARY = "results.md", "dictionary.md"


def markdown(rows: pd.DataFrame) -> str:
    """`rows` as a table of Markdown."""
    heads = list(rows)
    lines = [heads, ["---"] * len(heads), *rows.astype(str).to_numpy().tolist()]
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines)


def published() -> pd.DataFrame:
    """The look-up of the front picture's devices: one row each, in each class median (from–to; n)."""
    found = lookup.cells()
    lines = []
    for name in front.SHOWN:
        cells = {"accelerator": name}
        for each in lookup.CLASSES:
            cell = found.get((name, each.title))
            empty = "" if lookup.fits(name, each) else "does not fit"
            cells[each.title] = _cell(cell) if cell else empty
        lines.append(cells)
    return pd.DataFrame(lines)


def _cell(cell: lookup.Cell) -> str:
    short = lookup.rate_text
    spread = f"{short(cell.low)}–{short(cell.high)}; " if cell.n > 1 else ""
    return f"**{short(cell.median)}** ({spread}{cell.n})"


def own(rows: headlines.Rows) -> pd.DataFrame:
    """Our own runs on the default machine: one row per engine and number format, the fastest first."""
    each = rows.front.groupby(headlines.CONFIG)
    table = each[["output_tokens_per_s", "ttft_s"]].mean().assign(runs=each.size())
    costs = rows.costs[rows.costs["machine"].isin(rows.front["machine"])]
    costs = costs.drop_duplicates(headlines.CONFIG).set_index(headlines.CONFIG)
    answers = costs.reindex(columns=["solved", "perplexity_ratio", "product"])
    table = table.join(answers).sort_values("output_tokens_per_s", ascending=False).reset_index()
    return pd.DataFrame(
        {
            "engine": table["backend"],
            "number format": table["option"],
            "tokens/s": table["output_tokens_per_s"].map(html.number),
            "TTFT (ms)": (1e3 * table["ttft_s"]).map(html.number),
            "runs": table["runs"],
            f"problems of {PROBLEMS}": site.or_not_measured(table["solved"]),
            "perplexity, times the reference's": site.or_not_measured(table["perplexity_ratio"]),
            "9 × 8 = ?": site.or_not_measured(
                table["product"].replace(headlines.NOT_REACHED, "not reached in so many tokens")
            ),
        }
    )


def results() -> str:
    """The text of RESULTS."""
    rows = front.own_rows()
    return "\n\n".join(
        [
            "# Results",
            "## What others measured: tokens/s of one user",
            "Median (from–to; number of measurements). Every accelerator, with links to the rows, is on "
            "the page *Published* of the built site; every row is in `data/observatory/rows/`.",
            markdown(published()),
            f"## What we measured: {front.model_words(rows.model)}, two cores ({rows.on}), one user",
            "Means over runs; intervals and other machines are on the page *Latency* of the built site, the "
            "runs in `_llama-inference/`. All weights start from one 4-bit file, which the reference holds "
            "in float32: what that file lost is in no row.",
            markdown(own(rows)),
        ]
    ) + "\n"  # fmt: skip


def dictionary() -> str:
    """The text of DICTIONARY: the columns of a run's CSV, of each table, then of the published table."""
    runs = downloads.dictionary().drop(columns="since")
    others = pd.DataFrame([(c.name, c.type, c.unit, c.meaning) for c in schema.COLUMNS])
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
                for name, columns in tables.dictionary().items()
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
