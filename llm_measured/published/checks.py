"""What cannot be, or contradicts itself, found by arithmetic on the columns and never by a source's name.

A check says of each row that it finds why, with the numbers. `excluded`: the row cannot be what it says and
enters no figure; `flagged`: read it with the note; `note`: true of the row, and no fault of it.

Figures of one row are held against each other by the audit's own identities. What else the audit checks in
one file has its name here; its checks say the worst of a file, these look at every row. What is only here
compares rows of several files, or needs what no benchmark's file has: a datasheet by variant, power's scope.
"""

import functools
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pandas as pd

from llm_measured.audit.checks import identities
from llm_measured.core import hardware, plausibility
from llm_measured.core.plausibility import digits
from llm_measured.published import build, schema
from llm_measured.published import derived as derive

EXCLUDED, FLAGGED, NOTE = "excluded", "flagged", "note"
STATED = "stated_by_importer"  # what only a source's importer knows


@dataclass(frozen=True)
class Context:
    """The rows, what is derived from them, the datasheets and the mean lengths, all with the same index."""

    rows: pd.DataFrame
    derived: pd.DataFrame
    known: pd.DataFrame
    given: pd.Series
    made: pd.Series
    together: pd.Series


@dataclass(frozen=True)
class Check:
    """One check: `arithmetic` is the formula that a reader can repeat; a name that is also one of the audit's
    checks is the same idea."""

    name: str
    arithmetic: str
    find: Callable[[Context], pd.DataFrame]


CHECKS: list[Check] = []


def check(arithmetic: str) -> Callable:
    """Declares a check; its function returns a frame of verdict and note, indexed as the rows it finds."""

    def declared(find: Callable[[Context], pd.DataFrame]) -> Callable[[Context], pd.DataFrame]:
        CHECKS.append(Check(find.__name__, arithmetic, find))
        return find

    return declared


def _found(mask: pd.Series, verdict: str | pd.Series, *parts: object) -> pd.DataFrame:
    """Rows of `mask`; the note is `parts` one after the other, numbers of a Series with three digits."""
    mask = mask.fillna(False).astype(bool)
    index = mask.index[mask]
    texts = []
    for part in parts:
        if isinstance(part, pd.Series):
            values = part.loc[index]
            texts.append([v if isinstance(v, str) else f"{v:.3g}" for v in values])
        else:
            texts.append([str(part)] * len(index))
    notes = ["".join(pieces) for pieces in zip(*texts)] if len(index) else []
    verdicts = verdict.loc[index] if isinstance(verdict, pd.Series) else verdict
    return pd.DataFrame({"verdict": verdicts, "note": notes}, index=index)


def _none() -> pd.DataFrame:
    return pd.DataFrame({"verdict": pd.Series(dtype=object), "note": pd.Series(dtype=object)})


def context(rows: pd.DataFrame) -> Context:
    """Everything that checks look at, of rows with names looked up."""
    given, made = derive.lengths(rows)
    derived = derive.derived(rows)
    return Context(rows, derived, derive.datasheet(rows), given, made, derive.in_flight(rows))


# ---- what is physically impossible


@check("active weights × bits ÷ 8 ÷ step time ≤ bandwidth of the datasheet × accelerators")
def bandwidth_beyond_device(c: Context) -> pd.DataFrame:
    """Decoding faster than the weights can be read; a tenth is allowed where shape or bits are not
    exactly known. Where the variant is unknown, the fastest counts."""
    limit = c.known["exact"].map({True: 1.0, False: 1.1})
    mbu = c.derived["mbu_at_least"]
    return _found(mbu > limit, EXCLUDED, "MBU ", mbu, ": weights of one step cannot be read so fast")


