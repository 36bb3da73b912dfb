"""Sentences of the topic latency: `table` is `bench.analysis.latency.summary` of one setting, fastest
first."""

from bench import naming
from bench.analysis import latency as latency_analysis
from bench.analysis import machines
from bench.analysis.drafting import undrafted
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
    reference = table[words.is_reference(table)]
    also = "the reference " if slowest.name in reference.index else ""
    against = [
        f"{words.times(rate / slowest['output_tokens_per_s'])} the slowest of {len(table)}, {also}"
        f"{words.rate(slowest)}"
    ]
    if len(reference) and reference.index[0] not in (best.name, slowest.name):
        faster = words.times(rate / reference["output_tokens_per_s"].iloc[0])
        against.insert(0, f"{faster} the reference {words.rate(reference.iloc[0])}")
    return (
        f"On `{best['gpu']}`, {best['model']} is fastest with {words.name(best)}: {html.number(rate)} output "
        f"tokens/s, {' and '.join(against)}."
    )


def speed_ups(table):
    """Options below 16 bits against the same engine's 16-bit option, or its 32-bit one where it has none.

    A list of dicts, one per option and number of devices: its row of `table` with faster (ratio of the
    rates), fewer (ratio of the bytes) and base (bits of the other option). Drafting options are left out,
    because drafts are another way to be faster than fewer bits.
    """
    table = table[table["acceptance_rate"].isna()]
    table = table.assign(bits=[naming.bits(option) for option in table["option"]])
    table = table.dropna(subset=["bits", "output_tokens_per_s"])
    rows = []
    for _, engine in table.groupby(["backend", "tensor_parallel", "data_parallel"]):
        wide, narrow = engine[engine["bits"] >= 16], engine[engine["bits"] < 16]
        if len(wide) and len(narrow):
            base = wide.sort_values(["bits", "output_tokens_per_s"], ascending=[True, False]).iloc[0]
            faster = narrow["output_tokens_per_s"] / base["output_tokens_per_s"]
            fewer = base["weight_bytes"] / narrow["weight_bytes"]
            rows += narrow.assign(faster=faster, fewer=fewer, base=base["bits"]).to_dict("records")
    return rows


def fewer_bits(table, requests):
    """How much faster options below 16 bits are than 16-bit ones, and whether the bytes explain it."""
    rows = sorted(speed_ups(table), key=lambda row: row["faster"])
    if not rows:
        return None
    base = "16-bit option" + ("" if all(row["base"] == 16 for row in rows) else " (32-bit where it has none)")
    ends = [f"{words.times(row['faster'])} ({words.name(row)})" for row in (rows[0], rows[-1])]
    return (
        f"Options below 16 bits run at {' to '.join(dict.fromkeys(ends))} the speed of the same engine's "
        f"{base}; the bytes that they read promise {_promised(rows)}, {_explained(rows)}."
    )


def _promised(rows):
    """The speed-ups that the bytes of `speed_ups` promise: `2 to 3.6 times`."""
    low, high = (end(row["fewer"] for row in rows) for end in (min, max))
    if low == high:
        return words.times(high)
    return " to ".join(dict.fromkeys((html.number(float(f"{low:.2g}")), words.times(high))))


def _explained(rows):
    """Whether the bytes explain the speed-ups; if not, the option that keeps least of what they promise."""
    if all(abs(row["faster"] / row["fewer"] - 1) <= words.SAME for row in rows):
        return "so the bytes explain it"
    worst = min(rows, key=lambda row: row["faster"] / row["fewer"])
    kept = f"{100 * worst['faster'] / worst['fewer']:.0f} %"
    return f"so the bytes alone do not explain it: {words.name(worst)} keeps {kept} of what its bytes promise"


def drafts(requests):
    """How much faster options are that draft tokens without a second model: one sentence per option, against
    the same option without, with the share of guesses that were right."""
    settings = latency_analysis.settings(machines.here(requests, "latency"))
    if not settings:
        return []
    table = latency_analysis.summary(settings[0][1])
    plain = table.set_index(["backend", "option"])["output_tokens_per_s"]
    sentences = []
    for _, row in table.dropna(subset="acceptance_rate").iterrows():
        base = row["backend"], undrafted(row["option"])
        if base in plain:
            faster = words.times(row["output_tokens_per_s"] / plain[base])
            sentences.append(
                f"{words.rate(row)} runs at {faster} the speed of **{' '.join(base)}** "
                f"({html.number(plain[base])}); {words.percent(row['acceptance_rate'])} % of the tokens that "
                "it guessed were right."
            )
    return sentences


def first_token(table, requests):
    """The shortest and the longest wait for the first token."""
    table = table.dropna(subset="ttft_s")
    if len(table) < 2:
        return None
    short, long = table.loc[table["ttft_s"].idxmin()], table.loc[table["ttft_s"].idxmax()]
    best = table.iloc[0]
    sentence = (
        f"The shortest wait for the first token is {_wait(short)} ({words.name(short)}), the longest "
        f"{_wait(long)} ({words.name(long)}), {words.times(long['ttft_s'] / short['ttft_s'])} as long"
    )
    if best.name not in (short.name, long.name):
        sentence += f", and {_wait(best)} with the fastest, {words.name(best)}"
    return f"{sentence}."


def _wait(row):
    return f"{html.number(row['ttft_s'] * 1e3)} ms"


def bandwidth(table, requests):
    """How close options of 16 bits or more come to the measured bandwidth, and how far from it the last one
    stays."""
    wide = table[[(naming.bits(option) or 0) >= 16 for option in table["option"]]]
    wide = wide.dropna(subset="mbu").sort_values("mbu", ascending=False)
    if len(wide) < 2:
        return None
    best, last = wide.iloc[0], wide.iloc[-1]
    return (
        f"Of the options with 16 bits or more, {words.name(best)} comes closest to the memory's limit, with "
        f"an MBU of {best['mbu']:.2f} against the bandwidth probed beside it; {words.name(last)} stays "
        f"farthest from it, with {last['mbu']:.2f}."
    )


def run_to_run(requests):
    """How much the repeats of one configuration differ, at worst."""
    each = latency_analysis.runs(requests).groupby(schema.CONFIGURATION)["output_tokens_per_s"]
    spread = ((each.max() - each.min()) / each.mean())[each.count() > 1].dropna()
    if spread.empty:
        return None
    row, runs = dict(zip(schema.CONFIGURATION, spread.idxmax())), each.count()[spread.idxmax()]
    return (
        f"Repeats differ most with {words.name(row)}: the fastest of {runs} runs lies "
        f"{words.percent(spread.max())} % of their mean above the slowest."
    )
