"""What follows from a row, computed when it is read and never stored."""

import numpy as np
import pandas as pd

from llm_measured.core import hardware
from llm_measured.published import names

MEAN_OF_MAX = {"max_of_uniform_0.8": 0.9}  # mean of lengths drawn from 0.8 to 1.0 of their maximum


def datasheet(frame: pd.DataFrame) -> pd.DataFrame:
    """What the tables know of each row's accelerator and model; columns bandwidth_bytes_per_s,
    bandwidth_at_most (of the fastest variant, where the variant is unknown), tdp_w (likewise the most),
    peak_flops_per_s (dense, of the fastest format that the row's weights can use), peak_of_kind (the highest
    of any accelerator of its kind, of phones and NPUs the integrated ones'), parameters, active,
    block_parameters (what a token passes without embedding and head), weight_bits, read_bytes (weights
    that one decode step of one sequence reads at least), of which
    `exact` says whether shape or file size is known."""
    cards = hardware.by_accelerator()
    models = hardware.by_model()
    out = pd.DataFrame(index=frame.index)
    card = frame["accelerator"].where(frame["accelerator"].isin(cards.index))
    family = frame["accelerator_family"]
    best = cards.groupby("family")[["bandwidth_gb_per_s", "tdp_w"]].max()
    # A family of which one variant lacks the figure has no most.
    lacking = cards["bandwidth_gb_per_s"].isna().groupby(cards["family"]).any()
    best = best[~lacking.reindex(best.index)]
    out["bandwidth_bytes_per_s"] = card.map(cards["bandwidth_gb_per_s"]) * 1e9
    most = card.map(cards["bandwidth_gb_per_s"]).fillna(family.map(best["bandwidth_gb_per_s"]))
    out["bandwidth_at_most"] = most * 1e9
    out["tdp_w"] = card.map(cards["tdp_w"]).fillna(family.map(best["tdp_w"]))
    bits = pd.Series([f.bits if f else np.nan for f in names.formats(frame)], frame.index, dtype=float)
    out["weight_bits"] = bits
    out["peak_flops_per_s"] = _peak(frame, card, cards, bits) * 1e12
    kind = family.map(cards.drop_duplicates("family").set_index("family")["kind"])
    kind = kind.replace({"phone": "integrated", "NPU": "integrated"})
    out["peak_of_kind"] = _peak(frame, kind, _of_kinds(cards), bits) * 1e12
    known = frame["model"].where(frame["model"].isin(models.index))
    # A model that the table has without its size may be a mixture of experts: a total says nothing then.
    own = frame["parameters_b"].where(known.isna() | frame["active_b"].notna())
    out["parameters"] = known.map(models["parameters_b"]).fillna(own) * 1e9
    active = known.map(models["active_b"]).fillna(frame["active_b"])
    out["active"] = (active * 1e9).fillna(out["parameters"])
    experts = out["active"] < 0.95 * out["parameters"]
    # The input embedding is looked up, not read; where it is tied to the head, all of it is read.
    vocabulary = known.map(models["vocab_size"]) * known.map(models["hidden_size"])
    tied = known.map(models["tied_embeddings"].astype(str)) == "True"
    out["exact"] = vocabulary.notna() & (frame["weights_bytes"].notna() | (bits >= 16))
    unread = vocabulary.where(~tied, 0).fillna(0.07 * out["active"])
    # What a token passes but for the embedding and the head.
    ends = (vocabulary * np.where(tied, 1, 2)).fillna(0.2 * out["active"])
    out["block_parameters"] = (out["active"] - ends).where(out["active"] > ends)
    of_file = frame["weights_bytes"] * (out["active"] / out["parameters"]).where(
        experts | out["active"].isna(), 1
    )
    of_file = of_file * (1 - (unread / out["parameters"]).fillna(0.07))
    out["read_bytes"] = of_file.fillna((out["active"] - unread) * bits / 8)
    return out


def _of_kinds(cards: pd.DataFrame) -> pd.DataFrame:
    """The highest peaks of each kind of accelerator; a narrower format has at most twice the peak."""
    most = cards.groupby("kind").max(numeric_only=True)
    eight = most[["fp8_dense_tflops", "int8_dense_tops"]].max(axis=1)
    most["fp8_dense_tflops"] = eight.combine(most["fp4_dense_tflops"] / 2, np.fmax)
    most["fp16_dense_tflops"] = most["fp16_dense_tflops"].combine(most["fp8_dense_tflops"] / 2, np.fmax)
    return most


