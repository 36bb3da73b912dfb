"""What cannot be true: bytes and operations beyond the device."""

import re

import numpy as np
import pandas as pd

from llm_measured.audit import catalog, frame
from llm_measured.audit.checks.finding import IMPOSSIBLE, UNCOUNTED, Finding, check, count, levels, number
from llm_measured.audit.frame import Audited
from llm_measured.core import metrics, plausibility

ROUNDING = 1.02  # published figures are rounded
KV_BYTES = 1  # of a cached number: the least that engines store (8 bits)
# a single stream is assumed where a file names no batch and no concurrency, up to so many times the peak
GUESS_AT_MOST = 2.5
LEAST_ACTIVE = 40  # times that a mixture has at the most of what a token passes
MOST_DEVICES = 72  # that share one model: the largest NVLink domain; beyond that no count has to be known
PEAK_FACTORS = (
    (4.0, 4.0),
    (8.0, 2.0),
    (64.0, 1.0),
)  # a device computes 4-bit numbers up to four times as fast as 16-bit ones, 8-bit twice
FOUR_BIT_DEVICES = ("B200", "GB200", "B300", "RTX 5090", "RTX 5080", "RTX PRO 6000", "MI355X")


# What `peaks` looks at, and columns of which `operations` makes its rates.
SAID_OF_PEAKS = (
    "level gpu model weights option name engine tensor_parallel weight_bytes model_bytes model_parameters "
    "bandwidth_bytes_per_s flops_per_s"
).split()
RATES = (
    "prompt_tokens_per_s total_prompt_tokens requests_per_s total_tokens_per_s output_tokens_per_s "
    "total_output_tokens"
).split()


@frame.once
def peaks(audited: Audited) -> pd.DataFrame:
    """One row per level: devices, bandwidth_bytes_per_s and flops_per_s of all of them, step_bytes
    (weights), bits, shape; NaN where unknown.

    Weights whose format is not stated count nothing here. Measured peaks stand before
    datasheets. `counted`: the number of devices is stated, not assumed as the fewest that hold the weights.
    `dense`: a table knows how many parameters a token passes; of other models only the name's size is known.
    """
    out = []
    for row in audited.levels[SAID_OF_PEAKS].to_dict("records"):
        gpu, shape = catalog.device(row["gpu"]), catalog.model(row["model"])
        # dtype float16 beside a model's name with AWQ is the format of the activations: the fewest bits count
        named = [catalog.bits(row[c]) for c in ("weights", "option", "name", "model")]
        bits = min((size for size in named if size), default=np.nan)
        if bits != bits and row["weights"].strip().lower() in catalog.UNQUANTISED - {""}:
            bits = 16.0
        weights = _stated(_step_bytes(row, shape), shape and shape["step_parameters"] * bits / 8)
        devices, counted = _devices(row, gpu, weights)
        bandwidth = _stated(row["bandwidth_bytes_per_s"], gpu and gpu["bandwidth_bytes_per_s"])
        flops = _stated(row["flops_per_s"], gpu and gpu["flops_per_s"] * _factor(gpu, bits))
        out.append(
            {
                "level": row["level"],
                "devices": devices,
                "counted": counted,
                "bandwidth_bytes_per_s": bandwidth * devices,
                "flops_per_s": flops * devices,
                "step_bytes": weights,
                "bits": bits,
                "shape": shape,
                "dense": not shape or shape["listed"] or shape["mixture"],
                "speculative": catalog.speculative(row["option"], row["name"], row["engine"], row["model"]),
                "measured": row["bandwidth_bytes_per_s"] > 0,
            }
        )
    return pd.DataFrame(out).set_index("level")


def _stated(own, known):
    """What the file states, else what is known of the name; NaN where neither is."""
    return own if own > 0 else np.nan if known is None else known


def _step_bytes(row, shape):
    """Bytes of weights that one step reads, from what the file says of the whole model; NaN where unknown.

    Of a mixture of experts that is what a token passes, and of an embedding table nothing: one row is read.
    """
    whole, parameters = row["model_bytes"], row["model_parameters"]
    if row["weight_bytes"] > 0 or not whole > 0:
        return row["weight_bytes"]
    if catalog.mixture(row["model"], row["option"], row["weights"]):
        if not shape or not parameters > 0:
            return np.nan
        return whole * min(shape["step_parameters"] / parameters, 1.0)
    if shape and shape["exact"] and parameters > 0:
        return whole * min(shape["step_parameters"] / parameters, 1.0)
    return whole