@check(
    "2 × parameters × tokens/s ≤ dense peak of the datasheet × accelerators; of a datasheet without one, the "
    "peak of the fastest accelerator of its kind; tokens/s × bytes of the weights ≤ 120 × bandwidth"
)
def compute_beyond_device(c: Context) -> pd.DataFrame:
    """Prompts, or prompts and answers together, processed faster than the arithmetic allows."""
    prompts = c.rows["prompt_tokens_per_s"].where(c.rows["prefix_cached"] != "yes")
    both = c.derived["output_tokens_per_s"] * (1 + c.given / c.made)
    peak = c.known["peak_flops_per_s"].fillna(c.known["peak_of_kind"]) * c.rows["accelerators"]
    answers = 2 * 0.93 * c.known["active"] * c.derived["output_tokens_per_s"] / peak
    several = c.rows["speculative"].notna() & (c.rows["speculative"] != "none")
    whole = (2 * 0.93 * c.known["active"] * both / peak).where(
        (c.rows["prefix_cached"] != "yes")
        & ~c.rows["lengths"].isin(["mixed", "max"])
        # A rate of decoding alone says nothing of how long the prompts took.
        & (c.rows["workload"] != "single")
        & c.rows["prompt_tokens_per_s"].isna()
    )
    prompts_alone = 2 * 0.93 * c.known["active"] * prompts / peak
    worst = pd.concat([prompts_alone, whole, answers.where(~several)], axis=1).max(axis=1)
    beyond = _found(worst > 1, EXCLUDED, "MFU ", worst, ": more arithmetic than the datasheet has")
    each_reading = prompts * c.known["read_bytes"] / (c.known["bandwidth_at_most"] * c.rows["accelerators"])
    cards = hardware.accelerators().drop_duplicates("family").set_index("family")
    # A card, and any chip of NVIDIA's, has tensor cores, whether or not the table knows what they reach.
    unknown = (
        (cards["kind"] != "GPU")
        & (cards["vendor"] != "NVIDIA")
        & cards.filter(regex="_dense_t").isna().all(axis=1)
    )
    cached = (each_reading > MOST_OF_A_PROMPT) & c.rows["accelerator_family"].map(unknown).eq(True)
    cached &= (c.together == 1) & ~(worst > 1)
    why = "prompts as fast as if ", each_reading, " tokens were worked on in each reading of the weights"
    return pd.concat([beyond, _found(cached, FLAGGED, *why)])


MOST_OF_A_PROMPT = 120  # tokens; in 4 bits 420 FLOP/byte, more than any chip has whose maker states none


@check("0.2 ms ≤ time per output token, and no throughput of 0")
def impossible_time(c: Context) -> pd.DataFrame:
    """A token in less than a fifth of a millisecond: another unit; or a rate that was rounded to nothing."""
    tpot = c.rows["tpot_mean_ms"].fillna(c.rows["tpot_p50_ms"])
    zero = c.rows["throughput_raw"] == 0
    return pd.concat(
        [
            _found(tpot < 0.2, EXCLUDED, "TPOT of ", tpot, " ms: seconds?"),
            _found(zero, EXCLUDED, "a throughput of 0"),
        ]
    )


@check("power ÷ (accelerators × power limit or TDP) ≤ 1.15; of a package ≤ 1.5; above 20 another unit")
def power_above_tdp(c: Context) -> pd.DataFrame:
    """More power than the accelerators may draw."""
    r = c.rows
    each = r["power_w"].where(r["power_scope"] != "accelerators", r["power_w"] / r["accelerators"])
    each = each.where(r["power_scope"].isin(["accelerator", "accelerators", "package"]))
    most = r["power_limit_w"].fillna(c.known["tdp_w"])
    share = each / most
    limit = pd.Series(np.where(r["power_scope"] == "package", 1.5, 1.15), index=r.index)
    unit = (each > 20_000) | (share > 20)
    verdict = pd.Series(np.where(unit, EXCLUDED, FLAGGED), index=r.index)
    why = pd.Series(np.where(unit, " W: milliwatts?", " W, more than its limit"), index=r.index)
    return _found((share > limit) | unit, verdict, each, why)


@check("power that is a mean: runs × sequences × tokens ÷ rate ≥ 0.9 of the seconds that it was measured for")
def power_of_another_window(c: Context) -> pd.DataFrame:
    """Mean power of a time most of which was not the measured work: loading, warm-up, waiting."""
    r = c.rows
    rate = c.derived["output_tokens_per_s"].fillna(r["prompt_tokens_per_s"])
    tokens = c.made.where(c.derived["output_tokens_per_s"].notna(), c.given)
    share = r["runs"] * c.together * tokens / rate / r["duration_s"]
    mean = r["power_w"].notna() & (r["power_scope"] != "peak_package")
    return _found(
        mean & (share < SAME_WINDOW), FLAGGED, "the measured tokens took ", share, " of the power's time"
    )


SAME_WINDOW = 0.9


@check("1 ms ≤ TTFT, and a tenth of the time per output token ≤ TTFT")
def first_token_without_a_step(c: Context) -> pd.DataFrame:
    """A first token faster than any later one: the model has to be read once for it as well. Under load the
    others wait for prompts in between, so a tenth is left."""
    r, parts = c.rows, []
    for statistic in ("mean", "p50"):
        first, later = r[f"ttft_{statistic}_ms"], r[f"tpot_{statistic}_ms"]
        parts.append(_found(first < later / 10, FLAGGED, "TTFT of ", first, " ms, TPOT of ", later, " ms"))
        short = (first < 1) & ~(first < later / 10)
        parts.append(_found(short, FLAGGED, "TTFT of ", first, " ms: seconds?"))
    return pd.concat(parts).groupby(level=0).first()


