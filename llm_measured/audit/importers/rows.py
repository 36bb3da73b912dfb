"""Whether each row of a table is a request or a load level, and the frame that such rows make."""

from collections.abc import Iterable

import pandas as pd

from llm_measured.audit import frame, quantities
from llm_measured.audit.importers.figures import first_known

SHARED = 5  # rows per set of conditions from which rows count as requests
ROUND = 64, 100  # prompt lengths that somebody chose are multiples of one of these


def are_requests(table: pd.DataFrame, stamped: bool = False) -> bool:
    """Whether each row of a table in the frame's words is a request: it has what only requests have (a send
    time, an answer, an error), or many rows share all conditions; a `stamped` row has a moment that may be
    when it was written."""
    level_only = [c for c in table if c.endswith(("_mean_s", "_p50_s", "_p90_s", "_p95_s", "_p99_s"))]
    # When a row was made says nothing beside means and percentiles.
    rows = quantities.rows_are(set(table) - ({"sent_s"} if level_only or stamped else set()))
    if "request" in rows:
        return True
    if level_only or rows != {"either"}:
        return False
    conditions = _conditions(table)
    groups = table.groupby(conditions, dropna=False).ngroups if conditions else 1
    return len(table) >= SHARED * groups and not _chosen(table.get("prompt_tokens"))


def are_labelled(table: pd.DataFrame, unread: Iterable[str]) -> bool:
    """Whether a column that nobody knows gives each row a name of its own: a task, an example, a case."""
    texts = (table[name].fillna("").astype(str) for name in unread)
    return any(one.nunique() == len(table) > 1 and one.str.contains(r"[A-Za-z]{3}").all() for one in texts)


def _chosen(lengths: pd.Series | None) -> bool:
    """Whether prompt lengths were chosen one by one, as for a table over context lengths: all different, and
    round or in order."""
    if lengths is None:
        return False
    known = lengths.dropna()
    round_ones = (known % ROUND[0] == 0) | (known % ROUND[1] == 0)
    in_order = known.is_monotonic_increasing or known.is_monotonic_decreasing
    return len(known) >= 3 and known.nunique() == len(known) and bool(in_order or round_ones.all())


def _conditions(table: pd.DataFrame) -> list[str]:
    """The columns whose values tell settings apart, without lengths, which vary within one."""
    known = quantities.table()
    texts = {name for name in frame.TEXTS if quantities.kind(name) == "text"}
    return [c for c in table if c in texts or (c in known and known[c].setting and not known[c].unit)]


def of_requests(table: pd.DataFrame) -> tuple[pd.DataFrame, pd.DataFrame]:
    """(load levels, requests) of a table whose rows are requests: a level for each set of conditions."""
    conditions = _conditions(table)
    groups = table.groupby(conditions, dropna=False, sort=False).ngroup() if conditions else 0
    table = table.assign(level=groups)
    levels = table.drop_duplicates("level")[["level", *{*conditions, *frame.TEXTS} & {*table}]]
    if "output_tokens_per_s" in table and "request_tokens_per_s" not in table:
        table = table.rename(columns={"output_tokens_per_s": "request_tokens_per_s"})
    if "cached_share" in table and "cached_tokens" not in table:
        share = table["cached_share"].where(table["cached_share"] <= 1, table["cached_share"] / 100)
        table = table.assign(cached_tokens=share * table.get("prompt_tokens", 1))
    return levels, table


def of_levels(table: pd.DataFrame) -> pd.DataFrame:
    """The load levels of a table whose rows they are."""
    if "asked" in table and "requests" not in table:
        table["requests"] = table["asked"] - first_known(table, "failed").fillna(0)
    if "output_tokens_per_s_per_device" in table:
        # Of how many devices nobody says, the rate of all is not known; of those that generate it is theirs.
        each, generating = table["output_tokens_per_s_per_device"], first_known(table, "generating_devices")
        of_all = each * first_known(table, "generating_devices", "tensor_parallel")
        table["output_tokens_per_s_per_device"] = each.where(generating.isna())
        table["output_tokens_per_s"] = first_known(table, "output_tokens_per_s").fillna(of_all)
    return table.rename(columns={"late_s": "late_mean_s"})