def _devices(row, gpu, weights):
    """(devices that share the model, whether that is stated): as stated, in the device's name, else the
    fewest
    whose memories hold the weights; one for a CPU."""
    if row["tensor_parallel"] >= 1:
        return float(row["tensor_parallel"]), True
    if not gpu:
        return 1.0, True
    if gpu["count"]:
        return float(gpu["count"]), True
    fit = np.ceil(weights / gpu["memory_bytes"])  # NaN where one of the two is not known
    return max(float(fit), 1.0) if fit == fit else 1.0, False


def _factor(gpu, bits):
    """How many times its 16-bit peak a device may reach with weights of so many bits; unknown bits count as
    the fewest that it knows."""
    least = 4.0 if gpu["gpu"] in FOUR_BIT_DEVICES else 8.0
    return next(
        factor for limit, factor in PEAK_FACTORS if max(bits if bits == bits else least, least) <= limit
    )


@frame.once
@np.errstate(all="ignore")
def steps(audited: Audited) -> tuple[pd.Series, pd.Series]:
    """Seconds of one decode step in each level, as published: TPOT, else gap, else batch / tokens/s, else
    an answer's time / tokens; and
    whether a single stream had to be assumed. Requests give their level's median."""
    known = audited.figures()
    at_once = frame.first(known["batch_size"], known["concurrency"])
    loads = at_once, known["request_rate"], known["requests_per_s"], known["total_tokens_per_s"]
    alone = np.isnan(np.array(loads)).all(axis=0)
    paces = [1 / known[f"request_tokens_per_s{q}"] for q in ("", "_mean")]
    rated = frame.first(at_once, np.where(alone, 1.0, np.nan)) / known["output_tokens_per_s"]
    whole = frame.middle(known, "e2e") / known["output_tokens"]
    step = frame.first(frame.middle(known, "tpot"), frame.middle(known, "itl"), *paces)
    assumed = np.isnan(step) & alone & ~np.isnan(rated)
    index = pd.Index(known["level"], name="level")
    step = pd.Series(frame.first(step, rated, whole), index)
    rows = audited.good()
    rows = rows[(rows["output_tokens"] > 1) & ~(rows["drafted_tokens"] > 0)]
    own = ((rows["e2e_s"] - rows["ttft_s"]) / (rows["output_tokens"] - 1)).fillna(
        rows["e2e_s"] / rows["output_tokens"]
    )
    own = own.fillna(rows["tpot_s"]).fillna(rows["itl_s"]).fillna(1 / rows["request_tokens_per_s"])
    return own.groupby(rows["level"]).median().reindex(index).fillna(step), pd.Series(assumed, index)


