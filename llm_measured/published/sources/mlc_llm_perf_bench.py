"""MLC's tables of decode tokens/s of one sequence after a prompt of 7 tokens, one column for each engine."""

import re
from collections.abc import Iterator

from llm_measured.published.reading import LeftOut, Raw, Row, leading
from llm_measured.published.sources import Source
from llm_measured.published.sources._tables import single

ABOUT = Source(
    repository="https://github.com/mlc-ai/llm-perf-bench",
    commit="d401356f84fa9cfb564b353ca39fb31cc47d61ea",
    licence="Apache-2.0",
    kind="vendor",
    measured_by="MLC",
    citation="MLC, llm-perf-bench, 2023",
    published_on="2023-11-14",
    files=("*README*.md",),
)
NAMES = {"mlc-llm": "MLC LLM", "exllama": "ExLlamaV2", "exllama v2": "ExLlamaV2", "llama.cpp": "llama.cpp"}


def rows(raw: Raw) -> Iterator[Row | LeftOut]:
    for file in raw.files(*ABOUT.files):
        model = None
        for at, r, headings in raw.tables(file):
            if "GPU" not in r or "Model" not in r:
                continue
            model = r["Model"] or model
            card, _, count = r["GPU"].partition(" x ")
            precision = "FP16" if "FP16" in headings[-1] else "4-bit"
            for name, cell in r.items():
                if name in ("Model", "GPU", None) or not cell:
                    continue
                if cell == "N/A":
                    yield at.cell(name).left_out("no number in the cell")
                    continue
                engine = re.sub(r" \(.*", "", name)
                yield at.cell(name).row(
                    **single(leading(cell)),
                    accelerator_raw=card,
                    accelerators=count or 1,
                    engine=NAMES.get(engine.lower(), engine),
                    checkpoint_raw=model,
                    weights_format=precision,
                    input_tokens=7,
                    output_tokens=256,
                    lengths="exact",
                )
