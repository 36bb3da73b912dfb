"""Headlines: at most eight sentences of at most thirty words, whose numbers stand in data/tables/.

    python -m bench.headlines             the headlines on the terminal
    python -m bench.headlines README.md   they in the marked place of a file, from the committed tables

Each names its model and its processor; the largest model comes first. A ratio of two options is the
regression's, inside measuring sessions (sizes_pairs.csv, drafts.csv), at every size or on every processor
that has it; a mean is the plain one over a machine's runs (runs.csv); answers' costs are latency.csv's.
"""

import re
import sys
from collections.abc import Callable, Iterable

import pandas as pd

from bench import html, inputs, paths, site, words
from bench.topics.estimates import EQUAL
from bench.topics.humaneval import PROBLEMS
from bench.topics.sizes import size_words
from llm_measured.core import hardware, naming

MOST, MOST_WORDS = 8, 30
REFERENCE = ("transformers", "float32")
SHIPPED = ("llamacpp", "as-shipped")  # the file that people download
LEVEL = 0.05
RIGHT, NOT_REACHED = "72", "none"  # what 9 × 8 is, and what stands for no answer
TWICE = (
    "SmolLM2 in four bits is a second quantisation of a tiny model: what it loses says nothing about yours."
)
Config = tuple[str, str]  # engine and number format
CONFIG = ["backend", "option"]
RATE = "output_tokens_per_s"

PLACE = re.compile(r"(<!-- findings: .*?-->\n).*?(<!-- end of findings -->)", re.S)


class Rows:
    """What sentences are about: rows of one model with real weights, without runs whose tokens could not be
    checked and without those that shared their machine.

    `experiment` is `latency`, or `sizes` for three short prompts, whose table has the same columns.
    """

    def __init__(self, model: str = "", experiment: str = "latency") -> None:
        costs, runs = site.table(experiment), site.table("runs")
        costs = costs[(costs["weights"] == "real") & (costs["shared_by"] == "")]
        self.model = model or most_frequent(costs)
        self.costs = costs[costs["model"] == self.model]
        kept = (runs["weights"] == "real") & (runs["not_judged"] == "") & (runs["shared_by"] == "")
        runs = runs[kept & (runs["model"] == self.model)]
        self.runs = runs[runs["experiment"] == experiment]
        self.front = site.machine(self.runs)
        self.on = processor(self.front["gpu"].iloc[0]) if len(self.front) else ""

    def means(self, metric: str) -> pd.Series:
        """Return means over the runs of the default machine, by engine and number format."""
        return self.front.groupby(CONFIG)[metric].mean()

    def of(self, table: str) -> pd.DataFrame:
        """Return the rows of another table that are of this model on the default machine."""
        rows = site.table(table)
        return rows[(rows["model"] == self.model) & rows["machine"].isin(self.front["machine"])]

    def lost(self, config: Config) -> str:
        """Return `9×8 = 11`, or how much its perplexity rose; empty where answers are no worse."""
        rows = self.costs[of_option(self.costs, config) & self.costs["worse"].eq(True)]
        if rows.empty:
            return ""
        wrong = rows.loc[~rows["product"].isin([RIGHT, NOT_REACHED]), "product"]
        if len(wrong):
            return f"9×8 = {wrong.mode()[0]}"
        return f"perplexity {words.two(rows['perplexity_ratio'].iloc[0])} times"

    def alike(self) -> list[Config]:
        """Return the options that answer every prompt as the reference, token for token, with it."""
        rows = self.costs[self.costs["machine"].isin(self.front["machine"])]
        rows = rows[rows["answers"].notna() & (rows["same_answers"] == rows["answers"])]
        return list(rows[CONFIG].itertuples(index=False, name=None))


def largest(rows: pd.DataFrame) -> pd.DataFrame:
    """Return the rows of the model with most parameters, real weights only."""
    rows = rows[rows["weights"] == "real"]
    sizes = rows["model"].map(hardware.by_model()["parameters_b"]).fillna(0)
    return rows[sizes == sizes.max()]


def most_frequent(rows: pd.DataFrame) -> str:
    """Return the model with the most runs in a table; empty without rows."""
    runs = rows.groupby("model")["runs"].sum()
    return runs.idxmax() if len(runs) else ""


def of_option(rows: pd.DataFrame, config: Config) -> pd.Series:
    """Return which rows are of the engine and number format `config`."""
    return (rows["backend"] == config[0]) & (rows["option"] == config[1])


def processor(gpu: str) -> str:
    """Return `Zen 4` for `epyc-zen4-2c`, `Intel` for `intel-xeon-2c`, else the device's own name."""
    zen = re.search(r"zen(\d)", gpu)
    return f"Zen {zen[1]}" if zen else "Intel" if gpu.startswith("intel") else gpu


