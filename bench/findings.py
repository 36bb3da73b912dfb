"""Findings: sentences computed from the observations, each by a function that gives None where the data do not support it.

    python -m bench.findings                the sentences on the terminal
    python -m bench.findings README.md      the sentences and the headline figure into the marked place of a file, from the runs that git keeps
"""

import re
import subprocess
import sys

import numpy as np
import pandas as pd

from bench import ROOT, client_accuracy, clients, data, metrics, quality, results, tables
from bench import batching as sweeps
from bench import serving_tables as loads
from bench import step_time as steps
from bench.tables import number

REFERENCE = quality.REFERENCE
SAME = 0.1  # a speed-up within a tenth of what the bytes promise is explained by them


def findings(requests):
    """What the machine in focus has shown, as Markdown sentences; of several models, the one with most configurations speaks."""
    settings = tables.settings(results.here(requests, "latency"))
    table = results.summary(settings[0][1]) if settings else None
    said = [sentence(table, requests) for sentence in (fastest, fewer_bits, first_token, bandwidth)] if settings else []
    said += [share_of_gain(requests), limited(requests), *quality_findings(requests)[:2], *serving_findings(requests)[:2]]
    said.append(cost(requests) or (run_to_run(settings[0][1]) if settings else None))
    return [sentence for sentence in said if sentence]


def _name(row):
    return f"**{tables.label(row)}**"


def _times(ratio):
    return f"{number(float(f'{ratio:.2g}'))} times"


def _rate(row):
    return f"{_name(row)} ({number(row['output_tokens_per_s'])})"


def fastest(table, requests):
    """The fastest configuration, against the reference and the slowest."""
    table = table.dropna(subset="output_tokens_per_s")
    if len(table) < 2:
        return None
    best, slowest = table.iloc[0], table.iloc[-1]
    rate = best["output_tokens_per_s"]
    reference = table[(table["backend"] == REFERENCE[0]) & (table["option"] == REFERENCE[1])]
    also = "the reference " if slowest.name in reference.index else ""
    against = [f"{_times(rate / slowest['output_tokens_per_s'])} the slowest of {len(table)}, {also}{_rate(slowest)}"]
    if len(reference) and reference.index[0] not in (best.name, slowest.name):
        against.insert(0, f"{_times(rate / reference['output_tokens_per_s'].iloc[0])} the reference {_rate(reference.iloc[0])}")
    return f"On `{best['gpu']}`, {best['model']} is fastest with {_name(best)}: {number(rate)} output tokens/s, {' and '.join(against)}."


def speed_ups(table):
    """Per engine and number of devices, every option below 16 bits against its own 16-bit option, a 32-bit one where there is none: speed-up, fewer bytes."""
    table = table[table["acceptance_rate"].isna()]  # drafts are another way to be faster than fewer bits
    table = table.assign(bits=[tables.bits(option) for option in table["option"]]).dropna(subset=["bits", "output_tokens_per_s"])
    rows = []
    for _, engine in table.groupby(["backend", "tensor_parallel", "data_parallel"]):
        wide, narrow = engine[engine["bits"] >= 16], engine[engine["bits"] < 16]
        if len(wide) and len(narrow):
            base = wide.sort_values(["bits", "output_tokens_per_s"], ascending=[True, False]).iloc[0]
            faster, fewer = narrow["output_tokens_per_s"] / base["output_tokens_per_s"], base["weight_bytes"] / narrow["weight_bytes"]
            rows += narrow.assign(faster=faster, fewer=fewer, base=base["bits"]).to_dict("records")
    return rows


def fewer_bits(table, requests):
    """How much faster options below 16 bits are than 16-bit ones, and whether the bytes explain it."""
    rows = sorted(speed_ups(table), key=lambda row: row["faster"])
    if not rows:
        return None
    base = "16-bit option" + ("" if all(row["base"] == 16 for row in rows) else " (32-bit where it has none)")
    worst = min(rows, key=lambda row: row["faster"] / row["fewer"])
    share, low, high = worst["faster"] / worst["fewer"], min(r["fewer"] for r in rows), max(r["fewer"] for r in rows)
    gains = " to ".join(dict.fromkeys(f"{_times(r['faster'])} ({_name(r)})" for r in (rows[0], rows[-1])))
    promised = " to ".join(dict.fromkeys((number(float(f"{low:.2g}")), _times(high)))) if low != high else _times(high)
    if all(abs(row["faster"] / row["fewer"] - 1) <= SAME for row in rows):
        verdict = "so the bytes explain it"
    else:
        verdict = f"so the bytes alone do not explain it: {_name(worst)} keeps {100 * share:.0f} % of what its bytes promise"
    said = f"Options below 16 bits run at {gains} the speed of the same engine's {base}"
    return f"{said}; the bytes that they read promise {promised}, {verdict}."


