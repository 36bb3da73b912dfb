"""What cannot be, or contradicts itself, found by arithmetic on the columns and never by a source's name.

A check says of each row that it finds why, with the numbers. `excluded`: the row cannot be what it says and
enters no figure; `flagged`: read it with the note; `note`: true of the row, and no fault of it.

What the audit checks in one file too has its name here; its checks look at a file and say the worst of it,
these look at every row. What is only here compares rows of several files, or needs what no benchmark's file
has: a datasheet by variant, power's scope, a second name.
"""

import functools
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pandas as pd

from llm_measured.core import hardware, plausibility
from llm_measured.core.plausibility import digits
from llm_measured.published import committed as committed_tables
from llm_measured.published import derived as derive
from llm_measured.published import schema

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


@check("throughput × latency ÷ (sequences × answer) is 1, or (prompt + answer) ÷ answer where it counts both")
def latency_against_rate(c: Context) -> pd.DataFrame:
    """What a rate counts, from the time of the same batch: the prompt too, or one sequence instead of all."""
    r = c.rows
    rate = r["throughput_raw"].where(r["throughput_scope"] == "all")
    ratio = rate * r["latency_raw_s"] / (c.together * c.made)
    both = (c.given + c.made) / c.made
    says = both.where(r["throughput_counts"] == "input+output", 1.0)
    off = (ratio / says - 1).abs()
    prompt = (r["throughput_counts"] == "output") & ((ratio / both - 1).abs() < 0.05) & (both > 1.1)
    one = ((ratio * c.together / says - 1).abs() < 0.05) & (c.together > 1.5)
    # The mean of products is no product of means: of lengths that vary the two lie further apart.
    rest = (off > np.where(r["lengths"] == "mean", 0.5, 0.15)) & ~prompt & ~one
    computed = (off < 1e-6) & r["latency_raw_s"].notna()
    return pd.concat(
        [
            _found(prompt, EXCLUDED, "the rate counts the prompt: rate × time ÷ output tokens = ", ratio),
            _found(one, EXCLUDED, "the rate is of one sequence, not of ", c.together, ": ratio ", ratio),
            _found(rest, FLAGGED, "rate × time ÷ output tokens = ", ratio, " instead of ", says),
            _found(computed & ~rest, NOTE, "rate computed from the latency: no measurement of its own"),
        ]
    )


@check("output tokens/s × mean time of a request ÷ (requests in flight × output tokens) = 1")
def littles_law(c: Context) -> pd.DataFrame:
    """Little's law with the accelerators, requests and lengths that the row claims."""
    r = c.rows
    closed = r["workload"].isin(["closed_loop", "static_batch"]) & (r["comparable_within"].isna())
    means, medians = (
        plausibility.whole_s(_centre(r, "ttft", first), _centre(r, "tpot", first), c.made)
        for first in ("mean", "p50")
    )
    # Medians add up worse than a median of the whole.
    whole_ms = r["e2e_mean_ms"].fillna(means).fillna(r["e2e_p50_ms"]).fillna(medians)
    under_way = c.derived["output_tokens_per_s"] / c.made * whole_ms / 1000
    decode_only = under_way.isna()
    tpot = r["tpot_mean_ms"].fillna(r["tpot_p50_ms"]) / 1000
    under_way = under_way.fillna(c.derived["output_tokens_per_s"] * tpot.where(r["lengths"] != "max"))
    ratio = (under_way / c.together).where(closed)
    # Lengths that are maxima say nothing of a rate that is too low, nor do times without the prompt's.
    low = ~r["lengths"].isin(["max", "mixed"]) & ~decode_only
    few = r["requests"] < 4 * c.together  # the beginning and the end of a short run have fewer in flight
    least = pd.Series(np.where(few, 0.4, 0.7), index=r.index)
    slight = (ratio > 1.15) | (low & (ratio < least))
    grave = (ratio > 1.5) | (low & (ratio < 0.35))
    # An answer below its maximum shows as a small excess or lack, which the lengths' own check finds.
    verdict = pd.Series(np.where(grave, EXCLUDED, FLAGGED), index=r.index)
    note = pd.Series(
        np.where(
            ratio > 1, ": more requests in flight than it says, or fewer accelerators", ": fewer in flight"
        ),
        index=r.index,
    ).mask(_prompt_too(c, ratio), COUNTS_PROMPT)
    return _found(slight, verdict, "Little's law gives ", ratio, note)


