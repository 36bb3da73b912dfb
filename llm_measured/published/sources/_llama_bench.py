"""What a line of llama-bench's own table means, whoever ran it."""

import re
from typing import Any

from llm_measured.core.definitions import Value
from llm_measured.published.reading import Record, after_sign, joined, leading, scaled
from llm_measured.published.sources._tables import single

UNITS: dict[str, float | str] = {"K": 1000, "M": "1e6", "B": "1e9", "KiB": 2**10, "MiB": 2**20, "GiB": 2**30}


def rate(test: str, value: Value, spread: Value = None) -> dict[str, Any] | None:
    """Columns of the tokens/s of one test as llama-bench names it (pp512, tg128, "tg32 @ d4096"): of the
    prompt, or of the answer of one sequence; None for a test of another kind."""
    read = re.fullmatch(r"(pp|tg) ?(\d+)(?: ?@ ?d(\d+))?", test.strip())
    if not read:
        return None
    columns: dict[str, Any] = {"lengths": "exact", "context_depth": read[3] or 0}
    if spread is not None:
        columns |= {"spread": spread, "spread_kind": "sd", "statistic": "mean"}
    if read[1] == "tg":
        return single(value, output_tokens=read[2]) | columns
    alone = {"workload": "single", "concurrency": 1, "input_tokens": read[2]}
    return alone | columns | {"prompt_tokens_per_s": value}


def line(record: Record, accelerators: int = 1) -> dict[str, Any] | None:
    """Columns of one line of llama-bench's Markdown table; None for a test of another kind.

    Several accelerators without a column `sm` hold layers one after the other, as is llama-bench's default.
    """
    columns = rate(record["test"] or "", leading(record["t/s"]), after_sign(record["t/s"]))
    if columns is None:
        return None
    pipeline = accelerators if accelerators > 1 and record.get("sm") in (None, "layer") else None
    size, parameters = unit(record["size"]), unit(record["params"])
    name, _, note = str(record["model"]).partition(" - ")
    quantised = name.removesuffix(" MoE").split()[-1]
    active = re.search(r"\bA(\d+(?:\.\d+)?)B\b", name)  # of a mixture, as in "qwen35moe 35B.A3B"
    if quantised in ("Q3_K", "Q4_K", "Q5_K") and note:
        quantised += f"_{note[0]}"
    return columns | {
        "accelerators": accelerators,
        "pp": pipeline,
        "engine": "llama.cpp",
        "backend": record["backend"],
        "flags": joined(
            ngl=record.get("ngl"), fa=record.get("fa"), n_batch=record.get("n_batch"), sm=record.get("sm")
        ),
        "checkpoint_raw": record["model"],
        "parameters_b": scaled(parameters, "1e-9"),
        "active_b": active[1] if active else None,
        "weights_bytes": size,
        "weights_format": quantised,
    }


def unit(text: Value) -> Value:
    """The number of "4.58 GiB" or "8.03 B"; None where it has no known unit."""
    number, _, unit = str(text or "").partition(" ")
    return scaled(number, UNITS[unit]) if unit in UNITS else None
