"""Checks of a run's rows."""

from collections.abc import Sequence

import numpy as np
import pandas as pd

from bench.observations import derived, schema
from bench.observations.checks.declaration import Run, Runs, check
from llm_measured.core import device_peaks, naming, plausibility
from llm_measured.core.definitions import Fields

# What times may contradict each other by: they are differences of one clock's doubles.
ROUNDING_S = 1e-6
# How far above the best peak known of a device a single request may be: probes of memory and of matrix
# multiplication find the same peak again within this.
ABOVE_PEAK = 0.1
SWEEPS = "batching", "context", "memory"  # experiments of uniform batches, whose operations are counted


def is_timed(run: Run) -> bool:
    """Whether a run's rows are times."""
    return run.is_timed


def is_served(run: Run) -> bool:
    """Whether the requests of a run went to a server."""
    url = run.sidecar.get("parameters", {}).get("url")
    return bool(url) or "chunks" in run.columns or run.experiment in ("serving", "served", "conversations")


def times_a_model(run: Run) -> bool:
    """Whether a run has times of an engine that computes a model."""
    return run.is_timed and run.of_model


@check("a request succeeded")
def succeeded(runs: Runs) -> dict[int, str]:
    rows = runs.rows
    if len(runs.good) == len(rows):
        return {}
    lost = rows[~rows["file"].isin(runs.good["file"])].drop_duplicates("file")
    sentence = "No request succeeded, so nothing was measured; the first error was: {}".format
    return dict(zip(lost["file"], map(sentence, lost["error"])))


@check("rows and path agree")
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


@check("token counts agree")
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


@check("times do not contradict each other")
def ordered_times(runs: Runs) -> dict[int, str]:
    good = runs.good
    wrong = (
        plausibility.backwards(good["ttft_s"], good["e2e_s"])
        | ~((good["e2e_s"] > 0) | (good["unmeasured"] != ""))
        | (good["ttft_s"] == 0)
    )
    sentence = "Times contradict each other: 0 < ttft_s <= e2e_s must hold in every row."
    return dict.fromkeys(good.loc[wrong, "file"], sentence)


# Events of an answer that follow each other faster than this on average came in one lump: a proxy had kept
# them. A step of the smallest model on the fastest GPU takes several times as long.
EVENT_GAP_S = 5e-5
LUMP_EVENTS = 8  # an answer with fewer events than this says nothing of them


@check("answers came token by token, not in one lump", concerns=is_served, columns=["chunks"])
def streamed(runs: Runs) -> dict[int, str]:
    """Reject a run whose answers came in one lump: something between server and client had kept the events.

    Then TTFT is the whole answer's time and TPOT nothing.
    """
    good = runs.good
    events = good[good["chunks"] > LUMP_EVENTS]
    gap_s = (events["e2e_s"] - events["ttft_s"]) / (events["chunks"] - 1)
    middle = events.assign(gap_s=gap_s).groupby("file")[["chunks", "gap_s", "ttft_s"]].median()
    return {
        file: f"The answers came in one lump: {row['chunks']:.0f} events within "
        f"{row['gap_s'] * (row['chunks'] - 1) * 1e3:.2g} ms, after {row['ttft_s']:.3g} s of silence. A proxy "
        "between client and server keeps the events back; switch its buffering off (nginx: proxy_buffering "
        "off) or ask the server itself."
        for file, row in middle[middle["gap_s"] < EVENT_GAP_S].iterrows()
    }


# The first counted request may be slower than the slowest of the others by this factor, else the warm-up had
# not settled. Two, because other tenants of its host may take half of a small virtual machine's memory
# bandwidth from one second to the next.
WARM_FACTOR = 2.0
WARM_SLACK_S = 0.001  # what the scheduler alone may take, which is many times what a toy engine does


@check(
    "the first counted request was no slower than the others",
    concerns=is_timed,
    needs=lambda run: run.timed_requests > 2,
)
def quick_start(runs: Runs) -> dict[int, str]:
    """Reject a run whose first counted request was much slower than every later one of its kind."""
    good = runs.good
    timed = good.loc[good["ttft_s"].notna(), ["file", "e2e_s"]]
    first = timed.drop_duplicates("file").set_index("file")["e2e_s"]
    others = timed[timed.duplicated("file")].groupby("file")["e2e_s"].agg(["max", "size"])
    slow = first.reindex(others.index) > WARM_FACTOR * others["max"] + WARM_SLACK_S
    return {
        file: f"The warm-up had not settled: the first counted request took {first[file]:.3g} s, the slowest "
        f"of the others {others['max'][file]:.3g} s."
        for file in others.index[slow & (others["size"] > 1)]
    }


