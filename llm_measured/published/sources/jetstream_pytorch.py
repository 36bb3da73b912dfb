"""JetStream PyTorch on TPU v5e: output tokens/s of all chips at the largest batch."""

from collections.abc import Iterator

from llm_measured.published.reading import LeftOut, Raw, Row, joined, leading
from llm_measured.published.sources import about

ABOUT = about("jetstream-pytorch")


def rows(raw: Raw) -> Iterator[Row | LeftOut]:
    for file in raw.files(*ABOUT.files):
        for at, r, headings in raw.tables(file):
            rate = next((k for k in r if k and k.startswith("throughput")), None)
            if not rate:
                continue
            device, _, chips = str(r["Device"]).rpartition("-")
            yield at.row(
                measured_on=r["Date"],
                accelerator_raw=device,
                accelerators=chips,
                engine="JetStream PyTorch",
                flags=joined(cache_length=r["cache length"]),
                checkpoint_raw=headings[-1],
                weights_format=r["dtype"],
                workload="offline",
                max_num_seqs=r["batch size"],
                input_tokens=r["max input length"],
                output_tokens=r["max output length"],
                lengths="max",
                throughput_raw=leading(r[rate]),
                throughput_counts="output",
                throughput_scope="all",
            )
