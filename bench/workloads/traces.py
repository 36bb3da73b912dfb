"""Traces of real servers, read and checked before anything starts: JSON lines, and CSVs.

    Mooncake's   {"timestamp": ms, "input_length", "output_length", "hash_ids"}, 512 tokens an id
    Bailian's    the same with chat_id, parent_chat_id, turn; seconds, 16 tokens an id
    any other    a CSV, or JSON lines without hash ids, with prompt_tokens and new_tokens, and where there are
                 any at_s (seconds, or dates), session, prefix_tokens, gap_s

Columns may have other names that say the same (SPELLINGS), such as Azure's TIMESTAMP, ContextTokens and
GeneratedTokens or BurstGPT's. Files may be compressed (`.xz`, `.gz`).

Every mistake of a file is one sentence that names the line and the fix.
"""

import gzip
import hashlib
import io
import json
import lzma
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pandas as pd

MOST_BYTES = 1 << 28
UNITS = {"s": 1.0, "ms": 1e-3}
MOONCAKE_BLOCK_TOKENS, BAILIAN_BLOCK_TOKENS = 512, 16
# Requests per second outside of these belong to moments in another unit than the format's.
RATES_PER_S = (0.01, 1000)
FEW = 10  # requests say nothing about a rate
LEAST_BLOCKS = 2  # that a request has in common with the one that it continues: less is a system prompt
# How others spell a column, in lower case and without blanks, underscores and hyphens.
SPELLINGS = {
    "at_s": "timestamp time arrivaltime arrivaltimestamp arrivedat arrival starttime t",
    "prompt_tokens": (
        "prompttokens inputtokens inputlength inputlen input isl contexttokens requesttokens promptlength "
        "promptlen numprefilltokens"
    ),
    "new_tokens": (
        "newtokens outputtokens outputlength outputlen output osl generatedtokens responsetokens "
        "completiontokens numdecodetokens"
    ),
    "session": "sessionid conversationid chatid",
    "prefix_tokens": "prefixtokens prefixlen",
    "gap_s": "gap thinktime",
}
OPENED = {".xz": lzma.open, ".gz": gzip.open}


@dataclass(frozen=True)
class Trace:
    """One row per request in `requests`, in order of time: at_s (from the first; NaN where only a gap is
    known), prompt_tokens, new_tokens, session (from 1), turn (from 1), and where the file has them
    prefix_tokens (of the turn before, that the prompt repeats) and gap_s (after the answer before).

    `blocks`: per request the ids of its blocks of `block_tokens` tokens, the last one for what is left; an id
    stands for its block and all before it. None, and blocks of 0 tokens, where the file has no ids.
    `about` goes into the sidecar.
    """

    requests: pd.DataFrame
    blocks: list[tuple[int, ...]] | None = field(repr=False)
    block_tokens: int
    about: dict

    def of_sessions(self, kept: set[int]) -> "Trace":
        """The requests of the sessions `kept`."""
        rows = self.requests["session"].isin(kept).to_numpy()
        blocks = None if self.blocks is None else [b for b, keep in zip(self.blocks, rows) if keep]
        return Trace(self.requests[rows].reset_index(drop=True), blocks, self.block_tokens, self.about)


def read(path: str | Path, unit: str = "auto") -> Trace:
    """The trace in the file `path`; `unit` of its moments is s, ms, or auto: as its format has it.

    ValueError with one sentence for a file that is no trace, or whose columns, moments or lengths cannot be.
    """
    path = Path(path)
    if unit not in ("auto", *UNITS):
        raise ValueError(f"The unit of a trace's moments is auto, {' or '.join(UNITS)}, not {unit!r}.")
    try:
        size = path.stat().st_size
        with OPENED.get(path.suffix, open)(path, "rb") as file:
            content = file.read(MOST_BYTES + 1) if size <= MOST_BYTES else b""
        size = max(size, len(content))
        if size > MOST_BYTES:
            raise ValueError(
                f"{path.name} has {size / 1e9:.1f} GB, more than the {MOST_BYTES / 1e9:.1f} GB that are "
                "read: cut a part of it that has whole sessions, such as its first hour."
            )
    except (OSError, EOFError, lzma.LZMAError) as failure:
        why = getattr(failure, "strerror", None) or failure
        raise ValueError(f"{str(path)!r} cannot be read as a trace: {why}.") from None
    kind = Path(path.stem).suffix if path.suffix in OPENED else path.suffix
    reader = _lines if kind in (".jsonl", ".json") else _table
    try:
        trace = reader(path.name, content, unit)
    except (OverflowError, RecursionError):
        raise ValueError(f"{path.name} has a number or a nesting that is too large for a trace.") from None
    about = {"trace": path.name, "trace_sha256": hashlib.sha256(content).hexdigest()}
    return Trace(trace.requests, trace.blocks, trace.block_tokens, about | trace.about)