# How late the load client may be in the 99th percentile, as a share of the gap between two scheduled
# requests.
LATE_SHARE = 0.01


def too_late(rate: float, behind_s: float) -> str:
    """Why a level of `rate` scheduled requests/s does not count, in a sentence; empty where it does.

    `behind_s`: how late the load client was, 99th percentile over its requests.
    """
    if not behind_s > LATE_SHARE / rate:
        return ""
    return (
        f"The load client was late: at {rate:g} requests/s it took up requests {behind_s * 1e3:.2g} ms "
        f"behind schedule (99th percentile), and {LATE_SHARE:.0%} of the gap between them is "
        f"{LATE_SHARE / rate * 1e3:.2g} ms. Give it a core of its own, or lower the rate."
    )


def late_sessions(rows: pd.DataFrame) -> str:
    """`too_late` of a level of sessions, at the rate of its requests; `rows`: columns sent_s and late_s,
    NaN where a turn was never sent."""
    sent = rows["sent_s"].dropna()
    span = sent.max() - sent.min() if len(sent) > 1 else 0.0
    return too_late((len(sent) - 1) / span, rows["late_s"].quantile(0.99)) if span > 0 else ""


def late(rows: pd.DataFrame) -> str:
    """`too_late` of one level of scheduled requests; `rows`: columns request_rate (1/s) and late_s (s)."""
    return too_late(rows["request_rate"].iloc[0], rows["late_s"].quantile(0.99))


@check(
    "the load client was punctual",
    concerns=lambda run: bool({"request_rate", "session"} & run.columns),
    columns=["late_s"],
)
def punctual(runs: Runs) -> dict[int, str]:
    """Reject a run whose load client was late: what it then measures is itself."""
    late = runs.good.dropna(subset="request_rate").groupby(["file", "request_rate"])["late_s"].quantile(0.99)
    each = [(file, too_late(rate, behind_s)) for (file, rate), behind_s in late.items()]
    levels = ["file", "session_rate", "arrivals", "cache_capacity_tokens"]
    sessions = runs.good.dropna(subset="session_rate").groupby(levels, dropna=False)
    each += [(file, late_sessions(own)) for (file, *_), own in sessions]
    return {file: sentence for file, sentence in each if sentence}


@check(
    "no prompt answered from a cache that is off",
    concerns=is_served,
    needs=lambda run: (
        "cached_tokens" in run.columns or "prefix_cache_trial" in run.sidecar.get("settings", {})
    ),
)
def uncached(runs: Runs) -> dict[int, str]:
    """Reject a run in which a prefix cache answered that is declared off, or that nobody has declared: a
    prompt that is not computed costs nothing. What all prompts of a server elsewhere share, its chat template
    (`template_tokens` of the trial before the run), may come from a cache: no reader can avoid that."""
    on = (runs.rows["workload"] != "") & (runs.rows["cache_capacity_tokens"] != 0)
    on |= runs.rows["expected_cached_tokens_high"] > 0
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


@check(
    "no more cached tokens than expected",
    concerns=lambda run: "session" in run.columns,
    columns=["cached_tokens", "expected_cached_tokens_high"],
)
def uncontaminated(runs: Runs) -> dict[int, str]:
    """Reject a run in which a server reports more cached tokens than anything before can have left there.

    What may have been there was fixed before the run (`bench.prefix_cache.expected`): more comes from a
    warm-up, another level, another client, or is no count of hits.
    """
    rows = runs.rows
    more = rows[rows["cached_tokens"] > rows["expected_cached_tokens_high"]].sort_values("cached_tokens")
    found = {}
    for file, own in more.groupby("file"):
        worst = own.iloc[-1]
        where = f"request {worst['request']:.0f}"
        if worst["turn"] > 0:
            where = f"turn {worst['turn']:.0f} of session {worst['session']:.0f}"
        found[file] = (
            f"The server reports {len(own)} requests with more cached tokens than this load can have left "
            f"there ({where}: "
            f"{worst['cached_tokens']:.0f} of {worst['prompt_tokens']:.0f}, and "
            f"{worst['expected_cached_tokens_high']:.0f} at most expected). A warm-up or another client was "
            "in its cache, or it miscounts: start it afresh, for this run alone."
        )
    return found