def _centre(rows: pd.DataFrame, time: str, first: str) -> pd.Series:
    """The mean of `time`; where there is none its median, unless `first` asks for means alone."""
    mean = rows[f"{time}_mean_ms"]
    return mean if first == "mean" else mean.fillna(rows[f"{time}_p50_ms"])


COUNTS_PROMPT = ", which is (prompt + answer) ÷ answer: the rate counts the prompt"


def _prompt_too(c: Context, ratio: pd.Series) -> pd.Series:
    """Where a rate said to be of answers is `ratio` times too high because it counts the prompts."""
    both = (c.given + c.made) / c.made
    says = c.rows["throughput_counts"] == "output"
    return says & (both > 1.15) & ((ratio / both - 1).abs() < 0.06)


@check(
    "e2e = TTFT + (answer − 1) × TPOT for answers of one length: means within 5 %, medians within 25 %; of "
    "mean lengths within a factor of three"
)
def e2e_against_parts(c: Context) -> pd.DataFrame:
    """The answer's length that a row's own times imply, against the one it says. Of medians a note, as those
    of skewed times need not add up."""
    r, parts = c.rows, []
    # The mean of products is the product of means only where all answers are about as long.
    usable = r["lengths"].isin(["exact", "max_of_uniform_0.8"])
    for statistic, tolerance in (("mean", 0.05), ("p50", 0.25)):
        time = plausibility.whole_s(r[f"ttft_{statistic}_ms"], r[f"tpot_{statistic}_ms"], c.made)
        ratio = (r[f"e2e_{statistic}_ms"] / time).where(usable)
        implied = 1 + (r[f"e2e_{statistic}_ms"] - r[f"ttft_{statistic}_ms"]) / r[f"tpot_{statistic}_ms"]
        off = (ratio - 1).abs() > tolerance
        varied = r[f"e2e_{statistic}_ms"].where(r["lengths"].isna() | (r["lengths"] == "mean")) / time
        off |= (varied > 3) | (varied < 1 / 3)
        ratio = ratio.fillna(varied)
        parts.append(
            _found(
                off,
                FLAGGED if statistic == "mean" else NOTE,
                f"{statistic} e2e ÷ its parts = ",
                ratio,
                ": answers of ",
                implied,
                " tokens, not ",
                c.made,
            )
        )
    # Where all answers have one length, medians add up as well: 0.9 of it is a mean of drawn ones.
    ratio = r["e2e_p50_ms"] / plausibility.whole_s(r["ttft_p50_ms"], r["tpot_p50_ms"], c.made)
    drawn = (r["lengths"] == "exact") & ((ratio - 0.9).abs() < 0.06) & (c.together <= 64)
    found = pd.concat(parts)
    drawn &= ~drawn.index.isin(found.index)
    return pd.concat(
        [
            found,
            _found(drawn, FLAGGED, "p50 e2e ÷ its parts = ", ratio, ": the length is a maximum, not exact"),
        ]
    )


@check("median gap ÷ median time per output token within 0.5 and 2, and with drafts at least 0.5")
def itl_against_tpot(c: Context) -> pd.DataFrame:
    """Gaps between events that carry several tokens, called gaps between tokens. With drafts a gap has the
    tokens of a round by nature, so that only short gaps are an error; among other users' prompts short gaps
    are none, as few long waits make the mean."""
    r = c.rows
    ratio = (r["itl_p50_ms"] / r["tpot_p50_ms"]).fillna(r["itl_mean_ms"] / r["tpot_mean_ms"])
    for statistic in ("mean", "p50"):  # without a TPOT, what is left of the whole answer's time
        decoding = r[f"e2e_{statistic}_ms"] - r[f"ttft_{statistic}_ms"]
        each = (decoding / (c.made - 1)).where(r["lengths"].isin(["exact", "mean"]) & (c.made > 1))
        ratio = ratio.fillna((r[f"itl_{statistic}_ms"] / each).where(each > 0))
    drafts = r["speculative"].notna() & (r["speculative"] != "none")
    short = (ratio < 0.5) & ~((c.together > 1) & (ratio > 0.05))
    off = (short | ((ratio > 2) & ~drafts)) & (r["itl_counts"] != "event")
    why = np.where(
        ratio > 2,
        ": gaps between events that carry several tokens",
        ": bursts, or waits that the median hides",
    )
    return _found(off, FLAGGED, "ITL ÷ TPOT = ", ratio, pd.Series(why, index=r.index))


