"""Any table whose headings mean something by quantities.csv: CSV, Markdown, and the rows that
`json_words` makes of JSON.

Every column is placed, named metadata, or not read. A mapping (column -> word) serves for other names. Rows
are requests where they have what only requests have (a send time, an answer, an error) or where many rows
share all conditions; else each row is a level.
"""

import itertools
import re
from collections.abc import Iterable

import numpy as np
import pandas as pd

from llm_measured.audit import frame, quantities
from llm_measured.audit.importers import beside, numerals, row_kinds, units
from llm_measured.audit.importers.content import Content
from llm_measured.audit.quantities import meaning
from llm_measured.core import naming

TOOL = "CSV in the study's words"
MEASURED = tuple(sorted(quantities.measured()))
# What was asked of the server where the file has the tokens that came, and the total that says so.
ASKED = re.compile(r"(?:mean_|avg_)?(?:osl|isl)|(?:random_)?(?:output|input)_(?:len|length|sequence_length)")
LENGTHS = {"output_tokens": "total_output_tokens", "prompt_tokens": "total_prompt_tokens"}
# Names of a mean length; any other count of tokens beside several requests may be their total.
OF_ONE = re.compile(r".*(mean|avg|average|per_request|osl|isl|len|length|max).*")
OF_RUN = re.compile(r"total(_(time|duration|elapsed))?(_(m?s|m?secs?))?")
SUM = 0.15  # by which a total may miss rate x time
NOMINAL = 0.02  # of a length: what was asked and what came differ by more
FORMAT = re.compile(r"(b?float|b?fp|b?f|int)-?\d+|q\d(-[a-z0-9]+)*|nf4|awq|gptq|\d-?bits?")
SIZE = re.compile(r"\d+(\.\d+)?b(-a\d+(\.\d+)?b)?")
# What a request that did not fail says of itself.
SUCCEEDED = set("true 1 1.0 ok success succeeded 200 completed stop length yes".split()) | {""}
FIRST_ROWS = 60  # of a table that are looked at to see what it is
SHARED = 5  # rows per set of conditions from which rows count as requests


def matches(content: Content) -> bool:
    if content.is_json:
        return False
    names = content.header
    if measured(_meanings(content)) or _with_units(names):
        return True
    if len(names) < 2:
        return False
    return _wide(_beginning(content)) is not None or measured(
        meanings(row_kinds.obeyed(_beginning(content))[0].columns, {})
    )


def _beginning(content):
    """The first rows of a table as texts: enough to see whether its first column names metrics."""
    names = frame.distinct(content.header)
    rows = itertools.islice(content.rows(), FIRST_ROWS)
    return pd.DataFrame([(row + [""] * len(names))[: len(names)] for row in rows], columns=names)


def measured(found: dict) -> bool:
    """Whether any of the columns `found` (name -> meaning) is something that a benchmark measures."""
    words = {word for word, _ in found.values()}
    return any(word.startswith(MEASURED) for word in words) or {"total_output_tokens", "duration_s"} <= words


def _meanings(content):
    """Column -> (word, factor) of a CSV; ValueError where the mapping names what is not there."""
    known = set(content.mapping) - set(content.header)
    if known:
        raise ValueError(
            f"The mapping names {', '.join(sorted(known))}, which {content.path.name} does not have."
        )
    return meanings(content.header, content.mapping)


def meanings(names: Iterable[str], mapping: dict[str, str] | None) -> dict[str, tuple]:
    """Name -> (word, factor); a word that two names have stays with the first, but formats are joined, and of
    settings and metadata there may be many."""
    found, several = {}, {"weights"}
    for name in names:
        word = meaning((mapping or {}).get(name, name))
        if not word:
            continue
        many = _kind(word[0]) in ("setting", "noted", "metadata") or word[0] in several
        if many or word[0] not in [w for w, _ in found.values()]:
            found[name] = word
    return found


def _kind(word: str) -> str:
    """The kind of a quantity, empty of a statistic of one."""
    return quantities.table()[word].kind if word in quantities.table() else ""


