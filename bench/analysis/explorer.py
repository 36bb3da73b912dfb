"""Every configuration of every experiment with every metric that it has: what the explorer shows.

All machines and versions, nothing pooled: two versions of an engine, or two machines, are two rows.
"""

import numpy as np
import pandas as pd

from bench import memo, metrics, naming
from bench.analysis import batching, commands, latency, levels, statistics
from bench.observations import derived, schema

IDENTITY = ["experiment", *latency.VERSIONED]
CONDITION = "loop concurrency request_rate batch_size prompt_tokens max_new_tokens".split()
COUNTS = ["bits", "concurrency", "batch_size", "prompt_tokens", "max_new_tokens"]
WORDS = "runs failed state run_ids command".split()
# Metrics of which more is better; of those in NEITHER neither way is, and of all others less is.
MORE_IS_BETTER = set(
    "output_tokens_per_s requests_per_s goodput_per_s mbu mbu_datasheet mfu_prefill mfu_decode "
    "acceptance_rate".split()
)
NEITHER = {"arithmetic_intensity"}
NAMES = [name for name, metric in metrics.METRICS.items() if metric.symbol]
ENERGY = "gpu_energy_j cpu_energy_j energy_per_token_j cpu_energy_per_token_j gpu_idle_w cpu_idle_w".split()
DIGITS = 9  # that a figure keeps


def _of_requests(rows):
    """One row per run of an experiment that asks one request at a time: `latency.runs`, and medians over
    requests of what only whole requests have."""
    rows = rows[rows["ttft_s"].notna() | (rows["experiment"] != "overhead")]  # without the engine's own loop
    gaps = rows["output_tokens"] - 1
    enough = gaps >= statistics.requests_needed(0.99)
    kv = metrics.kv_cache_bytes(
        metrics.mean_context_tokens(rows["prompt_tokens"], rows["output_tokens"]),
        rows["kv_values_per_token"],
        rows["kv_value_bytes"],
    )
    more = rows.assign(itl_p99_s=rows["itl_p99_s"].where(enough), kv_cache_bytes=kv).groupby("run_id")
    batches = derived.batches(rows).assign(arithmetic_intensity=lambda t: t["decode_intensity"])
    names = "e2e_s step_s requests_per_s mfu_prefill mfu_decode arithmetic_intensity".split()
    table = latency.runs(rows).assign(
        acceptance_rate=lambda t: metrics.acceptance_rate(t["accepted_tokens"], t["drafted_tokens"])
    )
    table = table.merge(more[["itl_p50_s", "itl_p99_s", "kv_cache_bytes"]].median().reset_index(), "left")
    table = table.drop(columns=ENERGY, errors="ignore").merge(
        batches.groupby("run_id")[names].median().reset_index(), "left"
    )
    return table.merge(_energy(rows, []), "left", "run_id")


def _of_sweeps(rows):
    """One row per run and shape of a batch that came whole."""
    table = batching.of_runs(rows).assign(arithmetic_intensity=lambda t: t["decode_intensity"])
    table = table.drop(columns=ENERGY, errors="ignore")
    table = table.merge(_once(rows, ["backend_version", "load_s"]), "left", "run_id")
    return table.merge(_energy(rows, schema.SHAPE), "left", ["run_id", *schema.SHAPE])


def _of_levels(rows):
    """One row per run and level of load."""
    table = levels.levels(rows)
    loop = np.where(table["concurrency"].notna(), "closed", "open")
    once = ["backend_version", "peak_memory_bytes", "load_s", "weight_bytes"]
    table = table.assign(loop=loop).merge(_once(rows, once), "left", "run_id")
    energy = _energy(rows, levels.LEVEL)
    table = table.drop(columns=ENERGY, errors="ignore").merge(energy, "left", ["run_id", *levels.LEVEL])
    return table.drop(columns="prompt_tokens")  # a mean here, no condition


def _of_quality(rows):
    """One row per run that scored answers: the perplexity of the fixed text, where the engine gives it."""
    text = rows[(rows["prompt"] == 0) & (rows["weights"] == "real")]
    nats = (text["own_nll_nats"] * text["output_tokens"]).where(text["error"] == "")
    sums = pd.DataFrame({"run_id": text["run_id"], "nats": nats, "tokens": text["output_tokens"]})
    sums = sums.groupby("run_id").agg(lambda values: values.sum(skipna=False))
    table = _once(rows, [*latency.VERSIONED, "started", "peak_memory_bytes", "load_s", "weight_bytes"])
    failed = (rows["error"] != "").groupby(rows["run_id"]).sum().rename("failed")
    perplexity = metrics.perplexity(sums["nats"] / sums["tokens"]).rename("perplexity")
    return table.join(perplexity, "run_id").join(failed, "run_id")


def _energy(rows, keys):
    """ENERGY of each run and of each of its conditions `keys`: medians over requests."""
    return rows.groupby(["run_id", *keys], as_index=False, dropna=False)[ENERGY].median()


def _once(rows, names):
    """The columns `names` of each run, which are the same in all of its rows (peaks: the largest)."""
    how = {name: "max" if name == "peak_memory_bytes" else "first" for name in names}
    return rows.groupby("run_id", as_index=False, sort=True).agg(how)


HOW = {"batching": _of_sweeps, "memory": _of_sweeps, "serving": _of_levels, "quality": _of_quality}


def of_runs(requests, experiment):
    """One row per run of `experiment` and condition (level of load, shape of a batch).

    Columns run_id, started, IDENTITY, CONDITION, failed, state (of load tests) and every metric of NAMES,
    NaN where the experiment does not measure it; seconds, bytes and rates per second.
    """
    rows = requests[requests["experiment"] == experiment]
    table = HOW.get(experiment, _of_requests)(rows).assign(experiment=experiment)
    defaults = dict.fromkeys([*CONDITION, *NAMES], np.nan) | {"failed": 0, "state": "", "loop": ""}
    columns = ["run_id", "started", *IDENTITY, *CONDITION, "failed", "state", *NAMES]
    missing = {name: value for name, value in defaults.items() if name not in table}
    return table.assign(**missing)[columns]


