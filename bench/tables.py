"""Tables: one function per table, all requests in, a plain DataFrame with reader-ready column names out.

    python -m bench.tables latency     the table on the terminal

`html` and `text` write any of them out; pages, notebooks and the terminal show the same numbers because they call the same functions.
"""

import inspect
import re
import sys

import jinja2
import numpy as np
import pandas as pd

from bench import backends as engines
from bench import batching as sweeps
from bench import client_accuracy as accuracy
from bench import clients as load_clients
from bench import data, hardware, results
from bench import decision as choices
from bench import metrics as definitions
from bench import serving_tables as loads
from bench import step_time as steps
from bench import systems as known
from bench import quality as scores

TABLES = {}
# What is compared with each other stands in one panel of a figure and one block of a table.
SETTING = ["gpu", "model", "weights"]
# A name's suffix is its unit; the longer ones are looked for first.
UNITS = {
    "_tokens_per_s": "tokens/s", "_bytes_per_s": "bytes/s", "_flops_per_s": "FLOP/s", "_per_s": "1/s",
    "_tokens": "tokens", "_bytes": "bytes", "_s": "s",
}  # fmt: skip
ANSWER_CHARACTERS = 200
EMPTY = "nothing measured yet: make study"


def _listed(function):
    """Decorator: the function is a table that `names` lists."""
    TABLES[function.__name__] = function
    return function


def names():
    """Names of all tables."""
    return list(TABLES)


def label(row):
    """`backend option` of a row of `results.runs` or `results.summary`; synthetic weights are marked as such."""
    return f"{row['backend']} {row['option']}" + (" (synthetic)" if row["weights"] == "synthetic" else "")


def bits(option):
    """Bits per weight that the name of an option states, None if it states none: bfloat16 -> 16, int8_float32 -> 8, Q4_0 -> 4."""
    name = option.partition(" ")[0]  # without the number of devices (`results.named`)
    return next((int(n) for n in re.findall(r"\d+", name) if int(n) in (2, 3, 4, 5, 6, 8, 16, 32)), None)


def settings(requests):
    """[((gpu, model, weights), its requests)], the setting with the most configurations first, real weights before synthetic ones."""
    groups = list(requests.groupby(SETTING, sort=True))
    return sorted(groups, key=lambda g: (g[0][2] == "synthetic", -len(g[1][["backend", "option"]].drop_duplicates())))