def load(content: Content, file: str) -> frame.Audited:
    whole, notes = row_kinds.obeyed(_whole(content))
    found = meanings(whole.columns, content.mapping)
    if wide := _wide(whole):
        whole = _long(whole, *wide)
        notes.append(f"The columns {', '.join(wide[1])} were read as tokens/s of that {wide[0]} each.")
    elif not measured(found):
        whole = _with_unit_columns(whole, file, *_with_units(whole.columns))
    made = audited(whole, meanings(whole.columns, content.mapping), file, content.delimiter == ";")
    made.notes += [(file, note) for note in notes]
    return made


def _whole(content):
    """Every column of a CSV as a table of texts, with the lengths of questions and answers, which are cut."""
    names = content.header
    found = _meanings(content)
    chars = {name: [] for name, (word, _) in found.items() if word in ("question", "answer")}
    rows, short = [], 0
    for row in content.rows():
        short += len(row) < len(names)
        row = (row + [""] * len(names))[: len(names)]
        for name in chars:
            place = names.index(name)
            chars[name].append(len(row[place]))
            row[place] = row[place][: frame.ANSWER_CHARS]
        rows.append(row)
    if short:
        content.notes.append(
            f"{short} rows have fewer fields than the header; the last ones were left empty."
        )
    table = pd.DataFrame(rows, columns=frame.distinct(names))
    for name, lengths in chars.items():
        table[f"{found[name][0]}_chars"] = lengths
    return table


def _with_unit_columns(table, file, result, unit):
    """A table that says in each row what its number counts as one with a column for each such unit."""
    units_named = [name for name in dict.fromkeys(table[unit].str.strip()) if name]
    for name in units_named:
        table[name] = table[result].where(table[unit].str.strip() == name, "")
    if not measured(meanings(units_named, {})):
        raise ValueError(f"{file}: {unit} names no quantity that is known ({', '.join(units_named[:6])}).")
    return table.drop(columns=[result, unit])


def _with_units(names):
    """(column of numbers, column of their units) of a table that has one of each, as MLPerf's; () where it
    has not."""
    result, unit = ([name for name in names if quantities.says(one, name)] for one in ("result", "unit"))
    return (result[0], unit[0]) if result and unit else ()


def audited(
    table: pd.DataFrame, found: dict, file: str, decimal_comma: bool = False, of_levels: bool = False
) -> frame.Audited:
    """`frame.Audited` of a table of texts whose columns mean `found` (name -> word, factor); `of_levels`: its
    rows are load levels, whatever they look like."""
    # A column of such a name that names no scope is another one.
    for name in [name for name, (word, _) in found.items() if word == "scope"]:
        if table[name].map(quantities.scope).isna().all():
            found = {other: meant for other, meant in found.items() if other != name}
    placed = _placed(table, found, file)
    raw = table
    table, notes, printed = _converted(table, found, decimal_comma)
    if "requests_per_min" in table and "requests_per_s" not in table:
        table["requests_per_s"] = table["requests_per_min"] / 60
    # A total time beside a number or a rate of requests is that of the run.
    of_run = any(
        OF_RUN.fullmatch(quantities.snaked(name)) for name, (word, _) in found.items() if word == "e2e_s"
    )
    if of_run and {"requests", "requests_per_s"} & {*table} and "duration_s" not in table:
        table["duration_s"] = table.pop("e2e_s")
    notes += _totals(table, found) + _measured_lengths(table, found)
    table = _with_decode_rate(table)
    decoding = _while_decoding(table)
    if decoding.any():
        table["output_tokens_per_s"] = table["output_tokens_per_s"].mask(decoding)
        notes.append(
            f"In {int(decoding.sum())} rows of one request at a time the tokens/s are those after the first "
            "token, by TTFT and TPOT or as the rate of decoding; they were read so."
        )
    stamped = "timestamp" in {naming.slug(name) for name in found}
    requests = not of_levels and _are_requests(table, stamped) and not _labelled(raw, placed)
    made = _requests(table, file) if requests else _levels(table, file)
    notes.append(f"Each row was read as {'a request' if requests else 'a load level'}.")
    made.notes += [(file, note) for note in notes]
    made.placed.append(placed)
    made.printed |= {(file, column): step for column, step in printed.items() if column in frame.LEVELS}
    return made