def downloaded(rows: Rows) -> str:
    """Say how fast the largest model runs as people download it, on each processor, and what it solves."""
    sizes = largest(site.table("sizes"))
    shipped = sizes[of_option(sizes, SHIPPED)].dropna(subset=["solved"])
    reference = sizes.loc[of_option(sizes, REFERENCE), "solved"].dropna()
    if shipped.empty or reference.empty:
        return ""
    shown = [f"{html.number(row[RATE])} on {processor(row['gpu'])}" for _, row in shipped.iterrows()]
    return (
        f"{shipped['model'].iloc[0]} as shipped, in **{SHIPPED[0]}**: {' and '.join(shown)} tokens/s; it "
        f"solves {shipped['solved'].iloc[0]:.0f} of {PROBLEMS} problems, {_name(REFERENCE)} "
        f"{reference.iloc[0]:.0f}."
    )


def solved(rows: Rows) -> str:
    """Compare what eight and four bits of the largest model solve with the reference, option by option."""
    table = largest(site.table("humaneval"))
    table = table[(table["not_judged"] == "") & table["fewer"].notna() & (table["option"] != SHIPPED[1])]
    table = table.assign(bits=table["option"].map(naming.bits)).sort_values("solved", ascending=False)
    if not {4, 8} <= set(table["bits"]):
        return ""
    shown = {}
    for bits in (8, 4):
        counts = table.loc[table["bits"] == bits, "solved"]
        shown[bits] = naming.listed([f"{count:.0f}" for count in counts])
    significant = table[(table["p_value"] < LEVEL) & (table["fewer"] > 0)]
    said = "no single loss is significant"
    if len(significant):
        said = f"fewer for certain: {naming.listed([_of(row) for _, row in significant.iterrows()])}"
    every = largest(site.table("humaneval"))
    reference = every.loc[of_option(every, REFERENCE), "solved"].iloc[0]
    return (
        f"Of {PROBLEMS} problems {table['model'].iloc[0]} solves {reference:.0f} in float32, in 8 bits "
        f"{shown[8]}, quantised again to 4 bits {shown[4]}; {said}."
    )


def four_bits(rows: Rows) -> str:
    """Compare the two fastest engines in four bits at each size that one machine has measured, with the
    regression's ratio inside measuring sessions."""
    first, second = "llamacpp Q4_0 ", "onnxruntime int4 "
    pairs = site.table("sizes_pairs")
    turned = pairs["first"].str.startswith(second) & pairs["second"].str.startswith(first)
    pairs = pairs[turned | (pairs["first"].str.startswith(first) & pairs["second"].str.startswith(second))]
    if pairs.empty:
        return ""
    pairs = pairs[pairs["machine"] == pairs["machine"].iloc[0]].sort_values("parameters_b")
    ratios = (1 / pairs["ratio"]).where(turned, pairs["ratio"])
    both = [rows.lost(("llamacpp", "Q4_0")), rows.lost(("onnxruntime", "int4"))]
    shown = [f"{words.two(ratio)} at {size_words(model)}" for ratio, model in zip(ratios, pairs["model"])]
    if any(both):
        where = [size_words(model) == size_words(rows.model) for model in pairs["model"]]
        lost = f"both say {both[0]}" if both[0] == both[1] else " against ".join(both)
        shown = [f"{text}, where {lost}" if here else text for text, here in zip(shown, where)]
    apart = pairs["verdict"] != EQUAL
    said = "no difference is significant"
    if apart.any():
        said = f"significant at {naming.listed(list(map(size_words, pairs.loc[apart, 'model'])))}"
    return (
        f"**{first.strip()}** over **{second.strip()}** in tokens/s on {processor(pairs['gpu'].iloc[0])}: "
        f"{', '.join(shown)}; {said}."
    )


def answers_alike(rows: Rows) -> str:
    """Name the fastest that answers every prompt as the reference, token for token; `fastest` where its
    interval (latency.csv) lies above the next one's."""
    alike = rows.alike()
    if REFERENCE not in alike:
        return ""
    means = rows.means(RATE).reindex(pd.MultiIndex.from_tuples(alike)).dropna().sort_values(ascending=False)
    if len(means) < 2 or means.index[0] == REFERENCE:
        return ""
    best, second = means.index[:2]
    own = rows.costs[rows.costs["machine"].isin(rows.front["machine"])].set_index(CONFIG)
    low = (own[RATE] - own[f"{RATE}_interval"]).get(best)
    above = (own[RATE] + own[f"{RATE}_interval"]).reindex(alike).drop([best])
    rank = "fastest" if (above < low).all() else "highest mean speed"
    return (
        f"{rows.model} on {rows.on}: the {rank} that answers as {_name(REFERENCE)}, token for token, is "
        f"{_name(best)}: {html.number(means[best])} tokens/s; next is {_name(second)} with "
        f"{html.number(means[second])}."
    )


