"""Headlines: at most eight sentences of at most thirty words, whose numbers stand in data/tables/.

    python -m bench.headlines             the headlines on the terminal
    python -m bench.headlines README.md   they in the marked place of a file, from the committed tables

Each names the processor that it is about. A mean is the plain one over a machine's runs (runs.csv); what
answers cost is that of latency.csv.
"""

import re
import sys
from collections.abc import Callable, Iterable

import pandas as pd

from bench import html, inputs, paths, site, words
from llm_measured.core import naming

MOST, MOST_WORDS = 8, 30
ENOUGH_RUNS = 3  # of a machine whose ratio of two means is told
REFERENCE = ("transformers", "float32")
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


def four_bits(rows: Rows) -> str:
    """Compare the two fastest engines in four bits by processor, on machines with ENOUGH_RUNS of each."""
    first, second = ("llamacpp", "Q4_0"), ("onnxruntime", "int4")
    means = rows.runs.groupby(["gpu", "host", *CONFIG])[RATE].agg(["mean", "size"])
    means = means["mean"].where(means["size"] >= ENOUGH_RUNS).unstack(CONFIG)
    if not {first, second} <= set(means.columns):
        return ""
    ratio = (means[first] / means[second]).dropna().sort_values(ascending=False)
    if ratio.empty:
        return ""
    shown = [f"{words.ratio_range(own)} on {processor(gpu)}" for gpu, own in ratio.groupby("gpu", sort=False)]
    shown[0] = shown[0].replace("times", f"times {_name(second)}'s speed")
    lost = [rows.lost(config) for config in (first, second)]
    cost = f"both say {lost[0]}" if lost[0] == lost[1] else " against ".join(lost)
    return f"{_name(first)} runs at {', '.join(shown)}{'; ' * any(lost)}{cost if any(lost) else ''}."


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
        f"On {rows.on}, the {rank} that answers as {_name(REFERENCE)}, token for token, is {_name(best)}: "
        f"{html.number(means[best])} tokens/s; next is {_name(second)} with {html.number(means[second])}."
    )


def fewer_bits(rows: Rows) -> str:
    """Compare eight bits with 16 or 32 of the same engine."""
    pairs = {
        "onnxruntime": ("int8", "float32"),
        "llamacpp": ("Q8_0", "F16"),
        "ctranslate2": ("int8", "float32"),
    }
    means, ratios = rows.means(RATE), {}
    for engine, (narrow, wide) in pairs.items():
        if not {(engine, narrow), (engine, wide)} <= set(means.index):
            return ""
        ratios[engine] = means[engine, narrow] / means[engine, wide]
    shown = []
    for engine, ratio in sorted(ratios.items(), key=lambda item: -item[1]):
        narrow, wide = pairs[engine]
        lost = rows.lost((engine, narrow))
        shown.append(
            f"{_name((engine, narrow))} {words.two(ratio)} times {wide}{f' and {lost}' if lost else ''}"
        )
    return f"Speed of 8 bits in the same engine, on {rows.on}: {'; '.join(shown)}."


def first_token(rows: Rows) -> str:
    """Compare the time to the first token of engines in 16 bits."""
    named = [
        *(("vllm", "bfloat16-compiled"), ("vllm", "bfloat16"), ("openvino", "F16")),
        *(("transformers", "bfloat16"), ("llamacpp", "F16")),
    ]
    means = 1e3 * rows.means("ttft_s")
    if not set(named) <= set(means.index):
        return ""
    shown = [f"{_name(config)} {html.number(wait)}" for config, wait in means[named].sort_values().items()]
    least, most = rows.front["prompt_tokens_least"].min(), rows.front["prompt_tokens_most"].max()
    return (
        f"First token in 16 bits on {rows.on}, ms after {least:.0f} to {most:.0f} tokens: {', '.join(shown)}."
    )


