"""One request at a time: runs, configurations, and which of them can be distinguished."""

import pandas as pd

from bench import memo, metrics, naming
from bench.analysis import comparison, machines, ranking, statistics
from bench.observations import derived, placement, schema

# Two versions of an engine are two configurations.
VERSIONED = [*schema.CONFIGURATION, "backend_version"]
RATE = "output_tokens_per_s"
INTERVALS = RATE, "ttft_s", "tpot_s", "mbu", "peak_memory_bytes"
ENERGY = "energy_per_token_j", "cpu_energy_per_token_j", "gpu_idle_w", "cpu_idle_w"
MEANS = [*INTERVALS, "itl_p90_s", "mbu_datasheet", "bandwidth_bytes_per_s", "load_s", *ENERGY]
# What reading memory decides, so that it is compared placement by placement. (TTFT is not: the prompts of a
# run that one placement met are short or long ones by chance.)
STRATIFIED = {RATE, "tpot_s", "mbu"}
# Of nine requests so many must have met a placement for the run to have a figure of it.
FEWEST_REQUESTS = 3
GAPS_S = 900, 3600, 21600  # that may part two sittings
PLACES = ["rank_from", "rank_to", "groups", "may_be_best", "rounds_to_settle", "sittings", "note", "reason"]


@memo.by_content
def runs(requests: pd.DataFrame, strata: bool = False) -> pd.DataFrame:
    """One row per run: medians over its requests, the mean of output_tokens_per_s, counts.

    With `strata` one row per run and placement of the processors (`placement.counted`), and the column
    placement: a run gives one value of each placement that FEWEST_REQUESTS of it met; requests says how many.

    Columns run_id, experiment, the configuration, backend_version, threads, started; medians of ttft_s,
    tpot_s, itl_p90_s, mbu and mbu_datasheet; output_tokens_per_s (the mean, because that is what the
    published table shows) and of ENERGY; itl_max_s (the longest gap of any request), drafted_tokens,
    accepted_tokens, weight_bytes, bandwidth_bytes_per_s, probe_ways, peak_memory_bytes, load_s, requests,
    failed.
    """
    keys = ["run_id", "experiment", *schema.CONFIGURATION, "backend_version", "threads", "started"]
    if strata:
        requests, keys = _counted(requests), [*keys, "placement"]
    return (
        bounded(requests)
        .groupby(keys, as_index=False, sort=True)
        .agg(
            **_each("median", "ttft_s", "tpot_s", "itl_p90_s"),
            **_each("mean", "output_tokens_per_s"),
            **_each("median", "mbu", "mbu_datasheet"),
            **_each("sum", "drafted_tokens", "accepted_tokens"),
            **_each("first", "weight_bytes", "bandwidth_bytes_per_s", "probe_ways"),
            **_each("mean", *ENERGY),
            **_each("max", "peak_memory_bytes", "itl_max_s"),
            **_each("first", "load_s"),
            requests=("request", "count"),
            failed=("error", lambda errors: int((errors != "").sum())),
        )
    )


def _counted(requests: pd.DataFrame) -> pd.DataFrame:
    """The requests that count in a stratum: those of a run's placement with FEWEST_REQUESTS or more, and all
    of machines with one."""
    rows = placement.counted(requests)
    met = rows.groupby(["run_id", "placement"])["request"].transform("size")
    return rows[(rows["placement"] == "") | (met >= FEWEST_REQUESTS)]


def probe_scatter(requests: pd.DataFrame) -> pd.DataFrame:
    """The latency runs of all machines with their peaks: one row per run as in `runs`, mbu_unjudged, the
    MBU against the best probe of the run, whatever it was (`derived.without_poor_peaks`), and that probe,
    best_probe_bytes_per_s.
    """
    rows = requests[(requests["experiment"] == "latency") & (requests["error"] == "")]
    best = rows.assign(bandwidth_bytes_per_s=rows["best_probe_bytes_per_s"])
    unjudged = runs(derived.derive(best))[["run_id", "mbu", "bandwidth_bytes_per_s"]]
    unjudged = unjudged.rename(
        columns={"mbu": "mbu_unjudged", "bandwidth_bytes_per_s": "best_probe_bytes_per_s"}
    )
    return runs(rows).merge(unjudged, on="run_id")


def probed_one_way(each: pd.DataFrame) -> int:
    """How many of the runs `each` (`runs`) have an MBU against a CPU's memory that the probe read in one way
    only: that peak may be too low, so the MBU is an upper bound."""
    simple = (each["probe_ways"] == 1) & each["gpu"].map(naming.is_cpu)
    return int((simple & each["mbu"].notna()).sum())


