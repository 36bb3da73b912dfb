"""One request at a time: runs, configurations, and which of them can be distinguished."""

import pandas as pd

from bench.observations import schema
from bench.observations.peaks import BANDWIDTHS
from bench.topics import estimates, statistics
from llm_measured.core import metrics

# Two versions of an engine are two configurations.
VERSIONED = [*schema.CONFIGURATION, "backend_version"]
RATE = "output_tokens_per_s"
INTERVALS = RATE, "ttft_s", "tpot_s", "mbu", "peak_memory_bytes"
ENERGY = "energy_per_token_j", "cpu_energy_per_token_j", "gpu_idle_w", "cpu_idle_w"
MEANS = [*INTERVALS, "itl_p90_s", "mbu_datasheet", "bandwidth_bytes_per_s", "load_s", *ENERGY]
PLACES = ["may_be_best", "measuring_sessions", "least", "most", "note", "reason"]


def runs(requests: pd.DataFrame) -> pd.DataFrame:
    """One row per run: medians over its requests, the mean of output_tokens_per_s, counts.

    Columns run_id, experiment, the configuration, backend_version, threads, started; medians of ttft_s,
    tpot_s, itl_p90_s, mbu and mbu_datasheet; output_tokens_per_s (the mean, because that is what the
    published table shows) and of ENERGY; itl_max_s (the longest gap of any request), drafted_tokens,
    accepted_tokens, weight_bytes, BANDWIDTHS, probe_ways, peak_memory_bytes, load_s, not_judged,
    requests, failed.
    """
    keys = ["run_id", "experiment", *schema.CONFIGURATION, "backend_version", "threads", "started"]
    return (
        bounded(requests)
        .assign(failed=requests["error"] != "")
        .groupby(keys, as_index=False, sort=True)
        .agg(
            **_each("median", "ttft_s", "tpot_s", "itl_p90_s"),
            **_each("mean", "output_tokens_per_s"),
            **_each("median", "mbu", "mbu_datasheet"),
            **_each("sum", "drafted_tokens", "accepted_tokens"),
            **_each("first", "weight_bytes", *BANDWIDTHS, "probe_ways"),
            **_each("mean", *ENERGY),
            **_each("max", "peak_memory_bytes", "itl_max_s"),
            **_each("first", "load_s", "not_judged"),
            requests=("request", "count"),
            failed=("failed", "sum"),
        )
    )


def runs_table(requests: pd.DataFrame) -> pd.DataFrame:
    """Return one row per run of any experiment, as a file has it: `runs`, and prompts (how many),
    prompt_tokens_least, prompt_tokens_most, max_new_tokens and shared_by; times and rates only of one
    request at a time."""
    table = runs(requests)
    asked = requests.groupby("run_id", as_index=False).agg(
        prompts=("prompt", "nunique"),
        prompt_tokens_least=("prompt_tokens", "min"),
        prompt_tokens_most=("prompt_tokens", "max"),
        max_new_tokens=("max_new_tokens", "max"),
        shared_by=("shared_by", "first"),
    )
    timed = table["experiment"].isin(["latency", "sizes"])
    for name in (*INTERVALS, "itl_p90_s", "itl_max_s", "mbu_datasheet"):
        table[name] = table[name].where(timed)
    return table.merge(asked, "left", "run_id").sort_values("run_id", ignore_index=True)


def of_sizes(requests: pd.DataFrame) -> pd.DataFrame:
    """The runs of `sizes` and their quality, called `latency` and `quality`, and nothing else: what is
    computed of nine prompts is then computed of three, and never of both."""
    usual = {"sizes": "latency", "sizes_quality": "quality"}
    rows = requests[requests["experiment"].isin(list(usual))]
    return rows.assign(experiment=rows["experiment"].map(usual))


def bounded(requests: pd.DataFrame) -> pd.DataFrame:
    """`requests` with itl_p90_s only where the gaps of the answer bound it (`statistics.requests_needed`)."""
    gaps = requests["output_tokens"] - 1
    known = gaps >= statistics.requests_needed(0.9)
    return requests.assign(itl_p90_s=requests["itl_p90_s"].where(known))


def _each(how: str, *names: str) -> dict[str, tuple[str, str]]:
    """Named aggregations of pandas: each of the columns `names` under its own name."""
    return {name: (name, how) for name in names}


def compared(requests: pd.DataFrame, metric: str) -> estimates.Fit:
    """Fit `metric` of all configurations and versions of `requests`, of whatever machine (`estimates.fit`).

    A figure that is not above zero, such as the MBU of an engine that reads no weights, is none.
    """
    return _fitted(runs(requests), metric)


def _fitted(each: pd.DataFrame, metric: str) -> estimates.Fit:
    """`compared` of `runs`."""
    return estimates.fit(each[each[metric] > 0], VERSIONED, metric)


