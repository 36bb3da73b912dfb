"""How many mutants of the measuring code the tests kill: the committed result of `make mutants`.

A mutant is the code with one operator, number, comparison, argument or value changed; a mutant that no test
sees could be a mistake that no test sees. `tests/mutation_run.py` makes the result; here it is kept and read.
"""

import json

import pandas as pd

from bench import memo
from bench.paths import ROOT

FOLDER = ROOT / "data" / "proof"
SCORES, SURVIVORS, DIGESTS = FOLDER / "mutation.csv", FOLDER / "survivors.csv", FOLDER / "mutation.json"
LOAD = "bench/instrument/load"
CLIENT = "tests/instrument"
BYTES = [
    f"{CLIENT}/test_{name}.py" for name in ("decoding_by_hand", "decoding", "dialects", "http1", "protocol")
]
SOCKETS = [f"{CLIENT}/test_load{name}.py" for name in ("_by_hand", "", "_connections")]
# The modules that are mutated, and the tests that have to see it.
TESTS = {
    "bench/metrics.py": ["tests/test_metrics.py"],
    "bench/definitions.py": ["tests/test_metrics.py"],
    "bench/analysis/statistics.py": ["tests/analysis/test_statistics.py"],
    "bench/analysis/ranking.py": ["tests/analysis/test_ranking.py"],
    "bench/analysis/repeats.py": ["tests/analysis/test_repeats.py"],
    "bench/instrument/in_process.py": ["tests/test_metrics.py"],
    f"{LOAD}/backlog.py": [f"{CLIENT}/test_records.py"],
    f"{LOAD}/records.py": [f"{CLIENT}/test_records.py"],
    f"{LOAD}/results.py": [f"{CLIENT}/test_records.py"],
    f"{LOAD}/prefix_cache.py": [f"{CLIENT}/test_records.py"],
    f"{LOAD}/schedule.py": [f"{CLIENT}/test_schedule.py"],
    f"{LOAD}/http1.py": [f"{CLIENT}/test_http1.py", f"{CLIENT}/test_decoding.py"],
    f"{LOAD}/decoding.py": [*BYTES, f"{CLIENT}/test_protocol_token.py", f"{CLIENT}/test_schedule.py"],
    f"{LOAD}/protocols.py": BYTES,
    f"{LOAD}/connection.py": SOCKETS,
    f"{LOAD}/client.py": [*SOCKETS, f"{CLIENT}/test_load_faults.py"],
    f"{LOAD}/parallel.py": SOCKETS,
}
KILLED, TIMEOUT, SURVIVED, INVALID = "killed", "timeout", "survived", "no Python"
MUTANT = "line function before after outcome test".split()
LIVED = "module function before after reason".split()
PROMISE = 0.95


def digests() -> dict[str, str]:
    """{path: `memo.computes`} of the modules as they are."""
    return {path: memo.computes(ROOT / path) for path in TESTS}


def changed() -> list[str]:
    """The modules that are not those of the committed result."""
    known = json.loads(DIGESTS.read_text()) if DIGESTS.exists() else {}
    return [path for path, digest in digests().items() if known.get(path) != digest]


def survivors() -> pd.DataFrame:
    """The mutants that no test killed: one row each; columns LIVED, `reason` where it changes nothing that a
    caller can see (an equivalent mutant)."""
    if not SURVIVORS.exists():
        return pd.DataFrame(columns=LIVED)
    return pd.read_csv(SURVIVORS, keep_default_na=False)


def record(module: str, found: pd.DataFrame, again: bool = False) -> None:
    """Keep the outcome of every mutant of `module` (rows with the columns MUTANT) in the committed files.

    Reasons that were noted for survivors stay with them. `again`: `found` are those that survived before.
    """
    found = found[found["outcome"] != INVALID]
    lived = found[found["outcome"] == SURVIVED].assign(module=module)
    known = survivors()
    reasons = known.set_index(["module", "function", "before", "after"])["reason"].to_dict()
    keys = lived[["module", "function", "before", "after"]].itertuples(index=False, name=None)
    lived = lived.assign(reason=[reasons.get(key, "") for key in keys])[LIVED]
    every = pd.concat([known[known["module"] != module], lived])
    every = every.sort_values("module", key=lambda m: m.map(list(TESTS).index), kind="stable")
    every.to_csv(SURVIVORS, index=False, lineterminator="\n")
    counts = found["outcome"].value_counts()
    row = {"module": module, "mutants": len(found), "survived": counts.get(SURVIVED, 0)}
    row |= {"timeouts": counts.get(TIMEOUT, 0)}
    old = pd.read_csv(SCORES) if SCORES.exists() else pd.DataFrame(columns=list(row))
    if again:
        before = old[old["module"] == module].iloc[0]
        row |= {"mutants": before["mutants"], "timeouts": before["timeouts"] + row["timeouts"]}
    table = pd.concat([old[old["module"] != module], pd.DataFrame([row])])
    table = table.sort_values("module", key=lambda m: m.map(list(TESTS).index))
    table.to_csv(SCORES, index=False, lineterminator="\n")
    known = json.loads(DIGESTS.read_text()) if DIGESTS.exists() else {}
    kept = {path: known[path] for path in TESTS if path in known} | {module: digests()[module]}
    DIGESTS.write_text(json.dumps(kept, indent=1) + "\n")


def scores() -> pd.DataFrame:
    """One row per module that is still the one that was broken, and one for all; columns module, mutants,
    survived, equivalent (survivors with a reason), killed_share (of all mutants, equivalent ones among
    them)."""
    table = pd.read_csv(SCORES)
    table = table[~table["module"].isin(changed())]
    lived = survivors()
    count = lived[lived["reason"] != ""].groupby("module").size()
    table = table.assign(equivalent=table["module"].map(count).fillna(0).astype(int))
    counts = ["mutants", "survived", "equivalent"]
    whole = {"module": "all"} | table[counts].sum().to_dict()
    table = pd.concat([table[["module", *counts]], pd.DataFrame([whole])], ignore_index=True)
    return table.assign(killed_share=1 - table["survived"] / table["mutants"])


def sentence() -> str:
    table = scores()
    whole, lacking = table.iloc[-1], len(TESTS) - (len(table) - 1)
    killed = whole["mutants"] - whole["survived"]
    without = (
        f" {lacking} modules have changed since, or were never broken: `make mutants`." if lacking else ""
    )
    return (
        f"{killed:,} of {whole['mutants']:,} mutants of the measuring code are killed "
        f"({whole['killed_share']:.1%}); of the {whole['survived']} survivors {whole['equivalent']} "
        f"change nothing that a caller can see.{without}"
    )
