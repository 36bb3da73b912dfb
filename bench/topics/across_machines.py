"""Ratios of two configurations on each machine that has both, by processor type, and how often one is slower.

Runs of different machines are never pooled, only ratios that were measured on one host. Hosts of one
processor type agree, types do not, so a pooled ratio is given only where FEWEST_PROCESSORS types or more have
both: one ratio per type, combined by statsmodels' random-effects meta-analysis. An engine's version is part
of a configuration, and processors are not pooled with GPUs.
"""

import itertools
import math
from collections.abc import Sequence

import numpy as np
import pandas as pd
from scipy import stats

from bench.observations import derived
from bench.topics import estimates, latency, machines
from llm_measured.core import naming
from llm_measured.core.definitions import Fields

RATE = latency.RATE
KEYS = ["backend", "option", "backend_version"]
THAN = [f"than_{key}" for key in KEYS]  # the configuration that another one is compared with
FEWEST_PROCESSORS = 5  # of which a ratio is pooled
SUMMARY = [
    *KEYS, *THAN, "verdict", "ratio", "low", "high", "processors", "least", "most",
    "machines", "slower", "faster", "not_compared",
]  # fmt: skip
Key = tuple[str, str, str]


def compared(requests: pd.DataFrame) -> pd.DataFrame:
    """Return the latency runs that are compared: of what most machines have.

    That is one model, its weights, and one kind of device.

    One row per run (`latency.runs`) whose tokens were not left unchecked (`derived.judged`), without failed
    requests and with a RATE above zero; options as `naming.named`, with the version where several are
    compared; column machine: its label (`machines.labelled`).
    """
    labels = [(label, rows[machines.MACHINE].iloc[0]) for label, rows in machines.labelled(requests, False)]
    names = {tuple(machine): label for label, machine in labels}
    rows = naming.named(derived.judged(requests[requests["experiment"] == "latency"]))
    lost = rows.loc[rows["error"] != "", "run_id"]
    runs = latency.runs(rows)
    runs = runs[~runs["run_id"].isin(lost) & (runs[RATE] > 0)]
    runs = runs.assign(machine=[names[key] for key in zip(runs["gpu"], runs["host"])])
    kinds = runs.groupby(["model", "weights", runs["gpu"].map(naming.is_cpu)], sort=True)
    if not kinds.ngroups:
        return runs
    _, runs = max(kinds, key=lambda kind: (kind[1]["machine"].nunique(), len(kind[1])))
    versions = runs.groupby(["backend", "option"])["backend_version"].transform("nunique")
    version = (" (" + runs["backend_version"] + ")").where(versions > 1, "")
    return runs.assign(option=runs["option"] + version)


def ratios(runs: pd.DataFrame, pairs: Sequence[tuple[Key, Key]]) -> pd.DataFrame:
    """Return each of `pairs` on each machine of `runs` (`compared`) that has both, by one regression of all.

    A row per pair and machine: the first configuration (KEYS), the second (THAN), machine, gpu (the processor
    type) and `estimates.RATIO`: how many times as fast the first is. Ratio and interval are empty where the
    two cannot be compared, and the verdict says why.
    """
    keys = [*KEYS, "host", "gpu"]
    names = [*KEYS, *THAN, "machine", "gpu", *estimates.RATIO]
    if runs.empty or not pairs:
        return pd.DataFrame(columns=names)
    model, rows = estimates.fit(runs, keys, RATE), []
    places: list[tuple[int, int]] = []
    for (machine, gpu, host), _ in runs.groupby(["machine", "gpu", "host"], sort=True):
        for first, second in pairs:
            numerator, denominator = (*first, host, gpu), (*second, host, gpu)
            if numerator in model.places and denominator in model.places:
                rows.append((*first, *second, machine, gpu))
                places.append((model.places[numerator], model.places[denominator]))
    table = pd.DataFrame(rows, columns=names[: -len(estimates.RATIO)])
    return table.join(model.pairs(places)[estimates.RATIO])


def by_processor(each: pd.DataFrame) -> pd.DataFrame:
    """Average the rows of `ratios` over the hosts of one processor type: a row per pair and type.

    Columns KEYS, THAN, gpu, ratio (geometric mean), variance (of its log), machines. Machines on which the
    two could not be compared are left out.
    """
    each = each.dropna(subset=["ratio", "low"])
    error = np.log(each["high"] / each["low"]) / 2 / stats.t.ppf(0.975, each["degrees_of_freedom"])
    each = each.assign(log_ratio=np.log(each["ratio"].astype(float)), variance=error**2)
    table = each.groupby([*KEYS, *THAN, "gpu"], as_index=False).agg(
        ratio=("log_ratio", "mean"), variance=("variance", "sum"), machines=("machine", "size")
    )
    return table.assign(ratio=np.exp(table["ratio"]), variance=table["variance"] / table["machines"] ** 2)


