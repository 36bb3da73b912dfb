"""Importers: one module per tool, one function for all: `read(file)` recognises the format and gives the
study's own frame.

A module has TOOL (its name), LOOKED_FOR (what its files have that no other has), `matches(content)` and
`load(content, file)`, where
`content` is a `Content`: the parsed JSON, the JSON lines, or the lines of text.
"""

import importlib
from pathlib import Path
from types import ModuleType

from llm_audit import frame
from llm_audit.importers.content import Content

MODULES = (
    "vllm guidellm aiperf inference_perf trtllm optimum llama_bench own older csv_words json_words".split()
)


def modules() -> list[ModuleType]:
    """The importers' modules, in the order in which they are tried: the more particular first."""
    return [importlib.import_module(f"{__name__}.{name}") for name in MODULES]


def read(file: str | Path, mapping: dict[str, str] | None = None) -> frame.Audited:
    """`frame.Audited` of one file; `mapping` (column of a CSV -> word of the study) helps where the file's
    own names are not known.

    ValueError with one sentence for a file that is empty, damaged, not text or of no known format: what was
    looked for, and was not found.
    """
    path = Path(file)
    content = Content(path, mapping or {})
    for module in modules():
        if module.matches(content):
            audited = _loaded(module, content, path.name)
            if audited.levels.empty:
                raise ValueError(
                    f"{path.name}: {module.TOOL} wrote it, but it holds no result; measure again."
                )
            audited.notes += [(path.name, note) for note in content.notes]
            return audited
    looked = "; ".join(f"{module.TOOL} ({module.LOOKED_FOR})" for module in modules())
    raise ValueError(
        f"{path.name} ({content.described()}) is of no known format. Looked for and not found: {looked}."
    )


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
