"""Validity checks of the runs that lie there: what they could check, what enters no table, what measuring
costs."""

from pathlib import Path

import pandas as pd

from bench.observations import store

PAIR = 2  # requests: one through the harness, one through the engine's own loop


def tables(files: list[Path]) -> dict[str, pd.DataFrame]:
    """Return {checks, excluded, overhead} of the runs `files`.

    checks: one row per check, a run counts where it is first rejected (`store.judged`). excluded: one row per
    run that enters no table, with the check that rejects it, or `withdrawn`, and the reason.
    """
    counts, refused = store.judged(files)
    withdrawn = pd.DataFrame(store.withdrawn(files), columns=["run", "reason"]).assign(check="withdrawn")
    excluded = pd.concat([refused, withdrawn], ignore_index=True)[["run", "check", "reason"]]
    return {"checks": counts, "excluded": excluded, "overhead": overhead(files)}


def overhead(files: list[Path]) -> pd.DataFrame:
    """Return by how much the harness, which calls back for every token, took longer than the engine's own
    loop: one row per run of the experiment `overhead`, the mean over its pairs of requests."""
    rows = []
    for file in files:
        if not file.name.startswith("overhead-"):
            continue
        run = pd.read_csv(file, dtype={"host": str})
        run = run.assign(pair=(run["request"] - 1) // PAIR, harness=run["ttft_s"].notna())
        seconds = run.pivot_table(index="pair", columns="harness", values="e2e_s")
        more = (seconds[True] / seconds[False] - 1).mean()
        rows.append(run.iloc[0][["backend", "option", "model", "gpu", "host", "run_id"]].to_dict())
        rows[-1] |= {"pairs": len(seconds), "overhead": more}
    columns = ["backend", "option", "model", "gpu", "host", "run_id", "pairs", "overhead"]
    return pd.DataFrame(rows, columns=columns)