def _placed(table: pd.DataFrame, found: dict, file: str) -> frame.Placed:
    """What became of each column of the table."""
    own = [str(name) for name in table if not str(name).endswith("_chars")]
    metadata = tuple(name for name in own if _kind(found.get(name, ("",))[0]) in ("noted", "metadata"))
    unread = tuple(name for name in own if name not in found)
    read = tuple(name for name in own if name not in metadata and name not in unread)
    varying = tuple(name for name in unread if table[name].nunique() > 1)
    return frame.Placed(file, read, metadata, unread, varying)


def _labelled(table: pd.DataFrame, placed: frame.Placed) -> bool:
    """Whether a column that nobody knows gives each row a name of its own: a task, an example, a case."""
    for name in placed.unread:
        texts = table[name].fillna("").astype(str)
        if texts.nunique() == len(table) > 1 and texts.str.contains(r"[A-Za-z]{3}").all():
            return True
    return False


def _column(table: pd.DataFrame, *names: str) -> pd.Series:
    """The first known figure of each row in the columns `names`; NaN where none is."""
    found = pd.Series(np.nan, table.index)
    for name in names:
        found = found.fillna(table[name]) if name in table else found
    return found


def _totals(table: pd.DataFrame, found: dict) -> list[str]:
    """Put a count of output tokens that is that of all requests in its own column: where it is what rate x
    time gives and several requests stand beside it; a sentence that says so."""
    name = next((name for name, (word, _) in found.items() if word == "output_tokens"), "")
    needed = {"output_tokens", "output_tokens_per_s", "requests"} <= {*table}
    if not needed or "total_output_tokens" in table or OF_ONE.fullmatch(quantities.snaked(name)):
        return []
    many, counted = table["requests"], table["output_tokens"]
    own_time = not {"duration_s", "requests_per_s"} & {*table}
    time = _column(table, "duration_s").fillna(many / _column(table, "requests_per_s"))
    time = _column(table, "e2e_s") if own_time else time
    fits = ((table["output_tokens_per_s"] * time / counted - 1).abs() < SUM) & (many > 1)
    if not fits.any() or not (fits | counted.isna() | (many <= 1)).all():
        return []
    table["total_output_tokens"], table["output_tokens"] = counted, counted / many
    if own_time:
        table["duration_s"] = table.pop("e2e_s")
    return [f"{name} was read as the tokens of all requests: rate x time gives them."]


def _measured_lengths(table, found):
    """Put the tokens that came in place of those that were asked for, where the table has their total or
    their rate; one sentence for each column in which they differ."""
    notes = []
    for name, (word, _) in found.items():
        if word not in LENGTHS or word not in table or not ASKED.fullmatch(quantities.snaked(name)):
            continue
        done = _column(table, "asked") - _column(table, "failed").fillna(0)
        came = _column(table, LENGTHS[word]) / _column(table, "requests").fillna(done)
        if word == "output_tokens":
            came = came.fillna(_column(table, "output_tokens_per_s") / _column(table, "requests_per_s"))
            came = came.where(came < table[word] * (1 + NOMINAL), table[word].where(came.notna()))
        came = came.where(np.isfinite(came) & (came > 0))
        far = (came / table[word] - 1).abs() > NOMINAL
        if far.any():
            k = (came / table[word] - 1).abs().where(far).idxmax()
            what = "answers" if word == "output_tokens" else "prompts"
            notes.append(
                f"{what.capitalize()} have {came[k]:,.0f} tokens on average where {name} says "
                f"{table.at[k, word]:,.0f}"
                + (f" (the farthest of {int(far.sum())} rows)" if far.sum() > 1 else "")
                + "; what came was read, not what was asked."
            )
        if word == "output_tokens" and "max_new_tokens" not in table:
            table["max_new_tokens"] = table[word].where(came.notna())
        table[word] = came.fillna(table[word])
    return notes