@check(
    IMPOSSIBLE,
    "MBU = (weight bytes + KV bytes of one request) / time per token / bandwidth > 1",
    "MosaicML, LLM Inference Performance Engineering (2023)",
    ("compute_beyond_device", "prefix_cache"),
)
def bandwidth_beyond_device(audited: Audited) -> Finding | None:
    """More bytes per second than the device's memory gives."""
    peak, (step, assumed) = peaks(audited), steps(audited)
    level = audited.levels.set_index("level")
    prompt = (
        level["prompt_tokens"].fillna(audited.good().groupby("level")["prompt_tokens"].median()).fillna(0)
    )
    cached = [s["kv_values_per_token"] if s else 0 for s in peak["shape"]] * prompt * KV_BYTES
    mbu = metrics.mbu(peak["step_bytes"], cached, step, peak["bandwidth_bytes_per_s"])
    hit = (mbu > ROUNDING) & ~peak["speculative"] & ~(assumed & (mbu > GUESS_AT_MOST))
    k, certain = _farthest(peak, mbu, hit)
    if k is None:
        return None
    single = " if one request ran at a time, as the file does not say" if assumed[k] else ""
    reads = f"reads {number(peak.at[k, 'step_bytes'] / 1e9)} GB of weights every {number(step[k] * 1e3)} ms, "
    numbers = {"mbu": float(mbu[k]), "step_ms": float(step[k] * 1e3), "bits": float(peak.at[k, "bits"])}
    of_all = peak.at[k, "bandwidth_bytes_per_s"] / 1e9
    if not certain.any():
        alone, bandwidth = mbu[k] * peak.at[k, "devices"], of_all / peak.at[k, "devices"]
        needs = f"{named(level, k)} {reads}{alone:.0%} of the {number(bandwidth, 4)} GB/s that it has"
        needs += f"{single}{levels(hit)}"
        return _uncounted("bandwidth_beyond_device", level.loc[k], peak.loc[k], needs, float(alone), numbers)
    open_ones = int((hit & ~certain).sum())
    others = f" So is one device in {count(open_ones, 'other level')}: state how many." if open_ones else ""
    fits = peak.at[k, "bits"] / mbu[k]
    bits = f"weights of at most {number(fits, 2)} bits, " if fits == fits else ""
    has = f"the {number(of_all, 4)} GB/s that {devices_named(level, peak, k)}"
    return Finding(
        f"Bandwidth beyond the device: {named(level, k)} {reads}{mbu[k]:.0%} of {has}{single}"
        f"{levels(certain)}.{others}",
        f"Possible: {bits}several tokens per step, a prompt or a cached answer in the count, more or "
        f"faster devices.",
        numbers=numbers,
        undone={"most_tokens_per_s": float(1 / step[k] / mbu[k])},
        file=level.at[k, "file"],
    )


def _farthest(peak, times, hit):
    """(the level that is farthest beyond the device, None where none is; which ones are certainly): a certain
    one where there is one, else the one that needs the most devices."""
    certain = hit & _stated_of(peak, times)
    if not hit.any():
        return None, certain
    return (times.where(certain) if certain.any() else (times * peak["devices"]).where(hit)).idxmax(), certain


def _stated_of(peak, times):
    """Which levels are beyond the device whatever the file leaves out: the number of devices, or how much of
    a model that no table knows a token passes."""
    counted = peak["counted"] | (times * peak["devices"] > MOST_DEVICES)
    return counted & (peak["dense"] | (times > LEAST_ACTIVE))


def _uncounted(name, level, peak, needs, times, numbers):
    """The finding where one device is not enough `times` over, and how many there were is not stated, or
    whether the model is a mixture of experts."""
    least = int(np.ceil(times / ROUNDING))
    if peak["counted"] and not peak["dense"]:
        ending = (
            f"No table knows the model: of a dense one {least} devices are needed, and of a mixture of "
            "experts as many as its active parameters need. State them (--model NAME-35B-A3B)."
        )
        change = "State how many parameters are active."
    else:
        ending = (
            f"At least {least} were at work, or the figure is wrong: state how many "
            f"(--tensor-parallel {least}, with make TP={least})."
        )
        change = "State the number of devices."
    return Finding(
        f"Impossible on one {str(level['gpu'])[:40]}: {needs}. {ending}",
        change,
        numbers=numbers | {"least_devices": least},
        file=level["file"],
        check=name,
        kind=UNCOUNTED,
    )


def named(level: pd.DataFrame, k: int) -> str:
    """Model, format and option of level `k` in words."""
    words = [str(level.at[k, c])[:40] for c in ("model", "weights", "option") if level.at[k, c]]
    return " ".join(dict.fromkeys(words)) or "the model"


def devices_named(level: pd.DataFrame, peak: pd.DataFrame, k: int) -> str:
    """The devices of level `k` with a verb, and whence their bandwidth is known."""
    n = peak.at[k, "devices"]
    what = str(level.at[k, "gpu"])[:40]
    what = what if n == 1 else re.sub(r"^\d+ ?[x×*] ?| ?[x×*] ?\d+$", "", what)
    having = f"{what} has" if n == 1 else f"{n:.0f} x {what} have"
    few = "" if peak.at[k, "counted"] or n == 1 else ", the fewest that hold the weights,"
    having = having.replace(" have", f"{few} have") if few else having
    return having + (" by measurement" if peak.at[k, "measured"] else " by datasheet")


