"""Headlines: at most eight sentences of at most thirty words, computed from the runs.

    python -m bench.report.headlines             the headlines on the terminal
    python -m bench.report.headlines README.md   they in the marked place of a file, from the runs that git
                                                 keeps

Each headline names the processor that it is about. Beside each stands a file of `headline_snippets/`: the ten
lines of pandas with which a reader gets its numbers from the CSVs; a test runs them and compares.
"""

import html as html_escape
import re
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import pandas as pd

from bench import html, inputs
from bench.observations import derived, store
from bench.paths import ROOT
from bench.report import words
from bench.topics import batching as batching_analysis
from bench.topics import estimates, machines
from bench.topics import latency as latency_analysis
from bench.topics import quality as quality_analysis
from llm_measured.core import naming

MOST, MOST_WORDS = 8, 30
TWICE = (
    "SmolLM2 in four bits is a second quantisation of a tiny model: what it loses says nothing about yours."
)
SNIPPETS = ROOT / "bench" / "report" / "headline_snippets"
SNIPPET_HOST = "096e72"  # the host that the files of SNIPPETS name
Config = tuple[str, str]  # engine and number format

PLACE = re.compile(r"(<!-- findings: .*?-->\n).*?(<!-- end of findings -->)", re.S)


@dataclass(frozen=True)
class Headline:
    """A sentence, the numbers that it prints (as its snippet's `answer` has them), and its snippet's name."""

    text: str
    numbers: dict[str, object]
    snippet: str


class Runs:
    """What headlines are about: the runs of one model on all machines, and on the default one; without those
    whose tokens could not be checked for want of memory."""

    def __init__(self, requests: pd.DataFrame) -> None:
        real = derived.judged(requests[(requests["weights"] == "real") & (requests["error"] == "")])
        models = real[real["experiment"] == "latency"].groupby("model")["run_id"].nunique()
        self.model = models.idxmax() if len(models) else ""
        self.rows = real[real["model"] == self.model]
        self.front = machines.default_machine(self.rows)
        self.latency = latency_analysis.runs(self.front[self.front["experiment"] == "latency"])
        self.on = processor(self.front["gpu"].iloc[0]) if len(self.front) else ""
        costs = quality_analysis.costs(self.rows)
        self.costs = {key: rows for key, rows in costs.groupby(["backend", "option"])}

    def means(self, metric: str) -> pd.Series:
        """Return means over the runs of the default machine, by engine and number format."""
        return self.latency.groupby(["backend", "option"])[metric].mean()

    def lost(self, config: Config) -> str:
        """Return ` says 9×8 = 11` or how much its perplexity rose; empty where answers are no worse."""
        rows = self.costs.get(config)
        if rows is None or not rows["worse"].any():
            return ""
        row = rows[rows["worse"]].iloc[0]
        if row["product"] != quality_analysis.RIGHT:
            return f"9×8 = {rows.loc[rows['worse'], 'product'].mode()[0]}"
        return f"perplexity {words.two(row['perplexity_ratio'])} times"

    def fastest(self, config: Config, others: Iterable[Config], metric: str) -> bool:
        """Return whether `config` has more of `metric` than each of `others`, as tables say it: the
        regression of all machines' runs, Holm over the others (`estimates.best`)."""
        keys, rivals = latency_analysis.VERSIONED, {*others, config}
        every = latency_analysis.runs(self.rows[self.rows["experiment"] == "latency"])
        named = pd.Series(list(zip(self.latency["backend"], self.latency["option"])), self.latency.index)
        model = estimates.fit(every, keys, metric)
        leader, _ = estimates.best(
            estimates.rank(self.latency[named.isin(rivals)], keys, metric, model=model)
        )
        return leader is not None and (leader["backend"], leader["option"]) == config


def processor(gpu: str) -> str:
    """Return `Zen 4` for `epyc-zen4-2c`, `Intel` for `intel-xeon-2c`, else the device's own name."""
    zen = re.search(r"zen(\d)", gpu)
    return f"Zen {zen[1]}" if zen else "Intel" if gpu.startswith("intel") else gpu