def _with_decode_rate(table):
    """A rate of decoding alone is the TPOT of a single request, and of many the system's."""
    if "decode_rate" not in table:
        return table
    at_once = _column(table, "batch_size", "concurrency").fillna(1)
    single = (1 / table["decode_rate"]).where((at_once <= 1) & (table["decode_rate"] > 0))
    table["tpot_s"] = _column(table, "tpot_s").fillna(single)
    of_many = table["decode_rate"].where(at_once > 1)
    table["output_tokens_per_s"] = _column(table, "output_tokens_per_s").fillna(of_many)
    return table.dropna(axis=1, how="all")


SMALL_PART = 0.02  # of the time of all steps: so short a TTFT does not show in a rate


def _while_decoding(table):
    """Rows of one request at a time whose tokens/s leave the TTFT out, though it is no small part: by TTFT
    and TPOT, or because the file has the same figure as its rate of decoding."""
    step = _column(table, "tpot_s", "tpot_mean_s", "tpot_p50_s")
    first = _column(table, "ttft_s", "ttft_mean_s", "ttft_p50_s")
    rate, load = _column(table, "output_tokens_per_s"), _column(table, "batch_size", "concurrency")
    alone = (load == 1) & _column(table, "requests_per_s").isna()
    # A TTFT as long as all the steps together cannot be within the TPOT, which is the other reading.
    decoding = (rate / _column(table, "decode_rate") - 1).abs() < 1e-9
    long = first > step * _column(table, "output_tokens") * np.where(decoding, SMALL_PART, 1)
    return alone & ((rate * step - 1).abs() < 0.03) & long


def _converted(table, found, decimal_comma):
    """(the table in words and units of the frame, notes about what had to be guessed, {column: the step in
    which it is printed})."""
    out, unknown = {c: table[c] for c in table if c in ("question_chars", "answer_chars")}, {}
    texts = "text", "setting", "noted", "metadata"
    figures = [name for name, (word, _) in found.items() if _kind(word) not in texts]
    settings: list[pd.Series] = []
    decimals, notes = numerals.of_table({name: table[name] for name in figures}, decimal_comma)
    printed = {}
    for name, (word, factor) in found.items():
        values = table[name]
        kind = _kind(word)
        if kind == "metadata" or (kind == "noted" and word in out):
            continue
        if word in frame.TEXTS and word in out:
            values = (out[word].fillna("").astype(str) + " " + values.fillna("").astype(str)).str.strip()
        elif kind == "setting":
            settings.append(_setting(name, values))
            continue
        elif word == "succeeded" and _counts(values):
            word, values = "requests", numerals.numbers(values)[0]
        elif word == "succeeded":
            good = values.fillna("").astype(str).str.strip().str.lower().isin(SUCCEEDED)
            word, values = "error", np.where(good, "", "failed")
        elif word == "sent_s" and factor == 1:
            values = numerals.moments(values, decimals[name])
        elif name in figures:
            spread = numerals.spreads(values) if word.endswith("tokens_per_s") else None
            if spread is not None and "spread_tokens_per_s" not in out:
                out["spread_tokens_per_s"] = spread
            values, printed[word] = _figures(name, values, decimals[name], found[name], unknown, notes)
        out[word] = values
    if settings:
        joined = pd.concat(settings, axis=1).fillna("").agg(list, axis=1)
        out["settings"] = joined.map(lambda cells: ", ".join(cell for cell in cells if cell))
    out = pd.DataFrame(out, index=table.index)
    notes += _scoped(out, found, printed)
    for total, mean in (("total_prompt_tokens", "prompt_tokens"), ("total_output_tokens", "output_tokens")):
        if total in out and "requests" in out and mean not in out:
            out[mean] = out[total] / out["requests"].where(out["requests"] > 0)
    before = {word: out[word].copy() for word in unknown.values()}
    notes += units.resolve(out, unknown, _are_requests(out))
    for word in unknown.values():  # the step changes its unit with the numbers
        ratio = (out[word] / before[word]).median()
        printed[word] *= ratio if ratio == ratio else 1.0
    return out, notes, printed


