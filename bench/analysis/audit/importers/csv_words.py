"""Any CSV that names what it has in the study's words, any subset of them, or in words that `words.meaning`
understands.

A mapping (column -> word) serves for other names. Rows are requests where they have what only requests have
(a send time, an answer, an
error) or where many rows share all conditions; else each row is a level.
"""

import numpy as np
import pandas as pd

from bench.analysis.audit import frame
from bench.analysis.audit.importers.words import meaning

TOOL = "CSV in the study's words"
LOOKED_FOR = (
    "a CSV with at least one of ttft_ms, tpot_ms, itl_ms, e2e_s, output_tokens_per_s, requests_per_s, "
    "each with the conditions "
    "it has; --map theirs=word names others"
)
MEASURED = (
    "ttft",
    "tpot",
    "itl",
    "e2e",
    "request_tokens_per_s",
    "output_tokens_per_s",
    "requests_per_s",
    "total_tokens_per_s",
)
ONLY_REQUESTS = {"sent_s", "question", "answer", "error", "events", "gaps", "request"}
SHARED = 5  # rows per set of conditions from which rows count as requests
GUESSED = {
    "ttft": 5,
    "tpot": 0.5,
    "itl": 0.5,
}  # a time without a unit whose median is above so many seconds is in milliseconds


def matches(content):
    if content.is_json:
        return False
    found = _meanings(content)
    return any(word.startswith(MEASURED) for word, _ in found.values())


def _meanings(content):
    """Column -> (word, factor); a word that two columns have stays with the first."""
    known = set(content.mapping) - set(content.header)
    if known:
        raise ValueError(
            f"The mapping names {', '.join(sorted(known))}, which {content.path.name} does not have."
        )
    found = {}
    for name in content.header:
        word = meaning(content.mapping.get(name, name))
        if word and word[0] not in [one for one, _ in found.values()]:
            found[name] = word
    return found


def load(content, file):
    found = _meanings(content)
    places = {content.header.index(name): name for name in found}
    columns = {name: [] for name in found}
    for row in content.rows():
        for place, name in places.items():
            columns[name].append(row[place] if place < len(row) else "")
    table, notes = _converted(pd.DataFrame(columns), found)
    requests = _are_requests(table)
    audited = _requests(table, file) if requests else _levels(table, file)
    unread = [name for name in content.header if name not in found]
    if unread:
        notes.append(
            "Columns that were not read, because their names mean nothing here: "
            + ", ".join(unread[:12])
            + "."
        )
    notes.append(f"Each row was read as {'a request' if requests else 'a load level'}.")
    audited.notes += [(file, note) for note in notes]
    return audited


def _converted(table, found):
    """The table in words and units of the frame, and notes about units that had to be guessed."""
    out, notes = {}, []
    for name, (word, factor) in found.items():
        values = table[name]
        if word not in frame.TEXTS and word not in ("question", "answer", "error"):
            values = pd.to_numeric(values.str.replace(",", "").str.strip(), errors="coerce")
            if factor is None:
                limit = next((limit for time, limit in GUESSED.items() if word.startswith(time)), np.inf)
                factor = 1e-3 if values.median() > limit else 1
                notes.append(
                    f"{name} has no unit in its name; it was read as "
                    f"{'milliseconds' if factor < 1 else 'seconds'}."
                )
            values = values * factor
        out[word] = values
    return pd.DataFrame(out), notes


def _are_requests(table):
    if ONLY_REQUESTS & set(table):
        return True
    one_time = {"ttft_s", "tpot_s", "e2e_s", "request_tokens_per_s"} & set(table)
    level_only = [c for c in table if c.endswith(("_mean_s", "_p50_s", "_p90_s", "_p95_s", "_p99_s"))]
    if (
        not one_time
        or level_only
        or {"requests_per_s", "duration_s", "requests", "total_output_tokens", "runs"} & set(table)
    ):
        return False
    conditions = _conditions(table)
    groups = table.groupby(conditions, dropna=False).ngroups if conditions else 1
    return len(table) >= SHARED * groups


def _conditions(table):
    numbers = {"tensor_parallel", "batch_size", "concurrency", "request_rate", "temperature"}
    return [c for c in table if c in frame.TEXTS or c in numbers]


def _requests(table, file):
    conditions = _conditions(table)
    if conditions:
        table = table.assign(level=table.groupby(conditions, dropna=False, sort=False).ngroup())
    else:
        table = table.assign(level=0)
    levels = table.drop_duplicates("level")[["level", *conditions]]
    if "output_tokens_per_s" in table and "request_tokens_per_s" not in table:
        table = table.rename(columns={"output_tokens_per_s": "request_tokens_per_s"})
    if "cached_share" in table and "cached_tokens" not in table:
        share = table["cached_share"].where(table["cached_share"] <= 1, table["cached_share"] / 100)
        table = table.assign(cached_tokens=share * table.get("prompt_tokens", 1))
    for text in {"question", "answer"} & set(table):
        table = table.assign(
            **{f"{text}_chars": table[text].str.len(), text: table[text].str[: frame.ANSWER_CHARS]}
        )
    return frame.make(file, TOOL, levels, table)


def _levels(table, file):
    if "per_gpu" in table:
        table["output_tokens_per_s"] = table["per_gpu"] * table.get(
            "tensor_parallel", pd.Series(1, table.index)
        ).fillna(1)
    return frame.make(file, TOOL, table.rename(columns={"late_s": "late_mean_s"}))
