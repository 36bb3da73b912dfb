"""Headlines: at most six sentences of at most thirty words, whose numbers stand in data/tables/.

    python -m bench.headlines             the headlines on the terminal
    python -m bench.headlines README.md   they in the marked place of a file, from the committed tables

Each names its model and its processor; the largest model comes first. A ratio of two options is the
regression's, inside measuring sessions (across_machines.csv, sizes_pairs.csv, drafts.csv), and one function
(`said`) makes a claim of it: of one direction only where every size and every processor that measured both
says so; else the ratio at each.
"""

import re
import sys
from collections.abc import Callable, Iterable

import numpy as np
import pandas as pd

from bench import html, paths, site
from bench.topics import serving
from bench.topics.estimates import FASTER, SLOWER
from bench.topics.estimates import OPTION as CONFIG
from bench.topics.humaneval import PROBLEMS
from bench.topics.levels import STEADY
from bench.topics.sizes import SHIPPED, size_words
from llm_measured.core import hardware, naming

MOST, MOST_WORDS = 6, 30
REFERENCE = ("transformers", "float32")
TWICE = (
    "SmolLM2 in four bits is a second quantisation of a tiny model: what it loses says nothing about yours."
)
Config = tuple[str, str]  # engine and number format
RATE = "output_tokens_per_s"

PLACE = re.compile(r"(<!-- findings: .*?-->\n).*?(<!-- end of findings -->)", re.S)


def largest(rows: pd.DataFrame) -> pd.DataFrame:
    """Return the rows of the model with most parameters, real weights only."""
    rows = rows[rows["weights"] == "real"]
    sizes = rows["model"].map(hardware.by_model()["parameters_b"]).fillna(0)
    return rows[sizes == sizes.max()]


def compared(rows: pd.DataFrame) -> pd.DataFrame:
    """Return the rows that nothing keeps from a comparison: neither a shared machine nor tokens that could
    not be checked."""
    return rows[rows["reason"] == ""]


def lost(config: Config) -> str:
    """Return what an option's answers lose with the model of most runs, `9×8 = 11` or how much its perplexity
    rose; empty where they are no worse."""
    costs = site.table("latency")
    costs = compared(costs[costs["weights"] == "real"])
    costs = costs[costs["model"] == costs.groupby("model")["runs"].sum().idxmax()] if len(costs) else costs
    rows = costs[of_option(costs, config) & costs["worse"].eq(True)]
    return rows["verdict"].iloc[0].split(";")[0].replace(" × ", "×") if len(rows) else ""


def of_option(rows: pd.DataFrame, config: Config) -> pd.Series:
    """Return which rows are of the engine and number format `config`."""
    return (rows["backend"] == config[0]) & (rows["option"] == config[1])


def processor(gpu: str) -> str:
    """Return `Zen 4` for `epyc-zen4-2c`, `Intel` for `intel-xeon-2c`, else the device's own name."""
    zen = re.search(r"zen(\d)", gpu)
    return f"Zen {zen[1]}" if zen else "Intel" if gpu.startswith("intel") else gpu


def direction(rows: pd.DataFrame) -> str:
    """Return FASTER or SLOWER where every row (a size on a machine; ratio, low, high) says so with its
    interval; empty where one contradicts it, leaves it open, or could not be compared."""
    if len(rows) and (rows["low"] > 1).all():
        return FASTER
    if len(rows) and (rows["high"] < 1).all():
        return SLOWER
    return ""


def said(rows: pd.DataFrame) -> str:
    """Say ratios (columns model, gpu, ratio, low, high) of every size on every processor that measured them.

    `1.3 to 1.8 times as fast on Zen 5, Zen 4 and Zen 3` where all have one `direction`; else the ratio at
    each size, the largest first, and no direction: `1.1 at 1.5B and 0.97 at 0.5B on Zen 5`.
    """
    rows = rows.dropna(subset=["ratio"])
    if direction(rows):
        return f"{html.ratio_range(rows['ratio'])} as fast on {_processors(rows['gpu'])}"
    sizes = rows["model"].map(hardware.by_model()["parameters_b"]).fillna(0)
    shown: dict[str, list[str]] = {}
    for model in rows["model"].iloc[np.argsort(-sizes.to_numpy(), kind="stable")].unique():
        own = rows[rows["model"] == model]
        ratio = html.ratio_range(own["ratio"]).removesuffix(" times")
        size = f" at {size_words(model)}" if rows["model"].nunique() > 1 else ""
        shown.setdefault(_processors(own["gpu"]), []).append(f"{ratio}{size}")
    return "; ".join(f"{naming.listed(texts)} on {where}" for where, texts in shown.items())


