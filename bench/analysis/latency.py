"""One request at a time: runs, configurations, and which of them can be told apart."""

import pandas as pd

from bench import memo, metrics, naming
from bench.analysis import machines, ranking, statistics
from bench.observations import derived, schema

# Two versions of an engine are two configurations.
VERSIONED = [*schema.CONFIGURATION, "backend_version"]
RATE = "output_tokens_per_s"
INTERVALS = RATE, "ttft_s", "tpot_s", "mbu", "peak_memory_bytes"
ENERGY = "energy_per_token_j", "cpu_energy_per_token_j", "gpu_idle_w", "cpu_idle_w"
MEANS = [*INTERVALS, "itl_p90_s", "mbu_datasheet", "bandwidth_bytes_per_s", "load_s", *ENERGY]
PLACES = "rank_from rank_to groups may_be_best reason".split()
LESS_IS_BETTER = {"ttft_s", "tpot_s", "peak_memory_bytes"}


@memo.by_content
def runs(requests):
    """One row per run: medians over its requests, the mean of output_tokens_per_s, counts.

    Columns run_id, experiment, the configuration, backend_version, threads, started; medians of ttft_s,
    tpot_s, itl_p90_s, mbu and mbu_datasheet; output_tokens_per_s (the mean, because that is what the
    published table shows) and of ENERGY; itl_max_s (the longest gap of any request), drafted_tokens,
    accepted_tokens, weight_bytes, bandwidth_bytes_per_s, probe_ways, peak_memory_bytes, load_s, requests,
    failed.
    """
    keys = ["run_id", "experiment", *schema.CONFIGURATION, "backend_version", "threads", "started"]
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


def probe_scatter(requests):
    """The latency runs of all machines with their roofs: one row per run as in `runs`, and mbu_unjudged, the
    MBU against the best probe of the run, whatever it was (`derived.without_poor_roofs`).
    """
    rows = requests[(requests["experiment"] == "latency") & (requests["error"] == "")]
    best = rows.assign(bandwidth_bytes_per_s=rows["best_probe_bytes_per_s"])
    unjudged = runs(derived.derive(best))[["run_id", "mbu"]].rename(columns={"mbu": "mbu_unjudged"})
    return runs(rows).merge(unjudged, on="run_id")


def probed_one_way(each):
    """How many of the runs `each` (`runs`) have an MBU against a CPU's memory that the probe read in one way
    only: that roof may be too low, so the MBU is an upper bound."""
    simple = (each["probe_ways"] == 1) & each["gpu"].map(naming.is_cpu)
    return int((simple & each["mbu"].notna()).sum())


def bounded(requests):
    """`requests` with itl_p90_s only where the gaps of the answer bound it (`statistics.requests_needed`)."""
    gaps = requests["output_tokens"] - 1
    known = gaps >= statistics.requests_needed(0.9)
    return requests.assign(itl_p90_s=requests["itl_p90_s"].where(known))


def _each(how, *names):
    """Named aggregations of pandas: each of the columns `names` under its own name."""
    return {name: (name, how) for name in names}


def half_width(values):
    """`statistics.half_width` of a column of runs, as a number."""
    return float(statistics.half_width(values))


@memo.by_content
def ranked(requests, metric, **more):
    """The configurations of `requests`, which are of one setting on one machine, by their runs' `metric`.

    One row per configuration and version, best first; columns of `ranking.rank`. A figure that is not above
    zero, such as the MBU of an engine that reads no weights, is none.
    """
    return _ranked(runs(requests), metric, **more)


def _ranked(each, metric, **more):
    """`ranked` of the runs `each`."""
    each = each.assign(**{metric: each[metric].where(each[metric] > 0)})
    return ranking.rank(each, VERSIONED, metric, metric not in LESS_IS_BETTER, **more)


