"""llama-bench on one RTX 5090: a model of 35B parameters, 3B of them active, in two formats. The engine of
the report and LM Studio's table, which names no model, are not read."""

import re
from collections.abc import Iterator

from llm_measured.published.reading import LeftOut, Raw, Row
from llm_measured.published.sources import FACTS, Source
from llm_measured.published.sources._llama_bench import line

ABOUT = Source(
    repository="https://github.com/deepindeepsea/rtx5090-q36-bench",
    commit="06bda274d19ca14923f9ae48fbb779cd28a4b0d4",
    licence=FACTS,
    kind="community",
    measured_by="deepindeepsea",
    citation="deepindeepsea, rtx5090-q36-bench, 2026",
    published_on="2026-07-18",
    retrieved="2026-11-26",
    files=("results__llamabench_*.log",),
)


def rows(raw: Raw) -> Iterator[Row | LeftOut]:
    for file in raw.files(*ABOUT.files):
        build = re.search(r"build: (\w+)", raw.text(file))
        for at, r, _ in raw.tables(file):
            columns = line(r)
            if columns is None:
                yield at.left_out("a test that the importer does not know")
                continue
            yield at.row(
                **columns | {"prefill_chunk": r["n_ubatch"]},
                accelerator_raw="NVIDIA GeForce RTX 5090",
                engine_version=build[1] if build else None,
            )
