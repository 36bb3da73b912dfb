"""Published results: their MBU."""

from collections.abc import Iterator

import numpy as np
import pandas as pd

from bench import inputs
from bench.topics import batching
from llm_measured.core import metrics, names

SIXTEEN_BITS = "weights in 16 bits"


def published_mbu() -> pd.DataFrame:
    """MBU of published 16-bit results at batch size 1: one row per result, the highest first.

    Columns label, model, gpu, tpot_s, derivation, source, weight_bytes, mbu (against the datasheet's
    bandwidth). Weights alone are counted; nobody measured the bandwidth, and nobody printed all that the
    derivation needs, so it stands beside each.
    """
    rows = [*_husain(), *_mosaic(), *_mlc()]
    table = pd.DataFrame(rows, columns="label model gpu tpot_s derivation source".split())
    sheet = {gpu: names.bandwidth(gpu) for gpu in set(table["gpu"])}
    weights = table["model"].map(lambda model: 2 * inputs.shape(model)["step_parameters"])
    table = table.assign(
        weight_bytes=weights, mbu=metrics.mbu(weights, 0, table["tpot_s"], table["gpu"].map(sheet))
    )
    return table.dropna(subset="mbu").sort_values("mbu", ascending=False, ignore_index=True)


def _husain() -> Iterator[tuple]:
    """Plain rows of the platforms that ran in 16 bits: 1 / (tokens/s), the wait for the first token
    included."""
    table = inputs.table("published/husain_llama2_7b_latency")
    items = inputs.table("published/husain_corrections")
    platforms = items.loc[(items["unit"] == "bits") & (items["corrected"] == 16), "platform"]
    plain = table[table["platform"].isin(platforms) & table["options"].isin(["-", "float16 quantization"])]
    why = f"TPOT taken as 1 / (tokens/s), the wait for the first token included; {SIXTEEN_BITS}"
    for _, row in plain.iterrows():
        yield row["platform"], "llama-2-7b", row["gpu"], 1 / row["tokens_per_s"], why, row["source"]


def _mosaic() -> Iterator[tuple]:
    """MPT-7B at batch size 1: (1 / requests/s - TTFT) / (output tokens - 1), where a TTFT was printed, else
    without it."""
    waits = inputs.table("published/mosaicml_ttft_ms").query("gpus == 1 and batch_size == 1")
    waits = waits.dropna(subset="ttft_ms").set_index(["model", "gpu"])["ttft_ms"]
    for _, row in batching.published_sweep().query("batch_size == 1").iterrows():
        wait = waits.get((row["model"], row["gpu"]), np.nan) / 1e3
        if np.isfinite(wait):
            tpot = (row["e2e_s"] - wait) / (row["output_tokens"] - 1)
            taken = f"(1 / (requests/s) − TTFT) / {row['output_tokens'] - 1}"
        else:
            tpot = row["e2e_s"] / row["output_tokens"]
            taken = f"1 / (requests/s) / {row['output_tokens']}, no TTFT printed"
        why = f"TPOT taken as {taken}; {SIXTEEN_BITS}"
        yield "MosaicML's batch sweep", "mpt-7b", row["gpu"], tpot, why, row["source"]


def _mlc() -> Iterator[tuple]:
    """Llama-3-8B in 16 bits on one H100 at concurrency 1: the printed TPOT."""
    table = inputs.table("published/mlc_h100_tpot")
    one = table[(table["model"] == "Llama-3-8B fp16") & (table["tensor_parallel"] == 1)]
    one = one[(one["load"] == "concurrency") & (one["level"] == 1)]
    why = f"TPOT as printed, at concurrency 1; {SIXTEEN_BITS}"
    for _, row in one.iterrows():
        yield row["engine"], "llama-3-8b", row["gpu"], row["tpot_ms"] / 1e3, why, row["source"]
