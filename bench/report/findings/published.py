"""Sentences of the topic published."""

import pandas as pd

from bench import hardware, inputs, metrics
from bench.definitions import Fields
from bench.report.findings import words


def published_corrections(requests: pd.DataFrame | None = None) -> Fields:
    """What latency.qmd states of the published table: {name: number or words}.

    Every item of husain_corrections.csv gives <item>_published, <item>_corrected and <item>_why; the rest is
    computed from the table: rows, platforms, shortest, longest and usual_tokens (mean tokens per answer),
    short_rows (rows below the usual), gpus, the rows of transformers and the endpoint as latency.qmd calls
    them, and mbu_<platform>: percent of the datasheet's bandwidth for the weights alone.
    """
    items = inputs.table("published/husain_corrections")
    corrections = {
        f"{row['item']}_{column}": words.plain(row[column])
        for _, row in items.iterrows()
        for column in ("published", "corrected", "why")
        if pd.notna(row[column])
    }
    table = inputs.table("published/husain_llama2_7b_latency")
    sixteen_bit = items.loc[(items["unit"] == "bits") & (items["corrected"] == 16), "platform"]
    computed = _counts(table) | _transformers(table, corrections) | _published_mbu(table, sixteen_bit)
    return corrections | computed


def _counts(table):
    tokens = table["output_tokens"]
    usual = tokens.mode()[0]
    return {
        "rows": len(table),
        "platforms": table["platform"].nunique(),
        "usual_tokens": words.plain(usual),
        "short_rows": int((tokens < usual).sum()),
        "shortest": words.plain(tokens.min()),
        "longest": words.plain(tokens.max()),
        "gpus": ", ".join(table["gpu"].value_counts().index),
        "endpoint_tokens": words.plain(tokens[table["platform"].str.contains("Endpoint")].iloc[0]),
    }


def _transformers(table, corrections):
    """The transformers rows: as published, and the unquantised file with and without its prompts."""
    rows = table[table["platform"].str.contains("Transformers")].set_index("options")
    counted = corrections["unquantised_prompt_counted_corrected"]
    not_counted = corrections["unquantised_output_only_corrected"]
    return {
        "no_options": words.plain(rows.loc["-", "tokens_per_s"]),
        "nf4": words.plain(rows["tokens_per_s"].drop("-").iloc[0]),
        "hf_tokens": words.plain(rows.loc["-", "output_tokens"]),
        "prompt_counted": counted,
        "prompt_not_counted": not_counted,
        "prompt_excess": f"{100 * (counted / not_counted - 1):.0f} %",
    }


def _published_mbu(table, sixteen_bit):
    """Percent of the datasheet's bandwidth that reading 16-bit weights alone takes, for the plain rows of the
    `sixteen_bit` platforms."""
    weight_bytes = 2 * inputs.shape("llama-2-7b")["step_parameters"]
    sheet = {gpu: hardware.bandwidth(gpu) for gpu in set(table["gpu"])}
    plain = table["platform"].isin(sixteen_bit) & table["options"].isin(["-", "float16 quantization"])
    known = table[plain & table["gpu"].map(sheet).notna()]
    used = metrics.mbu(weight_bytes, 0, 1 / known["tokens_per_s"], known["gpu"].map(sheet))
    return {f"mbu_{p}": round(float(u) * 100) for p, u in zip(known["platform"], used)}