def drafts(rows: Rows) -> str:
    """Compare n-gram speculation with the same number format without."""
    plain = {"vllm": "bfloat16", "llamacpp": "Q8_0"}
    means, gains = rows.means(RATE), {}
    for engine, option in plain.items():
        if not {(engine, option), (engine, f"{option}-ngram")} <= set(means.index):
            return ""
        gains[engine] = means[engine, f"{option}-ngram"] / means[engine, option]
    shown = [f"{_name((engine, plain[engine]))} {words.two(gain)}" for engine, gain in gains.items()]
    return (
        f"N-gram speculation makes {naming.listed(shown)} times as fast on {rows.on}; a small model whose "
        "answers repeat themselves helps it."
    )


def batching(rows: Rows) -> str:
    """Name the engine whose throughput grows most with the batch: ratios inside each run, all engines."""
    batches = usual_batches(rows)
    gains = batches.dropna(subset=["gain"]).sort_values("gain", ascending=False)
    most = gains.drop_duplicates(CONFIG)
    if len(most) < 2:
        return ""
    best, second = most.to_dict("records")[:2]
    return (
        f"On {rows.on}, batches {_lengths(batches)} gain most in the mean with {_of(best)}: "
        f"{words.two(best['gain'])} times one request's tokens/s at {best['batch_size']:.0f}; next "
        f"{_of(second)} with {words.two(second['gain'])}."
    )


def gap_limit(rows: Rows) -> str:
    """Name the engine with the most throughput in batches while nobody waits longer than the objective for a
    token after the first, and how long for that."""
    limit = inputs.study()["slo"]["tpot_s"]
    chosen = rows.of("decision")
    chosen = chosen[chosen["batch_size"].notna() & ~chosen["part"].eq("next")]
    batches = usual_batches(rows)
    if chosen.empty or batches.empty:
        return ""
    best = chosen.iloc[0]
    config = best["backend"], best["option"]
    same = batches[of_option(batches, config) & (batches["batch_size"] == best["batch_size"])]
    lost = rows.lost(config)
    return (
        f"Batches {_lengths(batches)}, gaps within {1e3 * limit:.0f} ms, on {rows.on}: {_of(best)} has the "
        f"highest mean, {html.number(best['value'])} tokens/s at batch {best['batch_size']:.0f}; first token "
        f"after {words.two(same['ttft_s'].iloc[0])} s{f'; it says {lost}' if lost else ''}."
    )


def objectives(rows: Rows) -> str:
    """Say how many requests of the highest load tried met both objectives, with vLLM."""
    limits = inputs.study()["slo"]
    levels = rows.of("serving")
    levels = levels[of_option(levels, ("vllm", "bfloat16")) & levels["request_rate"].notna()]
    if levels.empty:
        return ""
    top = levels.loc[levels["request_rate"].idxmax()]
    share = f"{html.number(100 * top['met'])} % of {top['counted']:.0f}"
    if top["met"] == 1:
        share = f"every one of {top['counted']:.0f}"
    return (
        f"On {rows.on}, {_of(top)} kept TTFT within {limits['ttft_s']:.0f} s and TPOT within "
        f"{1e3 * limits['tpot_s']:.0f} ms in {share} requests of a steady "
        f"{top['request_rate']:g} requests/s, the highest load tried."
    )


HEADLINES: tuple[Callable[[Rows], str], ...] = (
    four_bits, answers_alike, fewer_bits, first_token, drafts, batching, gap_limit, objectives,
)  # fmt: skip
OF_SERVERS = objectives, gap_limit, batching


def sentences(which: Iterable[Callable[[Rows], str]] = HEADLINES) -> list[str]:
    """Return the headlines that the tables support, as Markdown; none without runs."""
    rows = Rows()
    return [text for headline in which if len(rows.front) and (text := headline(rows))]


def show(which: Iterable[Callable[[Rows], str]] = HEADLINES) -> None:
    """Show headlines as a list, and below it which model they are about."""
    found = sentences(which)
    if not found:
        site.say(html.EMPTY)
        return
    about = f"These sentences are about {Rows().model}. {TWICE}"
    site.say("{text}", text="\n".join(f"- {each}" for each in found) + f"\n\n{about}")


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