OF_SYSTEM = "output_tokens_per_s", "decode_rate", "total_tokens_per_s", "prompt_tokens_per_s"


def _scoped(table: pd.DataFrame, found: dict, printed: dict[str, float]) -> list[str]:
    """Put the output tokens/s of rows that a column calls those of one user or device where such rates
    belong, in place, and leave their other tokens/s empty; a sentence for each name of a scope."""
    if "scope" not in table:
        return []
    heading = next(name for name, (word, _) in found.items() if word == "scope")
    cells = table.pop("scope").fillna("").astype(str).str.strip()
    rates = [rate for rate in OF_SYSTEM if rate in table]
    notes = []
    for cell in filter(None, dict.fromkeys(cells)):
        hit, scope = cells == cell, quantities.scope(cell)
        if scope == "system":
            continue
        own = quantities.of_scope().get(scope or "")
        for rate in rates:
            if own and rate in OF_SYSTEM[:2]:
                moved = table[rate].where(hit)
                table[own] = table[own].fillna(moved) if own in table else moved
                printed.setdefault(own, printed[rate])
            table[rate] = table[rate].mask(hit)
        number = int(hit.sum())
        many = f"{heading} is {cell[:30]} in {number} {'row' if number == 1 else 'rows'}"
        read = f"read as those of one {scope}" if own else "not read: it is no user, no device and not all"
        notes.append(f"{many}, whose tokens/s were {read}.")
    return notes


def _figures(name, values, decimal, meant, unknown, notes):
    """(numbers in the unit of the frame, the step in which they are printed) of a column that means `meant`;
    a time that names no unit is put in `unknown` as it is."""
    word, factor = meant
    values, stated, step, strange = numerals.numbers(values, decimal, word)
    notes += _no_numbers(name, strange)
    if not word.endswith("_s") or "per_s" in word:
        return values * factor, step
    if factor is None and _nanoseconds(name, values, stated):
        factor = 1e-9
    if factor is None and stated.isna().any():
        unknown[name] = word
    size = stated.fillna(1.0 if factor is None else factor)
    return values * size, step * size.min()


def _setting(name, values):
    """`name=value` of each row of a column that is a setting; empty where a row states none."""
    texts = values.map(lambda value: f"{value:g}" if isinstance(value, float) else value)
    texts = texts.fillna("").astype(str).str.strip()
    return (f"{quantities.snaked(name)}=" + texts).where(texts != "", "")


def _nanoseconds(name, values, stated):
    """Whether a duration without a unit counts nanoseconds, as the API of Ollama does."""
    of_api = str(name).lower().endswith("duration") and stated.isna().all()
    return bool(of_api and values.median() > 1e6 and (values.dropna() % 1 == 0).all())


def _no_numbers(name, strange):
    """A sentence about the texts of a column of numbers that are none."""
    if not strange:
        return []
    several = len(strange) > 1
    count = f"{len(strange)} of its texts are no numbers" if several else "one of its texts is no number"
    return [f'{str(name)[:40]}: {count} ("{strange[0][:30]}") and {"were" if several else "was"} left empty.']


def _counts(values):
    """Whether a column of successes counts them: numbers that are no 0, 1 or HTTP's 200."""
    found = pd.to_numeric(values, errors="coerce").dropna()
    return len(found) > 0.5 * len(values) and not found.isin([0, 1, 200]).all()


def _wide(table: pd.DataFrame) -> tuple[str, list[str]] | None:
    """(what the headings name, those headings) of a table of rates that has a column for each number format,
    model or device: weights, model or gpu; None for any other table."""
    readings = {
        "weights": [name for name in table if FORMAT.fullmatch(naming.slug(str(name)))],
        "model": [name for name in table if SIZE.fullmatch(naming.slug(str(name)))],
        "gpu": [name for name in table if meaning(str(name)) is None and beside.is_device(str(name))],
    }
    for word, names in readings.items():
        others = [name for name in table if name not in names]
        if len(names) < 2 or any(_numeric(table[name]) for name in others if _is_rate(name)):
            continue
        if all(_numeric(table[name]) for name in names):
            return word, names
    return None


