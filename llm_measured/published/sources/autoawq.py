"""AutoAWQ's table: decode tokens/s of all sequences of the batch, on an RTX 4090, two of them, and a Xeon."""

from collections.abc import Iterator

from llm_measured.published.reading import LeftOut, Raw, Row, leading, number, scaled
from llm_measured.published.sources import about

ABOUT = about("autoawq")
CARDS = {
    "Benchmarks": ("RTX 4090", 1),
    "Multi-GPU": ("RTX 4090", 2),
    "CPU": ("Intel Xeon, 48 cores SPR", None),
}


def rows(raw: Raw) -> Iterator[Row | LeftOut]:
    for file in raw.files(*ABOUT.files):
        for at, r, headings in raw.tables(file):
            if "Decode tokens/s" not in r or (r["Model Name"] or r["Model"]) in (None, "", "..."):
                continue
            card = next((CARDS[h] for h in reversed(headings) if h in CARDS), None)
            if not card:
                yield at.left_out("a table whose heading names no device")
                continue
            name = " ".join(part for part in (r["Model Name"] or r["Model"], r["Size"]) if part)
            batch = number(r["Batch Size"])
            yield at.row(
                accelerator_raw=card[0],
                accelerator="cpu" if card[1] is None else None,
                accelerators=card[1],
                engine="AutoAWQ",
                backend=f"{(r['Version'] or '').strip('🟢🔵🔴 ')} kernels",
                checkpoint_raw=name,
                weights_format="AWQ int4",
                workload="static_batch" if batch and batch > 1 else "single",
                batch=batch,
                concurrency=batch,
                input_tokens=r["Prefill Length"],
                output_tokens=r["Decode Length"],
                lengths="exact",
                throughput_raw=r["Decode tokens/s"],
                throughput_counts="output",
                throughput_scope="all",
                prompt_tokens_per_s=r["Prefill tokens/s"],
                peak_memory_bytes=scaled(leading(r["Memory (VRAM)"] or r["Memory"]), "1e9"),
            )
