"""Sentences of the topic latency, each about the machine in front and one model there
(`bench.analysis.latency.described`)."""

import numpy as np
import pandas as pd

from bench import html, naming
from bench.analysis import comparison, drafting, ranking
from bench.analysis import latency as latency_analysis
from bench.analysis.drafting import undrafted
from bench.definitions import Fields
from bench.observations.placement import APART, NEAR
from bench.report.findings import words

RATE, INTERVAL = latency_analysis.RATE, f"{latency_analysis.RATE}_interval"
SHOWN = 4  # names that stand in one sentence


def summarised(requests: pd.DataFrame) -> pd.DataFrame:
    """The rows of the summary that a sentence is about, those without an answer left out."""
    table = latency_analysis.summary(latency_analysis.described(requests, "latency"))
    return table.dropna(subset=RATE)


def fastest(requests: pd.DataFrame) -> str | None:
    """Which option is fastest, or which cannot be distinguished, against the reference; that one run each
    ranks nothing."""
    rows = requests[requests["experiment"] == "latency"]
    if len(rows.drop_duplicates(["backend", "option", "backend_version"])) < 2:
        return None  # many machines may have measured one option, and a summary takes its time
    described = latency_analysis.described(rows, "latency")
    table = summarised(rows)
    if len(table) < 2:
        return None
    on, model = words.on(table.iloc[0]), table["model"].iloc[0]
    best, unranked = table[table["may_be_best"]], table[table["reason"] != ""]
    if best.empty:
        low, high = (html.number(end) for end in table[RATE].agg(["min", "max"]))
        return (
            f"{on}, {len(table)} engines and options answer {model} at {low} to {high} output tokens/s; none "
            f"is called the fastest: {reasons(unranked)}."
        )
    names = [words.measured(row) for _, row in best.iterrows()]
    of = f"{on}, the fastest of {len(table) - len(unranked)} options with {model} is"
    sentence = f"{of} {words.listed(names, SHOWN, 'or')}, in output tokens/s{_to_settle(best)}"
    if len(best) == 1:
        sentence += _against_reference(best.iloc[0], table, latency_analysis.compared(described, RATE))
    return f"{sentence}; not ranked: {reasons(unranked)}." if len(unranked) else f"{sentence}."


def _to_settle(best):
    """`: 6 more rounds of them would settle it`, where several may be the best."""
    rounds = best["rounds_to_settle"].dropna()
    if not len(rounds):
        return ""
    if not np.isfinite(rounds.max()):
        return f": more than {comparison.MOST_ROUNDS} more rounds of them would be needed to settle it"
    return f": {rounds.max():.0f} more rounds of them would settle it"


def alone(requests: pd.DataFrame) -> str | None:
    """How fast the only engine and option is whose latency was measured; None for none or several."""
    rows = requests[requests["experiment"] == "latency"]
    if len(rows[["backend", "option"]].drop_duplicates()) != 1:
        return None
    table = summarised(rows)
    if table.empty:
        return None
    row = table.iloc[0]
    return (
        f"{words.on(row)}, only {words.measured(row, unit='output tokens/s')} has answered {row['model']}, "
        f"one request at a time, in {words.plural(row['runs'], 'run')}: nothing to compare it with."
    )


def reasons(unranked: pd.DataFrame) -> str:
    """`3 with one run, 1 with failed requests`."""
    counts = unranked["reason"].value_counts(sort=False)
    return ", ".join(f"{count} with {reason}" for reason, count in counts.items())


def _against_reference(row, table, model):
    """`; **a b** is 12 times (9.9 to 15) as fast as the reference …`, where the interval allows it."""
    reference = table[words.is_reference(table)]
    if reference.empty or reference.index[0] == row.name:
        return ""
    found = _ratio(model, row, reference.iloc[0])
    if found["verdict"] != comparison.FASTER:
        return ""
    slower = words.measured(reference.iloc[0])
    return f", {words.ratio(found)} as fast as the reference {slower}"


def _ratio(model, row, base):
    """`comparison.Fit.compare` of two rows of a summary."""
    return model.compare(latency_analysis.configuration(row), latency_analysis.configuration(base))


