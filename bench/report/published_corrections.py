"""Sentences of the topic published."""

import pandas as pd

from bench import inputs
from bench.report import words
from bench.topics import published as published_analysis
from llm_measured.core.definitions import Fields


def published_corrections() -> Fields:
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
    mbu = published_analysis.published_mbu()
    mbu = mbu[mbu["label"].isin(table["platform"])]
    used = {f"mbu_{label}": round(float(share) * 100) for label, share in zip(mbu["label"], mbu["mbu"])}
    return corrections | _counts(table) | _transformers(table, corrections) | used


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