def _lines(name, content, unit):
    """A trace of JSON lines."""
    rows, numbers = [], []
    for number, line in enumerate(content.splitlines(), start=1):
        if line.strip():
            rows.append(_object(name, number, line))
            numbers.append(number)
    _enough(name, len(rows))
    if not any("hash_ids" in row for row in rows):
        return _of_table(name, pd.DataFrame(rows), numbers, unit)
    for number, row in zip(numbers, rows):
        _whole(name, number, row)
    table = pd.DataFrame(
        {
            "at_s": [row["timestamp"] for row in rows],
            "prompt_tokens": [row["input_length"] for row in rows],
            "new_tokens": [row["output_length"] for row in rows],
        }
    )
    bailian = "chat_id" in rows[0]
    _lengths(name, table, numbers)
    _moments(name, table, numbers, unit, "s" if bailian else "ms")
    size = BAILIAN_BLOCK_TOKENS if bailian else MOONCAKE_BLOCK_TOKENS
    blocks = [tuple(row["hash_ids"]) for row in rows]
    _counts_of_ids(name, table, blocks, numbers, size)
    if bailian:
        table["session"] = _chats(name, rows, numbers)
        blocks, again = _chained(blocks, table["prompt_tokens"], size)
        about = {"format": "bailian", "sessions": "as recorded", "ids_after_another_prefix": again}
    else:
        _prefix_ids(name, table, blocks, numbers, size)
        table["session"] = inferred_sessions(blocks, table["prompt_tokens"], size)
        about = {"format": "mooncake", "sessions": "inferred from prefixes"}
    return Trace(_numbered(table), blocks, size, about)


def _object(name, number, line):
    """A line as a dict."""
    try:
        row = json.loads(line)
    except ValueError:
        row = None
    if not isinstance(row, dict):
        raise ValueError(f"Line {number} of {name} is no JSON object: a trace has one request per line.")
    return row


def _whole(name, number, row):
    """A line has what a trace with ids needs."""
    needed = {"timestamp", "input_length", "output_length", "hash_ids"}
    if lacking := needed - row.keys():
        raise ValueError(
            f"Line {number} of {name} has no {' and no '.join(sorted(lacking))}: Mooncake's format needs "
            f"{', '.join(sorted(needed))}."
        )
    if not isinstance(row["hash_ids"], list) or not all(type(block) is int for block in row["hash_ids"]):
        raise ValueError(f"hash_ids in line {number} of {name} must be a list of whole numbers.")


def _table(name, content, unit):
    """A trace that is a CSV."""
    try:
        table = pd.read_csv(io.BytesIO(content))
    except (ValueError, UnicodeDecodeError) as failure:  # pandas' own errors are ValueErrors
        why = str(failure).strip().splitlines()[0]
        raise ValueError(f"{name} cannot be read as a CSV with a line of column names: {why}.") from None
    return _of_table(name, table, list(range(2, len(table) + 2)), unit)


