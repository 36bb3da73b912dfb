"""MLC's tables of decode tokens/s of one sequence after a prompt of 7 tokens, one column for each engine."""

import re
from collections.abc import Iterator

from llm_measured.published.reading import LeftOut, Raw, Row, leading
from llm_measured.published.sources import about
from llm_measured.published.sources._tables import single

ABOUT = about("mlc-llm-perf-bench")
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
