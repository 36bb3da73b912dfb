"""What the figures of a table count where their names leave it open, as the table's own arithmetic says:
tokens of one answer or of all, lengths that were asked or that came, a rate of one request, of a device or of
all, with the time to the first token or without."""

import numpy as np
import pandas as pd

from llm_measured.audit import quantities
from llm_measured.audit.quantities import says

Meanings = dict[str, tuple]  # name of a column -> (its word in quantities.csv, factor to its unit)

# A length of one answer or prompt -> their total, which says what came, and what they are called.
LENGTHS = {
    "output_tokens": ("total_output_tokens", "Answers"),
    "prompt_tokens": ("total_prompt_tokens", "Prompts"),
}
SUM = 0.15  # by which a total may miss rate x time
NEAR, FAR = 2.0, 10.0  # factors by which it may miss it where as tokens of each answer it misses by more
NOMINAL = 0.02  # of a length: what was asked and what came differ by more
SMALL_PART = 0.02  # of the time of all steps: so short a TTFT does not show in a rate
OF_SYSTEM = "output_tokens_per_s", "decode_rate", "total_tokens_per_s", "prompt_tokens_per_s"


def settle(table: pd.DataFrame, found: Meanings) -> tuple[pd.DataFrame, list[str]]:
    """(a table in words and units of the frame whose figures count what their columns say, sentences about
    those that had been called otherwise); `found`: what the names in the file mean."""
    if "requests_per_min" in table and "requests_per_s" not in table:
        table["requests_per_s"] = table["requests_per_min"] / 60
    # A total time beside a number or a rate of requests is that of the run.
    of_run = any(says("time_of_run", name) for name, (word, _) in found.items() if word == "e2e_s")
    if of_run and {"requests", "requests_per_s"} & {*table} and "duration_s" not in table:
        table["duration_s"] = table.pop("e2e_s")
    notes = _totals(table, found)
    for name, (word, _) in found.items():
        if word in LENGTHS and word in table and says("asked_length", name):
            notes += _came(table, name, word)
    table = _with_decode_rate(table)
    return table, notes + _without_first_token(table)


def first_known(table: pd.DataFrame, *names: str) -> pd.Series:
    """The first known figure of each row in the columns `names`; NaN where none is."""
    found = pd.Series(np.nan, table.index)
    for name in names:
        found = found.fillna(table[name]) if name in table else found
    return found


def _totals(table: pd.DataFrame, found: Meanings) -> list[str]:
    """Put a count of output tokens that is that of all requests in its own column: where it is what rate x
    time gives and several requests stand beside it; a sentence that says so."""
    name = next((name for name, (word, _) in found.items() if word == "output_tokens"), "")
    needed = {"output_tokens", "output_tokens_per_s"} <= {*table}
    needed &= "requests" in table or {"requests_per_s", "duration_s"} <= {*table}
    if not needed or "total_output_tokens" in table or says("mean_length", name):
        return []
    many = first_known(table, "requests").fillna(
        first_known(table, "requests_per_s") * first_known(table, "duration_s")
    )
    counted = table["output_tokens"]
    own_time = not {"duration_s", "requests_per_s"} & {*table}
    time = first_known(table, "duration_s").fillna(many / first_known(table, "requests_per_s"))
    time = first_known(table, "e2e_s") if own_time else time
    of_all = table["output_tokens_per_s"] * time / counted
    fits = (of_all - 1).abs() < SUM
    if not own_time:  # near enough to a total, and far from an answer each
        fits |= of_all.between(1 / NEAR, NEAR) & ~(of_all / many).between(1 / FAR, FAR)
    fits &= many > 1
    if not fits.any() or not (fits | counted.isna() | (many <= 1)).all():
        return []
    table["total_output_tokens"], table["output_tokens"] = counted, counted / many
    if own_time:
        table["duration_s"] = table.pop("e2e_s")
    return [f"{name} was read as the tokens of all requests: rate x time comes to them, and to no answer's."]