def pairs(requests):
    """One row per pair of the overhead experiment on the machine in focus: the engine's own loop and the harness on the same prompt.

    `cost` is harness e2e / own loop's e2e - 1. A pair with a failure, or with two rows of the same kind, is left out.
    """
    rows = results.here(requests, "overhead")
    rows = rows[rows["error"] == ""]
    rows = rows.assign(pair=(rows["request"] - 1) // 2, harness=rows["ttft_s"].notna())
    keys = [*results.CONFIGURATION, "run_id", "pair", "prompt"]
    wide = rows.pivot_table(index=keys, columns="harness", values="e2e_s", aggfunc="first").reindex(columns=[False, True]).dropna()
    return wide.assign(cost=wide[True] / wide[False] - 1).reset_index()[[*keys, "cost"]].rename_axis(columns=None)


def median_interval(values, confidence=0.95):
    """(low, high) of the distribution-free interval of the median, from order statistics; NaN for fewer than six values."""
    from scipy.stats import quantile_test

    return tuple(quantile_test(np.asarray(values, dtype=float), p=0.5).confidence_interval(confidence)) if len(values) else (np.nan, np.nan)


def overhead_summary(requests):
    """One row per configuration of the overhead experiment, dearest first: pairs, median, low, high (as fractions)."""
    each = pairs(requests).groupby(results.CONFIGURATION)["cost"]
    rows = [(*key, len(costs), costs.median(), *median_interval(costs)) for key, costs in each]
    table = pd.DataFrame(rows, columns=[*results.CONFIGURATION, "pairs", "median", "low", "high"])
    return table.sort_values("median", ascending=False, ignore_index=True)


@_listed
def latency(requests):
    """One row per engine and option on the machine in focus, the fastest first within each device and model."""
    blocks = [results.summary(block) for _, block in settings(results.here(requests, "latency"))]
    every = pd.concat(blocks, ignore_index=True) if blocks else pd.DataFrame(columns=list(_latency_columns()))
    return _renamed(every, _latency_columns())


def _renamed(table, columns):
    """`table` reduced to `columns`: source name -> (reader's name, factor or None for text)."""
    return pd.DataFrame({title: table[name] if factor is None else table[name] * factor for name, (title, factor) in columns.items()})


def _latency_columns():
    return {
        "backend": ("engine", None), "option": ("option", None),
        "output_tokens_per_s": ("output tokens/s", 1), "interval": ("± 95 % interval (tokens/s)", 1),
        "ttft_s": ("TTFT (ms)", 1e3), "tpot_s": ("TPOT (ms)", 1e3), "itl_p99_s": ("ITL p99 (ms)", 1e3), "mbu": ("MBU", 1),
        "acceptance_rate": ("drafts accepted (%)", 100), "peak_memory_bytes": ("peak memory (MB)", 1e-6), "load_s": ("load (s)", 1), "runs": ("runs", 1), "failed": ("failed requests", 1),
        "backend_version": ("version", None), "gpu": ("device", None), "model": ("model", None), "weights": ("weights", None),
    }  # fmt: skip


@_listed
def published(requests=None):
    """The table of the published latency study, fastest first, as it was printed; see `findings.published_corrections`."""
    table = data.table("published/husain_llama2_7b_latency").sort_values("tokens_per_s", ascending=False, ignore_index=True)
    table = table[["platform", "options", "gpu", "tokens_per_s", "time_s", "output_tokens", "edition", "source"]]
    return table.rename(columns={"gpu": "GPU", "tokens_per_s": "tokens/s", "time_s": "time (s)", "output_tokens": "output tokens"})


@_listed
def machines(requests):
    """One row per machine that has measured anything: when, how much, and the best bandwidth that any run probed."""
    table = requests.groupby(["gpu", "host"], as_index=False).agg(
        runs=("run_id", "nunique"), requests=("run_id", "size"), first=("started", "min"), last=("started", "max"),
        best=("bandwidth_bytes_per_s", "max"),
    )  # fmt: skip
    table = table.assign(best=table["best"] / 1e9, first=table["first"].str[:10], last=table["last"].str[:10])
    return table.rename(
        columns={"gpu": "device", "first": "first measured", "last": "last measured", "best": "best probed bandwidth (GB/s)"}
    )


@_listed
def batching(requests):
    """One row per engine, option and batch of the sweeps on the machine in focus: what the batch gave and how much hardware it used."""
    columns = {
        "backend": ("engine", None), "option": ("option", None), "batch_size": ("batch size", 1), "prompt_tokens": ("prompt tokens", 1),
        "max_new_tokens": ("new tokens", 1), "requests_per_s": ("requests/s", 1), "output_tokens_per_s": ("output tokens/s", 1),
        "ttft_s": ("TTFT (ms)", 1e3), "tpot_s": ("TPOT (ms)", 1e3), "e2e_s": ("latency (s)", 1), "mbu": ("MBU", 1),
        "mfu_prefill": ("MFU, prefill", 1), "mfu_decode": ("MFU, decode", 1), "peak_memory_bytes": ("peak memory (MB)", 1e-6),
        "gpu": ("device", None), "model": ("model", None), "weights": ("weights", None),
    }  # fmt: skip
    return _renamed(sweeps.sweeps(requests), columns)


@_listed
def decision(requests):
    """Which engine should I use? One row per wish: the engine and option that fulfil it best on the machine in focus, and the next engine."""
    table = choices.choices(requests)
    value = [f"{number(v)} {u}" for v, u in zip(table["value"], table["unit"])]
    other = [f"{b} {o} ({number(v)})" if pd.notna(v) else "" for b, o, v in zip(table["next_backend"], table["next_option"], table["next_value"])]
    columns = {"want": "if you want", "backend": "use", "option": "option"}
    return table[list(columns)].rename(columns=columns).assign(**{"it gives": value, "the next engine": other})


@_listed
def step_time(requests):
    """The fitted step-time model per engine and option: coefficients with 95 % intervals, errors, and what limits a step."""
    named = {"overhead_s": ("overhead (ms)", 1e3), "bandwidth_bytes_per_s": ("bandwidth (GB/s)", 1e-9), "peak_flops_per_s": ("peak (GFLOP/s)", 1e-9)}
    columns = {"backend": ("engine", None), "option": ("option", None)}
    for name, (title, factor) in named.items():
        word = title.split()[0]
        columns |= {name: (title, factor), f"{name}_low": (f"{word} from", factor), f"{name}_high": (f"{word} to", factor)}
    columns |= {
        "first_limit": ("batch 1 limited by", None), "first_share": ("share of the step (%)", 100), "arithmetic_from": ("arithmetic limits from batch", 1),
        "residual": ("median error (%)", 100), "left_out": ("error of a batch left out (%)", 100), "left_out_worst": ("worst (%)", 100),
        "points": ("batches", 1), "gpu": ("device", None), "model": ("model", None),
    }  # fmt: skip
    fitted = steps.models(results.here(requests, "batching"))
    return _renamed(fitted if len(fitted) else pd.DataFrame(columns=list(columns)), columns)


@_listed
def prompt_cost(requests):
    """Whether 512 more input tokens cost less than 8 more output tokens, per engine and option at batch size 1."""
    costs = sweeps.prompt_cost(requests)
    costs = costs.assign(ratio=costs["input_s"] / costs["output_s"], holds=np.where(costs["input_s"] < costs["output_s"], "yes", "no"))
    columns = {
        "backend": ("engine", None), "option": ("option", None), "input_s": ("512 more input tokens (ms)", 1e3),
        "output_s": ("8 more output tokens (ms)", 1e3), "ratio": ("ratio", 1), "holds": ("cost less?", None),
        "from_tokens": ("from a prompt of (tokens)", 1), "gpu": ("device", None), "model": ("model", None),
    }  # fmt: skip
    return _renamed(costs.sort_values("ratio"), columns)


@_listed
def memory(requests):
    """The largest batch that the planner expects, that ran, and that did not, for every run under a limit of memory."""
    columns = {
        "backend": ("engine", None), "option": ("option", None), "limit_bytes": ("limit (MB)", 1e-6), "loaded_bytes": ("mapped when loaded (MB)", 1e-6),
        "kv_bytes_per_request": ("KV cache per request (MB)", 1e-6), "planned": ("planner expects", 1), "ran": ("largest batch that ran", 1),
        "failed": ("smallest that did not", 1), "error": ("its error", None), "gpu": ("device", None), "model": ("model", None),
    }  # fmt: skip
    return _renamed(sweeps.memory(requests), columns)


@_listed
def kv_cache(requests=None):
    """The published table of KV-cache sizes beside the formula's values."""
    columns = {
        "model": ("model", None), "sequence_tokens": ("tokens per sequence", 1), "batch_size": ("batch size", 1),
        "kv_fp16_gib": ("printed, 16 bits (GiB)", 1), "fp16_gib": ("computed", 1),
        "kv_int8_gib": ("printed, 8 bits (GiB)", 1), "int8_gib": ("computed, 8 bits", 1),
        "agree": ("equal as printed?", None), "source": ("source", None),
    }  # fmt: skip
    table = sweeps.kv_cache()
    return _renamed(table.assign(agree=np.where(table["agree"], "yes", "no")), columns)


@_listed
def planner(requests=None):
    """The largest batch that fits: model x precision x GPU x context; weights and a 16-bit KV cache in 90 % of the memory."""
    rows = ["model", "precision", "gpu", "weight_bytes"]
    wide = sweeps.planner().pivot_table(index=rows, columns="context_tokens", values="largest_batch", sort=False).reset_index()
    wide = wide.assign(weight_bytes=wide["weight_bytes"] / 1e9)
    names = {"gpu": "GPU", "weight_bytes": "weights (GB)"} | {c: f"largest batch at {number(c)} tokens" for c in wide.columns if not isinstance(c, str)}
    return wide.rename(columns=names).rename_axis(columns=None)


@_listed
def published_mbu(requests=None):
    """MBU of published 16-bit results at batch size 1 against the datasheet, each with its derivation."""
    columns = {
        "label": ("system", None), "model": ("model", None), "gpu": ("GPU", None), "tpot_s": ("TPOT (ms)", 1e3), "weight_bytes": ("weights read (GB)", 1e-9),
        "mbu": ("MBU", 1), "derivation": ("derivation", None), "source": ("source", None),
    }  # fmt: skip
    return _renamed(sweeps.published_mbu(), columns)


@_listed
def overhead(requests):
    """What measuring costs per engine and option: the median over pairs of harness / own loop - 1, in percent."""
    columns = {"backend": ("engine", None), "option": ("option", None), "pairs": ("pairs", 1), "median": ("cost, median (%)", 100)}
    columns |= {"low": ("95 % interval from (%)", 100), "high": ("to (%)", 100), "gpu": ("device", None), "model": ("model", None)}
    return _renamed(overhead_summary(requests), columns)


LOAD = {"loop": ("loop", None), "concurrency": ("concurrency", 1), "request_rate": ("request rate (1/s)", 1)}
ENGINE = {"backend": ("engine", None), "option": ("option", None)}
WHERE = {"gpu": ("device", None), "model": ("model", None), "weights": ("weights", None)}


def _replicas(table):
    """The column of replicas behind one address, where there are several of them anywhere."""
    return {"data_parallel": ("replicas", 1)} if (table["data_parallel"] > 1).any() else {}


def _apart(table):
    """`table` of levels with the load in a column of its own for each loop: concurrency, request_rate."""
    return table.assign(concurrency=table["load"].where(table["loop"] == "closed"), request_rate=table["load"].where(table["loop"] == "open"))


@_listed
def serving(requests):
    """One row per engine, option and level of load on the machine in focus: what came out, how long it took, and how late the client was."""
    table = _apart(loads.levels(requests))
    times = {"ttft": (50, 90, 99), "tpot": (50, 90, 99), "itl_p99": (50,), "e2e": (99,)}
    words = {"itl_p99": "ITL p99"}
    columns = ENGINE | LOAD | {
        "requests": ("requests", 1), "failed": ("failed", 1), "output_tokens_per_s": ("output tokens/s", 1), "user": ("user tokens/s", 1),
    } | {f"{name}_p{q}_s": (words.get(name, f"{name.upper()} p{q}") + " (ms)", 1e3) for name, qs in times.items() for q in qs} | {
        "goodput_per_s": ("goodput (requests/s)", 1), "late_p99_s": ("client late, p99 (ms)", 1e3), "runs": ("runs", 1),
    } | WHERE | {"tensor_parallel": ("tensor parallel", 1)} | _replicas(table)  # fmt: skip
    return _renamed(table.assign(user=1 / table["tpot_p50_s"]), columns)


@_listed
def serving_goal(requests):
    """Per latency goal: the largest concurrency and the largest request rate that hold it, here and in the published curves."""
    table = loads.goal(requests)
    columns = {"goal": ("goal", None)} | ENGINE | {
        "largest_concurrency": ("largest concurrency", 1), "concurrency_measured": ("concurrency measured up to", 1),
        "largest_rate": ("largest request rate (1/s)", 1), "rate_measured": ("rate measured up to (1/s)", 1),
    } | WHERE | {"tensor_parallel": ("tensor parallel", 1)} | _replicas(table)  # fmt: skip
    return _renamed(table, columns)


@_listed
def serving_published(requests=None):
    """The published curves of three engines on H100: TPOT, TTFT where it was printed, output tokens/s, per level of load."""
    columns = {"backend": ("engine", None)} | LOAD | {
        "tpot_p50_s": ("TPOT (ms)", 1e3), "ttft_p50_s": ("TTFT (ms)", 1e3), "per_device": ("output tokens/s per GPU", 1),
        "gpu": ("device", None), "model": ("model", None), "tensor_parallel": ("tensor parallel", 1), "source": ("source", None),
    }  # fmt: skip
    return _renamed(_apart(loads.published()), columns)


@_listed
def speculation_under_load(requests):
    """An option that drafts tokens beside the same option without, level by level; a server does not tell how many drafts were right."""
    table = _apart(loads.speculation(requests))
    columns = ENGINE | {"plain": ("beside", None)} | LOAD | {
        "output_tokens_per_s_plain": ("output tokens/s without drafts", 1), "output_tokens_per_s": ("output tokens/s with drafts", 1), "faster": ("times the throughput", 1),
        "tpot_p50_s_plain": ("TPOT p50 without drafts (ms)", 1e3), "tpot_p50_s": ("TPOT p50 with (ms)", 1e3), "pace": ("times as fast", 1),
        "acceptance_rate": ("drafts accepted (%)", 100),
    } | WHERE | {"tensor_parallel": ("tensor parallel", 1)} | _replicas(table)  # fmt: skip
    return _renamed(table, columns)


@_listed
def server_cost(requests):
    """What an engine's own server costs: one request at a time in process and through it, in runs that began close to each other."""
    columns = ENGINE | {
        "ttft_s_inside": ("TTFT in process (ms)", 1e3), "ttft_s": ("TTFT through the server (ms)", 1e3), "ttft_cost_s": ("more (ms)", 1e3),
        "tpot_s_inside": ("TPOT in process (ms)", 1e3), "tpot_s": ("TPOT through the server (ms)", 1e3), "tpot_factor": ("times", 1),
        "minutes": ("minutes between the runs", 1), "pairs": ("pairs", 1),
    } | WHERE  # fmt: skip
    return _renamed(loads.server_cost(requests), columns)


@_listed
def tensor_parallel(requests):
    """A model on more devices beside the fewest measured, level by level: here, and in the published curves."""
    table = _apart(loads.tensor_parallel(requests))
    columns = ENGINE | LOAD | {
        "tensor_parallel_fewest": ("tensor parallel, fewest", 1), "tensor_parallel": ("tensor parallel, more", 1),
        "tpot_p50_s_fewest": ("TPOT p50, fewest (ms)", 1e3), "tpot_p50_s": ("TPOT p50, more (ms)", 1e3), "pace": ("times as fast", 1),
        "output_tokens_per_s_fewest": ("output tokens/s in all, fewest", 1), "output_tokens_per_s": ("output tokens/s in all, more", 1), "faster": ("times the throughput", 1),
        "per_device_fewest": ("per device, fewest", 1), "per_device": ("per device, more", 1),
    } | WHERE | _replicas(table)  # fmt: skip
    return _renamed(table, columns)


@_listed
def client_accuracy(requests):
    """One row per load client and number of streams: what it reports less what the server did, here and in the published comparison."""
    own = accuracy.here(results.load_accuracy(requests.attrs.get("folder")))
    own = own.assign(client=[" ".join((load_clients.title(row["client"]), row["version"])) for _, row in own.iterrows()], source="measured on " + own["gpu"])
    columns = {
        "client": ("client", None), "streams": ("streams", 1), "events_per_s": ("events/s", 1), "requests": ("requests", 1), "failed": ("failed", 1),
        "ttft_error_ms": ("TTFT error, mean (ms)", 1), "ttft_error_connected_ms": ("without the first of each stream (ms)", 1),
        "itl_p99_ms": ("ITL p99 reported (ms)", 1), "itl_p99_excess_ms": ("ITL p99 above the server's (ms)", 1),
        "delay_mean_ms": ("event late by, mean (ms)", 1), "delay_p99_ms": ("p99 (ms)", 1), "cpu_us_per_token": ("CPU per token (µs)", 1),
        "peak_memory_bytes": ("peak memory (MB)", 1e-6), "error": ("error", None), "source": ("source", None),
    }  # fmt: skip
    every = pd.concat([part for part in (own, accuracy.published()) if len(part)], ignore_index=True).reindex(columns=list(columns))
    numeric = [name for name, (_, factor) in columns.items() if factor]
    return _renamed(every.astype(dict.fromkeys(numeric, float)), columns)


@_listed
def answers(requests):
    """The beginning of the first answer of every engine and option to every prompt; synthetic weights say nothing, so they are left out."""
    rows = results.here(requests, "latency")
    rows = rows[(rows["error"] == "") & (rows["weights"] != "synthetic")].sort_values(["model", "prompt", "backend", "option", "run_id"])
    rows = rows.drop_duplicates(["model", "prompt", "backend", "option"])
    cut = rows["answer"].str.slice(0, ANSWER_CHARACTERS) + np.where(rows["answer"].str.len() > ANSWER_CHARACTERS, "…", "")
    table = rows.assign(prompt=rows["prompt"].map(data.prompts("latency")).fillna(""), answer=cut)
    return table[["prompt", "backend", "option", "answer", "model"]].rename(columns={"backend": "engine"}).reset_index(drop=True)


def quality_here(requests):
    """`quality.summary` on the machine in focus."""
    return results.focus(scores.summary(requests), hardware.host())


@_listed
def quality(requests):
    """One row per engine and option that has been scored on the machine in focus, the fastest first; real weights only."""
    return _renamed(quality_here(requests), _quality_columns())


def _quality_columns():
    return {
        "backend": ("engine", None), "option": ("option", None), "output_tokens_per_s": ("output tokens/s", 1),
        "weight_bytes": ("weights read per token (MB)", 1e-6), "agreement": ("tokens as the reference's (%)", 100),
        "same_answers": ("answers the same", 1), "answers": ("answers", 1),
        "departs_first": ("same tokens before the earliest other one", 1), "departs_median": ("median over answers", 1),
        "reference_nll_nats": ("NLL of the answers (nats/token)", 1), "excess_nll_nats": ("above the reference's", 1),
        "excess_interval": ("± 95 % over prompts", 1), "perplexity": ("perplexity of the text", 1),
        "perplexity_ratio": ("times the reference's", 1), "gpu": ("device", None), "model": ("model", None),
    }  # fmt: skip


@_listed
def backends(requests=None):
    """Every engine of bench/backends/: what it is, what can be chosen, where it runs, and whether it has been measured."""
    measured = {p.parent.name for p in results.files()} if requests is None else set(requests["backend"])
    device = "cuda" if hardware.has_cuda() else "cpu"
    return pd.DataFrame([_backend(name, device, measured) for name in engines.names()])


@_listed
def systems(requests):
    """Every system of the published tables: what has been measured of it, and the command that measures it again on the published device."""
    columns = {
        "platform": ("platform", None), "options": ("as published", None), "state": ("state", None), "command": ("measures it again", None),
        "gpu": ("published on", None), "tensor_parallel": ("devices", 1), "study": ("study", None), "note": ("note", None),
    }  # fmt: skip
    return _renamed(known.systems(requests), columns)


def _backend(name, device, measured):
    try:
        module = engines.get(name)
    except Exception as error:  # whatever a contributed adapter does wrong, the other engines stay listed
        return {"engine": name, "state": f"does not load: {type(error).__name__}: {error}"}
    device = device if device in module.DEVICES else module.DEVICES[0]
    absent = engines.missing(name, device)
    state = ("measured" + (", not installed here" if absent else "")) if name in measured else absent or "installed"
    state = "; ".join([state, *(reason for reason in engines.absent(name, device) if reason != absent)])
    return {
        "engine": name, "what it is": _sentence(module.__doc__), "state": state, "options": ", ".join(module.OPTIONS),
        "devices": ", ".join(module.DEVICES), "environment": engines.environment(module, device) or "default",
    }  # fmt: skip


def _sentence(docstring):
    """First sentence of a docstring, without Markdown's marks."""
    return re.split(r"(?<=[.!?])\s", re.sub(r"[*`]|\s*<http\S+>", "", (docstring or "").strip()))[0].replace("\n", " ")


@_listed
def metrics():
    """The definitions in bench/metrics.py: name in the code, what it is, formula, unit, source, read from the docstrings."""
    functions = [f for f in vars(definitions).values() if inspect.isfunction(f) and f.__module__ == definitions.__name__]
    return pd.DataFrame([_metric(f) for f in functions if not f.__name__.startswith("_")])


def _metric(function):
    """`What it is, unit: formula, as SOURCE define it; conditions.` or `… (SOURCE 2023)` -> one row of the table of definitions."""
    name, doc = function.__name__, " ".join(inspect.getdoc(function).split("\n\n")[0].split())
    suffix = next((s for s in UNITS if name.endswith(s)), "")
    source = re.search(r",? as ([^;:.]+?) defines? it|\s*\(([A-Z][\w&. ]+ \d{4})\)", doc)
    if source:
        doc = doc.replace(source[0], "")
    doc = re.sub(r"; NaN [^.;]*|`", "", doc)  # what code must know and a reader need not
    what, _, formula = doc.rstrip(".").partition(": ")
    return {
        "metric": name, "what it is": what.removesuffix(f", {UNITS.get(suffix)}"), "formula": formula,
        "unit": UNITS.get(suffix, ""), "source": next((s for s in source.groups() if s), "") if source else "",
    }  # fmt: skip


def number(value):
    """A number as a reader wants it: three significant digits, no exponent, counts in full, nothing where it is missing."""
    if pd.isna(value):
        return ""
    if value == 0 or not np.isfinite(value) or float(value).is_integer() and abs(value) < 1e6:
        return f"{value:,.0f}"
    decimals = 2 - int(np.floor(np.log10(abs(value))))
    rounded = round(float(value), decimals)
    # A value that was given with fewer digits, such as a published 1.9, does not gain any.
    return f"{rounded:,.{max(decimals, 0)}f}" if rounded != value else f"{rounded:,.15g}"


def _cell(value, numeric):
    """(text, value to sort by or None) of one cell."""
    if numeric:
        return number(value), "" if pd.isna(value) else repr(float(value))
    return "" if pd.isna(value) else str(value), None


# An empty line would end the block of HTML where a page is Markdown; Quarto must not rebuild the table, or data-sort is lost.
TEMPLATE = jinja2.Environment(autoescape=True, trim_blocks=True, lstrip_blocks=True).from_string("""\
<div class="table-scroll" role="region" tabindex="0" aria-label="{{ caption or 'Table' }}">
<table class="sortable" data-quarto-disable-processing="true">
{% if caption %}
<caption>{{ caption }}</caption>
{% endif %}
<thead><tr>
{% for name, numeric in columns %}
<th scope="col"{{ ' class="number"' | safe if numeric }}>{{ name }}</th>
{% endfor %}
</tr></thead>
<tbody>
{% for row in rows %}
<tr>{% for text, sort in row %}{% if sort is not none %}<td class="number" data-sort="{{ sort }}">{{ text }}</td>
{%- elif loop.first %}<th scope="row">{{ text }}</th>{% else %}<td>{{ text }}</td>{% endif %}{% endfor %}</tr>
{% else %}
<tr><td colspan="{{ columns | length }}">{{ empty }}</td></tr>
{% endfor %}
</tbody>
</table>
</div>
{% if command %}
<p class="command">Redraw: <code>{{ command }}</code></p>
{% endif %}
""")


def html(table, caption="", command=""):
    """`table` as an accessible HTML table that scrolls sideways, everything escaped; numbers carry their raw value in data-sort."""
    numeric = [pd.api.types.is_numeric_dtype(kind) for kind in table.dtypes]
    rows = [[_cell(v, n) for v, n in zip(row, numeric)] for row in table.itertuples(index=False)]
    # One line per row of the table, whatever line breaks an answer has.
    rows = [[(" ".join(t.split()), s) for t, s in row] for row in rows]
    return TEMPLATE.render(columns=list(zip(table.columns, numeric)), rows=rows, caption=caption, command=command, empty=EMPTY)


def text(table):
    """`table` in fixed width for the terminal, with the same numbers as `html`."""
    if table.empty:
        return EMPTY
    shown = {c: [_cell(v, pd.api.types.is_numeric_dtype(table[c]))[0] for v in table[c]] for c in table.columns}
    return pd.DataFrame(shown).to_string(index=False)


def main(arguments):
    """Print the table named in `arguments`; ValueError listing the tables for any other name."""
    name = engines.choose("table", arguments[0] if arguments else "", names())
    print(text(TABLES[name](*([results.load()] if inspect.signature(TABLES[name]).parameters else []))))


if __name__ == "__main__":
    try:
        main(sys.argv[1:])
    except ValueError as error:
        sys.exit(str(error))
