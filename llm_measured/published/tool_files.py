"""Files as benchmark tools write them, whoever published them: what the audit's importers read, as rows.

For a folder of raw files that has no importer of its own. Of the source nothing is known then: no licence, no
one who measured, and what a file does not state stays empty. Such rows are shown and checked, and not kept in
the repository: CONTRIBUTING says how a source gets its importer.
"""

import re
import tempfile
from collections.abc import Iterator
from datetime import date
from pathlib import Path

from llm_measured.audit import importers
from llm_measured.core.definitions import Fields
from llm_measured.published import schema
from llm_measured.published.reading import LeftOut, Place, Raw, Row, SourceError, day
from llm_measured.published.sources import FACTS, Source

ABOUT = Source(
    repository="",
    commit="",
    licence=FACTS,
    kind="",
    measured_by="",
    citation="",
    files=("*",),
    retrieved=date.today().isoformat(),
)
# Files of a repository that are no measurement.
OTHERS = re.compile(r"(^|/)(readme|licen[cs]e|notice|changelog)[^/]*$", re.I)
# Tools that count tokens themselves: their lengths are means of what was sent and came.
COUNTED = ("vllm bench", "AIPerf / GenAI-Perf", "GuideLLM", "inference-perf", "llm-d Benchmark Report")
NO_NUMBER = re.compile(r"(?<![\w.\"])(?:NaN|[-+]?Inf(?:inity)?)(?![\w.])", re.I)
MLPERF = (
    re.compile(r"scenario", re.I),
    re.compile(r"submitter|organization", re.I),
    re.compile("result", re.I),
)


def rows(raw: Raw) -> Iterator[Row | LeftOut]:
    """One row per load level of every file; a file that no importer reads is left out with a sentence."""
    for file in raw.files("*"):
        if OTHERS.search(file) or any(part.startswith(".") for part in file.split("/")):
            continue
        try:
            yield from _of_file(raw, file)
        except SourceError as error:
            yield LeftOut(file, "/", str(error), refused=True)


def _of_file(raw: Raw, file: str) -> Iterator[Row | LeftOut]:
    text = raw.text(file)
    first = text.lstrip().split("\n", 1)[0]
    if first[:1] not in "[{" and all(pattern.search(first) for pattern in MLPERF):
        reason = "MLPerf's results have rules of their own: its importer reads them (folder mlperf)"
        yield LeftOut(file, "/", reason, refused=True)
        return
    if holes := len(NO_NUMBER.findall(text)):
        raw.notes.append(f"{file}: NaN or infinity where a number should be ({holes}), left empty.")
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / Path(file).name
        copy.write_text(text, encoding="utf-8")
        try:
            audited = importers.read(copy)
        except ValueError as error:
            yield LeftOut(file, "/", _short(str(error)), refused=True)
            return
        except (LookupError, TypeError, AttributeError, ArithmeticError, RuntimeError) as error:
            reason = f"it is not what its names promise ({type(error).__name__})"
            yield LeftOut(file, "/", reason, refused=True)
            return
    raw.notes += [f"{file}: {note}" for _, note in audited.notes]
    unread = [name for placed in audited.placed for name in placed.unread]
    if unread:
        raw.notes.append(f"{file}: Columns whose names mean nothing here: {', '.join(unread[:12])}.")
    single = audited.requests["level"].value_counts()
    measured_on = _date(text)
    for number, level in enumerate(audited.levels.to_dict("records")):
        stated = {k: v for k, v in level.items() if v == v and v != ""}
        at = Place(raw, file, f"/{number}", {k: v for k, v in stated.items() if k not in ("file", "level")})
        row = at.row(measured_on=measured_on, **_columns(stated))
        if isinstance(row, LeftOut) and not row.refused and level["level"] in single.index:
            row = at.left_out("single requests without a figure of their load level")
        yield row


def _short(sentence: str) -> str:
    """The sentence without the list of all formats that were looked for."""
    return sentence.split(" Looked for")[0].rstrip(".")


def _date(text: str) -> str | None:
    """The day that a tool's file writes beside its result, None where there is none or several."""
    found = {
        day(value) for value in re.findall(r'"(?:date|timestamp|measured_on)"\s*:\s*"([^"]{8,40})"', text)
    }
    return found.pop() if len(found) == 1 else None


def _columns(level: Fields) -> Fields:
    """What a level of the audit's frame states, in the observatory's columns; times in ms."""
    get = level.get
    alone = get("concurrency") == 1 or get("batch_size") == 1
    columns = {
        "accelerator_raw": get("gpu"),
        "accelerators": get("tensor_parallel"),
        "engine": get("engine"),
        "engine_version": get("engine_version"),
        "flags": get("option") if get("option") != get("weights") else None,
        "checkpoint_raw": get("model"),
        "weights_format": get("weights"),
        "workload": "open_loop"
        if get("request_rate")
        else "single"
        if alone
        else "static_batch"
        if get("batch_size")
        else "closed_loop"
        if get("concurrency")
        else None,
        "concurrency": get("concurrency"),
        "batch": get("batch_size") if not alone else None,
        "request_rate": get("request_rate"),
        "input_tokens": get("prompt_tokens"),
        "output_tokens": get("output_tokens"),
        "lengths": "mean" if get("tool") in COUNTED else None,
        "prompt_tokens_per_s": get("prompt_tokens_per_s"),
        "power_w": get("power_w"),
        "requests": get("requests"),
        "failed": get("failed"),
        "duration_s": get("duration_s"),
        "runs": get("runs"),
    }
    rates = (
        ("output_tokens_per_s_per_device", "output", "per_accelerator"),
        ("output_tokens_per_s", "output", "all"),
        ("total_tokens_per_s", "input+output", "all"),
        ("request_tokens_per_s_mean", "output", "per_request"),
        ("request_tokens_per_s", "output", "per_request"),
    )
    for name, counts, scope in rates:
        if get(name) is not None:
            columns |= {"throughput_raw": get(name), "throughput_counts": counts, "throughput_scope": scope}
            break
    for time in schema.TIMES:
        for statistic in schema.STATISTICS:
            columns[f"{time}_{statistic}_ms"] = _ms(get(f"{time}_{statistic}_s"))
        # A time whose statistic nobody states is what most call the mean.
        if get(f"{time}_mean_s") is None and get(f"{time}_p50_s") is None:
            columns[f"{time}_mean_ms"] = _ms(get(f"{time}_s"))
    for end in ("min", "max"):
        columns[f"ttft_{end}_ms"] = _ms(get(f"ttft_{end}_s"))
    return {name: value for name, value in columns.items() if value is not None}


def _ms(seconds: float | None) -> float | None:
    """Milliseconds, without the digits that changing a unit back and forth has left."""
    return None if seconds is None else float(f"{seconds * 1000:.12g}")
