"""BLOOM-176B on eight and four A100-80GB: "throughput in msecs" is ms per generated token over the whole
batch."""

import re
from collections.abc import Iterator

from llm_measured.published.reading import LeftOut, Raw, Row, leading, scaled
from llm_measured.published.sources import about

ABOUT = about("bloom-inference")


def rows(raw: Raw) -> Iterator[Row | LeftOut]:
    for file in raw.files(*ABOUT.files):
        for at, r, headings in raw.tables(file):
            cards = re.search(r"Throughput in msecs(?: on)? (\d)x80GB", headings[-1] if headings else "")
            name = next((k for k in r if k and k.startswith("project")), None)
            if not cards or not name:
                continue
            project, _, precision = r[name].rpartition(" ")
            for batch, cell in r.items():
                if not re.fullmatch(r"\d+", str(batch)) or not cell:
                    continue
                if cell.lower() == "oom":
                    yield at.cell(batch).left_out("out of memory")
                    continue
                yield at.cell(batch).row(
                    accelerator_raw="A100 80GB",
                    accelerators=cards[1],
                    engine=project.strip(),
                    checkpoint_raw="BLOOM-176B",
                    weights_format=precision,
                    workload="static_batch",
                    batch=batch,
                    concurrency=batch,
                    input_tokens=None,
                    output_tokens=1,
                    lengths="mixed",
                    latency_raw_s=scaled(leading(cell), int(batch) / 1000),
                    caveat="printed as ms per token over the batch; here the time of one step of the batch",
                )
