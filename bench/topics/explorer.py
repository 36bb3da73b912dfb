"""Every configuration of every experiment with every metric that it has: what the explorer shows.

All machines and versions, nothing pooled: two versions of an engine, or two machines, are two rows. Means and
comparisons are those of the tables: one model (`adjusted`) of each metric for each machine, model and
condition.
"""

from collections.abc import Iterator, Sequence

import numpy as np
import pandas as pd

from bench.observations import derived, schema
from bench.topics import adjusted, batching, commands, estimates, latency, levels, once, statistics
from llm_measured.core import metrics, naming
from llm_measured.core.definitions import Fields

IDENTITY = ["experiment", *latency.VERSIONED]
CONDITION = ["loop", "concurrency", "request_rate", "batch_size", "prompt_tokens", "max_new_tokens"]
ROW = [*IDENTITY, *CONDITION]
COUNTS = ["bits", "concurrency", "batch_size", "prompt_tokens", "max_new_tokens"]
WORDS = ["runs", "failed", "state", "run_ids", "command"]
NAMES = [name for name, metric in metrics.METRICS.items() if metric.title]
ENERGY = "gpu_energy_j cpu_energy_j energy_per_token_j cpu_energy_per_token_j gpu_idle_w cpu_idle_w".split()
DIGITS = 9  # that a figure keeps
HALF_DIGITS = 4, 6, 9  # that half an interval of a ratio keeps: the fewest that change no verdict
DIRECTIONS = {"higher": 1, "lower": -1, None: 0}


def _of_requests(rows: pd.DataFrame) -> pd.DataFrame:
    """One row per run of an experiment that asks one request at a time: `latency.runs`, and medians over its
    requests of inter-token latency, end-to-end and step time, MFU, arithmetic intensity, KV cache, energy."""
    gaps = rows["output_tokens"] - 1
    enough = gaps >= statistics.requests_needed(0.99)
    kv = metrics.kv_cache_bytes(
        metrics.mean_context_tokens(rows["prompt_tokens"], rows["output_tokens"]),
        rows["kv_values_per_token"],
        rows["kv_value_bytes"],
    )
    of_requests = rows.assign(itl_p99_s=rows["itl_p99_s"].where(enough), kv_cache_bytes=kv).groupby("run_id")
    batches = derived.batches(rows)  # each of one request
    batches["arithmetic_intensity"] = batches["decode_intensity"]
    names = "e2e_s step_s requests_per_s mfu_prefill mfu_decode arithmetic_intensity".split()
    table = latency.runs(rows).assign(
        acceptance_rate=lambda t: metrics.acceptance_rate(t["accepted_tokens"], t["drafted_tokens"])
    )
    medians = of_requests[["itl_p50_s", "itl_p99_s", "kv_cache_bytes"]].median()
    table = table.merge(medians.reset_index(), "left", "run_id")
    table = table.merge(batches.groupby("run_id")[names].median().reset_index(), "left", "run_id")
    # Energy as in every other experiment's rows: the median over requests, where `latency.runs` has the mean.
    return table.drop(columns=ENERGY, errors="ignore").merge(_energy(rows, by=[]), "left", "run_id")


def _of_sweeps(rows: pd.DataFrame) -> pd.DataFrame:
    """One row per run and shape of a batch that came whole."""
    table = batching.of_runs(rows).assign(arithmetic_intensity=lambda t: t["decode_intensity"])
    table = table.drop(columns=ENERGY, errors="ignore")
    table = table.merge(_once(rows, ["backend_version", "load_s"]), "left", "run_id")
    return table.merge(_energy(rows, by=schema.SHAPE), "left", ["run_id", *schema.SHAPE])


def _of_levels(rows: pd.DataFrame) -> pd.DataFrame:
    """One row per run and level of load."""
    table = levels.levels(rows)
    loop = np.where(table["concurrency"].notna(), "closed", "open")
    same = ["backend_version", "peak_memory_bytes", "load_s", "weight_bytes"]
    table = table.assign(loop=loop).merge(_once(rows, same), "left", "run_id")
    energy = _energy(rows, by=levels.LEVEL)
    table = table.drop(columns=ENERGY, errors="ignore").merge(energy, "left", ["run_id", *levels.LEVEL])
    return table.drop(columns="prompt_tokens")  # a mean here, no condition


def _of_quality(rows: pd.DataFrame) -> pd.DataFrame:
    """One row per run that scored answers: the perplexity of the fixed text, where the engine gives it."""
    text = rows[(rows["prompt"] == 0) & (rows["weights"] == "real")]
    nats = (text["own_nll_nats"] * text["output_tokens"]).where(text["error"] == "")
    sums = pd.DataFrame({"run_id": text["run_id"], "nats": nats, "tokens": text["output_tokens"]})
    sums = sums.groupby("run_id").agg(lambda values: values.sum(skipna=False))
    table = _once(rows, [*latency.VERSIONED, "started", "peak_memory_bytes", "load_s", "weight_bytes"])
    failed = (rows["error"] != "").groupby(rows["run_id"]).sum().rename("failed")
    perplexity = metrics.perplexity(sums["nats"] / sums["tokens"]).rename("perplexity")
    return table.join(perplexity, "run_id").join(failed, "run_id")