def _processors(gpus: pd.Series) -> str:
    """Return `Zen 4, 5 and Intel`; of more than three kinds their number."""
    names = sorted(set(gpus.map(processor)), key=lambda name: (not name.startswith("Zen"), name))
    if len(names) > 3:
        return f"{len(names)} processors"
    return naming.listed([name if k == 0 else name.removeprefix("Zen ") for k, name in enumerate(names)])


def ratios(first: Config, second: Config) -> pd.DataFrame:
    """Return the regression's ratios of two options, inside measuring sessions: a row for each machine and
    model with real weights (columns model, gpu, machine, ratio, low, high), of nine prompts and of three."""
    nine = site.table("across_machines")
    own = [_turned(nine[(nine["weights"] == "real")], CONFIG, ["than_backend", "than_option"], first, second)]
    three = site.table("sizes_pairs")
    for side in ("first", "second"):
        three[[f"{side}_backend", f"{side}_option"]] = three[side].str.split(" ", n=2, expand=True)[[0, 1]]
    left, right = [[f"{side}_backend", f"{side}_option"] for side in ("first", "second")]
    own.append(_turned(three, left, right, first, second))
    return pd.concat(own, ignore_index=True)


def _turned(
    pairs: pd.DataFrame, left: list[str], right: list[str], first: Config, second: Config
) -> pd.DataFrame:
    """Return the rows of `pairs` that compare the two, as `first` over `second`."""
    keys = pairs[[*left, *right]].apply(tuple, axis=1)
    straight, turned = pairs[keys == (*first, *second)], pairs[keys == (*second, *first)]
    inverse = turned.assign(ratio=1 / turned["ratio"], low=1 / turned["high"], high=1 / turned["low"])
    names = ["model", "gpu", "machine", "ratio", "low", "high"]
    return pd.concat([straight[names], inverse[names]])


def downloaded() -> str:
    """Say how fast the largest model runs as people download it, on each processor, and what it solves."""
    sizes = largest(compared(site.table("sizes")))
    shipped = sizes[sizes["option"] == SHIPPED].dropna(subset=["solved"])
    reference = sizes.loc[of_option(sizes, REFERENCE), "solved"].dropna()
    if shipped.empty or reference.empty:
        return ""
    shown = [f"{html.number(row[RATE])} on {processor(row['gpu'])}" for _, row in shipped.iterrows()]
    return (
        f"{shipped['model'].iloc[0]} as shipped, in **{shipped['backend'].iloc[0]}**: {' and '.join(shown)} "
        f"tokens/s; solves {shipped['solved'].iloc[0]:.0f} of {PROBLEMS} problems, {_name(REFERENCE)} "
        f"{reference.iloc[0]:.0f}."
    )


def solved() -> str:
    """Say how many problems eight and four bits of the largest model lose, engines together and paired."""
    table = largest(site.table("humaneval_bits").assign(weights="real")).sort_values("bits", ascending=False)
    if table.empty:
        return ""
    shown = [
        f"in {row['bits']:.0f} bits {html.two(abs(row['fewer']))} "
        f"{'fewer' if row['fewer'] > 0 else 'more'}, {_signed(row['fewer_high'])} to "
        f"{_signed(row['fewer_low'])}"
        for _, row in table.iterrows()
    ]
    engines = table["pooled_options"].str.count(",").min() + 1
    return (
        f"Of {PROBLEMS} problems {table['model'].iloc[0]}, quantised again, solves {'; '.join(shown)}, than "
        f"{_name(table['reference'].iloc[0].split(' '))}; {engines} engines each."
    )


def _signed(fewer: float) -> str:
    """Return `−5` of five fewer problems, `+0.3` of 0.3 more."""
    digits = html.two(abs(fewer))
    return f"−{digits}" if fewer > 0 else f"+{digits}"


def four_bits() -> str:
    """Compare the two engines that are fastest in four bits with the largest model, at every size and on
    every processor that has both."""
    table = largest(compared(site.table("sizes")))
    table = (
        table[table["option"].map(naming.bits) == 4]
        .sort_values(RATE, ascending=False)
        .drop_duplicates("backend")
    )
    if len(table) < 2:
        return ""
    first, second = [tuple(row) for row in table[CONFIG].head(2).to_numpy()]
    both = [text for config in (first, second) if (text := lost(config))]
    answers = f", {'both' if len(both) == 2 else 'one'} answering {both[0]}" if both else ""
    return f"Short-prompt speed, {_name(first)} over {_name(second)}: {said(ratios(first, second))}{answers}."