@check("2018 ≤ day of the measurement ≤ day on which the file was fetched")
def date_of_no_measurement(c: Context) -> pd.DataFrame:
    """A day in the future, or before there were such models."""
    day, fetched = c.rows["measured_on"], c.rows["retrieved"]
    known = day.notna() & fetched.notna()
    # A month or a year is later only where it is later by itself.
    late = [k and d > f[: len(d)] for k, d, f in zip(known, day, fetched, strict=True)]
    early = day.notna() & (day.fillna("9999") < "2018")
    return pd.concat(
        [
            _found(pd.Series(late, index=day.index), FLAGGED, "measured on ", day, ", fetched on ", fetched),
            _found(early, FLAGGED, "measured on ", day),
        ]
    )


# ---- what contradicts itself


def facts(c: Context, statistic: str) -> identities.Facts:
    """Return what the audit's identities ask of a result, of each row; times are means, and of "p50" what
    has none the median. Of lengths that are limits nothing is known of the tokens that came."""
    r, count = c.rows, len(c.rows)
    stated = ~r["lengths"].isin(["max", "mixed"]) & r["comparable_within"].isna()
    closed = r["workload"].isin(["closed_loop", "single"]) & r["comparable_within"].isna()
    known = {
        "rate": c.derived["output_tokens_per_s"].where(r["throughput_raw"].notna()),
        "requests": r["requests"],
        "duration": r["duration_s"],
        "failed": r["failed"],
        "tokens": c.made.where(stated),
        "prompt": c.given.where(stated),
        "users": c.together.where(closed),
        "batch": c.together.where(r["workload"] == "static_batch"),
        "request_rate": r["request_rate"],
        "speculative": r["speculative"].fillna("none") != "none",
        "equal": r["lengths"] == "exact",
    }
    for time in identities.TIMES:
        known[time] = r[f"{time}_mean_ms"] / 1000
        if statistic == "p50" and time != "itl":
            known[time] = known[time].fillna(r[f"{time}_p50_ms"] / 1000)
    known["itl"] = known["itl"].where(r["itl_counts"] != "event")
    known["e2e"] = known["e2e"].fillna(r["latency_raw_s"])
    # A rate of one request is often of the answer alone: without a TTFT nobody knows the prompt's share.
    alone = (r["workload"] == "single") & r["input_tokens"].notna() & known["ttft"].isna()
    known["e2e"] = known["e2e"].mask(alone)
    found = {name: np.full(count, np.nan) for name in identities.FACTS}
    found |= dict.fromkeys(("both_tests", "request", "limit_of_one", "blur"), np.zeros(count))
    return found | {name: values.to_numpy(float) for name, values in known.items()}


@check("the audit's identities between a result's own figures, each under its own check")
def own_figures(c: Context) -> pd.DataFrame:
    """Figures of one row that contradict each other, by the audit's table of identities. Of times called
    medians only the load is asked, as nothing else of them adds up; a gap of several tokens, and a mean of
    products beside a product of means, are notes."""
    parts = []
    both = (c.given + c.made) / c.made
    exact = c.rows["lengths"].eq("exact").to_numpy()
    # The beginning and the end of a short run have fewer in flight.
    fewest = np.where(c.rows["requests"] < 4 * c.together, 0.4, 1 / identities.FEW_IN_FLIGHT)
    for statistic in ("mean", "p50"):
        quotients = identities.quotients(facts(c, statistic))
        for one, quotient in zip(identities.IDENTITIES, quotients):
            load = one.of_load or one.terms[-1] == "batch"
            if one.assumed or (statistic == "p50" and not load):
                continue
            usual = identities.EXACT if not one.bounded else identities.BOUND if one.of_load else OF_MEANS
            least = OF_ONE_LENGTH if "rate" in one.terms else identities.OF_EQUAL_LENGTHS
            if statistic == "p50" and not one.of_load:
                least = usual = OF_MEANS  # a later token of a batch takes longer: their median is no mean
            tolerance = np.where(exact, least, usual) if one.tolerance is None else one.tolerance
            ratio = pd.Series(quotient, c.rows.index)
            few = one.of_load & (ratio < fewest)
            low = (ratio < 1 / (1 + tolerance)) & (not one.most) & (statistic == "mean")
            wrong = (ratio > 1 + tolerance) | low | few
            prompt = "rate" in one.terms and (c.rows["throughput_counts"] == "output") & (both > 1.15)
            prompt &= (ratio / both - 1).abs() < (OF_SUMS if one.check == "plain_sums" else OF_TIMES)
            grave = prompt | (load & ((ratio > GRAVE) | (ratio < HARDLY_ANY)))
            of_means = one.bounded & ("rate" not in one.terms) & ~exact & ratio.between(1 / 3, 3)
            noted = (one.check == "tokens_per_event") | of_means
            verdict = pd.Series(np.select([noted, grave], [NOTE, EXCLUDED], FLAGGED), c.rows.index)
            why = prompt.map({True: ", which is (prompt + answer) ÷ answer: it counts the prompt", False: ""})
            found = _found(wrong, verdict, f"{one.name}: the one is ", ratio, " times the other", why)
            parts.append(found.assign(check=one.check))
    worst = pd.concat(parts).sort_values("verdict", kind="stable")  # excluded, flagged, note
    return worst[~worst.assign(row=worst.index).duplicated(["row", "check"])]