def four_bits(runs: Runs) -> Headline | None:
    """Compare the two fastest engines in four bits by processor, on machines with ENOUGH_RUNS of each."""
    first, second = ("llamacpp", "Q4_0"), ("onnxruntime", "int4")
    each = latency_analysis.runs(runs.rows[runs.rows["experiment"] == "latency"])
    means = each.groupby(["gpu", "host", "backend", "option"])["output_tokens_per_s"].agg(["mean", "size"])
    means = means["mean"].where(means["size"] >= derived.ENOUGH_RUNS).unstack(["backend", "option"])
    if not {first, second} <= set(means.columns):
        return None
    ratio = (means[first] / means[second]).dropna().sort_values(ascending=False)
    if ratio.empty:
        return None
    shown = [f"{words.ratio_range(own)} on {processor(gpu)}" for gpu, own in ratio.groupby("gpu", sort=False)]
    shown[0] = shown[0].replace("times", f"times {_name(second)}'s speed")
    lost = [runs.lost(config) for config in (first, second)]
    cost = f"both say {lost[0]}" if lost[0] == lost[1] else " against ".join(lost)
    text = f"{_name(first)} runs at {', '.join(shown)}{'; ' * any(lost)}{cost if any(lost) else ''}."
    return Headline(text, {" ".join(machine): value for machine, value in ratio.items()}, "four_bits")


def same_tokens(runs: Runs) -> list[Config]:
    """Options that answer every prompt as the reference, token for token, with it; none where it is not
    measured."""
    own = runs.front[runs.front["experiment"] == "latency"]
    texts = own.groupby(["backend", "option", "prompt"])["output_ids"].agg(frozenset).unstack()
    reference = quality_analysis.REFERENCE
    if reference not in texts.index:
        return []
    return [key for key, row in texts.iterrows() if row.equals(texts.loc[reference])]


def answers_alike(runs: Runs) -> Headline | None:
    """Name the fastest that answers every prompt as the reference, token for token."""
    alike, reference = same_tokens(runs), quality_analysis.REFERENCE
    if not alike:
        return None
    means = runs.means("output_tokens_per_s")[alike].sort_values(ascending=False)
    if len(means) < 2 or means.index[0] == reference:
        return None
    best, second = means.index[:2]
    rank = "fastest" if runs.fastest(best, alike, "output_tokens_per_s") else "highest mean speed"
    text = (
        f"On {runs.on}, the {rank} that answers as {_name(reference)}, token for token, is {_name(best)}: "
        f"{html.number(means[best])} tokens/s; next is {_name(second)} with {html.number(means[second])}."
    )
    numbers = {"name": " ".join(best), "best": means[best], "second": means[second]}
    return Headline(text, numbers, "answers_alike")


def fewer_bits(runs: Runs) -> Headline | None:
    """Compare eight bits with 16 or 32 of the same engine."""
    pairs = {
        "onnxruntime": ("int8", "float32"),
        "llamacpp": ("Q8_0", "F16"),
        "ctranslate2": ("int8", "float32"),
    }
    means, ratios = runs.means("output_tokens_per_s"), {}
    for engine, (narrow, wide) in pairs.items():
        if not {(engine, narrow), (engine, wide)} <= set(means.index):
            return None
        ratios[engine] = means[engine, narrow] / means[engine, wide]
    shown = []
    for engine, ratio in sorted(ratios.items(), key=lambda item: -item[1]):
        lost = runs.lost((engine, pairs[engine][0]))
        narrow, wide = pairs[engine]
        shown.append(
            f"{_name((engine, narrow))} {words.two(ratio)} times {wide}{f' and {lost}' if lost else ''}"
        )
    text = f"Speed of 8 bits in the same engine, on {runs.on}: {'; '.join(shown)}."
    return Headline(text, ratios, "fewer_bits")


def first_token(runs: Runs) -> Headline | None:
    """Compare the time to the first token of engines in 16 bits."""
    named = [
        *(("vllm", "bfloat16-compiled"), ("vllm", "bfloat16"), ("openvino", "F16")),
        *(("transformers", "bfloat16"), ("llamacpp", "F16")),
    ]
    means = 1e3 * runs.means("ttft_s")
    if not set(named) <= set(means.index):
        return None
    waits = means[named].sort_values()
    shown = [f"{_name(config)} {html.number(wait)}" for config, wait in waits.items()]
    lengths = runs.front.loc[runs.front["experiment"] == "latency", "prompt_tokens"]
    text = (
        f"First token in 16 bits on {runs.on}, ms after {lengths.min():.0f} to {lengths.max():.0f} tokens: "
        f"{', '.join(shown)}."
    )
    return Headline(text, {" ".join(config): wait for config, wait in waits.items()}, "first_token")


