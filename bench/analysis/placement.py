"""What two virtual processors read together, near each other and apart: data/core_placement.csv."""

import pandas as pd

from bench import inputs

NEAR, APART = "near", "apart"
NEAR_AT_MOST_S = 200e-9


def states(table: pd.DataFrame | None = None) -> pd.DataFrame:
    """The rows of data/core_placement.csv in two states: `near`, where a word goes from one processor to the
    other and back within NEAR_AT_MOST_S, and `apart`.

    One row per state that was seen, by name; columns samples, and medians of one_core_bytes_per_s,
    two_cores_bytes_per_s and round_trip_s.
    """
    table = inputs.table("core_placement") if table is None else table
    state = (table["round_trip_s"] <= NEAR_AT_MOST_S).map({True: NEAR, False: APART})
    measured = ["one_core_bytes_per_s", "two_cores_bytes_per_s", "round_trip_s"]
    medians = table[measured].groupby(state.rename("state")).median()
    return medians.assign(samples=state.value_counts())