def drafts() -> str:
    """Say what a draft model does to the speed of the largest model, the loser first."""
    table = site.table("drafts")
    table = largest(table[table["option"].str.endswith("-draft")]).sort_values("ratio")
    if table.empty:
        return ""
    shown = []
    for backend, own in table.groupby("backend", sort=False):
        name = _name((backend, own["plain"].iloc[0])) if own["plain"].nunique() == 1 else f"**{backend}**"
        unsure = "" if direction(own) else ", perhaps equal"
        shown.append(f"with {name} {said(own)}{unsure}")
    least, most = (f"{100 * share:.0f}" for share in table["acceptance_rate"].agg(["min", "max"]))
    kept = least if least == most else f"{least} to {most}"
    return f"A draft model, {kept} % kept, makes {table['model'].iloc[0]} {', '.join(shown)}."


def long_prompts() -> str:
    """Say what the longest prompt leaves of the largest model's pace on the default machine: of the option
    that keeps least and of that that keeps most, where their intervals part."""
    own = largest(site.machine(site.table("context")))
    own = own[(own["prompt_tokens"] == own["prompt_tokens"].max()) & own["kv_pace"].isna()]
    own = own.sort_values("kept")
    sure = own.dropna(subset=["kept_interval"])
    if len(sure) < 2:
        return ""
    least, most = sure.iloc[0], sure.iloc[-1]
    if least["kept"] + least["kept_interval"] >= most["kept"] - most["kept_interval"]:
        return ""
    return (
        f"After {least['prompt_tokens']:,.0f} tokens {least['model']} keeps {100 * least['kept']:.0f} % of "
        f"its pace with {_of(least)}, {100 * most['kept']:.0f} % with {_of(most)}; first tokens after "
        f"{sure['ttft_s'].min():.0f} to {sure['ttft_s'].max():.0f} s, on {processor(least['gpu'])}."
    )


def under_load() -> str:
    """Say up to which rate of arrivals the two servers of the largest model that hold most keep first tokens
    near those without load, and what the middle one takes."""
    levels = site.machine(largest(site.table("serving")))
    opened = levels[levels["request_rate"].notna() & levels["near"].notna()].sort_values("request_rate")
    if opened.empty:
        return ""
    held = {}
    for config, own in opened.groupby(CONFIG):
        good = (own["near"] >= serving.HELD) & (own["state"] == STEADY)
        held[config] = own.loc[good.cumprod().astype(bool), "request_rate"].max()
    best = pd.Series(held).sort_values(ascending=False, na_position="last").head(2)
    shown = [
        f"{html.two(rate)}/s with {_name(config)}" if rate > 0 else f"no rate with {_name(config)}"
        for config, rate in best.items()
    ]
    first, medians = opened.iloc[0], opened["ttft_p50_s"]
    return (
        f"{first['model']}, {processor(first['gpu'])}: {100 * serving.HELD:.0f} % of first tokens within "
        f"{serving.UNLOADED} times the unloaded up to {naming.listed(shown)}; medians "
        f"{html.two(medians.min())} to {html.two(medians.max())} s."
    )


HEADLINES: tuple[Callable[[], str], ...] = (
    downloaded, solved, four_bits, drafts, long_prompts, under_load,
)  # fmt: skip


def sentences() -> list[str]:
    """Return the headlines that the tables support, as Markdown; none without runs."""
    return [text for headline in HEADLINES if (text := headline())]


def show() -> None:
    """Show headlines as a list, and below it what four bits of the smallest model are."""
    found = sentences()
    text = "\n".join(f"- {each}" for each in found) + f"\n\n{TWICE}" if found else html.EMPTY
    site.say("{text}", text=text)


def _of(row: dict | pd.Series) -> str:
    return _name((row["backend"], row["option"]))


def _name(config: Iterable[str]) -> str:
    return f"**{' '.join(config)}**"


def fill(text: str, sentences: Iterable[str]) -> str:
    """`text` with the sentences between the two comments that mark their place.

    ValueError without such a place.
    """
    if not PLACE.search(text):
        raise ValueError(
            "There is no place marked <!-- findings: … --> … <!-- end of findings --> in this file."
        )
    lines = "\n".join(f"- {sentence}" for sentence in sentences)
    return PLACE.sub(lambda place: f"{place[1]}{lines}\n{place[2]}", text)


def readme(text: str) -> str:
    """Return the README `text` with the headlines of the committed tables in their place."""
    with site.reading(paths.TABLES):
        return fill(text, [*sentences(), TWICE])


def main() -> None:
    """Print the headlines, or write them into the file that the command line names."""
    if not sys.argv[1:]:
        print("\n".join(sentences()) or html.EMPTY)
        return
    page = paths.ROOT / sys.argv[1]
    page.write_text(readme(page.read_text(encoding="utf-8")), encoding="utf-8")


if __name__ == "__main__":
    try:
        main()
    except ValueError as error:  # no marked place, or a BENCH_FRONT that has not measured
        sys.exit(str(error))