OF_ONE_LENGTH = 0.15  # where a length was asked for, an answer may still end before it
OF_TIMES, OF_SUMS = 0.06, 0.005  # how near a rate comes to what it were if it counted the prompt
OF_MEANS = 0.5  # by which a mean of products and a product of means may part
GRAVE, HARDLY_ANY = 1.5, 0.35  # of the load that a row states: more or less than a run's ends explain


@check("throughput × latency = sequences × tokens, to every digit")
def rate_of_its_latency(c: Context) -> pd.DataFrame:
    """A rate that was computed of the latency beside it."""
    r = c.rows
    tokens = c.made.where(r["throughput_counts"] != "input+output", c.given + c.made)
    ratio = (
        r["throughput_raw"].where(r["throughput_scope"] == "all") * r["latency_raw_s"] / (c.together * tokens)
    )
    return _found((ratio - 1).abs() < 1e-6, NOTE, "rate computed from the latency: no measurement of its own")


@check("power ÷ output tokens/s = energy per token within 10 %; to three digits: not independent")
def energy_against_power(c: Context) -> pd.DataFrame:
    """Energy that contradicts power and rate, or is computed from them."""
    r = c.rows
    total = r["power_w"].where(r["power_scope"] != "accelerator", r["power_w"] * r["accelerators"])
    ratio = total / c.derived["output_tokens_per_s"] / r["energy_j_per_output_token"]
    # Of a disaggregated system nobody says which of its accelerators the stated energy is of.
    off = (ratio.where(r["accelerators_decode"].isna()) - 1).abs()
    return pd.concat(
        [
            _found(off > 0.1, FLAGGED, "power ÷ rate ÷ energy per token = ", ratio),
            _found(off < 5e-3, NOTE, "energy per token is power ÷ rate: no measurement of its own"),
        ]
    )


@check("min ≤ p50 ≤ p90 ≤ p95 ≤ p99 ≤ max")
def percentiles_out_of_order(c: Context) -> pd.DataFrame:
    """Percentiles that fall, so that columns were exchanged, or a mean outside its own range."""
    parts, r = [], c.rows
    for time in schema.TIMES:
        order = [f"{time}_{s}_ms" for s in ("p50", "p90", "p95", "p99")]
        falls = plausibility.out_of_order(r[order].to_numpy(float), relative=1e-4).any(axis=1)
        found = pd.Series(falls, index=r.index)
        parts.append(_found(found, EXCLUDED, f"percentiles of {time} fall"))
    out = (r["ttft_mean_ms"] > r["ttft_max_ms"] * 1.0001) | (r["ttft_mean_ms"] < r["ttft_min_ms"] * 0.9999)
    return pd.concat([*parts, _found(out, EXCLUDED, "mean TTFT outside its own range")])


@check("TTFT ≤ time of the whole answer")
def times_backwards(c: Context) -> pd.DataFrame:
    """A first token after the last, by the same statistic of both."""
    parts, r = [], c.rows
    for q in schema.STATISTICS:
        first, last = r[f"ttft_{q}_ms"], r[f"e2e_{q}_ms"]
        note = f"the {q} of TTFT is ", first, " ms, that of the whole answer ", last, " ms"
        parts.append(_found(plausibility.backwards(first, last, (ROUNDING - 1) * last), EXCLUDED, *note))
    return pd.concat(parts)


ROUNDING = 1.02  # published figures are rounded


@check("TTFT < prefill FLOPs / peak")
def ttft_beyond_device(c: Context) -> pd.DataFrame:
    """A first token faster than its prompt can be computed: a cache, another unit, a shorter one."""
    r = c.rows
    peak = c.known["peak_flops_per_s"] * r["accelerators"]
    prompt = c.given.where(~r["lengths"].isin(["max", "mixed"]))
    least = 2 * c.known["block_parameters"] * prompt / peak  # without attention and head: the least
    first = r["ttft_mean_ms"].fillna(r["ttft_p50_ms"]) / 1000
    # Of prompts whose lengths differ much the median may be a short one.
    sure = (r["prefix_cached"] != "yes") & (r["lengths"].isin(["exact", "mean", "max_of_uniform_0.8"]))
    sure &= r["ttft_mean_ms"].notna() | (r["lengths"] != "mean")
    short = sure & (first * ROUNDING < least)
    note = "TTFT of ", first * 1000, " ms, and its prompt takes at least ", least * 1000, " ms at the peak"
    return _found(short, FLAGGED, *note)


