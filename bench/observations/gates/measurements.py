"""Gates of a run's rows: a function of `Runs` each, that gives a sentence for every run that falls."""

import functools
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import pandas as pd

from bench.observations import derived, peaks, schema
from bench.observations.gates import limits
from bench.paths import ROOT
from llm_measured.core import device_peaks, naming, plausibility
from llm_measured.core.definitions import Fields


@dataclass(frozen=True)
class Runs:
    """Runs to be judged: `rows` of all (`derived.derive`; column `file`: the place of the run in the lists),
    and for each its entry of `sidecars` and its path without suffix, in `identifiers`."""

    rows: pd.DataFrame
    sidecars: list
    identifiers: list
    published: frozenset = frozenset()  # places of those among the repository's own observations
    # Peaks of the devices that other runs have found (`peaks.of_device`), by gpu and host.
    known: pd.DataFrame = field(default_factory=lambda: pd.DataFrame(columns=peaks.COLUMNS))

    @functools.cached_property
    def good(self) -> pd.DataFrame:
        """The rows without `error`."""
        return self.rows[self.rows["error"] == ""]

    @functools.cached_property
    def best(self) -> pd.DataFrame:
        """The best peaks known of each run's device, those of the runs themselves included: index file,
        columns memory and cache (bytes/s), flops_per_s, bandwidth (that of the two which bounds the run)."""
        first = self.rows.drop_duplicates("file").set_index("file")
        own = pd.DataFrame([peaks.of_sidecar(sidecar) for sidecar in self.sidecars], columns=peaks.PEAKS)
        own = own.astype(float).loc[first.index].join(first[["gpu", "host"]])
        found = pd.concat([own, self.known]).groupby(["gpu", "host"])[peaks.PEAKS].max()
        best = own[["gpu", "host"]].join(found, on=["gpu", "host"])
        cached = [device_peaks.in_cache(self.sidecars[file]) for file in best.index]
        return best.assign(bandwidth=best["cache"].where(cached, best["memory"]))

    @functools.cached_property
    def experiments(self) -> pd.Series:
        """The experiment of each run."""
        return self.rows.drop_duplicates("file").set_index("file")["experiment"]


def succeeded(runs: Runs) -> dict[int, str]:
    rows = runs.rows
    if len(runs.good) == len(rows):
        return {}
    lost = rows[~rows["file"].isin(runs.good["file"])].drop_duplicates("file")
    sentence = "No request succeeded, so nothing was measured; the first error was: {}".format
    return dict(zip(lost["file"], map(sentence, lost["error"])))


def agrees_with_path(runs: Runs) -> dict[int, str]:
    found, parts = {}, ("experiment", "backend", "model", "option", "gpu", "host")
    of_a_run = [column for column in schema.IDENTITY if column != "request"]
    for row in runs.rows[["file", *of_a_run]].drop_duplicates().to_dict("records"):
        identifier = runs.identifiers[row["file"]]
        expected = naming.run_id(**{part: row[part] for part in parts}, n=naming.split_number(identifier)[1])
        if not expected == identifier == row["run_id"]:
            found[row["file"]] = (
                f"The rows say they are {expected} (run_id {row['run_id']}), the path says {identifier}: "
                "identity and path must agree."
            )
    return found


def counts(runs: Runs) -> dict[int, str]:
    found: dict[int, str] = {}
    good = runs.good[runs.good["experiment"] != "humaneval-score"]  # which generates nothing
    for column in ("prompt_tokens", "max_new_tokens", "batch_size"):
        sentence = f"{column} must be a positive number in every row."
        found |= dict.fromkeys(good.loc[~(good[column] > 0), "file"], sentence)
    counted = pd.Series([len(ids.split()) for ids in good["output_ids"]], good.index, dtype=float)
    # Over HTTP the load client has counted; a load test keeps no answers, and not every server sends ids.
    counted = counted.where((counted > 0) | good["chunks"].isna(), good["output_tokens"])
    exact = good["output_tokens"] == good["max_new_tokens"]
    may_end = good["uncertain"].str.contains("length") | (good["experiment"] == "humaneval")
    shorter = may_end & (good["output_tokens"] < good["max_new_tokens"])
    same = (counted == good["output_tokens"]) & (exact | shorter)
    sentence = (
        "Token counts disagree: output_ids, output_tokens and max_new_tokens must be the same number in "
        "every row."
    )
    return dict.fromkeys(good.loc[~same, "file"], sentence) | found


