"""FastFlowLM's tables on a Ryzen AI machine: decode tokens/s of one sequence by context length, on its
NPU, iGPU and CPU, and the power of each while decoding. Which Ryzen AI it is, the tables do not say."""

import re
from collections.abc import Iterator

from llm_measured.published.reading import LeftOut, Raw, Row, leading
from llm_measured.published.sources import FACTS, Source
from llm_measured.published.sources._tables import single

ABOUT = Source(
    repository="https://github.com/FastFlowLM/FastFlowLM",
    commit="2cc36e2814beaa4d20b55274c303a95fbaa523f1",
    licence=FACTS,
    kind="vendor",
    measured_by="FastFlowLM",
    citation="FastFlowLM, LLaMA 3 benchmark results, 2025",
    published_on="2025-06",
    files=("llama3_results*.md",),
)
VERSION = "0.1.3"  # of June 2025, when they were measured
METHODS = {  # accelerator, engine, backend
    "NPU (FastFlowLM)": ("Ryzen AI NPU (XDNA2)", "FastFlowLM", "NPU"),
    "NPU (Ryzen™ AI SW)": ("Ryzen AI NPU (XDNA2)", "Ryzen AI SW", "NPU"),
    "iGPU": ("Ryzen AI iGPU", "LM Studio", "iGPU"),
    "CPU": ("Ryzen AI CPU", "LM Studio", "CPU"),
}


def rows(raw: Raw) -> Iterator[Row | LeftOut]:
    for file in raw.files(*ABOUT.files):
        model, speeds, watts = None, [], {}
        for at, r, headings in raw.tables(file):
            model = (r["**Model**"] or "").strip("* ") or model
            how = METHODS.get(r["**Hardware**"] or r["**Method**"])  # a heading that is missing reads as None
            title = " ".join(headings)
            if how and "Decoding Speed" in title:
                speeds.append((at, r, model, how))
            elif how and "During Decoding" in title:
                watts[model, how] = leading(r["**Total Power (W)**"])
            elif how:
                yield at.left_out("prefill, or power of prefill")
        for at, r, name, how in speeds:
            accelerator, engine, backend = how
            for column, cell in r.items():
                length = re.fullmatch(r"\*\*(\d+)k\*\*", str(column))
                if not length:
                    continue
                if leading(cell) is None:
                    yield at.cell(column).left_out("no number in the cell")
                    continue
                yield at.cell(column).row(
                    **single(leading(cell)),
                    accelerator_raw=accelerator,
                    accelerator="cpu" if backend == "CPU" else None,  # the others are placed by name
                    accelerators=1,
                    engine=engine,
                    engine_version=VERSION if engine == "FastFlowLM" else None,
                    backend=backend,
                    checkpoint_raw=name,
                    context_depth=int(length[1]) * 1024,
                    power_w=watts.get((name, how)),  # the source has one figure for all context lengths
                    power_scope="package" if (name, how) in watts else None,
                )
