"""Solved problems: pass@1 of each configuration, and its difference to the reference on the same problems.

All weights of a model start from one file, which the reference has dequantised: differences are those of the
engine and of a second quantisation, never what that file itself has lost.
"""

import math

import numpy as np
import pandas as pd

from bench import inputs
from bench.observations import derived, schema
from bench.topics.quality import KEYS

PROBLEMS = 164  # a run of fewer is a trial
# Options whose score others are held against, the first that is scored: float32 in weights and in arithmetic.
REFERENCES = [("transformers", "float32"), ("ctranslate2", "float32")]
ALPHA = 0.05


def answers(requests: pd.DataFrame) -> pd.DataFrame:
    """The rows of the newest whole evaluation of each configuration on real weights, one per problem, with
    passed and score_run: those of the newest score of these very answers; NaN and empty without one."""
    rows = requests[(requests["experiment"] == "humaneval") & (requests["weights"] == "real")]
    whole = rows.groupby("run_id")["prompt"].transform("nunique") == PROBLEMS
    rows = _newest(rows[whole], schema.CONFIGURATION)
    scores = requests[requests["experiment"] == "humaneval-score"]
    scores = _newest(scores, ["scored_run"])[["scored_run", "run_id", "prompt", "passed", "failure"]]
    scores = scores.rename(columns={"run_id": "score_run", "scored_run": "run_id"})
    kept = rows.drop(columns=["passed", "failure", "scored_run"])
    table = kept.merge(scores, "left", ["run_id", "prompt"])
    return table.assign(score_run=table["score_run"].fillna(""), failure=table["failure"].fillna(""))


def _newest(rows, keys):
    """Of each of `keys` the rows of the run that began last."""
    ordered = rows.sort_values(["started", "run_id"], kind="stable")
    last = ordered.groupby(keys)["run_id"].transform("last")
    return rows[rows["run_id"] == last.reindex(rows.index)]


def summary(requests: pd.DataFrame) -> pd.DataFrame:
    """One row per configuration whose answers are all there, most solved problems first.

    Columns: the configuration, backend_version, run_id, score_run (empty: not scored), not_judged, batch_size
    (largest one), ended, cut, failed (answers); solved, pass_at_1, low and high (Wilson's 95 % interval), NaN
    where not scored; `against` of the reference; published (pass@1 that others have printed for the bfloat16
    weights; NaN for none).
    """
    every = answers(requests)
    keys = [*schema.CONFIGURATION, "backend_version", "run_id", "score_run"]
    table = every.groupby(keys, as_index=False, sort=True).agg(
        not_judged=("not_judged", "first"),
        batch_size=("batch_size", "max"),
        ended=("finish_reason", lambda reasons: (reasons == "stop").sum()),
        cut=("finish_reason", lambda reasons: (reasons == "length").sum()),
        failed=("error", lambda errors: (errors != "").sum()),
        solved=("passed", lambda passed: passed.sum(skipna=False)),
    )
    low, high = _wilson(table["solved"])
    table = table.assign(pass_at_1=table["solved"] / PROBLEMS, low=low, high=high)
    compared = [against(every, row) for _, row in table.iterrows()]
    table = pd.concat([table, pd.DataFrame(compared, columns=AGAINST, index=table.index)], axis=1)
    published = inputs.table("humaneval_published").set_index("model")["pass_at_1"]
    table = table.assign(published=table["model"].map(published))
    return table.sort_values("solved", ascending=False, kind="stable", ignore_index=True)


def table(requests: pd.DataFrame) -> pd.DataFrame:
    """Return the rows of data/tables/humaneval.csv of one machine: `summary`, with pass_at_1_low and
    pass_at_1_high (Wilson's 95 % interval) and verdict (`verdict`)."""
    rows = summary(requests).rename(columns={"low": "pass_at_1_low", "high": "pass_at_1_high"})
    return rows.assign(verdict=[verdict(row) for _, row in rows.iterrows()])


AGAINST = ["reference", "only_reference", "only_this", "fewer", "fewer_most", "p_value"]


def against(every: pd.DataFrame, row: pd.Series) -> list:
    """AGAINST of one row of `summary`: the reference (engine and option; empty if none is scored), problems
    that only it solves, that only this one does, how many fewer this one solves (negative: more), how many
    fewer it may solve at most with 95 % confidence, and the p value of McNemar's exact test. Answers of which
    the tokens were not checked are held against nothing, and nothing against them."""
    nothing = ["", math.nan, math.nan, math.nan, math.nan, math.nan]
    scored = derived.judged(every[every["score_run"] != ""])
    same = scored[(scored[KEYS] == row[KEYS]).all(axis=1)]
    pairs = [(b, o) for b, o in REFERENCES if ((same["backend"] == b) & (same["option"] == o)).any()]
    if not pairs:
        return nothing
    backend, option = pairs[0]
    reference = same[(same["backend"] == backend) & (same["option"] == option)].set_index("prompt")["passed"]
    if not row["score_run"] or row["not_judged"] or (row["backend"], row["option"]) == pairs[0]:
        return [f"{backend} {option}", *nothing[1:]]
    own = same[same["run_id"] == row["run_id"]].set_index("prompt")["passed"].reindex(reference.index)
    lost, won = int((reference > own).sum()), int((reference < own).sum())
    return [f"{backend} {option}", lost, won, lost - won, most_fewer(lost, won), mcnemar(lost, won)]


def mcnemar(lost: int, won: int) -> float:
    """The p value of McNemar's exact test for `lost` and `won` of the same problems; two-sided."""
    from statsmodels.stats import contingency_tables

    # Of the table only the problems that one of the two alone solves decide.
    return float(contingency_tables.mcnemar([[0, lost], [won, 0]], exact=True).pvalue)


def most_fewer(lost: int, won: int) -> int:
    """How many fewer problems are solved at most, with 95 % confidence or more: the upper end of
    Clopper and Pearson's interval of the lost share less the lower end of the won share's."""
    from statsmodels.stats.proportion import proportion_confint

    upper = proportion_confint(lost, PROBLEMS, ALPHA, method="beta")[1]
    lower = proportion_confint(won, PROBLEMS, ALPHA, method="beta")[0]
    return math.ceil(PROBLEMS * (upper - lower) - 1e-9)


def _wilson(solved: pd.Series) -> tuple[np.ndarray, np.ndarray]:
    """Wilson's interval of each number of solved problems; NaN where it is."""
    from statsmodels.stats.proportion import proportion_confint

    known = solved.notna().to_numpy()
    low, high = np.full(len(solved), np.nan), np.full(len(solved), np.nan)
    if known.any():
        low[known], high[known] = proportion_confint(
            solved[known].to_numpy(float), PROBLEMS, ALPHA, method="wilson"
        )
    return low, high


def verdict(row: pd.Series) -> str:
    """A row of `summary` against its reference in words: `3 fewer of 164 (95 %: up to 9)`."""
    if not row["score_run"]:
        return "not scored"
    if not row["reference"]:
        return "no reference is scored"
    if row["not_judged"]:
        return "its tokens were not checked"
    if pd.isna(row["fewer"]):
        return "is the reference"
    fewer, most = int(row["fewer"]), int(row["fewer_most"])
    if fewer < 0:
        return f"{-fewer} more of {PROBLEMS} (95 %: up to {max(0, most)} fewer)"
    return f"{fewer} fewer of {PROBLEMS} (95 %: up to {most})"