def ordered_times(runs: Runs) -> dict[int, str]:
    good = runs.good
    wrong = (
        plausibility.backwards(good["ttft_s"], good["e2e_s"]) | ~(good["e2e_s"] > 0) | (good["ttft_s"] == 0)
    )
    sentence = "Times contradict each other: 0 < ttft_s <= e2e_s must hold in every row."
    return dict.fromkeys(good.loc[wrong, "file"], sentence)


def streamed(runs: Runs) -> dict[int, str]:
    """Refuse a run whose answers came in one lump: something between server and client had kept the events.

    Then TTFT is the whole answer's time and TPOT nothing.
    """
    good = runs.good
    events = good[good["chunks"] > limits.LUMP_EVENTS]
    gap_s = (events["e2e_s"] - events["ttft_s"]) / (events["chunks"] - 1)
    middle = events.assign(gap_s=gap_s).groupby("file")[["chunks", "gap_s", "ttft_s"]].median()
    return {
        file: f"The answers came in one lump: {row['chunks']:.0f} events within "
        f"{row['gap_s'] * (row['chunks'] - 1) * 1e3:.2g} ms, after {row['ttft_s']:.3g} s of silence. A proxy "
        "between client and server keeps the events back; switch its buffering off (nginx: proxy_buffering "
        "off) or ask the server itself."
        for file, row in middle[middle["gap_s"] < limits.EVENT_GAP_S].iterrows()
    }


def quick_start(runs: Runs) -> dict[int, str]:
    """Refuse a run whose first counted request was much slower than every later one of its kind."""
    good = runs.good
    timed = good.loc[good["ttft_s"].notna(), ["file", "e2e_s"]]
    first = timed.drop_duplicates("file").set_index("file")["e2e_s"]
    others = timed[timed.duplicated("file")].groupby("file")["e2e_s"].agg(["max", "size"])
    slow = first.reindex(others.index) > limits.WARM_FACTOR * others["max"] + limits.WARM_SLACK_S
    return {
        file: f"The warm-up had not settled: the first counted request took {first[file]:.3g} s, the slowest "
        f"of the others {others['max'][file]:.3g} s."
        for file in others.index[slow & (others["size"] > 1)]
    }


def punctual(runs: Runs) -> dict[int, str]:
    """Refuse a run whose load client was late: what it then measures is itself."""
    late = runs.good.dropna(subset="request_rate").groupby(["file", "request_rate"])["late_s"].quantile(0.99)
    each = [(file, limits.too_late(rate, behind_s)) for (file, rate), behind_s in late.items()]
    levels = ["file", "session_rate", "arrivals", "cache_capacity_tokens"]
    sessions = runs.good.dropna(subset="session_rate").groupby(levels, dropna=False)
    each += [(file, limits.late_sessions(own)) for (file, *_), own in sessions]
    return {file: sentence for file, sentence in each if sentence}


def uncached(runs: Runs) -> dict[int, str]:
    """Refuse a run in which a prefix cache answered that is declared off, or that nobody has declared: a
    prompt that is not computed costs nothing. What all prompts of a server elsewhere share, its chat template
    (`template_tokens` of the trial before the run), may come from a cache: no reader can avoid that."""
    on = (runs.rows["workload"] != "") & (runs.rows["cache_capacity_tokens"] != 0)
    trials = [sidecar.get("settings", {}).get("prefix_cache_trial") or {} for sidecar in runs.sidecars]
    template = runs.rows["file"].map(lambda file: trials[file].get("template_tokens") or 0)
    hits = runs.rows[(runs.rows["cached_tokens"] > template) & ~on].sort_values("cached_tokens")
    return {
        file: f"The server answered {len(own)} requests from its prefix cache "
        f"({own['cached_tokens'].iloc[-1]:.0f} of {own['prompt_tokens'].iloc[-1]:.0f} prompt tokens). Start "
        "it without prefix caching, or have requests switch it off (llama.cpp: "
        "-p body '{\"cache_prompt\": false}')."
        for file, own in hits.groupby("file")
    }


