"""The older llama-inference CSV: tok_count, time (s), question, answer, note in any order; one row per
request, one at a time.

As published in hamelsmu/llama-inference, `*/bench*.csv`. The model was Llama-2-7B throughout, which the
files do not state.
"""

from llm_measured.audit import frame
from llm_measured.audit.importers import tables
from llm_measured.audit.importers.content import Content

TOOL = "llama-inference (older layout)"
COLUMNS = {"tok_count": "output_tokens", "time": "e2e_s", "question": "question", "answer": "answer"}


def matches(content: Content) -> bool:
    return not content.is_json and {*COLUMNS} <= {*content.header}


def load(content: Content, file: str) -> frame.Audited:
    content.mapping = COLUMNS | ({"note": "weights"} if "note" in content.header else {})
    read = tables.load(content, file)
    note = read.levels["weights"]
    more = {"option": note, "name": note, "weights": note.replace("", "none")}
    read.levels = read.levels.assign(tool=TOOL, batch_size=1.0, concurrency=1.0, **more)
    return read