def drafts(requests):
    """One sentence per option that drafts tokens without a second model: how much faster than the same option without, and how many were right."""
    settings = tables.settings(results.here(requests, "latency"))
    table = results.summary(settings[0][1]) if settings else pd.DataFrame(columns=["acceptance_rate"])
    plain = table.set_index(["backend", "option"])["output_tokens_per_s"] if len(table) else {}
    said = []
    for _, row in table.dropna(subset="acceptance_rate").iterrows():
        base = row["backend"], row["option"].rpartition("-")[0]
        if base in plain:
            faster = f"{_rate(row)} runs at {_times(row['output_tokens_per_s'] / plain[base])} the speed of **{' '.join(base)}** ({number(plain[base])})"
            said.append(f"{faster}; {_percent(row['acceptance_rate'])} % of the tokens that it guessed were right.")
    return said


def first_token(table, requests):
    """The shortest and the longest wait for the first token."""
    table = table.dropna(subset="ttft_s")
    if len(table) < 2:
        return None
    short, long, best = table.loc[table["ttft_s"].idxmin()], table.loc[table["ttft_s"].idxmax()], table.iloc[0]
    waits = [f"The shortest wait for the first token is {number(short['ttft_s'] * 1e3)} ms ({_name(short)})"]
    waits.append(f"the longest {number(long['ttft_s'] * 1e3)} ms ({_name(long)}), {_times(long['ttft_s'] / short['ttft_s'])} as long")
    if best.name not in (short.name, long.name):
        waits.append(f"and {number(best['ttft_s'] * 1e3)} ms with the fastest, {_name(best)}")
    return ", ".join(waits) + "."


def bandwidth(table, requests):
    """How close options of 16 bits or more come to the measured bandwidth, and how far from it the last one stays."""
    table = table[[(tables.bits(option) or 0) >= 16 for option in table["option"]]].dropna(subset="mbu").sort_values("mbu", ascending=False)
    if len(table) < 2:
        return None
    best, last = table.iloc[0], table.iloc[-1]
    return (
        f"Of the options with 16 bits or more, {_name(best)} comes closest to the memory's limit, with an MBU of {best['mbu']:.2f} "
        f"against the bandwidth probed beside it; {_name(last)} stays farthest from it, with {last['mbu']:.2f}."
    )


def cost(requests):
    """What measuring costs the engine that it costs most."""
    table = tables.overhead_summary(requests)
    if table.empty:
        return None
    worst = table.iloc[0]
    interval = f", 95 % interval {_percent(worst['low'])} to {_percent(worst['high'])} %" if pd.notna(worst["low"]) else ""
    said = f"Measuring costs {_name(worst)} most: the harness takes {_percent(worst['median'])} % longer than the engine's own loop"
    return f"{said} (median of {worst['pairs']} pairs{interval})."


def _percent(fraction):
    return number(float(f"{fraction * 100:.2g}")).replace("-", "−")


def share_of_gain(requests):
    """How much more a batch yields in all, and what each of its requests pays for it: the configuration that gains most."""
    gained = sweeps.gains(requests)
    if gained.empty:
        return None
    row = gained.loc[(gained["best"] / gained["single"]).idxmax()]
    least = gained.loc[(gained["best"] / gained["single"]).idxmin()]
    said = f"Batching gains most with {_name(row)}: batch {row['batch_size']:.0f} yields {number(row['best'])} output tokens/s, "
    said += f"{_times(row['best'] / row['single'])} what one request at a time does, and each request's tokens come {_times(row['slower'])} as slowly"
    if least.name != row.name:
        said += f"; it gains least with {_name(least)} ({_times(least['best'] / least['single'])})"
    return said + "."