def bounded(requests: pd.DataFrame) -> pd.DataFrame:
    """`requests` with itl_p90_s only where the gaps of the answer bound it (`statistics.requests_needed`)."""
    gaps = requests["output_tokens"] - 1
    known = gaps >= statistics.requests_needed(0.9)
    return requests.assign(itl_p90_s=requests["itl_p90_s"].where(known))


def _each(how: str, *names: str) -> dict[str, tuple[str, str]]:
    """Named aggregations of pandas: each of the columns `names` under its own name."""
    return {name: (name, how) for name in names}


def compared(requests: pd.DataFrame, metric: str) -> comparison.Fit:
    """The model of `metric` of the configurations and versions of `requests`, which are of one machine.

    A figure that is not above zero, such as the MBU of an engine that reads no weights, is none.
    """
    each = runs(requests, strata=metric in STRATIFIED)
    return comparison.fit(each[each[metric] > 0], VERSIONED, metric)


def configuration(row: pd.Series) -> tuple:
    """The configuration and version of a row, as `comparison.Fit.compare` takes it."""
    return tuple(row[VERSIONED])


@memo.by_content
def ranked(requests: pd.DataFrame, metric: str, among: tuple[tuple, ...] | None = None) -> pd.DataFrame:
    """The configurations of `requests`, which are of one setting on one machine, by their runs' `metric`.

    One row per configuration and version, best first; columns of `ranking.rank`. `among`: only these
    (tuples of VERSIONED) are ranked, by the model of all of them.
    """
    each, model = runs(requests, strata=metric in STRATIFIED), compared(requests, metric)
    if among is not None:
        each = each[pd.MultiIndex.from_frame(each[VERSIONED]).isin(among)]
    return ranking.rank(each, VERSIONED, metric, higher_is_better(metric), model=model)


def higher_is_better(metric: str) -> bool:
    """Whether more of `metric` is better, as it was declared."""
    return metrics.METRICS[metric].better == "higher"


@memo.by_content
def summary(requests: pd.DataFrame) -> pd.DataFrame:
    """One row per configuration and version, fastest first, those that are not ranked last.

    Columns: the configuration (backend, option, model, weights, gpu, host, devices at once) and
    backend_version; of INTERVALS the adjusted means (`comparison`: as if every configuration of the setting
    had been measured in each sitting equally often) and `<name>_interval`, half the width of their 95 %
    intervals; means over runs of the other MEANS; rates (tuple: output_tokens_per_s of each run, in the order
    of measuring); itl_max_s (the longest gap of any run), weight_bytes, acceptance_rate (NaN where nothing is
    drafted), runs, requests, failed requests, measured (start of the last run); PLACES, by
    output_tokens_per_s among the configurations of the same setting and machine (`ranking.rank`).
    """
    each = runs(requests).sort_values("started", kind="stable")
    table = each.groupby(VERSIONED, as_index=False, sort=True).agg(
        **_each("mean", *(name for name in MEANS if name not in INTERVALS)),
        **_each("median", "weight_bytes"),
        **_each("max", "itl_max_s"),
        **_each("sum", "requests", "failed", "drafted_tokens", "accepted_tokens"),
        rates=(RATE, tuple),
        runs=("run_id", "count"),
        measured=("started", "max"),
    )
    for metric in INTERVALS:
        table = table.merge(_adjusted(requests, metric), "left", VERSIONED)
    accepted = metrics.acceptance_rate(table["accepted_tokens"], table["drafted_tokens"])
    table = table.assign(acceptance_rate=accepted, unranked=table["reason"] != "")
    table = table.sort_values(["unranked", RATE], ascending=[True, False], ignore_index=True)
    return table.drop(columns="unranked")


def _adjusted(requests: pd.DataFrame, metric: str) -> pd.DataFrame:
    """The adjusted mean of `metric` of every configuration and half the width of its interval; of RATE also
    PLACES."""
    tables = [ranked(rows, metric) for _, rows in requests.groupby([*schema.SETTING, "host"])]
    kept = [*VERSIONED, "mean", "half", *(PLACES if metric == RATE else [])]
    if not tables:
        return pd.DataFrame(columns=kept).rename(columns={"mean": metric, "half": f"{metric}_interval"})
    table = pd.concat(tables, ignore_index=True)
    table = table.assign(half=(table["high"] - table["low"]) / 2)[kept]
    return table.rename(columns={"mean": metric, "half": f"{metric}_interval"})


