"""What the files of runs hold for the gates: what they lack was not checked, and nothing falls by it."""

import pandas as pd

from bench.observations import schema
from bench.observations.gates import conditions, measurements
from bench.observations.gates.measurements import Runs
from llm_measured.core import naming
from llm_measured.core.definitions import Fields


def held(runs: Runs, gates: dict) -> pd.DataFrame:
    """Which of `gates` concern each of `runs`, and which could be checked; columns as `gates.held`."""
    facts = _facts(runs)
    everywhere, timed, minds = facts["all"], facts["times"], facts["minds"]
    concern = {  # gate -> (whom it concerns, what it needs); every other one concerns and checks all
        "answers came token by token, not in one lump": (facts["served"], facts["chunks"]),
        "the first counted request was no slower than the others": (timed, facts["timed"] > 2),
        "the GPU's warm-up had settled": (facts["gpu"], facts["warmup"]),
        "no neighbours on the processor": (minds, facts["others"]),
        "no cores stolen by other virtual machines": (minds, facts["steal"]),
        "no threads held back by a quota": (minds, facts["throttled"]),
        "the GPU's clock was steady": (facts["gpu"], facts["clocks"]),
        "the instrument was its revision": (facts["published"], facts["revision"]),
        "the engine's tokens are the model's": (everywhere, facts["judged"]),
        "the place in the study's order is stated": (everywhere, facts["order"]),
        "the load client was punctual": (facts["request_rate"] | facts["session"], facts["late_s"]),
        "no prompt answered from a cache that is off": (
            facts["served"],
            facts["cached_tokens"] | facts["trial"],
        ),
        "no more cached tokens than expected": (
            facts["session"],
            facts["cached_tokens"] & facts["expected_cached_tokens_high"],
        ),
        "the server's counters are the sum of the rows": (facts["session"], facts["counters"]),
        "MBU at most 1": (timed & facts["reads"], facts["mbu"]),
        "gaps between tokens fit into the answer's time": (timed, facts["itl_p50_s"]),
        "the first token came no sooner than its prompt can be computed": (
            timed & facts["model"],
            facts["timed"].astype(bool) & facts["peaks"],
        ),
        "answers are answers": (timed & facts["model"] & facts["real"], facts["answers"]),
        "weight bytes agree with checkpoint and option": (
            timed & facts["model"] & ~facts["url"],
            facts["parameters"],
        ),
        "the memory was probed beside it": (facts["probes"], facts["probes"]),
        "others on the machine were counted": (minds, facts["others"] & facts["steal"] | facts["order"]),
        "an evaluation has all its answers": (facts["evaluates"], everywhere),
        "MFU at most 1": (facts["sweeps"], facts["peak_flops_per_s"]),
    }
    if strays := concern.keys() - set(gates):
        raise KeyError(f"No gate is called {', '.join(sorted(strays))}: it would count as always checked.")
    tables = []
    for gate in gates:
        whom, needs = concern.get(gate, (everywhere, everywhere))
        tables.append(
            pd.DataFrame({"gate": gate, "file": facts.index[whom], "checked": needs[whom].to_numpy()})
        )
    return pd.concat(tables, ignore_index=True)


def _facts(runs: Runs) -> pd.DataFrame:
    """What the files of each run hold: one row per run, columns of Booleans, `timed` a number of requests."""
    by_file = runs.rows.groupby("file")
    names = ["chunks", "request_rate", "late_s", "cached_tokens", "mbu", "peak_flops_per_s", "itl_p50_s"]
    names += ["session", "expected_cached_tokens_high"]
    facts = runs.rows[names].notna().groupby(runs.rows["file"]).any()
    first = by_file[["experiment", "gpu", "weight_bytes"]].first()
    good = runs.good
    best = runs.best.loc[facts.index]
    facts["peaks"] = best[["memory", "cache", "flops_per_s"]].notna().any(axis=1)
    facts["model"] = facts.index.isin(measurements.of_models(runs)["file"])
    facts["real"] = (by_file["weights"].first() == "real").to_numpy()
    facts["answers"] = facts.index.isin(good.loc[good["output_ids"] != "", "file"])
    facts["timed"] = good["ttft_s"].notna().groupby(good["file"]).sum().reindex(facts.index, fill_value=0)
    facts["times"] = ~first["experiment"].isin(schema.UNTIMED)  # scores are no times
    facts["evaluates"] = first["experiment"].isin(schema.EVALUATIONS)
    facts["all"], facts["gpu"] = True, ~first["gpu"].map(naming.is_cpu).astype(bool)
    facts["reads"], facts["sweeps"] = (
        first["weight_bytes"] > 0,
        first["experiment"].isin(["batching", "memory"]),
    )
    sidecars = pd.DataFrame(
        [_of_sidecar(sidecar, first["experiment"][file]) for file, sidecar in enumerate(runs.sidecars)],
        columns=list(_of_sidecar({}, "")),
    )
    facts = facts.join(sidecars)
    facts["probes"] = [
        conditions.needs_probes(runs.sidecars[file], first["experiment"][file], first["gpu"][file])
        for file in facts.index
    ]
    facts["served"] = (
        facts["chunks"] | facts["url"] | first["experiment"].isin(["serving", "served", "conversations"])
    )
    facts["published"] = facts.index.isin(list(runs.published))
    return facts


def _of_sidecar(sidecar: Fields, experiment: str) -> Fields:
    """What one sidecar holds, as `_facts` has it."""
    busy, git = sidecar.get("busy_cores", {}), sidecar.get("git", {})
    return {
        "minds": conditions.minds_contention(sidecar, experiment),
        "url": bool(sidecar.get("parameters", {}).get("url")),
        **{name: busy.get(name) is not None for name in ("others", "steal", "throttled")},
        "warmup": len(sidecar.get("warmup", [])) > 1,
        "clocks": None not in conditions.clocks(sidecar),
        "revision": conditions.difference(git) is not None,
        "parameters": bool(sidecar.get("block_parameters")) and sidecar.get("weight_bytes") is not None,
        "order": conditions.has_order(sidecar),
        "judged": conditions.judged(sidecar),
        "trial": "prefix_cache_trial" in sidecar.get("settings", {}),
        "counters": any("why" not in level for level in sidecar.get("counters", [])),
    }