@check(
    "of medians: output tokens/s × median time of a request ÷ (requests in flight × output tokens) is not 1 "
    "to 0.2 % in every row of a file"
)
def median_adds_up_as_a_mean(c: Context) -> pd.DataFrame:
    """What only means do: times called medians, of which Little's law holds to the digit in every row of a
    file. Where all requests take the same time it also holds of true medians."""
    r = c.rows
    closed = r["workload"].isin(["closed_loop", "static_batch"]) & (c.together > 1)
    sure = closed & ~r["lengths"].isin(["max", "mixed", "dataset"]) & r["comparable_within"].isna()
    means = r[[f"{time}_mean_ms" for time in schema.TIMES]].notna().any(axis=1)
    parts = plausibility.whole_s(r["ttft_p50_ms"], r["tpot_p50_ms"], c.made)
    median = r["e2e_p50_ms"].fillna(parts).where(sure & ~means & r["latency_raw_s"].isna()) / 1000
    ratio = c.derived["output_tokens_per_s"] * median / (c.together * c.made)
    # A rate that was computed of these very times would say nothing.
    known = ratio.notna() & r["throughput_raw"].notna()
    file = (r["source"] + "/" + r["source_file"].fillna(""))[known]
    off = (ratio[known] - 1).abs()
    alike = (off.groupby(file).transform("max") < 0.002) & (off.groupby(file).transform("size") >= 5)
    return _found(
        alike.reindex(r.index, fill_value=False),
        FLAGGED,
        "Little's law gives ",
        ratio.map("{:.4f}".format),
        " of what is called a median, here and in all of its file: is it a mean?",
    )


@check("speed of prompts of 64 tokens and more ≥ speed of decoding one sequence")
def prompt_slower_than_answer(c: Context) -> pd.DataFrame:
    """Prefill slower than decode: another count, a wait in it, or an accelerator without the arithmetic. A
    length that nobody states is the prompt's speed times TTFT."""
    r = c.rows
    length = r["prompt_tokens_per_s"].replace(0, np.nan) * r["ttft_mean_ms"] / 1000
    length = r["input_tokens"].fillna(length)
    single = (r["workload"] == "single") & ~(length < 64)
    several = r["speculative"].notna() & (r["speculative"] != "none")
    ratio = r["prompt_tokens_per_s"] / r["throughput_raw"]
    return _found(single & ~several & (ratio < 0.9), FLAGGED, "prompt ÷ answer speed = ", ratio)


@check("bytes of the file × 8 ÷ parameters ≥ bits of the format ÷ 1.3")
def file_smaller_than_format(c: Context) -> pd.DataFrame:
    """A file of weights that is too small for the format it is said to have: another format or unit, or one
    of several files. A note, as the rate is none of the file's size."""
    stored = c.rows["weights_bytes"] * 8 / c.known["parameters"]
    bits = c.known["weight_bits"]
    note = "the file has ", stored, " bits per parameter, the format ", bits
    return _found(stored < bits / 1.3, NOTE, *note)


@check(
    "parameters × bits ÷ 8, or the file's bytes, less what a source says to lie in the host's memory, "
    "≤ memory of the accelerators in GiB"
)
def weights_beyond_memory(c: Context) -> pd.DataFrame:
    """Weights that do not fit into the accelerators: partly in the processor's memory, or of another format,
    or on more accelerators than the row says."""
    r = c.rows
    datasheet = r["accelerator"].map(hardware.by_accelerator()["memory_gb"])
    card = r["accelerator"].map(hardware.by_accelerator()["kind"]) == "GPU"
    stated = r["accelerator_memory_gb"]
    most = pd.concat([datasheet, stated], axis=1).max(axis=1)
    # Of a chip with memory in several sizes the largest is known, and less may be in the machine.
    memory = most.where(card, stated.fillna(datasheet)) * r["accelerators"]
    weights = r["weights_bytes"].fillna(c.known["parameters"] * c.known["weight_bits"] / 8)
    weights = (weights - r["host_weights_bytes"].fillna(0)) / 2**30
    note = "weights of ", weights, " GiB in ", memory, " GiB: partly in other memory?"
    told = r["offload"].notna()  # what the source says itself is no fault
    return _found((memory > 0) & (weights > memory) & ~told, FLAGGED, *note)


@check("a number is of one run, or a mean or median of several")
def best_of_several(c: Context) -> pd.DataFrame:
    """The best of several runs, or of a board that shows the fastest: more than a run gives on average."""
    return _found(c.rows["statistic"] == "best", NOTE, "the best of several runs")


# ---- what other rows say

SETTING = [
    *("source", "accelerator_raw", "accelerators", "power_limit_w", "engine", "engine_version", "backend"),
    *("flags", "checkpoint_raw", "weights_format", "kv_format", "speculative", "workload", "batch"),
    *("max_num_seqs", "request_rate", "input_tokens", "output_tokens", "context_depth", "prefill_chunk"),
    *("tp", "pp", "ep", "dp", "comparable_within", "submitter"),
]