def uncontaminated(runs: Runs) -> dict[int, str]:
    """Refuse a run in which a server reports more cached tokens than anything before can have left there.

    What may have been there was fixed before the run (`bench.prefix_cache.expected`): more comes from a
    warm-up, another level, another client, or is no count of hits.
    """
    rows = runs.rows
    more = rows[rows["cached_tokens"] > rows["expected_cached_tokens_high"]].sort_values("cached_tokens")
    found = {}
    for file, own in more.groupby("file"):
        worst = own.iloc[-1]
        found[file] = (
            f"The server reports {len(own)} requests with more cached tokens than this load can have left "
            f"there (turn {worst['turn']:.0f} of session {worst['session']:.0f}: "
            f"{worst['cached_tokens']:.0f} of {worst['prompt_tokens']:.0f}, and "
            f"{worst['expected_cached_tokens_high']:.0f} at most expected). A warm-up or another client was "
            "in its cache, or it miscounts: start it afresh, for this run alone."
        )
    return found


def possible_bandwidth(runs: Runs) -> dict[int, str]:
    """Refuse a run that reads more bytes per second than the memory was seen to read: in the median over
    equal requests, or in any request by ABOVE_PEAK more than the best that is known of its device.

    The bound is the highest probe, of its measuring session where the runs of that are read together. The
    median, because one request may have run while memory was faster than beside every probe.
    Where no probe had its cores to itself: more than the memory can read.
    """
    return _single_request(runs) | _in_the_median(runs)


def _in_the_median(runs: Runs) -> dict[int, str]:
    unseen = runs.rows["bandwidth_bytes_per_s"].isna()
    seen = runs.rows[~unseen]
    seen = derived.derive(seen.assign(bandwidth_bytes_per_s=seen["fastest_probe_bytes_per_s"]))
    rows = pd.concat([seen, _against_the_most(runs.rows[unseen], runs.sidecars)])
    # A sweep's shapes are few requests each; all other requests of a level are one load.
    sweeps = rows["experiment"].isin(["batching", "memory"])
    keys = [rows["file"], *(rows[name].fillna(0) for name in ("batch_size", "concurrency", "request_rate"))]
    keys += [rows[name].where(sweeps, 0) for name in ("prompt_tokens", "max_new_tokens")]
    rows = rows.assign(middle=rows["mbu"].groupby(keys).transform("median"))
    above = rows[rows["middle"] > 1]
    peak = above["bandwidth_bytes_per_s"] * derived.sharing(above)
    step_s = above["tpot_s"] * above["mbu"] / above["middle"]
    return {
        row["file"]: f"MBU is {row['middle']:.2f}, above 1: {row['weight_bytes'] / 1e9:.3f} GB of weights in "
        f"{step_s[place] * 1e3:.2f} ms is more than the {peak[place] / 1e9:.1f} GB/s that the probes found. "
        "Either the bytes, the time or the probe is wrong."
        for place, row in above.sort_values("middle").iterrows()
    }


def _single_request(runs: Runs) -> dict[int, str]:
    best = runs.rows["file"].map(runs.best["bandwidth"])
    rows = derived.derive(runs.rows.assign(bandwidth_bytes_per_s=best))
    above = rows[rows["mbu"] > 1 + limits.ABOVE_PEAK]
    peak = above["bandwidth_bytes_per_s"] * derived.sharing(above)
    return {
        row["file"]: f"MBU of a request is {row['mbu']:.2f}: {row['weight_bytes'] / 1e9:.3f} GB of weights "
        f"in {row['tpot_s'] * 1e3:.2f} ms is more than {limits.ABOVE_PEAK:.0%} above the "
        f"{peak[place] / 1e9:.1f} GB/s that were ever found on this device. Either the bytes, the time or "
        "the probe is wrong."
        for place, row in above.sort_values("mbu").iterrows()
    }


def _against_the_most(rows: pd.DataFrame, sidecars: Sequence[Fields]) -> pd.DataFrame:
    """`rows` that have no peak, with MBU against `device_peaks.most_bytes_per_s`."""
    most = {file: device_peaks.most_bytes_per_s(sidecars[file]) for file in rows["file"].unique()}
    return derived.derive(rows.assign(bandwidth_bytes_per_s=rows["file"].map(most).astype(float)))