def _came(table: pd.DataFrame, name: str, word: str) -> list[str]:
    """Put the tokens that came in place of the length `name` that was asked for, where the table has their
    total or their rate; a sentence where they differ."""
    total, answers = LENGTHS[word]
    done = first_known(table, "asked") - first_known(table, "failed").fillna(0)
    came = first_known(table, total) / first_known(table, "requests").fillna(done)
    if word == "output_tokens":
        came = came.fillna(first_known(table, "output_tokens_per_s") / first_known(table, "requests_per_s"))
        came = came.where(came < table[word] * (1 + NOMINAL), table[word].where(came.notna()))
    came = came.where(np.isfinite(came) & (came > 0))
    missed = (came / table[word] - 1).abs()
    far, notes = missed > NOMINAL, []
    if far.any():
        k = missed.where(far).idxmax()
        which = f" (the farthest of {int(far.sum())} rows)" if far.sum() > 1 else ""
        said = f"{answers} have {came[k]:,.0f} tokens on average where {name} says {table.at[k, word]:,.0f}"
        notes.append(f"{said}{which}; what came was read, not what was asked.")
    if word == "output_tokens" and "max_new_tokens" not in table:
        table["max_new_tokens"] = table[word].where(came.notna())
    table[word] = came.fillna(table[word])
    return notes


def _with_decode_rate(table: pd.DataFrame) -> pd.DataFrame:
    """A rate of decoding alone is the TPOT of a single request, and of many the system's."""
    if "decode_rate" not in table:
        return table
    at_once = first_known(table, "batch_size", "concurrency").fillna(1)
    single = (1 / table["decode_rate"]).where((at_once <= 1) & (table["decode_rate"] > 0))
    table["tpot_s"] = first_known(table, "tpot_s").fillna(single)
    of_many = table["decode_rate"].where(at_once > 1)
    table["output_tokens_per_s"] = first_known(table, "output_tokens_per_s").fillna(of_many)
    return table.dropna(axis=1, how="all")


def _without_first_token(table: pd.DataFrame) -> list[str]:
    """Leave out the tokens/s of rows of one request at a time that leave the TTFT out, though it is no small
    part: by TTFT and TPOT, or because the file has the same figure as its rate of decoding."""
    step = first_known(table, "tpot_s", "tpot_mean_s", "tpot_p50_s")
    first = first_known(table, "ttft_s", "ttft_mean_s", "ttft_p50_s")
    rate, load = first_known(table, "output_tokens_per_s"), first_known(table, "batch_size", "concurrency")
    alone = (load == 1) & first_known(table, "requests_per_s").isna()
    # A TTFT as long as all the steps together cannot be within the TPOT, which is the other reading.
    decoding = (rate / first_known(table, "decode_rate") - 1).abs() < 1e-9
    long = first > step * first_known(table, "output_tokens") * np.where(decoding, SMALL_PART, 1)
    decoding = alone & ((rate * step - 1).abs() < 0.03) & long
    if not decoding.any():
        return []
    table["output_tokens_per_s"] = table["output_tokens_per_s"].mask(decoding)
    return [
        f"In {int(decoding.sum())} rows of one request at a time the tokens/s are those after the first "
        "token, by TTFT and TPOT or as the rate of decoding; they were read so."
    ]


def of_scopes(table: pd.DataFrame, found: Meanings, printed: dict[str, float]) -> list[str]:
    """Put the output tokens/s of rows that a column calls those of one user or device where such rates
    belong, in place, and leave their other tokens/s empty; a sentence for each name of a scope."""
    if "scope" not in table:
        return []
    heading = next(name for name, (word, _) in found.items() if word == "scope")
    cells = table.pop("scope").fillna("").astype(str).str.strip()
    rates = [rate for rate in OF_SYSTEM if rate in table]
    notes = []
    for cell in filter(None, dict.fromkeys(cells)):
        hit, scope = cells == cell, quantities.scope(cell)
        if scope == "system":
            continue
        own = quantities.of_scope().get(scope or "")
        for rate in rates:
            if own and rate in OF_SYSTEM[:2]:
                moved = table[rate].where(hit)
                table[own] = table[own].fillna(moved) if own in table else moved
                printed.setdefault(own, printed[rate])
            table[rate] = table[rate].mask(hit)
        number = int(hit.sum())
        many = f"{heading} is {cell[:30]} in {number} {'row' if number == 1 else 'rows'}"
        read = f"read as those of one {scope}" if own else "not read: it is no user, no device and not all"
        notes.append(f"{many}, whose tokens/s were {read}.")
    return notes
