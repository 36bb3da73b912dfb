"""Tools whose JSON says each figure at a path of its own: tools.csv has a row for each, as for the figures of
llama-bench and `vllm bench`.

`path` is looked up in the object of a level, else in the whole file; a number in it is a place in a list. Of
several rows of one column the first that is there counts; of several paths in one row texts are joined, and
of numbers the first counts; without a path `before` holds for every result. A `column` without a statistic
(ttft) takes all statistics that stand there.
`rows`: the list whose objects are levels, and a tool's second one the list in each of them whose objects are
requests. `factor`: to the unit of the column; any: 1 where there is some.

GuideLLM's report is as version 0.8.1 wrote it here against this study's reference server; older ones name the
load elsewhere (0.2 and 0.3: args and worker, 0.4: scheduler). AIPerf's summary is as 0.13.0 wrote it here,
and GenAI-Perf's has the same names. What both call inter token latency is (e2e - ttft) / (tokens - 1), this
study's TPOT; AIPerf's inter chunk latency is the gap of events. trtllm-bench's `--report_json` is as
NVIDIA/TensorRT-LLM `tensorrt_llm/bench/dataclasses/reporting.py` writes it (its tpot excludes the first
token), inference-perf's `*_lifecycle_metrics.json` as kubernetes-sigs/inference-perf publishes them in
`demos`, and `llmfit bench --share` as AlexsJones/llmfit keeps what it sends (one answer at a time; a rate is
the mean over answers).
"""

import re
from functools import cache

from llm_measured.audit import frame, quantities
from llm_measured.audit.importers import numerals
from llm_measured.audit.importers.content import Content
from llm_measured.core.definitions import Fields, Value

TOOL = "GuideLLM, AIPerf's JSON, trtllm-bench, inference-perf, llmfit"
MARKS = {  # what a tool's files have that no other has
    "GuideLLM": ("benchmarks.0.metrics",),
    "AIPerf / GenAI-Perf": ("request_latency.avg",),
    "trtllm-bench": ("performance.system_output_throughput_tok_s",),
    "inference-perf": ("load_summary", "successes"),
    "llmfit": ("tool.name", "hardware"),
}
CLOSED = (
    "concurrent",
    "synchronous",
)  # GuideLLM's loads in which a request waits for its place, and is not late
TOLD = frame.TEXTS | frame.REQUEST_TEXTS
NOTES = {
    "GuideLLM": "GuideLLM's time_per_output_token_ms divides by all tokens, since version 0.4 with the TTFT "
    "in it by definition; its inter_token_latency_ms is what others call TPOT, and is what was audited."
}


def matches(content: Content) -> bool:
    return bool(_tool(content.json))


def _tool(found: Value) -> str:
    """The tool that wrote the JSON, empty where it is none of these."""
    for tool, marks in MARKS.items():
        if all(at(found, mark) is not None for mark in marks):
            return tool
    return ""


def at(found: Value, path: str) -> Value:
    """What stands at a path of names and places joined by points; None where nothing does."""
    for name in path.split("."):
        if isinstance(found, dict):
            found = found.get(name)
        elif isinstance(found, list) and re.fullmatch(r"-?\d", name):
            place = int(name)
            found = found[place] if -len(found) <= place < len(found) else None
        else:
            return None
    return found


@cache
def rows(tool: str) -> dict[str, list[dict[str, str]]]:
    """{list of objects: its rows of tools.csv} of a tool, levels before requests."""
    found: dict[str, list[dict[str, str]]] = {}
    for row in quantities.rows_of("tools.csv"):
        if row["tool"] == tool:
            found.setdefault(row["rows"], []).append(row)
    return found


def constants(tool: str) -> Fields:
    """{column: value} of what holds for every result of a tool: its rows of tools.csv without a path."""
    return {row["column"]: row["before"] for part in rows(tool).values() for row in part if not row["path"]}


def load(content: Content, file: str) -> frame.Audited:
    tool, whole = _tool(content.json), content.json
    (listed, of_level), *inside = rows(tool).items()
    levels, requests = [], []
    for number, one in enumerate((at(whole, listed) or []) if listed else [whole]):
        level = read(of_level, one, whole)
        if not level:
            raise ValueError(
                f"{file} looks like a file of {tool}, but its fields are not what that tool writes (no "
                "figure stands at its path)."
            )
        for name, of_request in inside:
            made = [read(of_request, each) | {"level": number} for each in at(one, name) or []]
            level.setdefault("requests", len(made))
            requests += made
        if level.get("name") in CLOSED:
            level |= {"late_mean_s": None, "late_p99_s": None}
        levels.append(level)
    return frame.make(file, tool, levels, requests, [NOTES[tool]] if tool in NOTES else [])


def read(declared: list[dict[str, str]], one: Fields, whole: Value = None) -> Fields:
    """{column: value} of an object by the `declared` rows of tools.csv; of a question or an answer its
    beginning, and its length."""
    found: Fields = {}
    for row in declared:
        stated = [] if row["path"] else [""]
        for path in row["path"].split():
            value = at(one, path)
            value = at(whole, path) if value is None else value
            if value not in (None, ""):
                stated.append(value)
        column, any_at_all = row["column"], row["factor"] == "any"
        if not stated or found.get(column) is not None:
            continue
        factor = 1.0 if any_at_all else float(row["factor"] or 1)
        if isinstance(stated[0], dict):
            found |= quantities.spread(column, stated[0], factor)
        elif isinstance(stated[0], int | float) and column not in TOLD:
            found[column] = float(stated[0] > 0) if any_at_all else stated[0] * factor
        elif column in ("question", "answer"):
            found |= {column: stated[0][: frame.ANSWER_CHARS], f"{column}_chars": len(stated[0])}
        else:
            text = " ".join(filter(None, [row["before"], *map(str, stated)]))
            found[column] = text if column in TOLD else factor * numerals.number(text, column)
    return found
