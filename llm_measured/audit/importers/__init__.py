"""Importers: one module per tool, one function for all: `read(file)` recognises the format and gives the
study's own frame.

A module has TOOL (its name), `matches(content)` and `load(content, file)`, where `content` is a `Content`:
the parsed JSON, the JSON lines, or the lines of text.
"""

import itertools
from difflib import get_close_matches
from pathlib import Path

from llm_measured.audit import frame, quantities
from llm_measured.audit.importers import (
    aiperf,
    beside,
    console,
    declared,
    json_words,
    llama_bench,
    older,
    own,
    tables,
    vllm,
)
from llm_measured.audit.importers.content import Content

# In the order in which they are tried: the more particular first.
MODULES = vllm, declared, aiperf, llama_bench, own, older, tables, json_words


def read(file: str | Path, mapping: dict[str, str] | None = None) -> frame.Audited:
    """`frame.Audited` of one file; `mapping` (column of a CSV -> word of the study) helps where the file's
    own names are not known.

    ValueError with one sentence for a file that is empty, damaged, not text or of no known format: what was
    looked for, and was not found.
    """
    path = Path(file)
    content = Content(path, mapping or {})
    audited = None if _is_prose(content) else _by_module(content)
    if audited is None:
        audited = _of_text(content)
    if audited is None:
        raise ValueError(_unknown(content))
    if content.is_json:
        audited.stated(**beside.stated(content.objects))
    return audited


def _is_prose(content: Content) -> bool:
    """Whether tables stand in the text and it is none itself: its first line has bars, or one name, or more
    than most of the lines below it have fields."""
    if content.is_json:
        return False
    if content.text.lstrip().partition("\n")[0].count("|") >= 2:
        return True
    width = len(content.header)
    begins = content.beginning(tables.FIRST_ROWS) if width > 1 else []
    whole = sum(len(row) == width for row in begins)
    return 2 * whole <= len(begins) and bool(content.tables)


def _by_module(content: Content) -> frame.Audited | None:
    """What the first module that knows the content makes of it, None where none does."""
    for module in MODULES:
        if module.matches(content):
            audited = _loaded(module, content, content.path.name)
            if audited.levels.empty:
                raise ValueError(
                    f"{content.path.name}: {module.TOOL} wrote it, but it holds no result; measure again."
                )
            audited.notes += [(content.path.name, note) for note in content.notes]
            return audited
    return None


def _of_text(content: Content) -> frame.Audited | None:
    """Every table and every printed result in a text, None where it holds neither."""
    if content.is_json:
        return None
    name, parts, strange = content.path.name, [], 0
    for rows in content.tables:
        try:
            read = _by_module(content.of_table(rows))
        except ValueError:
            read = None
        strange += read is None
        parts += [read] if read is not None else []
    printed, stated = console.read(content, name, beside=bool(parts))
    if not (parts := parts + printed):
        return None
    audited = frame.join(parts, one_file=True).stated(**stated)
    audited.notes = list(dict.fromkeys(audited.notes))
    if strange or len(content.tables) > 1:
        what = f"{len(content.tables) - strange} of the text's {len(content.tables)} tables were read"
        audited.notes.append(
            (name, what + ("; the others hold no results that are known." if strange else "."))
        )
    return audited


def _unknown(content: Content) -> str:
    """Why a file could not be read, in a sentence that says what to do."""
    words = "ttft_ms, tpot_ms, e2e_s, output_tokens_per_s, requests_per_s, concurrency, prompt_tokens"
    nearest = _nearest(content)
    hint = f" Nearest: {nearest}." if nearest else ""
    return (
        f"{content.path.name} ({content.described()}) is of no known format.{hint} A table is read once its "
        f"columns have names that are known: --map theirs=word, where word is one of {words} and the other "
        f"columns of the frame. Formats that are read: {', '.join(module.TOOL for module in MODULES)}, and "
        f"{console.TOOL}."
    )


def _nearest(content: Content) -> str:
    """The names of the file that mean nothing and come closest to one that does, with it; empty where none
    does."""
    names = content.header if not content.is_json and not content.tables else []
    names = [*content.json] if isinstance(content.json, dict) else names
    unknown = (str(name) for name in names[:200] if not quantities.meaning(str(name)))
    near = (
        (name, get_close_matches(quantities.snaked(name), quantities.names(), 1, 0.75)) for name in unknown
    )
    pairs = (f"{name[:30]} is like {found[0]}" for name, found in near if found)
    return ", ".join(itertools.islice(pairs, 3))


def _loaded(module, content, name):
    """What a module makes of a file; ValueError where the file has the right names and other things under
    them."""
    try:
        return module.load(content, name)
    except (AttributeError, TypeError, KeyError, IndexError, ZeroDivisionError, OverflowError) as error:
        reason = f"{type(error).__name__}: {error}"[:120]
        raise ValueError(
            f"{name} looks like a file of {module.TOOL}, but its fields are not what that tool writes "
            f"({reason})."
        ) from None
