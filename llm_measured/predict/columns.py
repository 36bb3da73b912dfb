"""Whole tables of questions answered at once: `expect`, the same answers as `llm-measured expect` gives."""

import numpy as np
import pandas as pd

from llm_measured.predict import answer, machines, question, step

# Columns of `expect`'s table, and what each is called in a question.
NAMED = {
    "accelerator": "accelerator",
    "accelerators": "accelerators",
    "model": "model",
    "format": "weights_format",
    "engine": "engine",
    "users": "concurrency",
    "context_tokens": "context",
}
RATE_OF_EACH = 10.0  # tokens/s that each of `users_at_10` gets: somewhat faster than people read


def expect(frame: pd.DataFrame) -> pd.DataFrame:
    """Return one row per question, same index. `frame` has the columns NAMED; empty is nothing stated.

    tokens_per_s_user, low, high: of each user (95 % of sources), empty where it does not run;
    total_tokens_per_s: of all users; fits: whether the accelerators hold it all (empty: nobody says how much
    memory there is); needs_gb: how much memory all accelerators together have to be sold with (2³⁰ bytes) for
    these users; users_at_10: users at once who get RATE_OF_EACH tokens/s each and fit; reason: why a cell is
    empty or something does not fit, one sentence."""
    asked = frame[list(NAMED)].rename(columns=NAMED)
    alike = asked.astype(str).groupby(list(asked), sort=False, dropna=False).ngroup().to_numpy()
    _, first, group = np.unique(alike, return_index=True, return_inverse=True)
    table = question.read(asked.iloc[first].reset_index(drop=True))
    out = pd.DataFrame(
        np.nan,
        index=table.index,
        columns=["tokens_per_s_user", "low", "high", "total_tokens_per_s", "fits", "needs_gb", "users_at_10"],
    )
    out["fits"], out["reason"] = None, table["refused"]
    part = table[table["refused"] == ""]
    if len(part):
        found = answer.expected(part)
        runs = found["runs"]
        for name, column in (("tokens_per_s_user", "rate"), ("low", "low"), ("high", "high")):
            out.loc[part.index, name] = found[column].where(runs)
        out.loc[part.index, "total_tokens_per_s"] = (found["rate"] * part["users"]).where(runs)
        known = part["memory_bytes"].notna()
        out.loc[part.index, "fits"] = (found["outside"] == 0).astype(object).where(known, None)
        of_sold = np.where(part["vendor"] == "Apple", machines.UNIFIED_SHARE, 1.0)
        needs = step.weight_bytes(part) * question.ROOM + step.cache_bytes(part)
        out.loc[part.index, "needs_gb"] = needs / of_sold / 2**30
        out.loc[part.index, "users_at_10"] = answer.users_at(part, RATE_OF_EACH)
        out.loc[part.index, "reason"] = _reasons(part, found)
    return out.iloc[group].set_axis(frame.index)


def _reasons(part: pd.DataFrame, found: pd.DataFrame) -> list[str]:
    """Return a sentence for each setup that does not fit or whose memory is not known, else nothing."""
    said = answer.too_large(part, found)
    for at, (outside, held) in enumerate(zip(found["outside"], found["held_gb"])):
        if np.isinf(held):
            said[at] = "Nobody states how much memory there is."
        elif outside and not said[at]:
            said[at] = f"{100 * outside:.0f} % of the weights are read from the host's memory."
    return said