@check("MBU at most 1", concerns=lambda run: run.is_timed and run.reads_weights, columns=["mbu"])
def possible_bandwidth(runs: Runs) -> dict[int, str]:
    """Reject a run that reads more bytes per second than the memory was seen to read: in the median over
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
    sweeps = rows["experiment"].isin(SWEEPS)
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
    above = rows[rows["mbu"] > 1 + ABOVE_PEAK]
    peak = above["bandwidth_bytes_per_s"] * derived.sharing(above)
    return {
        row["file"]: f"MBU of a request is {row['mbu']:.2f}: {row['weight_bytes'] / 1e9:.3f} GB of weights "
        f"in {row['tpot_s'] * 1e3:.2f} ms is more than {ABOVE_PEAK:.0%} above the "
        f"{peak[place] / 1e9:.1f} GB/s that were ever found on this device. Either the bytes, the time or "
        "the probe is wrong."
        for place, row in above.sort_values("mbu").iterrows()
    }


def _against_the_most(rows: pd.DataFrame, sidecars: Sequence[Fields]) -> pd.DataFrame:
    """`rows` that have no peak, with MBU against `device_peaks.most_bytes_per_s`."""
    most = {file: device_peaks.most_bytes_per_s(sidecars[file]) for file in rows["file"].unique()}
    return derived.derive(rows.assign(bandwidth_bytes_per_s=rows["file"].map(most).astype(float)))


@check(
    "MFU at most 1",
    concerns=lambda run: run.experiment in SWEEPS,
    columns=["peak_flops_per_s"],
)
def possible_arithmetic(runs: Runs) -> dict[int, str]:
    """Reject more operations per second than the matrix-multiply peak measured beside the run."""
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


@check("gaps between tokens fit into the answer's time", concerns=is_timed, columns=["itl_p50_s"])
def ordered_gaps(runs: Runs) -> dict[int, str]:
    """Reject gaps between tokens that are not in order, or longer than the time that they have.

    p50 <= p90 <= p99 <= longest <= e2e - TTFT. And the gaps at or above a percentile cannot take longer
    together than all of them: half of them at the median, one in ten at p90.
    """
    good = runs.good
    span = good["e2e_s"] - good["ttft_s"]
    each = good[["itl_p50_s", "itl_p90_s", "itl_p99_s", "itl_max_s"]].assign(span=span).to_numpy(float)
    wrong = plausibility.out_of_order(each, ROUNDING_S).any(axis=1)
    gaps = good["output_tokens"] / good["arrival_tokens_mean"].fillna(1) - 1  # one an arrival
    for name, quantile in (("itl_p50_s", 0.5), ("itl_p90_s", 0.9)):
        # Those from the next whole rank on are at least as long as a percentile that is linear between ranks.
        longer = gaps - np.ceil(quantile * (gaps - 1))
        wrong |= good[name] * longer > span + ROUNDING_S * gaps
    sentence = (
        "Gaps between tokens contradict the times: itl_p50_s <= itl_p90_s <= itl_p99_s <= itl_max_s <= e2e_s "
        "- ttft_s must hold in every row, and half of an answer's gaps cannot take longer than the answer."
    )
    return dict.fromkeys(good.loc[wrong, "file"], sentence)


@check(
    "the first token came no sooner than its prompt can be computed",
    concerns=times_a_model,
    needs=lambda run: run.timed_requests > 0 and run.has_peaks,
)
def possible_prefill(runs: Runs) -> dict[int, str]:
    """Reject a first token that came before its prompt could be computed.

    The least time is the longer of two: computing it (`plausibility.least_prefill_s`) at the best
    matrix-multiply rate known of the device, in any format, and reading the weights once at its best
    bandwidth; ABOVE_PEAK is allowed for. One sentence a file, of its earliest first token.
    """
    rows = runs.of_models
    rows = rows[rows["ttft_s"].notna()].join(runs.best[["flops_per_s", "bandwidth"]], on="file")
    cached = rows["cached_tokens"].fillna(rows["expected_cached_tokens_high"]).fillna(0)
    new_tokens = rows["prompt_tokens"] - cached
    sizes = {name: rows[name] for name in ("block_parameters", "head_parameters", "attention_values")}
    devices = derived.sharing(rows) * (1 + ABOVE_PEAK)
    peak = rows["flops_per_s"] * devices
    computing = plausibility.least_prefill_s(**sizes, prompt_tokens=new_tokens, flops_per_s=peak)
    reading = rows["weight_bytes"] / (rows["bandwidth"] * devices)
    least = pd.concat([computing, reading], axis=1).astype(float).max(axis=1)
    wrong = rows.assign(least_s=least)[rows["ttft_s"] < least - ROUNDING_S]
    return {
        row["file"]: f"A first token came after {row['ttft_s'] * 1e3:.3g} ms, and computing the prompt of "
        f"{row['prompt_tokens']:.0f} tokens takes {row['least_s'] * 1e3:.3g} ms at the best peaks that were "
        "ever measured on this device. Either the time is wrong, or a cache answered."
        for _, row in wrong.sort_values("ttft_s", ascending=False).iterrows()
    }


# An answer of fewer tokens than this may well be one word repeated, or the same one to several prompts.
TELLING_TOKENS = 16
TELLING_PROMPTS = 3  # so many different prompts with one and the same answer have not been read


@check(
    "answers are answers",
    concerns=lambda run: times_a_model(run) and run.real_weights,
    needs=lambda run: run.has_answers,
)
def answered(runs: Runs) -> dict[int, str]:
    """Reject answers that are none: one token repeated, or the same answer to different prompts.

    Of a checkpoint's real weights only. The committed answers of random ones (198, of two shapes) have at
    least 76 different tokens of 200, but their heads are matrices of their own: where a shape ties head and
    embedding, a random token's likeliest successor is itself, and an engine that says so is right.
    """
    rows = runs.of_models
    timed = (rows["weights"] == "real") & ~rows["experiment"].isin(schema.UNTIMED)
    answers = timed & (rows["output_tokens"] >= TELLING_TOKENS) & (rows["output_ids"] != "")
    # Only what is read below: `groupby` and `itertuples` build every column that a frame has.
    rows = rows.loc[answers, ["file", "prompt", "output_tokens", "output_ids"]]
    found = {}
    for file, own in rows.groupby("file"):
        repeated = [row for row in own.itertuples() if len(set(row.output_ids.split())) == 1]
        for _, alike in own.groupby("output_tokens"):
            prompts = alike["prompt"].nunique()
            if prompts >= TELLING_PROMPTS and alike["output_ids"].nunique() == 1:
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


# Bytes of weights per step may be this much less than the parameters at the bits that an option is named by
# (norms and biases are not counted on either side), and at most 32 bits each.
WEIGHTS_SHORT = 0.05
# Bytes of one weight at most, by the number format that an engine says it multiplies in; 4 in every other.
# One that keeps float32 weights multiplies in float32, whatever its option is named.
WEIGHT_BYTES = {"bfloat16": 2, "float16": 2}


@check(
    "weight bytes agree with checkpoint and option",
    concerns=lambda run: times_a_model(run) and not run.sidecar.get("parameters", {}).get("url"),
    fields=["weight_bytes"],
    needs=lambda run: bool(run.sidecar.get("block_parameters")),
)
def weights_counted(runs: Runs) -> dict[int, str]:
    """Reject a run whose bytes of weights per step contradict its checkpoint and option.

    A step reads the blocks' and the head's matrices, in at least the bits that the option is named by and at
    most 32, or 16 where the engine multiplies in 16 (WEIGHT_BYTES); and as many in every run of one version
    of an engine, where three or more are known.
    """
    rows, found = runs.of_models.drop_duplicates("file"), {}
    rows = rows[~rows["experiment"].isin(schema.UNTIMED) & rows["weight_bytes"].notna()]
    same = rows.groupby(["backend", "backend_version", "option", "model", "gpu"])["weight_bytes"]
    usual = same.transform("median").where(same.transform("size") >= 3)
    parameters = rows["block_parameters"] + rows["head_parameters"]
    bits = rows["option"].map(lambda option: naming.bits(option) or 2).astype(float)
    least = np.fmax(parameters * bits / 8, usual) * (1 - WEIGHTS_SHORT)
    widest = rows["arithmetic"].map(WEIGHT_BYTES).fillna(4)
    most = np.fmin((parameters + rows["head_parameters"]) * widest, usual) * (1 + WEIGHTS_SHORT)
    wrong = (rows["weight_bytes"] < least) | (rows["weight_bytes"] > most)
    for place, row in rows[wrong].iterrows():
        found[row["file"]] = (
            f"A step is said to read {row['weight_bytes'] / 1e9:.3f} GB of weights, and of this checkpoint "
            f"with option {row['option']} it reads {least[place] / 1e9:.3f} to {most[place] / 1e9:.3f} GB: "
            "look at what the adapter counts as weight_bytes."
        )
    return found


@check("an evaluation has all its answers", concerns=lambda run: run.experiment in schema.EVALUATIONS)
def whole_evaluation(runs: Runs) -> dict[int, str]:
    """Reject an evaluation, or a score of one, that lacks problems it set out to answer; and, of the
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