def speed_ups(requests: pd.DataFrame) -> list[Fields]:
    """Options below 16 bits against the same engine's 16-bit option, or its 32-bit one where it has none.

    A list of dicts, one per option and number of devices: its row of `summarised` with `comparison.RATIO` of
    the rates (all compared at once, after Holm), fewer (ratio of the bytes) and base (bits of the other
    option). Drafting options are left out, because drafts are another way to be faster than fewer bits, and
    so are those with failed requests, and those that never shared a sitting with the other option.
    """
    table = summarised(requests)
    if table.empty:
        return []
    model = latency_analysis.compared(latency_analysis.described(requests, "latency"), RATE)
    table = table[table["acceptance_rate"].isna() & (table["failed"] == 0)]
    table = table.assign(bits=[naming.bits(option) for option in table["option"]])
    table = table.dropna(subset="bits")
    rows = []
    for _, engine in table.groupby(["backend", "backend_version", "tensor_parallel", "data_parallel"]):
        wide, narrow = engine[engine["bits"] >= 16], engine[engine["bits"] < 16]
        if len(wide) and len(narrow):
            base = wide.sort_values(["bits", RATE], ascending=[True, False]).iloc[0]
            for _, row in narrow.iterrows():
                fewer = {"fewer": base["weight_bytes"] / row["weight_bytes"], "base": base["bits"]}
                rows.append(row.to_dict() | _ratio(model, row, base) | fewer)
    rows = [row for row in rows if row["verdict"] != comparison.NOT_CONNECTED]
    ranking.distinguished_at_once(rows)
    return rows


def fewer_bits(requests: pd.DataFrame) -> str | None:
    """How many options below 16 bits are faster than 16-bit ones, and whether the bytes explain it."""
    rows = sorted(speed_ups(requests), key=lambda row: row["ratio"])
    if not rows:
        return None
    base = "16-bit option" + ("" if all(row["base"] == 16 for row in rows) else " (32-bit where it has none)")
    ends = [f"{words.ratio(row)} with {words.name(row)}" for row in (rows[0], rows[-1])]
    compared = [row for row in rows if not np.isnan(row["low"])]
    return (
        f"{words.on(rows[0])}, options below 16 bits run at {' to '.join(dict.fromkeys(ends))} the speed of "
        f"the same engine's {base}: {_verdicts(rows)}. The bytes that they read promise {_promised(rows)}"
        f"{_explained(compared)}."
    )


def _verdicts(rows: pd.DataFrame) -> str:
    """`of 11, 9 faster, 1 slower, 1 cannot be distinguished`; that one run each says nothing of it."""
    compared = [row for row in rows if not np.isnan(row["low"])]
    if not compared:
        return "one run each, so no verdict"
    counts = {
        verdict: sum(row["verdict"] == verdict for row in compared)
        for verdict in (comparison.FASTER, comparison.SLOWER, comparison.EQUAL)
    }
    be = [f"{count} {verdict}" for verdict, count in counts.items() if count]
    once = f" ({len(rows) - len(compared)} more have one run)" if len(compared) < len(rows) else ""
    return f"of {len(compared)}, {words.listed(be)}{once}"


def _promised(rows):
    """The speed-ups that the bytes of `speed_ups` promise: `2 to 3.6 times`."""
    low, high = (end(row["fewer"] for row in rows) for end in (min, max))
    if low == high:
        return words.times(high)
    return " to ".join(dict.fromkeys((html.number(float(f"{low:.2g}")), words.times(high))))


def _explained(compared):
    """Whether the intervals hold what the bytes promise, or end below it; empty for one run each."""
    if not compared:
        return ""
    kept = sum(row["low"] <= row["fewer"] <= row["high"] for row in compared)
    below = sum(row["high"] < row["fewer"] for row in compared)
    if below == len(compared):
        return ", and every interval ends below that"
    return f"; {kept} of {len(compared)} keep that within their interval, {below} stay below it"