@memo.by_content
def summary(requests):
    """One row per configuration and version, fastest first, those that are not ranked last.

    Columns: the configuration (backend, option, model, weights, gpu, host, devices at once) and
    backend_version; means over runs of MEANS; for INTERVALS `<name>_interval`, the half width of the 95 %
    interval over runs (empty for one run); rates (tuple: output_tokens_per_s of each run, in the order of
    measuring); itl_max_s (the longest gap of any run), weight_bytes, acceptance_rate (NaN where nothing is
    drafted), runs, requests, failed requests, measured (start of the last run); PLACES, by
    output_tokens_per_s among the configurations of the same setting and machine (`ranking.rank`).
    """
    each = runs(requests).sort_values("started", kind="stable")
    grouped = each.groupby(VERSIONED, as_index=False, sort=True)
    halves = {f"{name}_interval": (name, half_width) for name in INTERVALS}
    table = grouped.agg(
        **_each("mean", *MEANS),
        **halves,
        **_each("median", "weight_bytes"),
        **_each("max", "itl_max_s"),
        **_each("sum", "requests", "failed", "drafted_tokens", "accepted_tokens"),
        rates=(RATE, tuple),
        runs=("run_id", "count"),
        measured=("started", "max"),
    )
    accepted = metrics.acceptance_rate(table["accepted_tokens"], table["drafted_tokens"])
    table = table.assign(acceptance_rate=accepted).merge(_places(each), "left", VERSIONED)
    table = table.assign(unranked=table["reason"] != "")
    table = table.sort_values(["unranked", RATE], ascending=[True, False], ignore_index=True)
    return table.drop(columns="unranked")


def _places(each):
    """The columns PLACES of every configuration and version of the runs `each`."""
    places = [_ranked(rows, RATE) for _, rows in each.groupby([*schema.SETTING, "host"])]
    if not places:
        return pd.DataFrame(columns=[*VERSIONED, *PLACES]).astype(dict.fromkeys(VERSIONED, object))
    return pd.concat(places, ignore_index=True)[[*VERSIONED, *PLACES]]


def upgrades(requests):
    """What an upgrade of an engine changed on the machine in front, for one request at a time.

    One row per configuration, version after its first, and metric (output_tokens_per_s, ttft_s); columns of
    `ranking.upgrades` and metric. Runs with failed requests are left out.
    """
    each = runs(machines.front(requests, "latency"))
    each, tables = each[each["failed"] == 0], []
    for metric in (RATE, "ttft_s"):
        known = each[each[metric] > 0]
        better = metric not in LESS_IS_BETTER
        table = ranking.upgrades(known, schema.CONFIGURATION, metric, higher_is_better=better)
        tables.append(table.assign(metric=metric))
    return pd.concat([table for table in tables if len(table)] or tables[:1], ignore_index=True)


def settings(requests):
    """[((gpu, model, weights), its requests)], the setting with the most configurations first, real weights
    before synthetic ones."""

    def order(group):
        (_, _, weights), rows = group
        return weights == "synthetic", -len(rows[["backend", "option"]].drop_duplicates())

    return sorted(requests.groupby(schema.SETTING, sort=True), key=order)


def described(requests, experiment):
    """The requests of `experiment` that a sentence is about: of one device of the machine in front, and one
    model, that with the most configurations; an empty frame where there are none."""
    chosen = settings(machines.here(requests, experiment))
    return chosen[0][1] if chosen else machines.here(requests, experiment)


def pairs(requests):
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


def overhead_summary(requests):
    """What measuring costs: one row per configuration of the overhead experiment, dearest first.

    Columns pairs, runs, mean, low, high (fractions; 95 % interval over the pairs of its runs, in the order of
    measuring: both halves of a pair have the run's mood, so what is left is their difference), verdict:
    dearer, cheaper or `statistics.EQUAL`.
    """
    rows = []
    for key, own in pairs(requests).groupby(schema.CONFIGURATION):
        mean, low, high = statistics.mean_interval(own["cost"])
        verdict = "dearer" if low > 0 else "cheaper" if high < 0 else statistics.EQUAL
        rows.append((*key, len(own), own["run_id"].nunique(), mean, low, high, verdict))
    names = "pairs runs mean low high verdict".split()
    table = pd.DataFrame(rows, columns=[*schema.CONFIGURATION, *names])
    return table.sort_values("mean", ascending=False, ignore_index=True)
