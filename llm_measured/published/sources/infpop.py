"""Tables of an appendix, code models on A100 and V100 by batch size: means over 5, 10 and 20 new tokens, so
prefill and overhead dominate. Only the tables of RQ2 are per accelerator; allData.csv does not say which."""

import re
from collections.abc import Iterator

from llm_measured.published.reading import LeftOut, Raw, Row, number
from llm_measured.published.sources import about

ABOUT = about("infpop")
ENGINES = {"autohf": "HF pipelines", "vllm": "vLLM"}


def rows(raw: Raw) -> Iterator[Row | LeftOut]:
    for file in raw.files(*ABOUT.files):
        found = re.search(r"_(a100|tesla|v100)_(autohf|vllm)_gpu_(\d+)", file, re.I)
        for at, r, _ in raw.tables(file):
            for batch, cell in r.items():
                place = at.cell(str(batch))
                if not re.fullmatch(r"\d+", str(batch)):
                    continue
                if not found:
                    yield place.left_out("not a table of one accelerator and engine")
                elif cell == "nan":
                    yield place.left_out("no measurement in the cell")
                elif number(cell) == 0:
                    yield place.left_out("printed as 0: below its rounding")
                else:
                    yield place.row(
                        accelerator_raw="A100" if found[1].lower() == "a100" else "Tesla V100",
                        accelerators=found[3],
                        engine=ENGINES[found[2].lower()],
                        checkpoint_raw=r["model"],
                        workload="static_batch",
                        batch=batch,
                        concurrency=batch,
                        lengths="mixed",
                        throughput_raw=cell,
                        throughput_counts="output",
                        throughput_scope="all",
                        statistic="mean",
                        caveat="mean of answers of 5, 10 and 20 tokens, unit not stated: prefill dominates",
                    )