def input_against_output(requests):
    """Whether 512 more input tokens cost less than 8 more output tokens, counted over engines and options."""
    costs = sweeps.prompt_cost(requests)
    if costs.empty:
        return None
    ratio = (costs["input_s"] / costs["output_s"]).sort_values()
    low, high = costs.loc[ratio.index[0]], costs.loc[ratio.index[-1]]
    holds = int((ratio < 1).sum())
    verdict = "all" if holds == len(ratio) else "none" if not holds else f"{holds}"
    rule = f"“{sweeps.MORE_INPUT} more input tokens cost less than {sweeps.MORE_OUTPUT} more output tokens”"
    said = f"{rule} holds for {verdict} of {len(ratio)} engines and options here"
    spread = f"they cost {_times(ratio.iloc[0])} as much with {_name(low)}"
    return f"{said}: {spread}." if len(ratio) == 1 else f"{said}: {spread}, and {_times(ratio.iloc[-1])} with {_name(high)}."


def limits(requests):
    """What limits each engine and option at batch 1 and at its largest batch, with the numbers behind it: one sentence each."""
    fitted = steps.models(results.here(requests, "batching"))
    return [_limit(row) for _, row in fitted.iterrows()]


def _limit(row):
    share = f"{_percent(row['first_share'])} % of a step of {number(row['first_step_s'] * 1e3)} ms"
    said = f"{_name(row)} is limited by {row['first_limit']} at batch {row['first_batch']:.0f}: {share}"
    if row["last_limit"] != row["first_limit"]:
        said += f"; by {row['last_limit']} at batch {row['last_batch']:.0f}"
    terms = [f"overhead {number(row['overhead_s'] * 1e3)} ms{_between(row, 'overhead_s', 1e3)}"]
    for name, roof, unit in (("bandwidth_bytes_per_s", "roof_bytes_per_s", "GB/s"), ("peak_flops_per_s", "roof_flops_per_s", "GFLOP/s")):
        if pd.notna(row[name]):
            terms.append(f"{number(row[name] / 1e9)} of {number(row[roof] / 1e9)} {unit}{_between(row, name, 1e-9)}")
    missed = f" A batch size left out is missed by {_percent(row['left_out'])} % (median)." if pd.notna(row["left_out"]) else ""
    return f"{said}. Fitted: {', '.join(terms)}.{missed}"


def _between(row, name, factor):
    """` (1.2 to 1.4)` where the interval is known."""
    low, high = row[f"{name}_low"] * factor, row[f"{name}_high"] * factor
    return f" ({number(low)} to {number(high)})" if pd.notna(low) else ""


def limited(requests):
    """One sentence over all engines: how many each of overhead, memory and arithmetic limits at batch 1."""
    fitted = steps.models(results.here(requests, "batching"))
    if fitted.empty:
        return None
    counts = fitted["first_limit"].value_counts()
    by = ", ".join(f"{name} {counts[name]}" for name in steps.TERMS if name in counts)
    later = int((fitted["last_limit"] == "arithmetic").sum())
    said = f"What limits a decode step at batch 1, by the fitted step-time model of {len(fitted)} engines and options: {by}"
    return f"{said}; at their largest batch arithmetic limits {later} of them."


def memory_planned(requests):
    """Whether the planner's batch lies between the largest that ran and the smallest that ran out of memory."""
    table = sweeps.memory(requests).dropna(subset=["ran", "failed"])
    if table.empty:
        return None
    right = int(((table["ran"] <= table["planned"]) & (table["planned"] < table["failed"])).sum())
    row = table.iloc[0]
    said = f"The planner was right in {right} of {len(table)} sweeps that were run out of memory on purpose"
    return f"{said}; with {_name(row)} it expected {row['planned']:.0f} requests to fit, {row['ran']:.0f} ran and {row['failed']:.0f} did not."


def published_memory():
    """The planner against the batch sizes at which the published sweep ran and ran out of memory."""
    table = sweeps.published_memory()
    row = table.iloc[0]
    right = int(((table["ran"] <= table["planned"]) & (table["planned"] < table["failed"])).sum())
    said = f"For {right} of {len(table)} published devices that ran out of memory the planner is right"
    fits = f"{row['planned']:.0f} requests of {number(row['context_tokens'])} tokens"
    return f"{said}: on one {row['gpu']} it expects {fits} to fit, {row['ran']:.0f} ran and {row['failed']:.0f} did not."