def _energy(rows: pd.DataFrame, by: Sequence[str]) -> pd.DataFrame:
    """ENERGY of each run and of each of its conditions `by`: medians over requests."""
    return rows.groupby(["run_id", *by], as_index=False, dropna=False)[ENERGY].median()


def _once(rows: pd.DataFrame, names: Sequence[str]) -> pd.DataFrame:
    """The columns `names` of each run, which are the same in all of its rows (peaks: the largest)."""
    how = {name: "max" if name == "peak_memory_bytes" else "first" for name in names}
    return rows.groupby("run_id", as_index=False, sort=True).agg(how)


HOW = {"batching": _of_sweeps, "serving": _of_levels} | dict.fromkeys(schema.SCORES, _of_quality)


def of_runs(requests: pd.DataFrame, experiment: str) -> pd.DataFrame:
    """One row per run of `experiment` and condition (level of load, shape of a batch).

    Columns run_id, started, IDENTITY, CONDITION, failed, state (of load tests) and every metric of NAMES,
    NaN where the experiment does not measure it; seconds, bytes and rates per second.
    """
    return _of_runs(requests[requests["experiment"] == experiment], experiment)


@once.for_the_same_rows
def _of_runs(rows: pd.DataFrame, experiment: str) -> pd.DataFrame:
    table = HOW.get(experiment, _of_requests)(rows).assign(experiment=experiment)
    defaults = dict.fromkeys([*CONDITION, *NAMES], np.nan) | {"failed": 0, "state": "", "loop": ""}
    columns = ["run_id", "started", *IDENTITY, *CONDITION, "failed", "state", *NAMES]
    missing = {name: value for name, value in defaults.items() if name not in table}
    return table.assign(**missing)[columns]


def _names(run_ids: pd.Series) -> str:
    """The ids of the runs of one configuration: the first whole, of the others their numbers."""
    first, *others = sorted(run_ids, key=lambda name: int(naming.split_number(name)[1]))
    return " ".join([first, *(naming.split_number(name)[1] for name in others)])


def points(requests: pd.DataFrame, experiment: str) -> pd.DataFrame:
    """One row per configuration, version and condition of `experiment`, on every machine.

    Columns IDENTITY, bits (that the option's name states), CONDITION, runs, failed (requests), state (of load
    tests), run_ids, command (that repeats the first of the runs); for each metric of NAMES its adjusted mean,
    `<name>_interval` (half the width of its 95 % interval; both as `adjusted.means`) and `<name>_runs`.
    """
    table = _points(requests[requests["experiment"] == experiment], experiment)
    if experiment not in schema.SCORES:
        return table
    # Scores have the rate of the runs whose answers they score: what the loss of fewer bits buys.
    rate = [f"output_tokens_per_s{suffix}" for suffix in ("", "_interval", "_runs")]
    speed = points(requests, schema.SCORES[experiment])[[*latency.VERSIONED, *rate]]
    return table.drop(columns=rate).merge(speed, "left", latency.VERSIONED)[list(table)]


@once.for_the_same_rows
def _points(rows: pd.DataFrame, experiment: str) -> pd.DataFrame:
    each = of_runs(rows, experiment)
    groups = each.groupby(ROW, sort=True, dropna=False)
    how = {"failed": ("failed", "sum"), "state": ("state", "max"), "run_ids": ("run_id", _names)}
    table = groups.agg(runs=("run_id", "size"), **how, **{f"{name}_runs": (name, "count") for name in NAMES})
    table = table.reset_index()
    means = {f"{name}{suffix}": np.nan for name in NAMES for suffix in ("", "_interval")}
    for name in _measured(each):
        found = adjusted.means(each, latency.VERSIONED, name, CONDITION)
        own = table[ROW].merge(found[[*ROW, "mean", "half"]], "left", ROW)
        means[name], means[f"{name}_interval"] = own["mean"], own["half"]
    known = commands.commands([name.split()[0] for name in table["run_ids"]], rows)
    bits = [naming.bits(option) for option in table["option"]]
    return pd.concat([table, pd.DataFrame(means, table.index)], axis=1).assign(command=known, bits=bits)


def _measured(each: pd.DataFrame) -> list[str]:
    """The metrics of which any run of `each` (`of_runs`) has a figure."""
    return [name for name in NAMES if each[name].notna().any()]