def _groups(rows: pd.DataFrame, columns: list[str]) -> pd.Series:
    """Indexed as `rows`: a number for each combination of `columns`, empty ones alike."""
    return rows.groupby(columns, dropna=False, sort=False).ngroup()


@check("rate of one request at the least concurrency ≥ 0.9 × its rate at a higher one, in the same setting")
def slower_alone(c: Context) -> pd.DataFrame:
    """The first level of a curve slower than a later one: measured before the engine was warm. A note, as a
    level with drafts or another power state is slower alone, too."""
    r = c.rows
    each = c.derived["output_tokens_per_s"] / c.together
    usable = r["workload"].isin(["single", "closed_loop"]) & each.notna() & r["concurrency"].notna()
    keys = [k for k in SETTING if k not in ("workload", "batch")] + ["source_file", "measured_on", "image"]
    part = r[usable]
    frame = pd.DataFrame({"group": _groups(part, keys), "n": part["concurrency"], "each": each[usable]})
    frame = frame.sort_values("n")
    alone = frame["n"] == frame.groupby("group")["n"].transform("min")
    best_later = frame["group"].map(frame[~alone].groupby("group")["each"].max())
    ratio = frame["each"] / best_later
    slow = (alone & (ratio < 0.9)).reindex(r.index, fill_value=False)
    return _found(slow, NOTE, "at least ", ratio.reindex(r.index), " of its rate among more: not warm?")


@check("standard deviation ÷ mean ≤ 0.5, of runs with one request at a time")
def spread_as_large(c: Context) -> pd.DataFrame:
    """Runs that lie as far apart as the number is large; of users at once the spread is over users."""
    r = c.rows
    share = (r["spread"] / r["throughput_raw"].fillna(r["prompt_tokens_per_s"])).where(
        r["spread_kind"] == "sd"
    )
    return _found((share > 0.5) & ~(c.together > 1), FLAGGED, "standard deviation is ", share, " of the mean")


@check("rate at least a third of the median of its group of four and more like it")
def far_from_group(c: Context) -> pd.DataFrame:
    """A run far below others of the same accelerator, model, format, lengths and settings in its source. One
    far above them may be the sound one: what is too fast the bandwidth says."""
    r = c.rows
    rate = c.derived["output_tokens_per_s"].where(r["workload"] == "single")
    keys = ["source", "accelerator_raw", "accelerator_memory_gb", "checkpoint_raw", "weights_format"]
    keys += ["input_tokens", "output_tokens", "context_depth", "engine", "accelerators", "flags"]
    keys += ["speculative"]
    usable = rate.notna() & (r["accelerator"] != "cpu") & (r["lengths"] != "exact")
    group = _groups(r[usable], keys)
    median = rate[usable].groupby(group).transform("median")
    size = rate[usable].groupby(group).transform("size")
    ratio = rate[usable] / median
    far = ((size >= 4) & (ratio < 1 / 3)).reindex(r.index, fill_value=False)
    return _found(far, FLAGGED, ratio.reindex(r.index), " of the median of its group")


@check("one setting of a source has one row")
def repeated_setting(c: Context) -> pd.DataFrame:
    """The same setting again in the same source: repeats, for whoever counts rows as configurations."""
    r = c.rows[(c.rows["throughput_raw"].notna() | c.rows["tpot_mean_ms"].notna()) & (c.rows["runs"] != 1)]
    group = _groups(r, [*SETTING, "concurrency", "lengths", "measured_on"])
    again = group.duplicated(keep="first").reindex(c.rows.index, fill_value=False)
    return _found(again, NOTE, "a repeat of the same setting")


PAIRS = [
    *(
        ("throughput_raw", other)
        for other in ("latency_raw_s", "prompt_tokens_per_s", "spread", "tpot_mean_ms")
    ),
    *((f"ttft_{a}_ms", f"tpot_{a}_ms") for a in ("mean", "p50")),
    *(("throughput_raw", other) for other in ("ttft_mean_ms", "ttft_p50_ms", "itl_p50_ms", "e2e_p99_ms")),
]


