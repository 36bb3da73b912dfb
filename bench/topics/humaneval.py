"""Solved problems: pass@1 of each configuration, and its difference to the reference on the same problems.

All weights of a model start from one file, which the reference has dequantised: differences are those of the
engine and of a second quantisation, never what that file itself has lost.
"""

import math

import numpy as np
import pandas as pd
from scipy import stats

from bench import inputs
from bench.observations import derived, schema
from bench.topics import estimates
from bench.topics.quality import KEYS
from llm_measured.core import naming

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
    where not scored; other_scores (earlier scores of the same answers that differ); `against` of the
    reference; published (pass@1 that others have printed for the bfloat16 weights; NaN for none).
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
    differing = _other_scores(requests)
    table = table.assign(other_scores=[differing.get(run, "") for run in table["run_id"]])
    published = inputs.table("humaneval_published").set_index("model")["pass_at_1"]
    table = table.assign(published=table["model"].map(published))
    return table.sort_values("solved", ascending=False, kind="stable", ignore_index=True)


def table(requests: pd.DataFrame) -> pd.DataFrame:
    """Return the rows of data/tables/humaneval.csv of one machine: `summary`, with pass_at_1_low and
    pass_at_1_high (Wilson's 95 % interval) and verdict (`verdict`)."""
    rows = summary(requests).rename(columns={"low": "pass_at_1_low", "high": "pass_at_1_high"})
    return rows.assign(verdict=[verdict(row) for _, row in rows.iterrows()])


def _other_scores(requests: pd.DataFrame) -> dict[str, str]:
    """Return {run: `95 (problem 149)`} of answers that were scored several times: the problems solved by each
    earlier score that differs from the newest one, and the problems that differ."""
    scores = requests[requests["experiment"] == "humaneval-score"].sort_values(["started", "run_id"])
    found = {}
    for run, rows in scores.groupby("scored_run"):
        each = rows.pivot(index="prompt", columns="run_id", values="passed")
        *earlier, newest = [each[name] for name in rows["run_id"].unique()]
        words = [
            f"{old.sum():.0f} (problem {naming.listed(list(map(str, each.index[old != newest])))})"
            for old in earlier
            if (old != newest).any()
        ]
        found[run] = "; ".join(words)
    return found


def problems(requests: pd.DataFrame) -> pd.DataFrame:
    """Return a row per scored answer, problem by problem: what any two options can be compared by.

    Columns: the configuration, backend_version, score_run, not_judged, prompt (the problem), passed (1 or 0).
    """
    rows = answers(requests)
    rows = rows[rows["score_run"] != ""]
    names = [*schema.CONFIGURATION, "backend_version", "score_run", "not_judged", "prompt", "passed"]
    return rows[names].sort_values(names[:-1], ignore_index=True)


def by_bits(requests: pd.DataFrame) -> pd.DataFrame:
    """Return how many fewer problems engines solve in 8 and in 4 bits than the reference, engines together.

    Per problem the mean over a machine's options of these bits, less the reference's answer; its mean over
    the problems, and Student's t over them, since all options answer the same ones. A row per machine, model
    and bits; columns reference, bits, pooled_options (words), fewer, fewer_low, fewer_high and p_value. A
    file as shipped is no second quantisation, and is left out; so are answers whose tokens were not checked.
    """
    columns = [*KEYS, "reference", "bits", "pooled_options", "fewer", "fewer_low", "fewer_high", "p_value"]
    rows, scored = [], derived.judged(problems(requests))
    for key, own in scored.groupby(KEYS, sort=True):
        name = own["backend"] + " " + own["option"]
        known = [" ".join(pair) for pair in REFERENCES if (name == " ".join(pair)).any()]
        passed = own.assign(name=name).pivot(index="prompt", columns="name", values="passed")
        bits = {option: naming.bits(option.split(" ", 1)[1]) for option in passed}
        for count in (8, 4):
            options = [option for option in passed if bits[option] == count]
            if not options or not known:
                continue
            lost = passed[known[0]] - passed[options].mean(axis=1)
            fewer = (PROBLEMS * value for value in estimates.mean_interval(lost))
            p = float(stats.ttest_1samp(lost, 0).pvalue)
            rows.append((*key, known[0], count, ", ".join(options), *fewer, p))
    return pd.DataFrame(rows, columns=columns)


AGAINST = ["reference", "only_reference", "only_this", "fewer", "fewer_low", "fewer_high", "p_value"]


def against(every: pd.DataFrame, row: pd.Series) -> list:
    """AGAINST of one row of `summary`: the reference (engine and option; empty if none is scored), problems
    that only it solves, that only this one does, how many fewer this one solves (negative: more) with the
    95 % interval of that (`paired_interval`), and the p value of McNemar's exact test. Answers of which
    the tokens were not checked are held against nothing, and nothing against them."""
    nothing = ["", *[math.nan] * 6]
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
    return [f"{backend} {option}", lost, won, lost - won, *paired_interval(lost, won), mcnemar(lost, won)]


def mcnemar(lost: int, won: int) -> float:
    """The p value of McNemar's exact test for `lost` and `won` of the same problems; two-sided."""
    from statsmodels.stats import contingency_tables

    # Of the table only the problems that one of the two alone solves decide.
    return float(contingency_tables.mcnemar([[0, lost], [won, 0]], exact=True).pvalue)


def paired_interval(lost: int, won: int) -> tuple[float, float]:
    """Return the 95 % interval of how many fewer of the same problems are solved: that of a difference of
    paired shares, with half a problem in each of the four cells (Agresti and Min, Statistics in Medicine 24,
    2005), so that no difference is not certainty."""
    lost_, won_, n = lost + 0.5, won + 0.5, PROBLEMS + 2
    difference = (lost_ - won_) / n
    error = math.sqrt((lost_ + won_) / n - difference**2) / math.sqrt(n)
    half = stats.norm.ppf(1 - ALPHA / 2) * error
    return PROBLEMS * (difference - half), PROBLEMS * (difference + half)


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
    """A row of `summary` against its reference in words: `3 fewer of 164 (95 %: 4 more to 10 fewer)`."""
    if not row["score_run"]:
        return "not scored"
    if not row["reference"]:
        return "no reference is scored"
    if row["not_judged"]:
        return "its tokens were not checked"
    if pd.isna(row["fewer"]):
        return "is the reference"
    fewer = f"{row['fewer']:.0f} fewer" if row["fewer"] >= 0 else f"{-row['fewer']:.0f} more"
    ends = [
        f"{abs(end):.0f} {'fewer' if end > 0 else 'more'}" for end in (row["fewer_low"], row["fewer_high"])
    ]
    return f"{fewer} of {PROBLEMS} (95 %: {' to '.join(ends)})"