def _point(runs):
    """Means over `runs` (rows of `of_runs` of one configuration and condition) and what they were."""
    found = {
        "runs": len(runs),
        "failed": int(runs["failed"].sum()),
        "state": max(runs["state"]),
        "run_ids": _names(runs["run_id"]),
    }
    values = runs[NAMES].to_numpy(dtype=float).T
    whole = ~np.isnan(values).any(axis=1)
    counts = (~np.isnan(values)).sum(axis=1)
    means, halves = np.full((2, len(NAMES)), np.nan)
    means[whole], halves[whole] = values[whole].mean(axis=1), statistics.half_width(values[whole])
    for k in np.flatnonzero(~whole & (counts > 0)):
        mean, low, _ = statistics.mean_interval(values[k])
        means[k], halves[k] = mean, mean - low
    return found | _named("", means) | _named("_interval", halves) | _named("_runs", counts)


def _named(suffix, values):
    return {f"{name}{suffix}": value for name, value in zip(NAMES, values)}


def _names(run_ids):
    """The ids of the runs of one configuration: the first whole, of the others their numbers."""
    first, *others = sorted(run_ids, key=lambda name: int(naming.split_number(name)[1]))
    return " ".join([first, *(naming.split_number(name)[1] for name in others)])


def points(requests, experiment):
    """One row per configuration, version and condition of `experiment`, on every machine.

    Columns IDENTITY, bits (that the option's name states), CONDITION, runs, failed (requests), state (of load
    tests), run_ids, command (that repeats the first of the runs); for each metric of NAMES its mean over
    runs, `<name>_interval` (half width of its 95 % interval over runs, empty for one run) and `<name>_runs`.
    """
    table = _points(requests[requests["experiment"] == experiment], experiment)
    return _with_rate(table, requests) if experiment == "quality" else table


@memo.by_content
def _points(rows, experiment):
    requests, each = rows, of_runs(rows, experiment).sort_values("started", kind="stable")
    keys = [*IDENTITY, *CONDITION]
    rows = [dict(zip(keys, key)) | _point(runs) for key, runs in each.groupby(keys, sort=True, dropna=False)]
    values = [f"{name}{suffix}" for name in NAMES for suffix in ("", "_interval", "_runs")]
    table = pd.DataFrame(rows, columns=[*keys, *WORDS, *values])
    known = commands.commands([name.split()[0] for name in table["run_ids"]], requests)
    return table.assign(command=known, bits=[naming.bits(option) for option in table["option"]])


def _with_rate(table, requests):
    """`points` of quality with the output tokens/s of the same configuration's latency runs: what the loss of
    fewer bits buys."""
    rate = [f"output_tokens_per_s{suffix}" for suffix in ("", "_interval", "_runs")]
    speed = points(requests, "latency")[[*latency.VERSIONED, *rate]]
    return table.drop(columns=rate).merge(speed, "left", latency.VERSIONED)[list(table)]


def frame(table):
    """The rows `table` of `points` as readers download them: no column without any value, whole counts,
    DIGITS digits.

    Columns IDENTITY and bits, those of CONDITION, the metrics and their intervals that have a value, and
    WORDS.
    """
    values = [f"{name}{suffix}" for name in NAMES for suffix in ("", "_interval")]
    table = table[[*IDENTITY, "bits", *CONDITION, *values, *WORDS]]
    table = table.astype(dict.fromkeys(COUNTS, "Int64"))
    table[values] = table[values].map(lambda value: float(f"{value:.{DIGITS}g}"))
    always = {*IDENTITY, "bits", "runs", "failed", "run_ids", "command"}
    empty = [name for name in table if name not in always and _empty(table[name])]
    # An interval keeps its column beside its metric, so that one run and many give the same table.
    lost = {name for name in empty if not (name.endswith("_interval") and name[:-9] not in empty)}
    return table.drop(columns=sorted(lost))


def _empty(values):
    return bool((values.isna() | (values.astype(object) == "")).all())


def uneven(table):
    """{metric: {place in `table`, of `points`: runs with a value}} where that is not the number of runs."""
    return {
        name: dict(zip(odd.index.tolist(), odd[f"{name}_runs"].tolist()))
        for name in NAMES
        if len(odd := table[(table[f"{name}_runs"] != table["runs"]) & table[name].notna()])
    }


def experiments(requests):
    """Names of the experiments that have runs, latency first, then by their runs."""
    counts = requests.groupby("experiment")["run_id"].nunique().sort_values(ascending=False)
    return sorted(counts.index, key=lambda name: (name != "latency", -counts[name], name))


def direction(metric):
    """1 where more of `metric` is better, -1 where less is, 0 where neither is."""
    return 0 if metric in NEITHER else 1 if metric in MORE_IS_BETTER else -1


def student(confidence=statistics.CONFIDENCE, degree=16):
    """Student's two-sided quantile as a Chebyshev series in 1 / degrees of freedom, on [0, 1].

    A page in a browser has no distributions; the series is within 1e-10 of SciPy's for one degree of freedom
    and more. Returns its coefficients.
    """
    from numpy.polynomial import Chebyshev
    from scipy import stats

    quantile = lambda x: stats.t.ppf((1 + confidence) / 2, 1 / np.maximum(x, 1e-12))  # noqa: E731
    return Chebyshev.interpolate(quantile, degree, domain=[0, 1]).coef.tolist()