def same_numbers(rows: pd.DataFrame) -> pd.DataFrame:
    """Pairs of rows with the same two measured numbers to the digit; columns row, like (the earlier row),
    what.

    Times are also compared where one row calls them a mean and the other a median: `what` says both
    names. Both numbers need five digits, or six where there is one number only and machine, model and
    load agree.
    """
    keys = []
    named = {"mean": ("ttft_mean_ms", "tpot_mean_ms"), "p50": ("ttft_p50_ms", "tpot_p50_ms")}
    # A record that stands in its file word for word again: its id has a number behind.
    record = rows["row_id"].str.replace(r"-\d+$", "", regex=True)
    again = rows.index[record.duplicated(keep=False)]
    keys.append(pd.DataFrame({"row": again, "key": ("record " + record[again]).to_list(), "name": ""}))
    printed = {name: rows[name].map(digits) for name in {n for pair in PAIRS for n in pair}}
    for first, second in PAIRS:
        enough = (printed[first] >= 5) & (printed[second] >= 5)
        part = rows[enough]
        kind = next((s for s, pair in named.items() if pair == (first, second)), None)
        label = "times" if kind else f"{first}, {second}"
        value = [f"{a:.9g} {b:.9g}" for a, b in zip(part[first], part[second])]
        keys.append(
            pd.DataFrame({"row": part.index, "key": [f"{label} {v}" for v in value], "name": kind or ""})
        )
    single = ["accelerator_raw", "accelerators", "workload", "submitter", "engine", "model"]
    part = rows[(printed["throughput_raw"] >= 6) & (rows["latency_raw_s"].isna())]
    group = _groups(part, [*single, "throughput_raw"])
    keys.append(pd.DataFrame({"row": part.index, "key": [f"rate {g}" for g in group], "name": ""}))
    every = pd.concat(keys, ignore_index=True)
    # The source of the numbers comes before whoever collected them: who states more statistics was first.
    told = rows[schema.MEASURED].notna().sum(axis=1)
    every["order"] = list(zip(-every["row"].map(told), every["row"].map(rows["row_id"])))
    every = every.sort_values(["key", "order"], kind="stable")
    first = every.groupby("key")[["row", "name"]].transform("first")
    again = every[every["row"] != first["row"]]
    first = first.loc[again.index]
    what = np.where(again["name"] == first["name"], "", again["name"] + " there " + first["name"])
    found = pd.DataFrame({"row": again["row"], "like": first["row"], "what": what}).drop_duplicates("row")
    return found.reset_index(drop=True)


@check("the same two numbers to the digit in another row")
def duplicates(c: Context) -> pd.DataFrame:
    """The same measurement twice, or one number printed for two settings."""
    found = same_numbers(c.rows)
    if not len(found):
        return _none()
    r = c.rows
    like = found["like"].map(r["row_id"])
    notes = "the same numbers as " + like + found["what"].map(lambda w: f" ({w})" if w else "")
    return pd.DataFrame({"verdict": NOTE, "note": notes.to_list()}, index=found["row"].to_list())


@check("of a file's rates five or more, and half of them, stand to the digit in one file of another source")
def copied_from_another_source(c: Context) -> pd.DataFrame:
    """Runs of another source under another name: few digits each, and too many that agree to be chance."""
    r = c.rows
    rate = r["throughput_raw"].fillna(r["tpot_mean_ms"]).fillna(r["tpot_p50_ms"])
    usable = (rate.map(digits) >= 3) & r["accelerator_family"].notna() & r["comparable_within"].isna()
    part = pd.DataFrame(
        {
            "row": r.index[usable],
            "source": r["source"][usable],
            "file": (r["source"] + "/" + r["source_file"].fillna(""))[usable],
            "key": _groups(r[usable].assign(rate=rate[usable]), ["accelerator_family", "model", "rate"]),
        }
    ).reset_index(drop=True)
    # One number is many rows where somebody measured for long; it is evidence once.
    one = part.drop_duplicates(["file", "key"])
    pairs = one.merge(one, on="key", suffixes=("", "_there"))
    pairs = pairs[pairs["source"] != pairs["source_there"]]
    if not len(pairs):
        return _none()
    many = pairs.groupby(["file", "file_there"]).size().rename("shared").reset_index()
    rates = one.groupby("file").size()
    many = many[(many["shared"] >= 5) & (many["shared"] >= 0.5 * many["file"].map(rates))]
    if not len(many):
        return _none()
    # Of two files one copied: of which more is in the other, else that says less, else the later one.
    told = r[schema.MEASURED].notna().sum(axis=1).groupby(part.set_index("row")["file"]).mean()
    day = r["published_on"].fillna(r["measured_on"]).fillna("").groupby(part.set_index("row")["file"]).max()
    many["share"] = many["shared"] / many["file"].map(rates)
    many["told"], many["day"] = many["file"].map(told), many["file"].map(day)
    many["pair"] = [tuple(sorted(pair)) for pair in zip(many["file"], many["file_there"])]
    many = many.sort_values(["share", "told", "day", "file"], ascending=[False, True, False, False])
    many = many.drop_duplicates("pair")
    best = many.sort_values("shared", ascending=False, kind="stable").drop_duplicates("file")
    hits = part.merge(pairs[["file", "key", "file_there"]], on=["file", "key"])
    hits = hits.merge(best, on=["file", "file_there"]).drop_duplicates("row").set_index("row")
    notes = hits["shared"].astype(str) + " rates of this file stand to the digit in " + hits["file_there"]
    return pd.DataFrame({"verdict": FLAGGED, "note": notes})


