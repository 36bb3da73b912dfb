"""The steps that servers take, from runs of the experiment `steps`: decoding alone, and a prompt computed
beside a request that decodes."""

import pandas as pd

SHOWN = "batch_size prompt_tokens max_new_tokens step_s last_ttft_s ttft_s requests".split()
COLUMNS = ["backend", "option", "model", "gpu", "host", "run_id", *SHOWN, "ends_together", "error"]


def steps(requests: pd.DataFrame) -> pd.DataFrame:
    """One row per run and kind of step, times in s, with the columns of a batch in process.

    A closed loop of `batch_size` requests has step_s, the median gap between two of their tokens. A prompt of
    `prompt_tokens` that came while another request decoded has last_ttft_s, that request's longest gap: the
    step that computed both. ttft_s is the median of the requests of the loop, or of those prompts.
    ends_together: whether a loop's answers have one length, so that its requests begin and end together.
    Columns that do not apply are NaN; a pair of which a request failed is left out.
    """
    good = requests[(requests["experiment"] == "steps") & (requests["error"] == "")]
    found = [_loop(part) for _, part in good.groupby(["run_id", "concurrency", "prompt_tokens"])]
    for _, level in good[good["request_rate"].notna()].groupby(["run_id", "request_rate"]):
        found.append(_late(level.sort_values("request")))
    return pd.DataFrame([row for row in found if row], columns=COLUMNS)


def _same(rows):
    return {name: rows[name].iloc[0] for name in COLUMNS[:6]} | {"error": ""}


def _loop(rows):
    return _same(rows) | {
        "batch_size": rows["concurrency"].iloc[0],
        "prompt_tokens": rows["prompt_tokens"].iloc[0],
        "max_new_tokens": rows["max_new_tokens"].mean(),
        "step_s": rows["itl_p50_s"].median(),
        "ttft_s": rows["ttft_s"].median(),
        "requests": len(rows),
        "ends_together": rows["max_new_tokens"].nunique() == 1,
    }


def _late(level):
    """The row of a level of pairs: a request that decodes stands before the prompt that comes meanwhile."""
    decoding = level[level["max_new_tokens"] == level["max_new_tokens"].max()].set_index("request")
    late = level.drop(index=level.index[level["request"].isin(decoding.index)]).set_index("request")
    late.index -= 1
    pairs = decoding.join(late[["ttft_s", "prompt_tokens"]], rsuffix="_late", how="inner")
    if pairs.empty:
        return None
    return _same(level) | {
        "batch_size": 1,
        "prompt_tokens": pairs["prompt_tokens_late"].iloc[0],
        "max_new_tokens": 0,
        "last_ttft_s": pairs["itl_max_s"].median(),
        "ttft_s": pairs["ttft_s_late"].median(),
        "requests": len(pairs),
    }