def run_to_run(requests):
    """How much the repeats of one configuration differ, at worst."""
    each = results.runs(requests).groupby(results.CONFIGURATION)["output_tokens_per_s"]
    spread = ((each.max() - each.min()) / each.mean())[each.count() > 1].dropna()
    if spread.empty:
        return None
    row, runs = dict(zip(results.CONFIGURATION, spread.idxmax())), each.count()[spread.idxmax()]
    said = f"Repeats differ most with {_name(row)}: the fastest of {runs} runs lies {_percent(spread.max())} % of their mean"
    return f"{said} above the slowest."


# What quantisation costs: sentences about quality. `table` is quality.summary of one model on one machine.


def quality_findings(requests):
    """What the scored answers of the machine in focus have shown, as Markdown sentences; of several models, the one with most configurations
    speaks."""
    settings = tables.settings(tables.quality_here(requests))
    said = [sentence(settings[0][1]) for sentence in (no_loss, fewer_bits_agree, text_cost, frontier, likelihood)] if settings else []
    return [sentence for sentence in said if sentence]


def _is_reference(table):
    return (table["backend"] == REFERENCE[0]) & (table["option"] == REFERENCE[1])


def _share(fraction):
    """`31 %`, `0.13 %`: a fraction in percent, two digits."""
    return f"{number(float(f'{100 * fraction:.2g}'))} %".replace("-", "−")


def no_loss(table):
    """The fastest option that gives the reference's answers token for token, and how many others do."""
    same = table[(table["same_answers"] == table["answers"]) & ~_is_reference(table)].dropna(subset="output_tokens_per_s")
    compared = int((table["agreement"].notna() & ~_is_reference(table)).sum())
    if not compared:
        return None
    reference = f"the float32 reference, {' '.join(REFERENCE)}"
    if same.empty:
        return f"None of the {compared} other options answers every prompt token for token like {reference}."
    best = same.loc[same["output_tokens_per_s"].idxmax()]
    return (
        f"{len(same)} of the {compared} other options answer every prompt token for token like {reference}; "
        f"the fastest of them is {_name(best)} with {number(best['output_tokens_per_s'])} output tokens/s."
    )


def fewer_bits_agree(table):
    """Which option below 16 bits keeps most of the reference's tokens, and which fewest."""
    narrow = table[[(tables.bits(option) or 16) < 16 for option in table["option"]]].dropna(subset="agreement")
    if len(narrow) < 2:
        return None
    most, least = narrow.loc[narrow["agreement"].idxmax()], narrow.loc[narrow["agreement"].idxmin()]
    if most["agreement"] == least["agreement"]:
        return f"All {len(narrow)} options below 16 bits keep {_share(most['agreement'])} of the reference's tokens."
    return (
        f"Of the {len(narrow)} options below 16 bits, {_name(most)} keeps most of the reference's tokens, {_share(most['agreement'])} at the same "
        f"place, and {_name(least)} fewest, {_share(least['agreement'])}."
    )


def text_cost(table):
    """What the fixed text's perplexity says: the dearest option, and the cheapest one other than the reference."""
    others = table[~_is_reference(table)].dropna(subset="perplexity_ratio")
    if others.empty:
        return None
    worst, best = others.loc[others["perplexity_ratio"].idxmax()], others.loc[others["perplexity_ratio"].idxmin()]
    own = worst["perplexity"] / worst["perplexity_ratio"]
    said = f"On the fixed text the reference has a perplexity of {number(own)}; {_name(worst)} has {number(worst['perplexity'])}, {_above(worst)}"
    return said + (f", and {_name(best)} {number(best['perplexity'])}, {_above(best)}." if best.name != worst.name else ".")


def _above(row):
    """How far a perplexity lies from the reference's, in words."""
    apart = row["perplexity_ratio"] - 1
    return f"{_share(abs(apart))} {'more' if apart > 0 else 'less'}" if abs(apart) >= 5e-5 else "the same"


def frontier(table):
    """The options that no other beats in both speed and agreeing tokens, from the most faithful to the fastest."""
    table = table.assign(lost=1 - table["agreement"]).dropna(subset=["lost", "output_tokens_per_s"])
    edge = table[quality.frontier(table, "lost")].sort_values("output_tokens_per_s")
    if len(table) < 2:
        return None
    if len(edge) == 1:
        return f"No option trades quality for speed: {_rate(edge.iloc[0])} is the fastest and none agrees with the reference more."
    steps = [f"{_name(row)} ({number(row['output_tokens_per_s'])} tokens/s, {_share(row['agreement'])} of the tokens)" for _, row in edge.iterrows()]
    below = len(table) - len(edge)
    rest = {0: "", 1: "; one option lies below it"}.get(below, f"; {below} options lie below it")
    return f"More speed is bought with other answers along this line: {', '.join(steps)}{rest}."