@check("one rate to four digits stands for one setting")
def one_number_for_several(c: Context) -> pd.DataFrame:
    """The same rate to the digit for another number of accelerators, or another batch, of the same source. A
    note, as a curve that has reached its end does that."""
    r = c.rows
    rate = r["throughput_raw"]
    usable = (rate.map(digits) >= 4) & r["latency_raw_s"].isna() & r["comparable_within"].isna()
    part = r[usable]
    same = _groups(
        part, ["source", "accelerator_raw", "engine", "checkpoint_raw", "weights_format", "throughput_raw"]
    )
    setting = part["accelerators"].astype(str) + " " + part["concurrency"].astype(str)
    several = setting.groupby(same).transform("nunique") > 1
    return _found(several.reindex(r.index, fill_value=False), NOTE, "the same rate for several settings")


@check("a file's highest rate is no power of ten that stands for three settings or more")
def rate_at_clock_limit(c: Context) -> pd.DataFrame:
    """1,000.0 tokens/s and the like, at the top of a file for several models and formats: an answer took no
    time that the clock could tell, and its rate was capped."""
    r = c.rows
    file = r["source"] + "/" + r["source_file"].fillna("")
    rate = r["throughput_raw"]
    top = rate.isin([1e3, 1e4, 1e5, 1e6]) & (rate == rate.groupby(file).transform("max"))
    setting = (r["checkpoint_raw"].fillna("") + " " + r["weights_format"].fillna("")).where(top)
    settings = setting.groupby(file).transform("nunique")
    limit = rate.where(top).map("{:.1f}".format)
    note = limit, " tokens/s in ", settings, " settings: the limit of a clock"
    return _found(top & (settings >= 3), EXCLUDED, *note)


# ---- all of them


@functools.cache
def committed() -> tuple[pd.DataFrame, pd.DataFrame] | None:
    """The committed rows without what the checks say of them, and their findings; None without a table."""
    rows, findings = build.read_table("table"), build.read_table("findings")
    return None if rows is None or findings is None else (rows.drop(columns=list(schema.JUDGED)), findings)


def findings(rows: pd.DataFrame) -> pd.DataFrame:
    """Return one row per finding; columns row (index of `rows`), check, verdict, note. Where the columns of
    the schema equal those of the committed rows they are the committed ones, else `found` computes them."""
    rows = rows[[c for c in rows if c in schema.BY_NAME and c not in schema.JUDGED]]
    kept = committed()
    if kept:
        kept_rows, kept_findings = kept
        if len(rows) == len(kept_rows) and rows.equals(kept_rows.reindex(columns=list(rows))):
            return kept_findings.copy()
    return found(rows)


def found(rows: pd.DataFrame) -> pd.DataFrame:
    """The `findings` of `rows`, computed."""
    whole = context(rows)
    parts = []
    for one in CHECKS:
        part = one.find(whole)
        if "check" not in part:
            part = part.assign(check=one.name)
        parts.append(part.rename_axis("row").reset_index())
    stated = rows["caveat"].dropna()
    parts.append(
        pd.DataFrame({"row": stated.index, "verdict": FLAGGED, "note": stated.to_list(), "check": STATED})
    )
    columns = ["row", "check", "verdict", "note"]
    return pd.concat(
        [p[columns] for p in parts if len(p)] or [pd.DataFrame(columns=columns)], ignore_index=True
    )


def judged(rows: pd.DataFrame, found: pd.DataFrame | None = None) -> pd.DataFrame:
    """`rows` with audit, audit_notes and duplicate_of, by their `findings` or by those of `found`."""
    found = findings(rows) if found is None else found
    rows = rows.copy()
    heavy = found[found["verdict"] != NOTE]
    rows["audit"] = "ok"
    rows.loc[heavy["row"], "audit"] = FLAGGED
    rows.loc[heavy.loc[heavy["verdict"] == EXCLUDED, "row"], "audit"] = EXCLUDED
    notes = (found["check"] + ": " + found["note"]).groupby(found["row"]).agg("; ".join)
    rows["audit_notes"] = notes.reindex(rows.index).astype(object)
    rows["audit_notes"] = rows["audit_notes"].where(rows["audit_notes"].notna(), None)
    same = same_numbers(rows).set_index("row")["like"].map(rows["row_id"])
    rows["duplicate_of"] = same.reindex(rows.index).astype(object)
    rows["duplicate_of"] = rows["duplicate_of"].where(rows["duplicate_of"].notna(), None)
    return rows


def counted(rows: pd.DataFrame) -> pd.DataFrame:
    """One row per check and source; columns check, arithmetic, source, verdict, rows."""
    found = findings(rows)
    found["source"] = found["row"].map(rows["source"])
    table = found.groupby(["check", "source", "verdict"]).size().rename("rows").reset_index()
    formula = {one.name: one.arithmetic for one in CHECKS}
    formula |= {one.check: "the audit's identities of this check" for one in identities.IDENTITIES}
    table.insert(1, "arithmetic", table["check"].map(formula).fillna("stated in the source's importer"))
    return table