def drafts(runs: Runs) -> Headline | None:
    """Compare n-gram speculation with the same number format without."""
    plain = {"vllm": "bfloat16", "llamacpp": "Q8_0"}
    means, gains = runs.means("output_tokens_per_s"), {}
    for engine, option in plain.items():
        if not {(engine, option), (engine, f"{option}-ngram")} <= set(means.index):
            return None
        gains[engine] = means[engine, f"{option}-ngram"] / means[engine, option]
    shown = [f"{_name((engine, plain[engine]))} {words.two(gain)}" for engine, gain in gains.items()]
    text = (
        f"N-gram speculation makes {naming.listed(shown)} times as fast on {runs.on}; a small model whose "
        "answers repeat themselves helps it."
    )
    return Headline(text, gains, "drafts")


def batching(runs: Runs) -> Headline | None:
    """Name the engine whose throughput grows most with the batch: ratios inside each run, all engines."""
    curves = _sweeps(runs)
    if curves.empty or 1 not in curves:
        return None
    gains = curves.div(curves[1], axis=0).groupby(["backend", "option"]).mean()
    most = gains.max(axis=1).sort_values(ascending=False)
    if len(most) < 2:
        return None
    best, size = most.index[0], gains.loc[most.index[0]].idxmax()
    text = (
        f"On {runs.on}, batches {_lengths(runs)} gain most in the mean with {_name(best)}: "
        f"{words.two(most.iloc[0])} times one request's tokens/s at {size:.0f}; next {_name(most.index[1])} "
        f"with {words.two(most.iloc[1])}."
    )
    return Headline(text, {"name": " ".join(best), "gain": most.iloc[0], "size": size}, "batching")


def gap_limit(runs: Runs) -> Headline | None:
    """Name the engine with the most throughput in batches while nobody waits longer than the objective for a
    token after the first, and how long for that."""
    limit = inputs.study()["slo"]["tpot_s"]
    curves = _sweeps(runs)
    if curves.empty:
        return None
    rates = curves.groupby(["backend", "option"]).mean().stack()
    gaps = _sweeps(runs, "itl_max_s").groupby(["backend", "option"]).max().stack()
    within = rates[gaps.reindex(rates.index) <= limit]
    if within.empty:
        return None
    *best, size = within.idxmax()
    rate, lost = within.max(), runs.lost(tuple(best))
    first_s = _sweeps(runs, "ttft_s").groupby(["backend", "option"]).mean().stack()[within.idxmax()]
    text = (
        f"Batches {_lengths(runs)}, gaps within {1e3 * limit:.0f} ms, on {runs.on}: {_name(best)} has the "
        f"highest mean, {html.number(rate)} tokens/s at batch {size:.0f}; first token after "
        f"{words.two(first_s)} s{f'; it says {lost}' if lost else ''}."
    )
    numbers = {"name": " ".join(best), "size": size, "rate": rate, "first_s": first_s}
    return Headline(text, numbers, "gap_limit")


def objectives(runs: Runs) -> Headline | None:
    """Say how many requests of the highest load tried met both objectives, with vLLM."""
    limits = inputs.study()["slo"]
    own = runs.front[(runs.front["experiment"] == "serving") & (runs.front["backend"] == "vllm")]
    own = own[(own["option"] == "bfloat16") & (own["request_rate"] == own["request_rate"].max())]
    if own.empty:
        return None
    load = own["request_rate"].iloc[0]
    met = int(((own["ttft_s"] <= limits["ttft_s"]) & (own["tpot_s"] <= limits["tpot_s"])).sum())
    share = f"every one of {len(own)}" if met == len(own) else f"{met} of {len(own)}"
    text = (
        f"On {runs.on}, {_name(('vllm', 'bfloat16'))} kept TTFT within {limits['ttft_s']:.0f} s and TPOT "
        f"within {1e3 * limits['tpot_s']:.0f} ms in {share} requests sent at {load:g} requests/s, the "
        "highest load tried."
    )
    return Headline(text, {"met": met, "requests": len(own), "load": load}, "objectives")