def likelihood(table):
    """Whether the answers' likelihood under the reference tells the options apart: their excess against its interval over prompts."""
    changed = table[table["same_answers"] < table["answers"]].dropna(subset=["excess_nll_nats", "excess_interval"])
    if changed.empty:
        return None
    apart = changed[changed["excess_nll_nats"].abs() > changed["excess_interval"]]
    ends = changed.loc[[changed["excess_nll_nats"].idxmin(), changed["excess_nll_nats"].idxmax()][: len(changed)]]
    spread = " to ".join(f"{_nats(row)} ({_name(row)})" for _, row in ends.iterrows())
    return (
        f"Under the reference, the answers of options that differ from it have an NLL per token that lies {spread} nats above that of its own answers; "
        f"beyond the 95 % interval over prompts this is so for {len(apart)} of {len(changed)}."
    )


def _nats(row):
    return f"{row['excess_nll_nats']:+.2g}".replace("-", "−")


# Servers under load: sentences from bench/serving_tables.py.


def serving_findings(requests):
    """What the servers of the machine in focus have shown under load, as Markdown sentences."""
    said = [within_objectives(requests), loops_disagree(requests), more_at_once(requests), *drafts_under_load(requests), server_costs(requests)]
    return [sentence for sentence in said if sentence]


def _loaded(row):
    """`concurrency 16`, `4 requests/s`: the load of a level."""
    return f"concurrency {number(row['load'])}" if row["loop"] == "closed" else f"{number(row['load'])} requests/s"


def server_costs(requests):
    """What a token and the first one cost more through an engine's own server than in process, one request at a time: cheapest and dearest server."""
    table = loads.server_cost(requests)
    if table.empty:
        return None
    said = [f"{_more(100 * (row['tpot_factor'] - 1))} % per token, {_more(1e3 * row['ttft_cost_s'])} ms to the first ({_name(row)})" for _, row in table.iterrows()]
    return f"One request at a time, going through an engine's own server instead of calling it in process costs {' to '.join(dict.fromkeys((said[0], said[-1])))}."


def _more(value):
    """A difference with its sign, as a reader writes it: +3.1, −0.4."""
    return f"{'−' if value < 0 else '+'}{number(abs(value))}"


def within_objectives(requests):
    """The level with the best throughput that holds the objectives of study.yaml, and the best level of all."""
    table = results.named(loads.levels(requests)).dropna(subset="output_tokens_per_s")
    if table.empty:
        return None
    (goal, holds), most = loads.goals()[0], table.loc[table["output_tokens_per_s"].idxmax()]
    most_said = f"{number(most['output_tokens_per_s'])} output tokens/s"
    held = table[holds(table) == 1]
    if held.empty:
        return f"No server held the objectives ({goal}) at any load; the most that came out was {most_said}, from {_name(most)} at {_loaded(most)}."
    best = held.loc[held["output_tokens_per_s"].idxmax()]
    said = f"Within the objectives ({goal}) {_name(best)} yields most: {number(best['output_tokens_per_s'])} output tokens/s at {_loaded(best)}"
    return said + (f"; without them it is {most_said}, from {_name(most)} at {_loaded(most)}." if best.name != most.name else ", the most of all levels.")


def loops_disagree(requests):
    """How far the p99 TTFT of an open loop lies from that of a closed one at the same throughput, where they differ most."""
    table = loads.disagreement(requests)
    if table.empty:
        return None
    row = results.named(table.loc[[np.log(table["ratio"]).abs().idxmax()]]).iloc[0]
    waits = f"{number(row['ttft_p99_s'] * 1e3)} ms in an open loop ({number(row['load'])} requests/s) and {number(row['closed_ttft_p99_s'] * 1e3)} ms in a closed one"
    said = f"At the same throughput the two loops disagree most with {_name(row)}: at {number(row['output_tokens_per_s'])} output tokens/s"
    return f"{said} the 99th percentile of TTFT is {waits}, {_times(row['ratio'])} as long."