def _is_rate(name: str) -> bool:
    found = meaning(str(name))
    return bool(found) and found[0].startswith(MEASURED)


def _numeric(values: pd.Series) -> bool:
    """Whether a column holds numbers, and nothing else."""
    read, _, _, strange = numerals.numbers(values, ".", "output_tokens_per_s")
    return bool(read.notna().any()) and not strange


def _long(table: pd.DataFrame, word: str, names: list[str]) -> pd.DataFrame:
    """A table with a column for each format, model or device as one with a row for each, of tokens/s."""
    others = [c for c in table if c not in names]
    renamed = {}
    for name in others:
        bare = re.sub(r"\(.*?\)", "", str(name)).strip()
        if meaning(bare) and not _is_rate(bare):
            renamed[name] = bare
        elif _is_rate(name):
            devices = table[name].astype(str).map(beside.is_device).mean()
            renamed[name] = "gpu" if devices > 0.5 else "model"
    long = table.melt(others, names, word, "tokens_per_s").rename(columns=renamed)
    empty = long["tokens_per_s"].fillna("").astype(str).str.strip().str.lower().isin(numerals.NOTHING)
    order = long.index % len(table) if len(table) else long.index
    return long.assign(order=order)[~empty].sort_values("order", kind="stable").drop(columns="order")


def _are_requests(table, stamped=False):
    """Whether each row is a request; a `stamped` row has a moment that may be when it was written."""
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


def _chosen(lengths):
    """Whether prompt lengths were chosen one by one, as for a table over context lengths: all different, and
    round or in order."""
    if lengths is None:
        return False
    known = lengths.dropna()
    round_ones = (known % 64 == 0) | (known % 100 == 0)
    in_order = known.is_monotonic_increasing or known.is_monotonic_decreasing
    return len(known) >= 3 and known.nunique() == len(known) and bool(in_order or round_ones.all())


def _conditions(table):
    """The columns whose values tell settings apart, without lengths, which vary within one."""
    known = quantities.table()
    texts = {name for name in frame.TEXTS if _kind(name) == "text"}
    return [c for c in table if c in texts or (c in known and known[c].setting and not known[c].unit)]


def _requests(table, file):
    conditions = _conditions(table)
    groups = table.groupby(conditions, dropna=False, sort=False).ngroup() if conditions else 0
    table = table.assign(level=groups)
    levels = table.drop_duplicates("level")[["level", *{*conditions, *frame.TEXTS} & {*table}]]
    if "output_tokens_per_s" in table and "request_tokens_per_s" not in table:
        table = table.rename(columns={"output_tokens_per_s": "request_tokens_per_s"})
    if "cached_share" in table and "cached_tokens" not in table:
        share = table["cached_share"].where(table["cached_share"] <= 1, table["cached_share"] / 100)
        table = table.assign(cached_tokens=share * table.get("prompt_tokens", 1))
    return frame.make(file, TOOL, levels, table)


def _levels(table, file):
    if "asked" in table and "requests" not in table:
        table["requests"] = table["asked"] - _column(table, "failed").fillna(0)
    if "output_tokens_per_s_per_device" in table:
        # Of how many devices nobody says, the rate of all is not known; of those that generate it is theirs.
        each, generating = table["output_tokens_per_s_per_device"], _column(table, "generating_devices")
        of_all = each * _column(table, "generating_devices", "tensor_parallel")
        table["output_tokens_per_s_per_device"] = each.where(generating.isna())
        table["output_tokens_per_s"] = _column(table, "output_tokens_per_s").fillna(of_all)
    return frame.make(file, TOOL, table.rename(columns={"late_s": "late_mean_s"}))
