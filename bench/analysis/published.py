"""Published tables as they were printed, and older layouts of them."""

import pandas as pd


def older_layout(path):
    """A CSV of the older llama-inference layout (tok_count, time, question, answer, note; any order) with tokens_per_s.

    One row per request, `time` in seconds. Rows with no time or a time of zero cannot have a rate: ValueError naming them.
    """
    rows = pd.read_csv(path)
    lacking = {"tok_count", "time", "question", "answer", "note"} - set(rows.columns)
    if lacking:
        raise ValueError(
            f"{path} is not of the older llama-inference layout: it lacks the columns {', '.join(sorted(lacking))}."
        )
    bad = rows.index[~(pd.to_numeric(rows["time"], errors="coerce") > 0)]
    if len(bad):
        raise ValueError(
            f"{path}: the rows {', '.join(str(i + 2) for i in bad)} have no positive time; measure them again or remove them."
        )
    return rows.assign(tokens_per_s=rows["tok_count"] / rows["time"])


def older_mean_tokens_per_s(paths):
    """Published figure of the older study for the files `paths`: the mean over rows of tok_count / time, in tokens/s."""
    return pd.concat([older_layout(p) for p in paths])["tokens_per_s"].mean()