def other_sittings(requests: pd.DataFrame) -> pd.DataFrame:
    """The two fastest ranked configurations of every machine, compared with other ends of a sitting.

    One row per machine and gap of GAPS_S, for the setting with most configurations; columns gpu,
    host, gap_minutes, sittings, first, second (engine and option), and `comparison.RATIO` (first over
    second).
    """
    rows = []
    for _, own in machines.each(requests[requests["experiment"] == "latency"]):
        chosen = machines.versioned(naming.named(settings(own)[0][1]))
        best = ranked(chosen, RATE)
        best = best[best["reason"] == ""].head(2)
        if len(best) < 2:
            continue
        each = runs(chosen, strata=True)
        each = each[each[RATE] > 0]
        first, second = (row for _, row in best.iterrows())
        named = dict(first[["gpu", "host"]]) | {"first": naming.label(first), "second": naming.label(second)}
        for gap in GAPS_S:
            model = comparison.fit(each, VERSIONED, RATE, gap)
            count = {"gap_minutes": gap / 60, "sittings": comparison.sittings(each, gap).nunique()}
            rows.append(named | count | model.compare(configuration(first), configuration(second)))
    names = ["gpu", "host", "gap_minutes", "sittings", "first", "second"]
    return pd.DataFrame(rows, columns=[*names, *comparison.RATIO])


def upgrades(requests: pd.DataFrame) -> pd.DataFrame:
    """What an upgrade of an engine changed on the machine in front, for one request at a time.

    One row per configuration, version after its first, and metric (output_tokens_per_s, ttft_s); columns of
    `ranking.upgrades` and metric. Runs with failed requests are left out.
    """
    each = runs(machines.front(requests, "latency"))
    each, tables = each[each["failed"] == 0], []
    for metric in (RATE, "ttft_s"):
        known, better = each[each[metric] > 0], higher_is_better(metric)
        table = ranking.upgrades(known, schema.CONFIGURATION, metric, higher_is_better=better)
        tables.append(table.assign(metric=metric))
    return pd.concat([table for table in tables if len(table)] or tables[:1], ignore_index=True)


def settings(requests: pd.DataFrame) -> list[tuple[tuple[str, ...], pd.DataFrame]]:
    """[((gpu, model, weights), its requests)], the setting with the most configurations first, real weights
    before synthetic ones."""

    def order(group: tuple) -> tuple:
        (_, _, weights), rows = group
        return weights == "synthetic", -len(rows[["backend", "option"]].drop_duplicates())

    return sorted(requests.groupby(schema.SETTING, sort=True), key=order)


def described(requests: pd.DataFrame, experiment: str) -> pd.DataFrame:
    """The requests of `experiment` that a sentence is about: of one device of the machine in front, and one
    model, that with the most configurations; an empty frame where there are none."""
    chosen = settings(machines.here(requests, experiment))
    return chosen[0][1] if chosen else machines.here(requests, experiment)


def pairs(requests: pd.DataFrame) -> pd.DataFrame:
    """Pairs of the overhead experiment on the machine in front, the engine's own loop and the harness on the
    same prompt: one row per pair; columns the configuration, run_id, pair, prompt, cost (harness e2e / own
    loop's e2e - 1).

    A pair with a failure, or with two rows of the same kind, is left out.
    """
    rows = machines.here(requests, "overhead")
    rows = rows[rows["error"] == ""]
    rows = rows.assign(pair=(rows["request"] - 1) // 2, harness=rows["ttft_s"].notna())
    keys = [*schema.CONFIGURATION, "started", "run_id", "pair", "prompt"]
    wide = rows.pivot_table(index=keys, columns="harness", values="e2e_s", aggfunc="first")
    wide = wide.reindex(columns=[False, True]).dropna()
    wide = wide.assign(cost=wide[True] / wide[False] - 1).reset_index()
    return wide[[*keys, "cost"]].rename_axis(columns=None)


def overhead_summary(requests: pd.DataFrame) -> pd.DataFrame:
    """What measuring costs: one row per configuration of the overhead experiment, dearest first.

    Columns pairs, runs, mean, low, high (fractions; 95 % interval over the pairs of its runs, in the order of
    measuring: both halves of a pair have the run's mood, so what is left is their difference), verdict:
    dearer, cheaper or `comparison.EQUAL`.
    """
    rows = []
    for key, own in pairs(requests).groupby(schema.CONFIGURATION):
        mean, low, high = statistics.mean_interval(own["cost"])
        verdict = "dearer" if low > 0 else "cheaper" if high < 0 else comparison.EQUAL
        rows.append((*key, len(own), own["run_id"].nunique(), mean, low, high, verdict))
    names = ["pairs", "runs", "mean", "low", "high", "verdict"]
    table = pd.DataFrame(rows, columns=[*schema.CONFIGURATION, *names])
    return table.sort_values("mean", ascending=False, ignore_index=True)