def summary(requests: pd.DataFrame) -> pd.DataFrame:
    """Return one row per configuration and version, fastest first, those that are not compared last.

    Give the requests of all machines, whose scatter is pooled, and choose rows afterwards. Configurations of
    which every run shared its machine come after the others (`beside_others`): they enter no model. Columns:
    the configuration (backend, option, model, weights, gpu, host, devices at once) and backend_version; of
    INTERVALS the means of the regression (`estimates`) and `<name>_interval`, half the width of their 95 %
    intervals; means over runs of the other MEANS; rates (tuple: output_tokens_per_s of each run, in the order
    of measuring); itl_max_s (the longest gap of any run), slowest_probe_bytes_per_s and
    fastest_probe_bytes_per_s (of the measuring sessions of its runs), weight_bytes, acceptance_rate (NaN
    where nothing is drafted), runs, requests, failed requests, measured (start of the last run); PLACES, by
    output_tokens_per_s among the configurations of the same setting and machine (`estimates.rank`).
    """
    requests, shared = apart(requests)
    each = runs(requests)
    table = _of_versions(each).drop(columns=list(INTERVALS))
    for metric in INTERVALS:
        table = table.merge(_adjusted(each, metric), "left", VERSIONED)
    table = table.sort_values(RATE, ascending=False, ignore_index=True)
    table = table.sort_values("reason", key=lambda reasons: reasons != "", kind="stable", ignore_index=True)
    table = table.assign(acceptance_rate=table.pop("acceptance_rate"), shared_by="")
    if shared.empty:
        return table
    # A table without a row has no types of its own: the numbers beside it would be objects, and unrounded.
    return pd.concat([table, beside_others(shared)], ignore_index=True).infer_objects()


def _of_versions(each: pd.DataFrame) -> pd.DataFrame:
    """Return a row per configuration and version of the runs `each`: plain means, sums, rates of the runs."""
    table = each.sort_values("started", kind="stable").groupby(VERSIONED, as_index=False, sort=True).agg(
        **_each("mean", *MEANS),
        **_each("median", "weight_bytes"),
        **_each("max", "itl_max_s", "fastest_probe_bytes_per_s"),
        **_each("min", "slowest_probe_bytes_per_s"),
        **_each("sum", "requests", "failed", "drafted_tokens", "accepted_tokens"),
        rates=(RATE, tuple), runs=("run_id", "count"), measured=("started", "max"),
    )  # fmt: skip
    accepted = metrics.acceptance_rate(table["accepted_tokens"], table["drafted_tokens"])
    return table.assign(acceptance_rate=accepted)


def rates_as_words(table: pd.DataFrame) -> pd.DataFrame:
    """Return `table` (`summary`) as a file has it: output_tokens_per_s_runs instead of rates, the rate
    of each run as words of one string."""
    rates = [" ".join(f"{rate:.6g}" for rate in rates) for rates in table["rates"]]
    return table.drop(columns="rates").assign(output_tokens_per_s_runs=rates)


def apart(requests: pd.DataFrame) -> tuple[pd.DataFrame, pd.DataFrame]:
    """(requests of runs that had their machine to themselves, those of configurations that only have runs
    which shared it)."""
    shared = requests["shared_by"] != ""
    keys = pd.MultiIndex.from_frame(requests[schema.CONFIGURATION])
    return requests[~shared], requests[shared & ~keys.isin(keys[~shared])]


def beside_others(requests: pd.DataFrame) -> pd.DataFrame:
    """One row per configuration and version whose runs shared the machine: columns as in `summary`, plain
    means over runs without interval or rank; reason and shared_by say what it was shared with."""
    words = requests.groupby(VERSIONED)["shared_by"].agg(lambda each: "; ".join(dict.fromkeys(each)))
    table = _of_versions(runs(requests)).join(words, on=VERSIONED)
    table = table.assign(may_be_best=False, note="", reason=table["shared_by"])
    return table.sort_values(RATE, ascending=False, ignore_index=True)


def _adjusted(each: pd.DataFrame, metric: str) -> pd.DataFrame:
    """The mean of `metric` of every configuration of the runs `each` and half the width of its interval; of
    RATE also PLACES, among the configurations of the same setting and machine."""
    kept = [*VERSIONED, metric, f"{metric}_interval", *(PLACES if metric == RATE else [])]
    if each.empty:
        return pd.DataFrame(columns=kept)
    model, groups = _fitted(each, metric), each.groupby([*schema.SETTING, "host"])
    higher_is_better = metrics.METRICS[metric].better == "higher"
    ranks = [estimates.rank(own, VERSIONED, metric, higher_is_better, model=model) for _, own in groups]
    return estimates.half_widths(pd.concat(ranks, ignore_index=True), metric)[kept]