def _of_table(name, table, numbers, unit):
    """The trace of a table whose rows stand in the lines `numbers`."""
    table = _spelled(name, table)
    if lacking := {"prompt_tokens", "new_tokens"} - set(table.columns):
        raise ValueError(
            f"{name} has no column {' and no column '.join(sorted(lacking))}: a trace needs prompt_tokens "
            "and new_tokens (or input and output, or other usual names), and at_s for moments to replay."
        )
    _enough(name, len(table))
    _lengths(name, table, numbers)
    recorded = "as recorded" if "session" in table else "none"
    alone = -1 - pd.Series(range(len(table)))  # what belongs to no session is one
    table["session"] = (
        table["session"].where(table["session"].notna(), alone) if "session" in table else alone
    )
    table["session"] = pd.factorize(table["session"])[0] + 1
    for column in {"prefix_tokens", "gap_s"} & set(table.columns):
        values = table[column] = pd.to_numeric(table[column], errors="coerce")
        most = table["prompt_tokens"] if column == "prefix_tokens" else math.inf
        if wrong := np.flatnonzero((values < 0) | (values > most)).tolist():
            raise ValueError(
                f"Line {numbers[wrong[0]]} of {name} has {values.iloc[wrong[0]]:g} for {column}: it is 0 or "
                "more, and a prefix no longer than its prompt."
            )
    if "at_s" not in table:
        table["at_s"] = math.nan
    else:
        _moments(name, table, numbers, unit, "s")
    kept = [column for column in (*COLUMNS, "prefix_tokens", "gap_s") if column in table]
    return Trace(_numbered(table[kept]), None, 0, {"format": "table", "sessions": recorded})


def _spelled(name, table):
    """`table` with our own names for what it calls otherwise; ValueError where two columns say the same."""
    plain = {column: re.sub(r"[^a-z0-9]", "", str(column).lower()) for column in table.columns}
    for own, others in SPELLINGS.items():
        if own in table:
            continue
        found = [column for column, word in plain.items() if word in others.split()]
        if len(found) > 1:
            raise ValueError(
                f"{name} has {' and '.join(found)}, which may both be {own}: "
                "give that name to the one that is."
            )
        table = table.rename(columns=dict.fromkeys(found, own))
    return table


COLUMNS = ("at_s", "prompt_tokens", "new_tokens", "session")


def _enough(name, rows):
    if rows < 2:
        raise ValueError(
            f"{name} has {rows or 'no'} request{'' if rows == 1 else 's'}: a load needs two or more."
        )


def _lengths(name, table, numbers):
    """Lengths are whole numbers above 0."""
    for column, word in (("prompt_tokens", "prompt"), ("new_tokens", "answer")):
        values = pd.to_numeric(table[column], errors="coerce")
        wrong = np.flatnonzero(~(values >= 1) | (values % 1 != 0))
        if len(wrong):
            k = wrong[0]
            raise ValueError(
                f"Line {numbers[k]} of {name} has a length of {str(table[column].iloc[k])[:20]} tokens for "
                f"its {word}, and {len(wrong)} of {len(table)} lines are like that: lengths are whole "
                "numbers above 0, so leave these requests out, with the later turns of their sessions."
            )
        table[column] = values.astype(np.int64)


def _moments(name, table, numbers, unit, usual):
    """`at_s` in seconds from the first, in order; dates are seconds whatever `unit` says."""
    values = pd.to_numeric(table["at_s"], errors="coerce").astype(float)
    if values.isna().all():
        dates = pd.to_datetime(table["at_s"], format="ISO8601", errors="coerce", utc=True)
        values, unit = (dates - dates.iloc[0]).dt.total_seconds(), "s"
    wrong = np.flatnonzero(~np.isfinite(values))
    if len(wrong):
        raise ValueError(f"Line {numbers[wrong[0]]} of {name} has no moment that is a number or a date.")
    back = np.flatnonzero(np.diff(values) < 0)
    if len(back):
        k = back[0] + 1
        earlier = values.iloc[k - 1] - values.iloc[k]
        raise ValueError(
            f"Line {numbers[k]} of {name} is {earlier:g} before the line before it, and {len(back)} of "
            f"{len(table)} lines are like that: sort the file by its moments, if they are all of one clock."
        )
    table["at_s"] = (values - values.iloc[0]) * UNITS[usual if unit == "auto" else unit]
    span = table["at_s"].iloc[-1]
    if not span > 0:
        raise ValueError(
            f"All {len(table)} requests of {name} have the same moment: there is nothing to replay."
        )
    if unit == "auto":
        likely(name, len(table), span, usual)


