"""Whole tables of questions answered at once: the same answers as `llm-measured expect` gives to each."""

import numpy as np
import pandas as pd

from llm_measured.predict import answer, machines, question, step

# Columns of `expect`'s table, and what each is called in a question.
NAMED = {"accelerator": "accelerator", "accelerators": "accelerators", "model": "model"}
NAMED |= {"format": "weights_format", "engine": "engine", "users": "concurrency", "context_tokens": "context"}
RATE_OF_EACH = 10.0  # tokens/s that each of `users_at_10` gets: somewhat faster than people read
RATED = ["rate", "low", "high", "bound"]  # what only a setup has that runs


def answered(table: pd.DataFrame) -> pd.DataFrame:
    """Return `answer.expected` of read questions, same index: RATED are empty of what is refused or does not
    run, and `reason` says why in a sentence."""
    part = table[table["refused"] == ""]
    if part.empty:
        return pd.DataFrame(np.nan, table.index, [*RATED, "outside", "away"]).assign(reason=table["refused"])
    found = answer.expected(part)
    found["reason"] = answer.too_large(part, found)
    found.loc[~found["runs"], RATED] = np.nan
    found = found.reindex(table.index)
    return found.assign(reason=found["reason"].fillna(table["refused"]))


def predictions(questions: pd.DataFrame) -> pd.DataFrame:
    """Return one row per question, same index; columns predicted_output_tokens_per_s, `…_low`, `…_high` (of
    one user, 92 % of sources), bound_output_tokens_per_s, estimated (something of the question was guessed,
    or its engine, generation or format was never seen, or a part is read from the host's memory) and refused
    (one sentence; then the others are empty)."""
    table = question.read(questions)
    found = answered(table)
    runs = found["rate"].notna()
    named = {"rate": answer.PREDICTED, "low": f"{answer.PREDICTED}_low", "high": f"{answer.PREDICTED}_high"}
    named["bound"] = "bound_output_tokens_per_s"
    out = found[RATED].rename(columns=named).assign(estimated=None, refused=found["reason"])
    part, away = table[runs], found.loc[runs, "away"] > 0
    out.loc[runs, "estimated"] = answer.unseen(part) | (part["guessed"].str.len() > 0) | away
    return out


def expect(frame: pd.DataFrame) -> pd.DataFrame:
    """Return one row per question, same index. `frame` has the columns NAMED; empty is nothing stated.

    tokens_per_s_user, low, high: of each user (92 % of sources), empty where it does not run;
    total_tokens_per_s: of all users; fits: whether the accelerators hold it all (empty: nobody says how much
    memory there is); needs_gb: how much memory all accelerators together have to be sold with (2³⁰ bytes) for
    these users; users_at_10: users at once who get RATE_OF_EACH tokens/s each and fit; reason: why a cell is
    empty or something does not fit, one sentence."""
    asked = frame[list(NAMED)].rename(columns=NAMED)
    alike = asked.astype(str).groupby(list(asked), sort=False, dropna=False).ngroup().to_numpy()
    _, first, group = np.unique(alike, return_index=True, return_inverse=True)
    table = question.read(asked.iloc[first].reset_index(drop=True))
    found = answered(table)
    out = found[["rate", "low", "high"]].rename(columns={"rate": "tokens_per_s_user"})
    out["total_tokens_per_s"] = found["rate"] * table["users"]
    known, read = table["memory_bytes"].notna(), table["refused"] == ""
    out["fits"] = (found["outside"] == 0).astype(object).where(read & known, None)
    of_sold = np.where(table["vendor"] == "Apple", machines.UNIFIED_SHARE, 1.0)
    needs = step.weight_bytes(table) * step.ROOM + step.cache_bytes(table)
    out["needs_gb"] = needs / of_sold / 2**30
    out.loc[read, "users_at_10"] = answer.users_at(table[read], RATE_OF_EACH) if read.any() else np.nan
    out["reason"] = found["reason"]
    out.loc[read & ~known, "reason"] = "Nobody states how much memory there is."
    for at in np.flatnonzero((found["outside"] > 0) & (out["reason"] == "")):
        share = 100 * found["outside"].iloc[at]
        out.loc[at, "reason"] = f"{share:.0f} % of the weights are read from the host's memory."
    return out.iloc[group].set_axis(frame.index)
