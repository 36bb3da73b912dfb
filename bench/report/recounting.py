"""Our tokens per second, counted in the ways of the published studies."""

import pandas as pd

from bench.topics import machines

# What the published counting would make of our rows: column of `recounted` -> name in the sentences of
# latency.qmd.
COUNTINGS = {
    "prompt counted": "with_prompt",
    "first prompt left out": "without_first",
    "wait left out": "without_wait",
}


def recounted(rows: pd.DataFrame) -> pd.DataFrame:
    """One row per engine and option on the default machine: tokens/s as counted here and elsewhere.

    The wait left out is 1 / TPOT. Means over requests, as in the published table.
    """
    rows = machines.on_default_machine(rows, "latency")
    rows = rows[rows["error"] == ""]
    first = rows.groupby("run_id")["request"].transform("min")
    rows = rows.assign(
        **{
            "output tokens/s": rows["output_tokens_per_s"],
            "prompt counted": (rows["prompt_tokens"] + rows["output_tokens"]) / rows["e2e_s"],
            "first prompt left out": rows["output_tokens_per_s"].where(rows["request"] > first),
            "wait left out": 1 / rows["tpot_s"],
        }
    )
    shown = ["output tokens/s", *COUNTINGS]
    table = rows.groupby(["gpu", "model", "weights", "backend", "option"], as_index=False)[shown].mean()
    table = table.sort_values(
        ["gpu", "model", "weights", "output tokens/s"], ascending=[True, True, True, False], ignore_index=True
    )
    return table[["backend", "option", *shown, "model", "gpu"]].rename(
        columns={"backend": "engine", "gpu": "device"}
    )


def changes(rows: pd.DataFrame) -> dict[str, str]:
    """How each way of counting changes our figures: name -> median and extremes; empty without data."""
    table = recounted(rows)
    change = table[list(COUNTINGS)].div(table["output tokens/s"], axis=0) - 1
    return {name: spread(change[column].dropna()) for column, name in COUNTINGS.items()} if len(table) else {}


def spread(fractions: pd.Series) -> str:
    """`+3.1 % (+0.2 % to +9.8 %)`: median, lowest and highest of some fractions."""
    if fractions.empty:
        return "an unknown amount"
    low, middle, high = (
        f"{q * 100:+.2g}\N{NO-BREAK SPACE}%".replace("-", "−") for q in fractions.quantile([0, 0.5, 1])
    )
    return f"{middle} ({low} to {high})"
