"""Any table whose headings mean something by quantities.csv: CSV, Markdown, and the rows that `json_words`
makes of JSON.

Every column is placed, named metadata, or not read. A mapping (column -> word) serves for other names.
`row_kinds` makes each row a load level or a request, `units` and `figures` decide what its figures are in and
what they count, and `rows` which of the two it is.
"""

import itertools
from collections.abc import Iterable
from typing import Any

import pandas as pd

from llm_measured.audit import frame, quantities
from llm_measured.audit.importers import figures, numerals, row_kinds, rows, units
from llm_measured.audit.importers.content import Content
from llm_measured.audit.importers.figures import Meanings
from llm_measured.audit.importers.stream import TEXT_CHARS
from llm_measured.audit.quantities import kind, meaning, says
from llm_measured.core import names, naming

TOOL = "CSV in the study's words"
FIRST_ROWS = 60  # of a table that are looked at to see what it is
MEANS = {"prompt_tokens": "total_prompt_tokens", "output_tokens": "total_output_tokens"}


def matches(content: Content) -> bool:
    if content.is_json:
        return False
    found = _meanings(content)
    if measured(found) or len(content.header) < 2:
        return measured(found)
    return measured_once_obeyed(_table(content, itertools.islice(content.rows(), FIRST_ROWS)), content)


def measured_once_obeyed(beginning: pd.DataFrame, content: Content) -> bool:
    """Whether a table has something that a benchmark measures once each row is a load level or a request;
    `beginning`: its first FIRST_ROWS rows."""
    return measured(meanings(row_kinds.obeyed(beginning, content.path.name)[0], {}))


def _table(content: Content, cells: Iterable[list[str]]) -> pd.DataFrame:
    """A table of texts; rows with fewer fields than the header end with empty ones."""
    names = frame.distinct(content.header)
    return pd.DataFrame([[*row, *[""] * (len(names) - len(row))] for row in cells], columns=names)


def measured(found: Meanings) -> bool:
    """Whether any of the columns `found` (name -> meaning) is something that a benchmark measures."""
    words = {word for word, _ in found.values()}
    return any(map(quantities.is_measured, words)) or {"total_output_tokens", "duration_s"} <= words


def _meanings(content):
    """Column -> (word, factor) of a CSV; ValueError where the mapping names what is not there."""
    known = set(content.mapping) - set(content.header)
    if known:
        raise ValueError(
            f"The mapping names {', '.join(sorted(known))}, which {content.path.name} does not have."
        )
    return meanings(content.header, content.mapping)


def meanings(names: Iterable[str], mapping: dict[str, str] | None) -> Meanings:
    """Name -> (word, factor); a word that two names have stays with the first, but formats are joined, and of
    settings and metadata there may be many."""
    found: Meanings = {}
    for name in names:
        word = meaning((mapping or {}).get(name, name))
        if not word:
            continue
        many = kind(word[0]) in ("setting", "noted", "metadata") or word[0] == "weights"
        if many or word[0] not in [w for w, _ in found.values()]:
            found[name] = word
    return found


def load(content: Content, file: str) -> frame.Audited:
    _meanings(content)
    cells = list(content.rows())
    short = sum(len(row) < len(content.header) for row in cells)
    if short:
        content.notes.append(
            f"{short} rows have fewer fields than the header; the last ones were left empty."
        )
    return of_rows(_table(content, cells), content.mapping, file, content.delimiter == ";")


def of_rows(
    table: pd.DataFrame, mapping: dict[str, str] | None, file: str, decimal_comma: bool = False
) -> frame.Audited:
    """`frame.Audited` of a table of texts as it stands in a file, whose columns mean what their names or the
    `mapping` say; `decimal_comma`: the comma may stand before its decimals."""
    table, notes = row_kinds.obeyed(table, file)
    made = audited(table, meanings(table, mapping), file, decimal_comma)
    made.notes += [(file, note) for note in notes]
    return made


def audited(
    table: pd.DataFrame, found: Meanings, file: str, decimal_comma: bool = False, of_levels: bool = False
) -> frame.Audited:
    """`frame.Audited` of a table of texts whose columns mean `found` (name -> word, factor); `of_levels`: its
    rows are load levels, whatever they look like."""
    found = {name: meant for name in found if (meant := _borne_out(table[name], found[name]))}
    placed = _placed(table, found, file)
    read, notes, printed = _converted(table, found, decimal_comma)
    read, said = figures.settle(read, found)
    stamped = "timestamp" in {naming.slug(name) for name in found}
    if not of_levels and rows.are_requests(read, stamped) and not rows.are_labelled(table, placed.unread):
        made = frame.make(file, TOOL, *rows.of_requests(read))
        said.append("Each row was read as a request.")
    else:
        made = frame.make(file, TOOL, rows.of_levels(read))
        said.append("Each row was read as a load level.")
    made.notes += [(file, note) for note in notes + said]
    made.placed.append(placed)
    made.printed |= {(file, column): step for column, step in printed.items() if column in frame.LEVELS}
    return made


def _placed(table: pd.DataFrame, found: Meanings, file: str) -> frame.Placed:
    """What became of each column of the table."""
    names = [str(name) for name in table]
    unread = tuple(name for name in names if name not in found)
    metadata = tuple(
        name for name in names if name in found and kind(found[name][0]) in ("noted", "metadata")
    )
    read = tuple(name for name in names if name not in (*metadata, *unread))
    varying = tuple(name for name in unread if table[name].nunique() > 1)
    return frame.Placed(file, read, metadata, unread, varying)