@check("requests in flight ÷ median gap ÷ output tokens/s ≤ 1.25")
def gap_against_rate(c: Context) -> pd.DataFrame:
    """A median gap that is shorter than the mean step: part of a request's time has no gaps in it. A note, as
    continuous batching does that."""
    r = c.rows
    ratio = (r["in_flight_mean"] / r["itl_p50_ms"] * 1000 / c.derived["output_tokens_per_s"]).fillna(
        r["in_flight_mean"] / r["tpot_mean_ms"] * 1000 / c.derived["output_tokens_per_s"]
    )
    return _found(ratio > 1.25, NOTE, "in flight ÷ gap ÷ rate = ", ratio, ": the gap is no mean step")


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


@check("output tokens/s × seconds = requests × tokens of an answer")
def plain_sums(c: Context) -> pd.DataFrame:
    """A rate that the row's own count of requests, tokens and seconds does not give."""
    r = c.rows
    exact = r["lengths"] == "exact"
    whole = (exact | (r["lengths"] == "mean")) & (r["failed"].fillna(0) == 0)
    ratio = _times_counted(c).where(whole)
    # Where a length was asked for, an answer may still end before it.
    wrong = (ratio - 1).abs() > np.where(exact, 0.15, SUMS_WITHIN)
    prompt = _prompt_too(c, ratio)
    verdict = pd.Series(np.where(prompt, EXCLUDED, FLAGGED), index=c.rows.index)
    note = pd.Series(np.where(prompt, COUNTS_PROMPT, ""), index=c.rows.index)
    return _found(wrong, verdict, "rate ÷ (tokens ÷ seconds) = ", ratio, note)


def _times_counted(c: Context) -> pd.Series:
    """How many times the requests' own tokens and seconds the rate is."""
    tokens = c.rows["requests"] * c.made.where(~c.rows["lengths"].isin(["max", "mixed"]))
    return (c.derived["output_tokens_per_s"] * c.rows["duration_s"] / tokens).where(tokens > 0)


SUMS_WITHIN = 0.025


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


@check("median = mean to every digit where the requests differ")
def mean_called_median(c: Context) -> pd.DataFrame:
    """A mean and a median that agree to every digit, though the requests differ, in nearly all rows of a
    file: in some rows rounding alone makes them agree."""
    parts = []
    r = c.rows
    file = r["source"] + "/" + r["source_file"].fillna("")
    for time in schema.TIMES:
        mean, median = r[f"{time}_mean_ms"], r[f"{time}_p50_ms"]
        far = r[f"{time}_p99_ms"].fillna(r[f"{time}_p95_ms"]).fillna(r[f"{time}_p90_ms"])
        if time == "ttft":
            far = far.fillna(r["ttft_max_ms"])
        alike = ((mean / median - 1).abs() < 1e-6) & (far / median > 1.03)
        alike &= (mean / 1000).map(digits).ge(4)
        both = mean.notna() & median.notna()
        alike &= alike.astype(float).where(both).groupby(file).transform("mean") >= 0.9
        note = f"mean and median of {time} are both ", c.rows[f"{time}_p50_ms"], " ms to every digit"
        parts.append(_found(alike, FLAGGED, *note))
    return pd.concat(parts)


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