HEADLINES: tuple[Callable[[Runs], Headline | None], ...] = (
    four_bits, answers_alike, fewer_bits, first_token, drafts, batching, gap_limit, objectives,
)  # fmt: skip


def headlines(requests: pd.DataFrame) -> list[Headline]:
    """Return the headlines that the runs support; none without runs."""
    runs = Runs(requests)
    return [found for headline in HEADLINES if len(runs.front) and (found := headline(runs))]


def sentences(requests: pd.DataFrame) -> list[str]:
    """Return the headlines as Markdown, and last what four bits of this model are."""
    texts = [headline.text for headline in headlines(requests)]
    return [*texts, TWICE] if texts else []


def of_servers(requests: pd.DataFrame) -> list[str]:
    """Return the headlines about more than one request at once, and last whose they are."""
    runs = Runs(requests)
    found = [headline(runs) for headline in (objectives, gap_limit, batching)] if len(runs.front) else []
    texts = [headline.text for headline in found if headline]
    if texts:
        texts.append(f"These are of {runs.model}.")
    return texts


def shown(requests: pd.DataFrame) -> str:
    """Return the headlines as an HTML list, each with its snippet folded; empty without headlines."""
    found = headlines(requests)
    if not found:
        return ""
    host = machines.default_machine(requests)["host"].iloc[0]
    items = []
    for headline in found:
        text = re.sub(r"\*\*(.*?)\*\*", r"<strong>\1</strong>", html_escape.escape(headline.text))
        code = html_escape.escape(snippet(headline.snippet).replace(SNIPPET_HOST, host))
        fold = f"<summary>The same numbers from the CSVs</summary><pre><code>{code}</code></pre>"
        items.append(f"<li>{text}<details class=data>{fold}</details></li>")
    others = "<a href='#models-that-people-use'>models that people use</a>"
    about = f"These sentences are about {Runs(requests).model}; {others} stand below."
    return f"<p>{about}</p><ul>{''.join(items)}</ul><p>{TWICE}</p>"


def snippet(name: str) -> str:
    """Return the text of a headline's snippet."""
    return (SNIPPETS / f"{name}.py").read_text(encoding="utf-8")


def _batches(runs: Runs) -> pd.DataFrame:
    """Return the batches of the most frequent prompt and answer length of the sweeps."""
    batches = batching_analysis.of_runs(runs.front[runs.front["experiment"] == "batching"])
    if batches.empty:
        return batches
    shape = ["prompt_tokens", "max_new_tokens"]
    return batches[(batches[shape] == list(batches[shape].value_counts().index[0])).all(axis=1)]


def _lengths(runs: Runs) -> str:
    """Return the lengths of `_batches`: `of 512 tokens in, 64 out`."""
    first = _batches(runs).iloc[0]
    return f"of {first['prompt_tokens']:.0f} tokens in, {first['max_new_tokens']:.0f} out"


def _sweeps(runs: Runs, column: str = "output_tokens_per_s") -> pd.DataFrame:
    """Return `column` of `_batches` by run and batch size."""
    own = _batches(runs)
    if own.empty:
        return pd.DataFrame()
    return own.set_index(["backend", "option", "run_id", "batch_size"])[column].unstack()


def _name(config: Iterable[str]) -> str:
    return f"**{' '.join(config)}**"


def committed() -> pd.DataFrame:
    """All requests of the runs that git keeps: what a repository may claim of itself, whatever else this
    checkout has measured."""
    return store.load(store.committed_files())


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


def main() -> None:
    """Print the headlines, or write them into the file that the command line names."""
    if not sys.argv[1:]:
        print("\n".join(sentences(store.load())) or html.EMPTY)
        return
    page = ROOT / sys.argv[1]
    page.write_text(fill(page.read_text(encoding="utf-8"), sentences(committed())), encoding="utf-8")


if __name__ == "__main__":
    try:
        main()
    except ValueError as error:  # no marked place, or a BENCH_FRONT that has not measured
        sys.exit(str(error))