def more_at_once(requests):
    """What several times the concurrency costs each user and yields in all: the curve that pays least for it, and the one that pays most."""
    table = results.named(loads.widened(requests))
    if table.empty:
        return None
    cheap, dear = table.loc[table["slower"].idxmin()], table.loc[table["slower"].idxmax()]
    pays = [f"{_times(row['slower'])} as long with {_name(row)}, for {_times(row['more'])} the throughput" for row in (cheap, dear)]
    said = f"At {loads.WIDER} times the concurrency a token takes {pays[0]}"
    return f"{said}; and {pays[1]}." if cheap.name != dear.name else f"{said}."


def drafts_under_load(requests):
    """One sentence per option that drafts: how much faster tokens come with one request at a time, and at the widest closed loop."""
    table = results.named(loads.speculation(requests).query("loop == 'closed'")).dropna(subset="pace")
    said = []
    for _, curve in table.groupby(loads.CURVE, sort=True):
        first, last = curve.loc[curve["load"].idxmin()], curve.loc[curve["load"].idxmax()]
        beside = f"With drafts ({_name(first)} against {first['plain']}) tokens come {_times(first['pace'])} as fast at {_loaded(first)}"
        said.append(beside + (f", and {_times(last['pace'])} as fast at {_loaded(last)}." if len(curve) > 1 else "."))
    return said


def published_users(requests=None):
    """The largest concurrency of each published engine on one GPU that gives every user the published example of a pace."""
    (words, holds), table = loads.goals()[1], loads.published_single().query("loop == 'closed'")
    largest = table[holds(table) == 1].groupby("backend")["load"].max().sort_values(ascending=False)
    one = table.iloc[0]
    counts = ", ".join(f"{engine} {number(load)}" for engine, load in largest.items())
    return f"The largest concurrency that was published with at least {loads.PER_USER} output tokens/s per user ({one['model']} on one {one['gpu']}): {counts}."


# How far load clients are off: sentences from bench/client_accuracy.py.


def client_findings(requests):
    """What the comparison of load clients on the machine in focus has shown, as Markdown sentences; none where there was none."""
    table = client_accuracy.here(results.load_accuracy(requests.attrs.get("folder")))
    return [sentence for sentence in (own_error(table), *peers_errors(table), goal_met(table)) if sentence]


def _two(value):
    return number(float(f"{value:.2g}")).replace("-", "−")


def _ms(value):
    return f"{_two(value)} ms"


def own_error(table):
    """How far our own client was off at the most streams that it sustained."""
    mine = client_accuracy.sustained(table[table["client"] == client_accuracy.OURS])
    if mine.empty:
        return None
    top = mine.loc[mine["streams"].idxmax()]
    said = f"At {client_accuracy.at(top['streams'])} ({_two(top['events_per_s'])} events/s) {_client(top)} is off by {_ms(top['ttft_error_ms'])} in the mean TTFT"
    said += f" and by {_ms(top['itl_p99_excess_ms'])} in the 99th percentile of ITL, for {number(top['cpu_us_per_token'])} µs of CPU time per token"
    if pd.isna(top["delay_mean_ms"]):
        return f"{said}."
    return f"{said}; event by event it is late by {_ms(top['delay_mean_ms'])} in the mean and {_ms(top['delay_p99_ms'])} in the 99th percentile."


def _client(row):
    return f"**{clients.title(row['client'])}**"


def peers_errors(table):
    """One sentence per peer: how far it was off at every load that it sustained, as a multiple of ours, and what it takes of the CPU."""
    for _, rows in client_accuracy.against(table).groupby("client"):
        each = [f"{_ms(row['peer_ms'])} at {number(row['streams'])}" for _, row in rows.iterrows()]
        ratio, cpu = (_range(rows[column]) for column in ("error_ratio", "cpu_ratio"))
        streams = "streams" if rows["streams"].max() > 1 else "stream"
        yield f"{_client(rows.iloc[0])} is off by {', '.join(each)} {streams} in the mean TTFT: {ratio} as far as ours, with {cpu} the CPU time per token."


def _range(values):
    """`3 times`, `3 to 40 times`: the smallest and the largest of some ratios."""
    low, high = _two(values.min()), _two(values.max())
    return f"{low} times" if low == high else f"{low} to {high} times"


def goal_met(table):
    """Whether the goal that was set for our client was met, and where it was missed."""
    missed = client_accuracy.goal(table)
    if missed is None:
        return None
    return f"The goal was not met: {'; '.join(missed)}." if missed else "The goal was met at every load."