def _peak(frame: pd.DataFrame, card: pd.Series, cards: pd.DataFrame, bits: pd.Series) -> pd.Series:
    sixteen = card.map(cards[["fp16_dense_tflops", "fp16_acc16_dense_tflops"]].max(axis=1))
    eight = card.map(cards[["fp8_dense_tflops", "int8_dense_tops"]].max(axis=1)).fillna(2 * sixteen)
    four = card.map(cards["fp4_dense_tflops"]).fillna(eight)
    narrow = frame["weights_format"].fillna("").str.lower().str.contains("fp4")
    peak = sixteen.where(bits >= 16, eight)
    return peak.where(~narrow, four).where(bits.notna(), four).fillna(sixteen)


def lengths(frame: pd.DataFrame) -> tuple[pd.Series, pd.Series]:
    """(input, output) tokens of a mean request: of lengths that are maxima, what their distribution gives."""
    share = frame["lengths"].map(MEAN_OF_MAX).astype(float).fillna(1.0)
    return frame["input_tokens"] * share, frame["output_tokens"] * share


def in_flight(frame: pd.DataFrame) -> pd.Series:
    """Requests in flight: as measured, else as set, else one of a single stream."""
    single = pd.Series(np.where(frame["workload"] == "single", 1.0, np.nan), index=frame.index)
    return frame["in_flight_mean"].fillna(frame["batch"]).fillna(frame["concurrency"]).fillna(single)


def derived(frame: pd.DataFrame) -> pd.DataFrame:
    """One row per row of `frame`, same index; columns

    - output_tokens_per_s: of all accelerators together, the prompt taken out of a rate that counts it;
    - output_tokens_per_s_per_accelerator, output_tokens_per_s_per_request (1 / TPOT where it is known);
    - step_s: time of one decode step;
    - mbu: weights that a step reads at least ÷ step time ÷ datasheet bandwidth of the accelerators (no KV
      cache, so a lower bound; empty under speculative decoding, for unknown variants and formats);
    - mfu: 2 × parameters × prompt tokens/s ÷ dense peak of the datasheet;
    - j_per_output_token: as stated, else power ÷ rate;
    - roofline_share: reached ÷ the smaller of the bounds from bandwidth and arithmetic.
    """
    known = datasheet(frame)
    given, made = lengths(frame)
    cards, together = frame["accelerators"], in_flight(frame)
    out = pd.DataFrame(index=frame.index)

    rate = frame["throughput_raw"]
    of = frame["accelerators_decode"].fillna(cards)
    rate = rate.where(frame["throughput_scope"] != "per_accelerator", rate * of)
    rate = rate.where(frame["throughput_scope"] != "per_request", rate * together)
    rate = rate.where(frame["throughput_counts"] != "input+output", rate * made / (given + made))
    timed = together * made / frame["latency_raw_s"]
    out["output_tokens_per_s"] = rate.fillna(timed)
    out["output_tokens_per_s_per_accelerator"] = out["output_tokens_per_s"] / cards
    tpot = frame["tpot_mean_ms"].fillna(frame["tpot_p50_ms"]) / 1000
    out["output_tokens_per_s_per_request"] = (1 / tpot).fillna(out["output_tokens_per_s"] / together)
    out["step_s"] = 1 / out["output_tokens_per_s_per_request"]

    several = frame["speculative"].notna() & (frame["speculative"] != "none")
    replicas = frame["dp"].fillna(1)
    width = known["bandwidth_bytes_per_s"] * of / replicas
    out["mbu"] = (known["read_bytes"] / out["step_s"] / width).where(~several)
    # Of the fastest variant that the name may mean: what the checks hold against 1.
    most = known["bandwidth_at_most"] * of / replicas
    out["mbu_at_least"] = (known["read_bytes"] / out["step_s"] / most).where(~several)
    prompts = frame["prompt_tokens_per_s"]
    arithmetic = known["peak_flops_per_s"] * cards
    out["mfu"] = (2 * 0.93 * known["active"] * prompts / arithmetic).where(frame["prefix_cached"] != "yes")

    total = frame["power_w"].where(frame["power_scope"] != "accelerator", frame["power_w"] * cards)
    stated = frame["energy_j_per_output_token"].fillna(frame["energy_j_per_request"] / made)
    mlperf = frame["comparable_within"].notna()
    out["j_per_output_token"] = stated.fillna(total / out["output_tokens_per_s"]).where(
        ~mlperf | (frame["power_scope"] == "system")
    )
    bound = together / np.maximum(
        known["read_bytes"] / width, 2 * 0.93 * known["active"] * together / arithmetic.where(arithmetic > 0)
    ).fillna(known["read_bytes"] / width)
    out["roofline_share"] = (out["output_tokens_per_s"] / replicas / bound).where(~several)
    return out