def drafts(rows: Rows) -> str:
    """Say what a draft model does to the speed of the largest model, the loser first."""
    table = site.table("drafts")
    table = largest(table[table["option"].str.endswith("-draft")]).sort_values("ratio")
    if table.empty:
        return ""
    shown = []
    for _, row in table.iterrows():
        changed = f"{words.two(row['ratio'])} times as fast"
        if row["verdict"] == EQUAL:
            changed = "no faster for sure"
        shown.append(f"{changed} with {_name((row['backend'], row['plain']))}")
    kept, first = 100 * table["acceptance_rate"].mean(), table.iloc[0]
    return (
        f"A draft model with {kept:.0f} % kept makes {first['model']} {naming.listed(shown)} on "
        f"{processor(first['gpu'])}."
    )


def n_grams(rows: Rows) -> str:
    """Say what n-gram speculation does to the speed on every machine that measured it."""
    table = site.table("drafts")
    table = table[table["option"].str.endswith("-ngram") & (table["model"] == rows.model)]
    if table.empty:
        return ""
    shown = []
    for key, own in table.groupby(["backend", "plain"]):
        apart, unsure = own[own["verdict"] != EQUAL], own.loc[own["verdict"] == EQUAL, "gpu"]
        if len(apart):
            text = f"{words.ratio_range(apart['ratio'])} as fast with {_name(key)}"
            where = naming.listed(list(map(processor, unsure)))
            shown.append(f"{text}, not surely on {where}" if where else text)
    if not shown:
        return ""
    return f"N-gram speculation: {rows.model}, repeating itself, is {', and '.join(shown)}."


def batching(rows: Rows) -> str:
    """Name the engine whose throughput grows most with the batch: ratios inside each run, all engines."""
    batches = usual_batches(rows)
    gains = batches.dropna(subset=["gain"]).sort_values("gain", ascending=False)
    most = gains.drop_duplicates(CONFIG)
    if len(most) < 2:
        return ""
    best, second = most.to_dict("records")[:2]
    return (
        f"{rows.model} on {rows.on}, batches {_lengths(batches)}: {_of(best)} gains most in the mean, "
        f"{words.two(best['gain'])} times at {best['batch_size']:.0f} requests; next is {_of(second)} with "
        f"{words.two(second['gain'])}."
    )


def objectives(rows: Rows) -> str:
    """Say for each processor which load vLLM held with every request inside both objectives, and what share
    of the next higher one was."""
    limits = inputs.study()["slo"]
    levels = site.table("serving")
    levels = levels[of_option(levels, ("vllm", "bfloat16")) & (levels["model"] == rows.model)]
    shown = []
    for _, own in levels[levels["request_rate"].notna()].groupby("machine", sort=False):
        own = own.sort_values("request_rate")
        held = own[(own["met"] == 1).cumprod().astype(bool)]
        above = own[own["request_rate"] > held["request_rate"].max()] if len(held) else own
        rate = f"{held['request_rate'].max():g}/s" if len(held) else "no rate"
        text = f"{rate} on {processor(own['gpu'].iloc[0])}"
        if len(above):
            text += f", {100 * above['met'].iloc[0]:.0f} % of {above['request_rate'].iloc[0]:g}/s"
        shown.append(text)
    if not shown:
        return ""
    return (
        f"**vllm bfloat16** with {rows.model} keeps TTFT within {limits['ttft_s']:.0f} s and TPOT within "
        f"{1e3 * limits['tpot_s']:.0f} ms for all requests of {'; '.join(shown)}."
    )


HEADLINES: tuple[Callable[[Rows], str], ...] = (
    downloaded, solved, four_bits, drafts, n_grams, answers_alike, batching, objectives,
)  # fmt: skip
OF_SERVERS = objectives, batching


def sentences(which: Iterable[Callable[[Rows], str]] = HEADLINES) -> list[str]:
    """Return the headlines that the tables support, as Markdown; none without runs."""
    rows = Rows()
    return [text for headline in which if len(rows.front) and (text := headline(rows))]


def show(which: Iterable[Callable[[Rows], str]] = HEADLINES) -> None:
    """Show headlines as a list, and below it what four bits of the smallest model are."""
    found = sentences(which)
    if not found:
        site.say(html.EMPTY)
        return
    site.say("{text}", text="\n".join(f"- {each}" for each in found) + f"\n\n{TWICE}")


def usual_batches(rows: Rows) -> pd.DataFrame:
    """Return the batches of the most frequent prompt and answer length of the sweeps."""
    batches, shape = rows.of("batching"), ["prompt_tokens", "max_new_tokens"]
    if batches.empty:
        return batches
    counts = batches.groupby(shape)["runs"].sum()
    return batches[(batches[shape] == list(counts.idxmax())).all(axis=1)]


def _lengths(batches: pd.DataFrame) -> str:
    """Return the lengths of batches: `of 512 tokens in, 64 out`."""
    first = batches.iloc[0]
    return f"of {first['prompt_tokens']:.0f} tokens in, {first['max_new_tokens']:.0f} out"


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
