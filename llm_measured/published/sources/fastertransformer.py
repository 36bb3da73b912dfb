"""FasterTransformer's tables of GPT: milliseconds for a whole batch, prompt and answer, one column for
each way to split the model."""

import re
from collections.abc import Iterator

from llm_measured.published.reading import LeftOut, Raw, Row, leading, number, scaled
from llm_measured.published.sources import about

ABOUT = about("fastertransformer")


def rows(raw: Raw) -> Iterator[Row | LeftOut]:
    for file in raw.files(*ABOUT.files):
        for at, r, headings in raw.tables(file):
            title = next((h for h in reversed(headings) if "Performance of" in h), None)
            batch = r["Batch Size"] or r["Batch_size"]
            if not title or not batch:
                continue
            model = title.split("Performance of ")[1]
            for name, cell in r.items():
                if name is None or "Latency" not in name or not cell:
                    continue
                if cell.strip().upper() == "OOM":
                    yield at.cell(name).left_out("out of memory")
                    continue
                sizes = dict(re.findall(r"(TP|PP)-?\s*(\d+)", name))
                tp, pp = int(sizes.get("TP", 1)), int(sizes.get("PP", 1))
                made = r["Output Length"] or r["Output Seqlen"]
                yield at.cell(name).row(
                    accelerator_raw="A100-80GB",
                    accelerators=tp * pp,
                    engine="Megatron" if "Megatron" in name else "FasterTransformer",
                    checkpoint_raw=model,
                    weights_format=None,
                    tp=tp,
                    pp=pp,
                    workload="static_batch",
                    batch=batch,
                    concurrency=batch,
                    input_tokens=r["Input Length"] or r["Input Seqlen"],
                    output_tokens=made,
                    lengths="exact",
                    latency_raw_s=scaled(leading(cell), "0.001"),
                    peak_memory_bytes=scaled(number(r["Memory Usage (GB)"]), "1e9"),
                )
