"""AIPerf and its forerunner GenAI-Perf: the summary as CSV and as the table that both print, and AIPerf's
records as JSON lines; the summary as JSON, and what each name means, is declared in tools.csv.

Read from files that AIPerf 0.13.0 wrote here against this study's reference server. GenAI-Perf's CSV as
documented in NVIDIA/cloudai `doc/workloads/ai_dynamo.rst` and tested in triton-inference-server/perf_analyzer
`genai-perf/tests/test_exporters`.
"""

import csv
import re
from collections.abc import Iterable

from llm_measured.audit import frame, quantities
from llm_measured.audit.importers import declared, numerals
from llm_measured.audit.importers.content import Content
from llm_measured.core.definitions import Fields

TOOL = "AIPerf / GenAI-Perf"


def matches(content: Content) -> bool:
    if content.records is not None:
        return {"metadata", "metrics"} <= set(content.records[0])
    if content.is_json:
        return False
    first, *others = content.header or [""]
    return first.lower() in ("statistic", "metric") and {"avg", "min", "max"} <= {*others}


def load(content: Content, file: str) -> frame.Audited:
    if content.records is not None:
        return _of_records(content.records, file)
    if content.text.startswith("Metric,avg,"):
        lines = csv.reader(content.text.splitlines())
    else:
        lines = [["Metric", *content.header[1:]], *content.rows()]
    return frame.make(file, TOOL, [declared.read(declared.rows(TOOL)[""], _metrics(lines))])


def _metrics(lines: Iterable[list[str]]) -> Fields:
    """The blocks of a CSV in the form of the JSON: metric -> avg, min, ...; the name in small letters with
    underscores, without its unit."""
    found, header = {}, []
    for row in lines:
        if row and row[0] == "Metric":
            header = ["avg" if name == "Value" else name for name in row]
        elif row and header and "GPU" not in header:
            figures = (numerals.number(text, "") for text in row[1:])
            statistics = {name: figure for name, figure in zip(header[1:], figures) if figure == figure}
            found[quantities.snaked(re.sub(r"\([^()]*\)\s*$", "", row[0]))] = statistics
    return found


def _of_records(records: list[Fields], file: str) -> frame.Audited:
    """Each record as a request: those that failed are counted, and those of a warm-up are left out."""
    (of_record,) = declared.rows("AIPerf's records").values()
    rows, failed = [], 0
    for one in records:
        about = one.get("metadata") or {}
        if one.get("error"):
            failed += 1
        elif about.get("benchmark_phase", "profiling") == "profiling":
            request = declared.read(of_record, one)
            gaps = declared.at(one, "metrics.inter_chunk_latency.value")
            if isinstance(gaps, list) and gaps:
                request |= {"itl_s": sum(gaps) / len(gaps) / 1e3, "gaps": len(gaps)}
            issued, started = about.get("credit_issued_ns"), about.get("request_start_ns")
            if issued and started:
                request["late_s"] = (started - issued) * 1e-9
            rows.append(request)
    return frame.make(file, TOOL, [{"requests": len(rows), "failed": failed}], rows)
