"""Sentences of the topic latency."""

import pandas as pd

from bench import naming
from bench.analysis import latency as latency_analysis
from bench.analysis import machines
from bench.observations import schema
from bench.report import html
from bench.report.findings import words


def fastest(table, requests):
    """The fastest configuration, against the reference and the slowest."""
    table = table.dropna(subset="output_tokens_per_s")
    if len(table) < 2:
        return None
    best, slowest = table.iloc[0], table.iloc[-1]
    rate = best["output_tokens_per_s"]
    reference = table[(table["backend"] == words.REFERENCE[0]) & (table["option"] == words.REFERENCE[1])]
    also = "the reference " if slowest.name in reference.index else ""
    against = [
        f"{words.times(rate / slowest['output_tokens_per_s'])} the slowest of {len(table)}, {also}{words.rate(slowest)}"
    ]
    if len(reference) and reference.index[0] not in (best.name, slowest.name):
        against.insert(
            0,
            f"{words.times(rate / reference['output_tokens_per_s'].iloc[0])} the reference {words.rate(reference.iloc[0])}",
        )
    return f"On `{best['gpu']}`, {best['model']} is fastest with {words.name(best)}: {html.number(rate)} output tokens/s, {' and '.join(against)}."


def speed_ups(table):
    """Per engine and number of devices, every option below 16 bits against its own 16-bit option, a 32-bit one where there is none: speed-up, fewer bytes."""
    table = table[table["acceptance_rate"].isna()]  # drafts are another way to be faster than fewer bits
    table = table.assign(bits=[naming.bits(option) for option in table["option"]]).dropna(
        subset=["bits", "output_tokens_per_s"]
    )
    rows = []
    for _, engine in table.groupby(["backend", "tensor_parallel", "data_parallel"]):
        wide, narrow = engine[engine["bits"] >= 16], engine[engine["bits"] < 16]
        if len(wide) and len(narrow):
            base = wide.sort_values(["bits", "output_tokens_per_s"], ascending=[True, False]).iloc[0]
            faster, fewer = (
                narrow["output_tokens_per_s"] / base["output_tokens_per_s"],
                base["weight_bytes"] / narrow["weight_bytes"],
            )
            rows += narrow.assign(faster=faster, fewer=fewer, base=base["bits"]).to_dict("records")
    return rows


def fewer_bits(table, requests):
    """How much faster options below 16 bits are than 16-bit ones, and whether the bytes explain it."""
    rows = sorted(speed_ups(table), key=lambda row: row["faster"])
    if not rows:
        return None
    base = "16-bit option" + ("" if all(row["base"] == 16 for row in rows) else " (32-bit where it has none)")
    worst = min(rows, key=lambda row: row["faster"] / row["fewer"])
    share, low, high = (
        worst["faster"] / worst["fewer"],
        min(r["fewer"] for r in rows),
        max(r["fewer"] for r in rows),
    )
    gains = " to ".join(
        dict.fromkeys(f"{words.times(r['faster'])} ({words.name(r)})" for r in (rows[0], rows[-1]))
    )
    promised = (
        " to ".join(dict.fromkeys((html.number(float(f"{low:.2g}")), words.times(high))))
        if low != high
        else words.times(high)
    )
    if all(abs(row["faster"] / row["fewer"] - 1) <= words.SAME for row in rows):
        verdict = "so the bytes explain it"
    else:
        verdict = f"so the bytes alone do not explain it: {words.name(worst)} keeps {100 * share:.0f} % of what its bytes promise"
    said = f"Options below 16 bits run at {gains} the speed of the same engine's {base}"
    return f"{said}; the bytes that they read promise {promised}, {verdict}."


def drafts(requests):
    """One sentence per option that drafts tokens without a second model: how much faster than the same option without, and how many were right."""
    settings = latency_analysis.settings(machines.here(requests, "latency"))
    table = (
        latency_analysis.summary(settings[0][1]) if settings else pd.DataFrame(columns=["acceptance_rate"])
    )
    plain = table.set_index(["backend", "option"])["output_tokens_per_s"] if len(table) else {}
    said = []
    for _, row in table.dropna(subset="acceptance_rate").iterrows():
        base = row["backend"], row["option"].rpartition("-")[0]
        if base in plain:
            faster = f"{words.rate(row)} runs at {words.times(row['output_tokens_per_s'] / plain[base])} the speed of **{' '.join(base)}** ({html.number(plain[base])})"
            said.append(
                f"{faster}; {words.percent(row['acceptance_rate'])} % of the tokens that it guessed were right."
            )
    return said


def first_token(table, requests):
    """The shortest and the longest wait for the first token."""
    table = table.dropna(subset="ttft_s")
    if len(table) < 2:
        return None
    short, long, best = (
        table.loc[table["ttft_s"].idxmin()],
        table.loc[table["ttft_s"].idxmax()],
        table.iloc[0],
    )
    waits = [
        f"The shortest wait for the first token is {html.number(short['ttft_s'] * 1e3)} ms ({words.name(short)})"
    ]
    waits.append(
        f"the longest {html.number(long['ttft_s'] * 1e3)} ms ({words.name(long)}), {words.times(long['ttft_s'] / short['ttft_s'])} as long"
    )
    if best.name not in (short.name, long.name):
        waits.append(f"and {html.number(best['ttft_s'] * 1e3)} ms with the fastest, {words.name(best)}")
    return ", ".join(waits) + "."


def bandwidth(table, requests):
    """How close options of 16 bits or more come to the measured bandwidth, and how far from it the last one stays."""
    table = (
        table[[(naming.bits(option) or 0) >= 16 for option in table["option"]]]
        .dropna(subset="mbu")
        .sort_values("mbu", ascending=False)
    )
    if len(table) < 2:
        return None
    best, last = table.iloc[0], table.iloc[-1]
    return (
        f"Of the options with 16 bits or more, {words.name(best)} comes closest to the memory's limit, with an MBU of {best['mbu']:.2f} "
        f"against the bandwidth probed beside it; {words.name(last)} stays farthest from it, with {last['mbu']:.2f}."
    )


def run_to_run(requests):
    """How much the repeats of one configuration differ, at worst."""
    each = latency_analysis.runs(requests).groupby(schema.CONFIGURATION)["output_tokens_per_s"]
    spread = ((each.max() - each.min()) / each.mean())[each.count() > 1].dropna()
    if spread.empty:
        return None
    row, runs = dict(zip(schema.CONFIGURATION, spread.idxmax())), each.count()[spread.idxmax()]
    said = f"Repeats differ most with {words.name(row)}: the fastest of {runs} runs lies {words.percent(spread.max())} % of their mean"
    return f"{said} above the slowest."