def _converted(
    table: pd.DataFrame, found: Meanings, decimal_comma: bool
) -> tuple[pd.DataFrame, list[str], dict[str, float]]:
    """(the table in words and units of the frame, notes about what had to be guessed, {column: the step in
    which it is printed})."""
    of_kind = {name: kind(word) for name, (word, _) in found.items()}
    told = {name: found[name][0] for name, one in of_kind.items() if one in ("text", "noted")}
    settings = [_setting(name, table[name]) for name, one in of_kind.items() if one == "setting"]
    counted = [name for name, one in of_kind.items() if one not in ("text", "noted", "setting", "metadata")]
    decimals, notes = numerals.of_table({name: table[name] for name in counted}, decimal_comma)
    out, unknown, printed = _texts(table, told), {}, {}
    if settings:
        joined = pd.concat(settings, axis=1).agg(list, axis=1)
        out["settings"] = joined.map(lambda cells: ", ".join(filter(None, cells)))
    for name in counted:
        word, factor = found[name]
        if word == "sent_s" and factor == 1:
            out[word] = numerals.moments(table[name], decimals[name])
            continue
        values, stated, step, strange = numerals.numbers(table[name], decimals[name], word)
        notes += _no_numbers(name, strange)
        if factor is None and _nanoseconds(name, values, stated):
            factor = 1e-9
        if factor is None and stated.isna().any():
            unknown[name] = word
        size = stated.fillna(1.0 if factor is None else factor)
        out[word], printed[word] = values * size, step * size.min()
        if word in figures.OF_SYSTEM and (spread := numerals.spreads(table[name])) is not None:
            out["spread_tokens_per_s"] = out.get("spread_tokens_per_s", spread).fillna(spread)
    read = pd.DataFrame(out, index=table.index)
    notes += figures.of_scopes(read, found, printed)
    for mean, total in MEANS.items():
        if total in read and "requests" in read and mean not in read:
            read[mean] = read[total] / read["requests"].where(read["requests"] > 0)
    before = {word: read[word].copy() for word in unknown.values()}
    notes += units.resolve(read, unknown, rows.are_requests(read))
    for word in unknown.values():  # the step changes its unit with the numbers
        ratio = (read[word] / before[word]).median()
        printed[word] *= ratio if ratio == ratio else 1.0
    return read, notes, printed


def _borne_out(values: pd.Series, meant: tuple) -> tuple | None:
    """What a column means by its name and its cells: none of a scope that names none, engines of systems that
    are some, nothing of successes that are shares, their number where they are numbers but 0, 1 and HTTP's
    200."""
    if meant[0] == "scope":
        return None if values.map(quantities.scope).isna().all() else meant
    if meant[0] == "gpu":
        return ("engine", meant[1]) if values.map(names.is_engine).all() else meant
    if meant[0] != "succeeded":
        return meant
    numbers = pd.to_numeric(values, errors="coerce").dropna()
    counts = len(numbers) > 0.5 * len(values) and not numbers.isin([0, 1, 200]).all()
    shares = values.astype(str).str.contains("%").any()
    return ("requests", 1) if counts else None if shares else meant


def _texts(table: pd.DataFrame, words: dict[str, str]) -> dict[str, Any]:
    """{word: texts} of the columns `words` (name -> word): those of one word joined, of what a file notes the
    first, of a question or an answer its beginning, and its length; a success as no error."""
    out: dict[str, Any] = {}
    for name, word in words.items():
        texts = table[name].fillna("").astype(str)
        if word == "succeeded":
            failed = {text: bool(text.strip()) and not says("success", text) for text in set(texts)}
            word, texts = "error", texts.map(failed).map({True: "failed", False: ""})
        elif word in ("question", "answer"):
            length = texts.str.len()
            out[f"{word}_chars"] = length.where(length != TEXT_CHARS)  # of a longer one the rest may be cut
            texts = texts.str[: frame.ANSWER_CHARS]
        elif word in out and kind(word) == "noted":
            continue
        elif word in out and word in frame.TEXTS:
            texts = (out[word] + " " + texts).str.strip()
        out[word] = texts
    return out


def _setting(name: str, values: pd.Series) -> pd.Series:
    """`name=value` of each row of a column that is a setting; empty where a row states none."""
    texts = values.map(lambda value: f"{value:g}" if isinstance(value, float) else value)
    texts = texts.fillna("").astype(str).str.strip()
    return (f"{quantities.snaked(name)}=" + texts).where(texts != "", "")


def _nanoseconds(name: str, values: pd.Series, stated: pd.Series) -> bool:
    """Whether a duration without a unit counts nanoseconds, as the API of Ollama does."""
    of_api = str(name).lower().endswith("duration") and stated.isna().all()
    return bool(of_api and values.median() > 1e6 and (values.dropna() % 1 == 0).all())


def _no_numbers(name: str, strange: list[str]) -> list[str]:
    """A sentence about the texts of a column of numbers that are none."""
    if not strange:
        return []
    several = len(strange) > 1
    count = f"{len(strange)} of its texts are no numbers" if several else "one of its texts is no number"
    return [f'{str(name)[:40]}: {count} ("{strange[0][:30]}") and {"were" if several else "was"} left empty.']