def comparisons(requests: pd.DataFrame, experiment: str) -> list[Fields]:
    """What a page needs to compare any two rows of `points` as `estimates.Fit.compare` does.

    A list of {rows, classes, halves}: `rows` (places in `points`) are those of one machine, model and
    condition, which alone are compared; rows of one class have equal numbers of runs in the same measuring
    sessions; halves {metric: half the width of the interval of the log of the ratio of a row of one class to
    one of another, as the lower triangle over classes, row by row with its diagonal; None where the two
    cannot be compared; empty where no run was repeated}. A row that is missing has a figure that is not above
    zero.
    """
    rows = requests[requests["experiment"] == experiment]
    table = points(requests, experiment)[ROW].astype(object)
    known = table.where(table.notna(), None).itertuples(index=False, name=None)  # NaN is never a key
    places, found = {key: place for place, key in enumerate(known)}, {}
    for name, where, model in _models(rows, experiment):
        _add_halves(found, places, name, where, model)
    if answered := schema.SCORES.get(experiment):
        timed = requests[requests["experiment"] == answered]
        for name, where, model in _models(timed, answered, [latency.RATE]):
            _add_halves(found, places, name, where | {"experiment": experiment}, model)
    return [{"rows": key[0], "classes": key[1], "halves": halves} for key, halves in found.items()]


def _models(rows: pd.DataFrame, experiment: str, names: Sequence[str] = NAMES) -> Iterator[tuple]:
    """(metric, condition, model) of every model of `experiment`."""
    each = of_runs(rows, experiment)
    for name in (name for name in _measured(each) if name in names):
        for where, model in adjusted.fits(each, latency.VERSIONED, name, CONDITION):
            yield name, where, model


def _add_halves(found: dict, places: dict[tuple, int], name: str, where: dict, model: estimates.Fit) -> None:
    """Add the half widths of one model to {(rows, classes): {metric: halves}}, as `comparisons` has them."""
    shared = {column: None if pd.isna(value) else value for column, value in where.items()}
    setting = model.table.groupby(adjusted.SETTING[1:], dropna=False, sort=False).ngroup().to_numpy()
    named = [dict(zip(latency.VERSIONED, own)) | shared for own in model.places]
    keys = [tuple(row[column] for column in ROW) for row in named]
    for number in np.unique(setting):
        shown = np.array([k for k in np.flatnonzero(setting == number) if keys[k] in places], dtype=int)
        if not len(shown):
            continue
        classes = np.unique(model.alike[shown], return_inverse=True)[1]
        key = tuple(places[keys[k]] for k in shown), tuple(classes.tolist())
        found.setdefault(key, {})[name] = _halves(model, shown, classes) if model.has_scatter else []


def _halves(model: estimates.Fit, shown: np.ndarray, classes: np.ndarray) -> list:
    """The lower triangle over `classes` of the configurations `shown` (places in `model.table`)."""
    members = [shown[classes == number] for number in range(classes.max(initial=-1) + 1)]
    pairs = [(own, others) for k, own in enumerate(members) for others in members[: k + 1]]
    ratios = model.pairs([(own[0], others[-1]) for own, others in pairs])
    halves = np.log(ratios["high"] / ratios["low"]).to_numpy(dtype=float) / 2
    known = (ratios["first"] != ratios["second"]) & ~np.isnan(halves)
    return [
        _rounded(half, model.effects[own][:, None] - model.effects[others]) if there else None
        for half, there, (own, others) in zip(halves, known, pairs)
    ]


def _rounded(half: float, differences: np.ndarray) -> float:
    """`half` with the fewest of HALF_DIGITS that leave each of `differences` on its side of it."""
    apart = np.abs(differences)
    rounded = (float(f"{half:.{digits}g}") for digits in HALF_DIGITS)
    return next((r for r in rounded if ((apart > r) == (apart > half)).all()), float(half))


def frame(table: pd.DataFrame) -> pd.DataFrame:
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


def _empty(values: pd.Series) -> bool:
    return bool((values.isna() | (values.astype(object) == "")).all())


def uneven(table: pd.DataFrame) -> dict[str, dict[int, int]]:
    """{metric: {place in `table`, of `points`: runs with a value}} where that is not the number of runs."""
    return {
        name: dict(zip(odd.index.tolist(), odd[f"{name}_runs"].tolist()))
        for name in NAMES
        if len(odd := table[(table[f"{name}_runs"] != table["runs"]) & table[name].notna()])
    }


def experiments(requests: pd.DataFrame) -> list[str]:
    """Names of the experiments that have runs, latency first, then by their runs."""
    counts = requests.groupby("experiment")["run_id"].nunique().sort_values(ascending=False)
    return sorted(counts.index, key=lambda name: (name != "latency", -counts[name], name))


def direction(metric: str) -> int:
    """1 where more of `metric` is better, -1 where less is, 0 where neither is."""
    return DIRECTIONS[metrics.METRICS[metric].better]