def drafts(requests: pd.DataFrame) -> list[str]:
    """How much faster options are that draft tokens without a second model: one sentence per option, against
    the same option without, with the share of guesses that were right where the engine tells how many it
    guessed; all compared at once, after Holm."""
    table = summarised(requests)
    if table.empty:
        return []
    model = latency_analysis.compared(latency_analysis.described(requests, "latency"), RATE)
    plain = table.set_index(["backend", "option"], drop=False)
    pairs = []
    for _, row in table.iterrows():
        base = row["backend"], undrafted(row["option"])
        guesses = not np.isnan(row["acceptance_rate"]) or drafting.drafts(row["backend"], row["option"])
        if guesses and base in plain.index:
            pairs.append((row, base, _ratio(model, row, plain.loc[base])))
    ranking.distinguished_at_once([found for *_, found in pairs])
    return [
        f"{words.on(row)}, {words.measured(row)} runs at {words.ratio(found)} the speed of "
        f"**{' '.join(base)}** ({words.within(*plain.loc[base, [RATE, INTERVAL]])}): {_verdict(found)}."
        f"{_right(row)}"
        for row, base, found in pairs
    ]


def _right(row: pd.Series) -> str:
    """The share of its guesses that were right, as a sentence; empty where it does not tell how many."""
    if np.isnan(row["acceptance_rate"]):
        return ""
    return f" {words.share(row['acceptance_rate'])} of the tokens that it guessed were right."


def _verdict(found):
    """The verdict of a ratio, as a sentence ends with it."""
    return f"{found['verdict']}, so no verdict" if np.isnan(found["low"]) else found["verdict"]


def first_token(requests: pd.DataFrame) -> str | None:
    """Which options have the shortest wait for the first token, or how many cannot be distinguished."""
    rows = latency_analysis.described(requests, "latency")
    table = latency_analysis.ranked(rows, "ttft_s").dropna(subset="mean")
    if len(table) < 2:
        return None
    best, ranked = table[table["may_be_best"]], table[table["reason"] == ""]
    on, low, high = words.on(table.iloc[0]), table["mean"].min(), table["mean"].max()
    if best.empty:
        return (
            f"{on}, the wait for the first token is {html.number(low * 1e3)} to {html.number(high * 1e3)} ms "
            f"with {len(table)} engines and options; none is called the shortest: {reasons(table)}."
        )
    names = [
        f"{words.name(row)} ({words.within(row['mean'] * 1e3, (row['high'] - row['mean']) * 1e3)} ms)"
        for _, row in best.iterrows()
    ]
    return (
        f"{on}, the shortest wait for the first token, of {len(ranked)} options, is with "
        f"{words.listed(names, SHOWN, 'or')}{_to_settle(best)}."
    )


def bandwidth(requests: pd.DataFrame) -> str | None:
    """Which options of 16 bits or more come closest to the measured bandwidth, as far as repeats of it
    agree."""
    rows = latency_analysis.described(requests, "latency")
    rows = rows[rows["option"].map(lambda option: (naming.bits(option) or 0) >= 16).astype(bool)]
    table = latency_analysis.ranked(rows, "mbu").dropna(subset="mean")
    best = table[table["may_be_best"]]
    if best.empty:
        return None
    # The peak's spread from run to run is in the interval.
    each = [
        f"{words.name(row)} ({words.within(round(row['mean'], 2), row['high'] - row['mean'])})"
        for _, row in best.iterrows()
    ]
    return (
        f"{words.on(table.iloc[0])}, of {(table['reason'] == '').sum()} options with 16 bits or more "
        f"{words.listed(each, SHOWN, 'or')} comes closest to the memory's limit, in MBU{_to_settle(best)}; "
        f"{_probes(rows)}."
    )


def _probes(rows: pd.DataFrame) -> str:
    """What the peak is that the MBU of the requests `rows` is against, and how many of their runs were probed
    in one way only, whose MBU is an upper bound."""
    runs = latency_analysis.runs(rows)
    placed = rows[rows["placement"] != ""].groupby("placement")["bandwidth_bytes_per_s"].max() / 1e9
    if placed.notna().sum() > 1:
        near, apart = (html.number(round(placed[place])) for place in (NEAR, APART))
        probed = f"the best probe is {near} GB/s with the processors near each other "
        probed += f"and {apart} GB/s with them apart"
    else:
        probed = f"the best probe of a run is {words.span(runs['bandwidth_bytes_per_s'] / 1e9)} GB/s"
    simple = latency_analysis.probed_one_way(runs)
    which = "all" if simple == len(runs) else f"{simple} of {len(runs)}"
    return probed + (f", {which} read in one way only, so MBU is at most this" if simple else "")