def published_corrections(requests=None):
    """What latency.qmd says of the published table in numbers: name -> number, or words.

    Every item of husain_corrections.csv gives <item>_published, <item>_corrected and <item>_why; the rest is computed from the table:
    rows, platforms, shortest, longest and usual_tokens (mean tokens per answer), short_rows (rows below the usual), gpus, the rows of
    transformers and the endpoint as latency.qmd calls them, and mbu_<platform>: percent of the datasheet's bandwidth for the weights alone.
    """
    said, items = {}, data.table("published/husain_corrections")
    for _, row in items.iterrows():
        said |= {f"{row['item']}_{column}": _plain(row[column]) for column in ("published", "corrected", "why") if pd.notna(row[column])}
    table = data.table("published/husain_llama2_7b_latency")
    sixteen_bit = items.loc[(items["unit"] == "bits") & (items["corrected"] == 16), "platform"]
    return said | _counts(table) | _transformers(table, said) | _published_mbu(table, sixteen_bit)


def _plain(value):
    """Integers without a decimal point, words as they are."""
    return value if isinstance(value, str) else int(value) if float(value).is_integer() else float(value)


def _counts(table):
    tokens = table["output_tokens"]
    usual = tokens.mode()[0]
    return {
        "rows": len(table), "platforms": table["platform"].nunique(), "usual_tokens": _plain(usual),
        "short_rows": int((tokens < usual).sum()),
        "shortest": _plain(tokens.min()), "longest": _plain(tokens.max()), "gpus": ", ".join(table["gpu"].value_counts().index),
        "endpoint_tokens": _plain(tokens[table["platform"].str.contains("Endpoint")].iloc[0]),
    }  # fmt: skip


def _transformers(table, said):
    """The transformers rows: as published, and the unquantised file with and without its prompts."""
    rows = table[table["platform"].str.contains("Transformers")].set_index("options")
    counted, not_counted = said["unquantised_prompt_counted_corrected"], said["unquantised_output_only_corrected"]
    return {
        "no_options": _plain(rows.loc["-", "tokens_per_s"]), "nf4": _plain(rows["tokens_per_s"].drop("-").iloc[0]),
        "hf_tokens": _plain(rows.loc["-", "output_tokens"]),
        "prompt_counted": counted, "prompt_not_counted": not_counted,
        "prompt_excess": f"{100 * (counted / not_counted - 1):.0f} %",
    }  # fmt: skip


def _published_mbu(table, sixteen_bit):
    """Percent of the datasheet's bandwidth that reading 16-bit weights alone takes, for the plain rows of the `sixteen_bit` platforms."""
    weight_bytes = 2 * data.shape("llama-2-7b")["step_parameters"]
    sheet = data.table("gpus").set_index("gpu")["bandwidth_gb_per_s"] * 1e9
    plain = table["platform"].isin(sixteen_bit) & table["options"].isin(["-", "float16 quantization"])
    known = table[plain & table["gpu"].isin(sheet.index)]
    used = metrics.mbu(weight_bytes, 0, 1 / known["tokens_per_s"], known["gpu"].map(sheet))
    return {f"mbu_{p}": round(float(u) * 100) for p, u in zip(known["platform"], used)}


def committed_files():
    """Paths of the CSVs of all runs that git keeps."""
    listed = subprocess.run(["git", "ls-files", "_llama-inference/*.csv"], cwd=ROOT, capture_output=True, text=True, check=True).stdout.split()
    return [ROOT / name for name in listed if "/hardware/" not in name and "/clients/" not in name]


def committed():
    """All requests of the runs that git keeps: what a repository may claim of itself, whatever else this checkout has measured."""
    return results.load(committed_files())


def fill(text, sentences):
    """`text` with the sentences and the headline figure between the two comments that mark their place; ValueError without them."""
    place = re.compile(r"(<!-- findings: .*?-->\n).*?(<!-- end of findings -->)", re.S)
    if not place.search(text):
        raise ValueError("There is no place marked <!-- findings: … --> … <!-- end of findings --> in this file.")
    said = "\n".join(f"- {sentence}" for sentence in sentences) + "\n\n![Output tokens per second of every engine](figures/latency.svg)\n"
    return place.sub(lambda found: found[1] + said + found[2], text)


if __name__ == "__main__":
    if sys.argv[1:]:
        page = ROOT / sys.argv[1]
        page.write_text(fill(page.read_text(encoding="utf-8"), findings(committed())), encoding="utf-8")
    else:
        print("\n".join(findings(results.load())) or tables.EMPTY)