def likely(name: str, requests: int, span_s: float, unit: str) -> None:
    """ValueError where `requests` over `span_s` tell that the moments of the file `name` aren't in `unit`."""
    rate = (requests - 1) / span_s
    if requests > FEW and not RATES_PER_S[0] <= rate <= RATES_PER_S[1]:
        other = "ms" if unit == "s" else "s"
        raise ValueError(
            f"{name} would have {rate:.3g} requests per second with its moments in {unit}, which its format "
            f"says: state the unit, {other} if that is what they are in, or {unit} to have it so "
            f"(-p trace {name} -p trace_unit {other})."
        )


def _counts_of_ids(name, table, blocks, numbers, size):
    """Raise ValueError for the first prompt whose ids are not as many as its tokens fill blocks of `size`."""
    for number, ids, tokens in zip(numbers, blocks, table["prompt_tokens"]):
        needed = -(-tokens // size)
        if len(ids) != needed:
            raise ValueError(
                f"Line {number} of {name} has {len(ids)} hash_ids for {tokens} tokens, and {needed} of "
                f"{size} tokens would be needed: the file has another block size or cut ids."
            )


def _prefix_ids(name, table, blocks, numbers, size):
    """Each id with the same blocks before it and of the same size wherever it is."""
    known: dict = {}
    for number, ids, tokens in zip(numbers, blocks, table["prompt_tokens"]):
        for k, block in enumerate(ids):
            place = ids[k - 1] if k else None, min(size, tokens - k * size)
            if known.setdefault(block, place) != place:
                raise ValueError(
                    f"Hash id {block} in line {number} of {name} stood for another prefix before: an id must "
                    "stand for its block and everything before it."
                )


def _chained(blocks, prompt_tokens, size):
    """(ids that stand for a block and all before it, of ids that stand for the block alone, as Bailian's
    do; how many ids came after another prefix, or with another size, than at first)."""
    known: dict = {}
    at_first, again, made = {}, 0, []
    for ids, tokens in zip(blocks, prompt_tokens):
        chain = []
        for k, block in enumerate(ids):
            place = chain[-1] if chain else None, min(size, tokens - k * size)
            again += at_first.setdefault(block, place) != place
            chain.append(known.setdefault((block, *place), len(known)))
        made.append(tuple(chain))
    return made, again


def _chats(name, rows, numbers):
    """Session of each request of Bailian's format: that of its parent chat, where that is in the file."""
    sessions, found = {}, []
    for row, number in zip(rows, numbers):
        if "chat_id" not in row or "parent_chat_id" not in row:
            raise ValueError(f"Line {number} of {name} has no chat_id and parent_chat_id, as line 1 has.")
        own = sessions.get(row["parent_chat_id"], len(sessions) + 1)
        sessions[row["chat_id"]] = own
        found.append(own)
    return pd.factorize(np.array(found))[0] + 1


def inferred_sessions(
    blocks: Sequence[tuple[int, ...]], prompt_tokens: Sequence[int], block_tokens: int
) -> np.ndarray:
    """The session of each request, from 1, inferred from its prefix: a request continues the latest one
    before it whose whole blocks, at least LEAST_BLOCKS, all begin its own, and that is shorter.

    It cannot see prompts below LEAST_BLOCKS blocks; two requests that continue one are in one session.
    """
    latest: dict[int, int] = {}
    sessions: np.ndarray = np.zeros(len(blocks), dtype=int)
    tokens, count = np.asarray(prompt_tokens), 0
    for k, ids in enumerate(blocks):
        whole = ids[: tokens[k] // block_tokens]
        before = [latest[block] for block in whole[LEAST_BLOCKS - 1 :] if block in latest]
        before = [j for j in before if tokens[j] < tokens[k]]
        if before:
            sessions[k] = sessions[max(before)]
        else:
            count += 1
            sessions[k] = count
        if len(whole) >= LEAST_BLOCKS:
            latest[whole[-1]] = k
    return sessions


def _numbered(table):
    """`table` with the number of each turn in its session."""
    return table.assign(turn=table.groupby("session").cumcount() + 1)
