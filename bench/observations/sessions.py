"""Measuring sessions: stretches of time in which a host measured without a long pause."""

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
    begin, end = (moments.dt.tz_convert(None).to_numpy() for moments in (started, ended))
    times = pd.DataFrame({"host": hosts, "started": begin, "ended": end})
    times = times.assign(ended=times["ended"].fillna(times["started"]))
    times = times.sort_values(["host", "started"], kind="stable")
    before = times.groupby("host")["ended"].cummax().groupby(times["host"]).shift()
    begins = before.isna() | (times["started"] - before > pd.Timedelta(seconds=GAP_S))
    return pd.Series((begins.cumsum() - 1).sort_index().to_numpy(), index=runs.index, dtype=int)