def summarised(of_machines: pd.DataFrame) -> pd.DataFrame:
    """Count over machines what the rows of `ratios` say: one row per pair of configurations, the first (KEYS)
    against the second (THAN), that several machines have.

    Columns SUMMARY: verdict (`slower on 5 of the 6 that have both`: the first is slower), slower and faster
    (machines on which the interval of its ratio of tokens/s lies below or above 1), not_compared, machines
    (that have both), processors (types with a ratio), ratio (geometric mean over types), low and high (its
    95 % interval, from FEWEST_PROCESSORS types on), least and most (of the machines' ratios).
    """
    types = dict(list(by_processor(of_machines).groupby([*KEYS, *THAN]))) if len(of_machines) else {}
    rows = [
        _summary(key, own, types.get(key, pd.DataFrame(columns=["ratio", "variance"])))
        for key, own in of_machines.groupby([*KEYS, *THAN], sort=False)
        if len(own) > 1
    ]
    return pd.DataFrame(rows, columns=SUMMARY)


def _summary(key: tuple, own: pd.DataFrame, types: pd.DataFrame) -> Fields:
    """One row of `summarised`: a pair's rows of `ratios` and of `by_processor`."""
    from statsmodels.stats.meta_analysis import combine_effects

    slower, faster = (int((own["verdict"] == word).sum()) for word in (estimates.SLOWER, estimates.FASTER))
    missing = int(own["low"].isna().sum())
    low = high = math.nan
    logs = np.log(types["ratio"].to_numpy(dtype=float))
    if len(types) >= FEWEST_PROCESSORS:
        pooled = combine_effects(logs, types["variance"].to_numpy(), method_re="iterated", use_t=True)
        low, high = np.exp(pooled.conf_int()[1])
    words = [f"slower on {slower} of the {len(own)} that have both"]
    words += [f"faster on {faster}"] * (faster > 0) + [f"{missing} not compared"] * (missing > 0)
    return dict(zip([*KEYS, *THAN], key)) | {
        "verdict": ", ".join(words),
        "ratio": float(np.exp(logs.mean())) if len(logs) else math.nan,
        "low": low,
        "high": high,
        "processors": len(types),
        "least": own["ratio"].min(),
        "most": own["ratio"].max(),
        "machines": len(own),
        "slower": slower,
        "faster": faster,
        "not_compared": missing,
    }


def table(requests: pd.DataFrame) -> pd.DataFrame:
    """Return `against_leader`, then `every_pair`; column leader: which of the two a row is of."""
    parts = [against_leader(requests).assign(leader=True), every_pair(requests).assign(leader=False)]
    return pd.concat([part for part in parts if len(part)] or parts[:1], ignore_index=True)


def every_pair(requests: pd.DataFrame) -> pd.DataFrame:
    """Return `summarised` of every pair of configurations that several machines have.

    Pairs that most machines have first, then by ratio, the largest first.
    """
    runs = compared(requests)
    table = summarised(ratios(runs, list(itertools.combinations(_configurations(runs), 2))))
    return table.sort_values(["machines", "ratio"], ascending=False, ignore_index=True)


def against_leader(requests: pd.DataFrame) -> pd.DataFrame:
    """Return `summarised` of every configuration against the `leader`, the best first."""
    table = summarised(each_against_leader(requests))
    return table.sort_values("ratio", ascending=False, ignore_index=True)


def each_against_leader(requests: pd.DataFrame) -> pd.DataFrame:
    """Return `ratios` of every configuration to the `leader`: one row per configuration and machine."""
    runs = compared(requests)
    front = leader(runs)
    return ratios(runs, [(key, front) for key in _configurations(runs) if front and key != front])


def leader(runs: pd.DataFrame) -> Key | None:
    """The leading configuration of `runs` (`compared`): of those that most machines have, the one with the
    best geometric mean over them; None without runs."""
    if runs.empty:
        return None
    own = np.log(runs[RATE]).groupby([runs["machine"], *(runs[key] for key in KEYS)]).mean()
    over = own.groupby(level=KEYS).agg(["count", "mean"])
    return over.sort_values(["count", "mean"]).index[-1]


def _configurations(runs: pd.DataFrame) -> list[Key]:
    return list(runs[KEYS].drop_duplicates().sort_values(KEYS).itertuples(index=False, name=None))
