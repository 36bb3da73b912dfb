"""Quality suites on one EPYC 9655 under llama.cpp, 74 models, and llama-bench's tables of it.

The answers of one suite are trials of one setting: a row is the median over those of 64 tokens or more, as
shorter ones hold echoed prompts. Their rates hold the prompt's time. An answer that stands in several files
counts in the first. Prompts and answers were cut out of the raw files."""

import re
from collections.abc import Iterator
from statistics import median
from typing import Any

from llm_measured.published.reading import LeftOut, Place, Raw, Record, Row, day, joined, number
from llm_measured.published.sources import about
from llm_measured.published.sources._llama_bench import line
from llm_measured.published.sources._tables import single

ABOUT = about("epyc9655-pestopoppa")
CPU = "AMD EPYC 9655"
FORMAT = re.compile(r"I?Q\d(?:_[A-Z0-9]+)+|fp16|f16", re.I)


def rows(raw: Raw) -> Iterator[Row | LeftOut]:
    runs: dict[tuple, list[tuple[Place, Record]]] = {}
    seen = set()
    for at, r in raw.jsonl("baseline_speed_slim.jsonl"):
        answer = tuple(r[name] for name in ("model", "timestamp", "suite", "q", "total_time_ms"))
        if answer in seen:
            yield at.left_out("an earlier file has the same answer")
        elif (number(r["completion_tokens"]) or 0) < 64 or not number(r["tokens_per_second"]):
            yield at.left_out("an answer of less than 64 tokens, which may be an echo")
        else:
            runs.setdefault((r["file"], r["model"]), []).append((at, r))
        seen.add(answer)
    for answers in runs.values():
        at, first = answers[0]
        if len(answers) < 5:
            yield at.left_out("less than five answers")
            continue
        yield Place(raw, at.file, at.line, [at.line, first]).row(**_columns(first, answers))
    for file in raw.files("benchmarks__evidence__*.txt"):
        paged = re.search(r"paged(\d*)", file)
        for at, r, _ in raw.tables(file):
            columns = line(r)
            if columns is None:
                yield at.left_out("a test that the importer does not know")
                continue
            settings = joined(threads=r["threads"], paged=(paged[1] or "yes") if paged else None)
            build = re.search(r"build: (\w+)", raw.text(file))
            yield at.row(
                **columns | {"flags": settings},
                measured_on=day(file.split("__")[2]),
                accelerator_raw=CPU,
                engine_version=build[1] if build else None,
            )


def _columns(first: Record, answers: list[tuple[Place, Record]]) -> dict[str, Any]:
    """One row of all `answers` of a suite."""

    def middle(name: str) -> float | None:
        numbers = [number(r[name]) for _, r in answers]
        known = [n for n in numbers if n is not None]
        return median(known) if known else None

    named = FORMAT.search(str(first["model"]))
    return single(
        middle("tokens_per_second"),
        measured_on=day(first["timestamp"]),
        accelerator_raw=CPU,
        accelerators=1,
        engine="llama.cpp",
        backend="CPU",
        checkpoint_raw=re.sub(r"(-\d{5}-of-\d{5})?\.gguf$", "", str(first["model"])),
        weights_format=named[0].upper() if named else None,
        speculative="none" if first["config"] == "baseline" else None,
        input_tokens=middle("prompt_tokens"),
        output_tokens=middle("completion_tokens"),
        lengths="dataset",
        statistic="median",
        requests=len(answers),
    )