def operations(audited: Audited) -> tuple[pd.Series, pd.Series, pd.Series, pd.Series]:
    """Prompt tokens/s, output tokens/s, and the share of the peak that each needs; one row per level, NaN
    where unknown."""
    peak, level = peaks(audited), audited.levels.set_index("level")
    prompts = level["prompt_tokens_per_s"].fillna(level["total_prompt_tokens"] / level["duration_s"])
    prompts = prompts.fillna(level["requests_per_s"] * level["prompt_tokens"])
    prompts = prompts.fillna(level["total_tokens_per_s"] - level["output_tokens_per_s"])
    outputs = level["output_tokens_per_s"].fillna(level["total_output_tokens"] / level["duration_s"])
    outputs = outputs.fillna(0)
    block = pd.Series(
        [(s.get("block_parameters") or 0.9 * s["step_parameters"]) if s else np.nan for s in peak["shape"]],
        peak.index,
    )
    whole = pd.Series([s["step_parameters"] if s else np.nan for s in peak["shape"]], peak.index)
    peak = peak["flops_per_s"]
    return prompts, outputs, 2 * block * prompts / peak, 2 * whole * outputs / peak


@check(
    IMPOSSIBLE,
    "MFU = 2 x (block parameters x prompt tokens/s + all parameters x output tokens/s) / peak > 1",
    "PaLM (2022)",
)
def compute_beyond_device(audited: Audited) -> Finding | None:
    """More operations per second than the device computes."""
    if not audited.levels_have(*RATES):
        return None
    peak, level = peaks(audited), audited.levels.set_index("level")
    prompts, outputs, of_prompts, of_outputs = operations(audited)
    mfu = of_prompts.fillna(0) + of_outputs
    k, certain = _farthest(peak, mfu, mfu > ROUNDING)
    if k is None:
        return None
    rates = f"{number(prompts[k] if prompts[k] == prompts[k] else 0)} prompt and {number(outputs[k])}"
    needs = f"{named(level, k)} at {rates} output tokens/s needs"
    if not certain.any():
        alone, share = float(mfu[k] * peak.at[k, "devices"]), {"mfu": float(mfu[k])}
        needs += f" {alone:.0%} of its peak of operations"
        return _uncounted("compute_beyond_device", level.loc[k], peak.loc[k], needs, alone, share)
    needs += f" {mfu[k]:.0%} of the peak that {devices_named(level, peak, k)}"
    return Finding(
        f"Operations beyond the device: {needs}{levels(certain)}.",
        "Possible: prompts that a prefix cache answered, more devices, or a rate that counts other tokens.",
        numbers={"mfu": float(mfu[k])},
        file=level.at[k, "file"],
    )


@frame.once
def too_fast_first_tokens(audited: Audited) -> tuple[int, int, float, float, float] | None:
    """(how many, of how many, a TTFT, the least that its prompt takes, its prompt tokens) of TTFTs below
    prefill FLOPs / peak; None: none."""
    peak, rows = peaks(audited), frame.rows(audited)
    rows = rows[(rows["ttft_s"] > 0) & (rows["prompt_tokens"] > 0)]
    names = ("block_parameters", "head_parameters", "attention_values")
    exact = {level: [s[name] for name in names] for level, s in peak["shape"].items() if s and s["exact"]}
    rows = rows[rows["level"].isin(list(exact))]
    if rows.empty:
        return None
    blocks, head, attention = np.array([exact[level] for level in rows["level"]]).T
    flops_per_s = rows["level"].map(peak["flops_per_s"])
    least = plausibility.least_prefill_s(blocks, head, attention, rows["prompt_tokens"], flops_per_s)
    certain = rows["level"].map(peak["counted"]) | (
        rows["ttft_s"] * MOST_DEVICES * ROUNDING < least * rows["level"].map(peak["devices"])
    )
    short = (rows["ttft_s"] * ROUNDING < least) & certain.astype(bool)
    if not short.any():
        return None
    k = (least / rows["ttft_s"]).where(short).idxmax()
    return (
        int(short.sum()),
        len(rows),
        float(rows.at[k, "ttft_s"]),
        float(least[k]),
        float(rows.at[k, "prompt_tokens"]),
    )