def possible_arithmetic(runs: Runs) -> dict[int, str]:
    """Refuse more operations per second than the matrix-multiply peak measured beside the run."""
    found: dict[int, str] = {}
    known = runs.rows[runs.rows["peak_flops_per_s"].notna()]
    files = known.drop_duplicates("run_id").set_index("run_id")["file"]
    batches = derived.batches(known)
    for phase in ("decode", "prefill"):
        column = f"mfu_{phase}"
        for _, row in batches[batches[column] > 1].sort_values(column).iterrows():
            found[files[row["run_id"]]] = (
                f"MFU of the {phase} is {row[column]:.2f} at batch {row['batch_size']:.0f}, above 1: more "
                f"than the {row['arithmetic']} peak of {row['peak_flops_per_s'] / 1e9:.0f} GFLOP/s that was "
                "measured beside it. Either the operations, the time or the peak is wrong."
            )
    return found


def ordered_gaps(runs: Runs) -> dict[int, str]:
    """Refuse gaps between tokens that are not in order, or longer than the time that they have.

    p50 <= p90 <= p99 <= longest <= e2e - TTFT. And the gaps at or above a percentile cannot take longer
    together than all of them: half of them at the median, one in ten at p90.
    """
    good = runs.good
    span = good["e2e_s"] - good["ttft_s"]
    each = good[["itl_p50_s", "itl_p90_s", "itl_p99_s", "itl_max_s"]].assign(span=span).to_numpy(float)
    wrong = plausibility.out_of_order(each, limits.ROUNDING_S).any(axis=1)
    gaps = good["output_tokens"] - 1
    for name, quantile in (("itl_p50_s", 0.5), ("itl_p90_s", 0.9)):
        # Those from the next whole rank on are at least as long as a percentile that is linear between ranks.
        longer = gaps - np.ceil(quantile * (gaps - 1))
        wrong |= good[name] * longer > span + limits.ROUNDING_S * gaps
    sentence = (
        "Gaps between tokens contradict the times: itl_p50_s <= itl_p90_s <= itl_p99_s <= itl_max_s <= e2e_s "
        "- ttft_s must hold in every row, and half of an answer's gaps cannot take longer than the answer."
    )
    return dict.fromkeys(good.loc[wrong, "file"], sentence)


def possible_prefill(runs: Runs) -> dict[int, str]:
    """Refuse a first token that came before its prompt could be computed.

    The least time is the longer of two: computing it (`plausibility.least_prefill_s`) at the best
    matrix-multiply rate known of the device, in any format, and reading the weights once at its best
    bandwidth; ABOVE_PEAK is allowed for. One sentence a file, of its earliest first token.
    """
    rows = of_models(runs)
    rows = rows[rows["ttft_s"].notna()].join(runs.best[["flops_per_s", "bandwidth"]], on="file")
    new_tokens = rows["prompt_tokens"] - rows["cached_tokens"].fillna(0)
    sizes = {name: rows[name] for name in ("block_parameters", "head_parameters", "attention_values")}
    devices = derived.sharing(rows) * (1 + limits.ABOVE_PEAK)
    peak = rows["flops_per_s"] * devices
    computing = plausibility.least_prefill_s(**sizes, prompt_tokens=new_tokens, flops_per_s=peak)
    reading = rows["weight_bytes"] / (rows["bandwidth"] * devices)
    least = pd.concat([computing, reading], axis=1).astype(float).max(axis=1)
    wrong = rows.assign(least_s=least)[rows["ttft_s"] < least - limits.ROUNDING_S]
    return {
        row["file"]: f"A first token came after {row['ttft_s'] * 1e3:.3g} ms, and computing the prompt of "
        f"{row['prompt_tokens']:.0f} tokens takes {row['least_s'] * 1e3:.3g} ms at the best peaks that were "
        "ever measured on this device. Either the time is wrong, or a cache answered."
        for _, row in wrong.sort_values("ttft_s", ascending=False).iterrows()
    }


