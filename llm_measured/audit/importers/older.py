"""The older llama-inference CSV: tok_count, time (s), question, answer, note in any order; one row per
request, one at a time.

As published in hamelsmu/llama-inference, `*/bench*.csv`. The model was Llama-2-7B throughout, which the
files do not state.
"""

from llm_measured.audit import frame
from llm_measured.audit.importers.content import Content

TOOL = "llama-inference (older layout)"
LOOKED_FOR = "the columns tok_count, time, question, answer, note"
COLUMNS = {"tok_count", "time", "question", "answer"}


def matches(content: Content) -> bool:
    return not content.is_json and COLUMNS <= set(content.header)


def load(content: Content, file: str) -> frame.Audited:
    place = {name: k for k, name in enumerate(content.header)}
    levels, requests = {}, []
    for row in content.rows():
        if len(row) < len(place):
            raise ValueError(
                f"{file} is damaged: a row has {len(row)} fields, the header {len(place)}. Copy it anew."
            )
        note = row[place["note"]] if "note" in place else ""
        level = levels.setdefault(note, len(levels))
        question, answer = row[place["question"]], row[place["answer"]]
        requests.append(
            {
                "level": level,
                "output_tokens": row[place["tok_count"]],
                "e2e_s": row[place["time"]],
                "question": question[: frame.ANSWER_CHARS],
                "answer": answer[: frame.ANSWER_CHARS],
                "question_chars": len(question),
                "answer_chars": len(answer),
            }
        )
    each = [
        {
            "level": k,
            "option": note,
            "weights": note or "none",
            "name": note,
            "batch_size": 1,
            "concurrency": 1,
        }
        for note, k in levels.items()
    ]
    return frame.make(file, TOOL, each, requests)
