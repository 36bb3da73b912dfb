"""Measuring sessions: stretches of time in which a host measured without a long pause."""

import numpy as np
import pandas as pd

GAP_S = 3600  # without a run, which ends a session: a host that was idle so long may have become another


def measuring_sessions(runs: pd.DataFrame) -> pd.Series:
    """Number the measuring sessions of `runs`, whose columns are host, started, and ended where it is known.

    A session has the runs of one host, whatever the experiment, of which the next begins at most GAP_S after
    all earlier ones have ended; a run whose end is not known ends as it starts. One whole number per row,
    from 0 by host and time, with the index of `runs`. The rows of one run are in one session, so the requests
    of all runs may be given as well. A run without a start is in no session: ValueError.
    """
    started = pd.to_datetime(runs["started"].replace("", None), utc=True)
    if started.isna().any():
        raise ValueError("A run has no start, so it has no measuring session: give only runs with `started`.")
    ended = pd.to_datetime(runs["ended"].replace("", None), utc=True) if "ended" in runs else started
    hosts = runs["host"].astype(str).to_numpy()
    begin, end = (
        moments.dt.tz_convert(None).to_numpy("datetime64[us]").astype(int)
        for moments in (started, ended.fillna(started))
    )
    numbers, session, previous, until = np.empty(len(runs), dtype=int), -1, None, 0
    for row in np.lexsort((begin, hosts)):
        if hosts[row] != previous or begin[row] > until + GAP_S * 1_000_000:
            session, previous, until = session + 1, hosts[row], end[row]
        numbers[row], until = session, max(until, end[row])
    return pd.Series(numbers, index=runs.index, dtype=int)