def answered(runs: Runs) -> dict[int, str]:
    """Refuse answers that are none: one token repeated, or the same answer to different prompts.

    Of a checkpoint's real weights only. The committed answers of random ones (198, of two shapes) have at
    least 76 different tokens of 200, but their heads are matrices of their own: where a shape ties head and
    embedding, a random token's likeliest successor is itself, and an engine that says so is right.
    """
    rows = of_models(runs)
    timed = (rows["weights"] == "real") & ~rows["experiment"].isin(schema.UNTIMED)
    answers = timed & (rows["output_tokens"] >= limits.TELLING_TOKENS) & (rows["output_ids"] != "")
    # Only what is read below: `groupby` and `itertuples` build every column that a frame has.
    rows = rows.loc[answers, ["file", "prompt", "output_tokens", "output_ids"]]
    found = {}
    for file, own in rows.groupby("file"):
        repeated = [row for row in own.itertuples() if len(set(row.output_ids.split())) == 1]
        for _, alike in own.groupby("output_tokens"):
            prompts = alike["prompt"].nunique()
            if prompts >= limits.TELLING_PROMPTS and alike["output_ids"].nunique() == 1:
                found[file] = (
                    f"The answers to {prompts} different prompts are one and the same, token by token: the "
                    "engine has not read them, or its answers have been mixed up."
                )
        if repeated:
            found[file] = (
                f"The answer to prompt {repeated[0].prompt:.0f} is one token, "
                f"{repeated[0].output_tokens:.0f} times: that is no answer of this checkpoint. "
                "Look at what the engine computes."
            )
    return found


def weights_counted(runs: Runs) -> dict[int, str]:
    """Refuse a run whose bytes of weights per step contradict its checkpoint and option.

    A step reads the blocks' and the head's matrices, in at least the bits that the option is named by and at
    most 32, or 16 where the engine multiplies in 16 (`limits.WEIGHT_BYTES`); and as many in every run of one
    version of an engine, where three or more are known.
    """
    rows, found = of_models(runs).drop_duplicates("file"), {}
    rows = rows[~rows["experiment"].isin(schema.UNTIMED) & rows["weight_bytes"].notna()]
    same = rows.groupby(["backend", "backend_version", "option", "model", "gpu"])["weight_bytes"]
    usual = same.transform("median").where(same.transform("size") >= 3)
    parameters = rows["block_parameters"] + rows["head_parameters"]
    bits = rows["option"].map(lambda option: naming.bits(option) or 2).astype(float)
    least = np.fmax(parameters * bits / 8, usual) * (1 - limits.WEIGHTS_SHORT)
    widest = rows["arithmetic"].map(limits.WEIGHT_BYTES).fillna(4)
    most = np.fmin((parameters + rows["head_parameters"]) * widest, usual) * (1 + limits.WEIGHTS_SHORT)
    wrong = (rows["weight_bytes"] < least) | (rows["weight_bytes"] > most)
    for place, row in rows[wrong].iterrows():
        found[row["file"]] = (
            f"A step is said to read {row['weight_bytes'] / 1e9:.3f} GB of weights, and of this checkpoint "
            f"with option {row['option']} it reads {least[place] / 1e9:.3f} to {most[place] / 1e9:.3f} GB: "
            "look at what the adapter counts as weight_bytes."
        )
    return found


def whole_evaluation(runs: Runs) -> dict[int, str]:
    """Refuse an evaluation, or a score of one, that lacks problems it set out to answer; and, of the
    repository's own observations, one that set out to answer a part of them."""
    asked = runs.rows[runs.rows["experiment"].isin(schema.EVALUATIONS)].groupby("file")["prompt"]
    found = {}
    for file, count in asked.nunique().items():
        settings = runs.sidecars[file].get("settings", {})
        wanted, whole = settings.get("problems", 0), settings.get("problems_of", 0)
        if not 0 < wanted <= count:
            found[file] = (
                f"{count} of {wanted or whole} problems are answered: an evaluation is a run when all are. "
                "Run its notebook again: it goes on after those that are on disk."
            )
        elif asked.size()[file] > count:
            found[file] = f"{asked.size()[file]} rows answer {count} problems: each is answered once."
        elif file in runs.published and wanted < whole:
            found[file] = (
                f"{wanted} of {whole} problems are a trial, which is not published: answer all of them."
            )
    return found


def of_models(runs: Runs) -> pd.DataFrame:
    """The good rows of engines that compute a model: those of the study's own adapters.

    An adapter in a folder of its own (BENCH_BACKENDS) is one of the tests', which answers by a schedule.
    """
    good = runs.good
    own = {name for name in good["backend"].unique() if (ROOT / "bench" / "backends" / f"{name}.py").exists()}
    return good[good["backend"].isin(own)]