@check("output tokens/s is not that of the completed requests × (completed + failed) ÷ completed")
def failed_counted_as_throughput(c: Context) -> pd.DataFrame:
    """A rate that counts the requests that failed."""
    failed, quotient = c.rows["failed"], _times_counted(c)
    factor = 1 + failed / c.rows["requests"]
    hit = (failed > 0) & (factor > 1.004) & ((quotient - 1) / (factor - 1)).between(0.9, 1.1)
    note = "the rate is ", quotient, " times what the completed requests give, and ", failed, " failed"
    return _found(hit, FLAGGED, *note)


@check("speed of prompts of 64 tokens and more ≥ speed of decoding one sequence")
def prompt_slower_than_answer(c: Context) -> pd.DataFrame:
    """Prefill slower than decode: another count, a wait in it, or an accelerator without the arithmetic."""
    r = c.rows
    single = (r["workload"] == "single") & ~(r["input_tokens"] < 64)
    several = r["speculative"].notna() & (r["speculative"] != "none")
    ratio = r["prompt_tokens_per_s"] / r["throughput_raw"]
    return _found(single & ~several & (ratio < 0.9), FLAGGED, "prompt ÷ answer speed = ", ratio)


@check("two names of one row lead to the same accelerator, and two formats to the same bits")
def two_names(c: Context) -> pd.DataFrame:
    """An accelerator or format that the source's own labels name otherwise. A note: the finer name counts."""
    import json

    from llm_measured.core import names as parser
    from llm_measured.published import names

    told = c.rows["as_printed"].dropna().map(json.loads)
    notes: dict[int, str] = {}
    for index, columns in told.items():
        name = columns.get("accelerator_raw")
        other, other_family = names.placed(name, float("nan")) if name else (None, None)
        own, family = c.rows.at[index, "accelerator"], c.rows.at[index, "accelerator_family"]
        if other and family:
            unlike = other_family != family
            both = schema.UNKNOWN_VARIANT not in (own, other) and other != own
            if unlike or both:
                notes[index] = f"also called {name}"
                continue
        printed = columns.get("weights_format")
        bits = parser.bits(printed) if printed else None
        real = c.known.at[index, "weight_bits"]
        if bits and real == real and max(bits, real) / min(bits, real) > 1.3:
            notes[index] = f"also called {printed}"
    notes_of = pd.Series(notes, dtype=object)
    return pd.DataFrame({"verdict": NOTE, "note": notes_of}, index=notes_of.index)


@check("bytes of the file × 8 ÷ parameters ≥ bits of the format ÷ 1.3")
def file_smaller_than_format(c: Context) -> pd.DataFrame:
    """A file of weights that is too small for the format it is said to have: another format or unit, or one
    of several files. A note, as the rate is none of the file's size."""
    stored = c.rows["weights_bytes"] * 8 / c.known["parameters"]
    bits = c.known["weight_bits"]
    note = "the file has ", stored, " bits per parameter, the format ", bits
    return _found(stored < bits / 1.3, NOTE, *note)


@check("parameters × bits ÷ 8, or the file's bytes, ≤ memory of the accelerators in GiB")
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
    weights = r["weights_bytes"].fillna(c.known["parameters"] * c.known["weight_bits"] / 8) / 2**30
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
    rows, findings = committed_tables.read("table"), committed_tables.read("findings")
    return None if rows is None or findings is None else (rows.drop(columns=list(schema.JUDGED)), findings)


def findings(rows: pd.DataFrame) -> pd.DataFrame:
    """One row per finding; columns row (index of `rows`), check, verdict, note. Of the committed rows they
    are read, whatever was derived beside them; of all others they are computed."""
    rows = rows[[c for c in rows if c in schema.BY_NAME and c not in schema.JUDGED]]
    kept = committed()
    if kept and len(rows) == len(kept[0]) and rows.equals(kept[0].reindex(columns=list(rows))):
        return kept[1].copy()
    return found(rows)


def found(rows: pd.DataFrame) -> pd.DataFrame:
    """The `findings` of `rows`, computed."""
    whole = context(rows)
    parts = []
    for one in CHECKS:
        found = one.find(whole)
        parts.append(found.assign(check=one.name).rename_axis("row").reset_index())
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
    table.insert(1, "arithmetic", table["check"].map(formula).fillna("stated in the source's importer"))
    return table
