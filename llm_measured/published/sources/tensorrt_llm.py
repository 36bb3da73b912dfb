"""NVIDIA's table of TensorRT-LLM, one page for each edition: output tokens/s, and time to the first
token.

Rule of this source alone: what the number is of stands in the table's heading, "(out tok/s)" of all GPUs
or "(out tok/s/GPU)", and changed from one edition to the next; v1.0 counts all GPUs again. On 2023-12-08
the H100 table says per GPU while L40S and A100 still say all, over the very lines that the edition of
2024-02-18 heads per GPU: a heading that a later edition corrects counts as corrected. A line that an earlier
edition has is left out. The table of v1.0 was typed over: all 328 numbers were held against the page at
commit 00f37686aa85, and all are the same."""

import re
from collections.abc import Iterator

from llm_measured.published.reading import LeftOut, Place, Raw, Record, Row, leading
from llm_measured.published.sources import about

ABOUT = about("tensorrt-llm")


def rows(raw: Raw) -> Iterator[Row | LeftOut]:
    lines = list(_lines(raw))
    of_each = {key for _, _, key, _, said in lines if said}
    seen: set[tuple] = set()
    for at, r, key, rate, said in lines:
        if key in seen:
            yield at.left_out("an earlier edition has the same line")
            continue
        seen.add(key)
        edition = re.match(r"\d{4}-\d\d(-\d\d)?", at.file)
        scope = "per_accelerator" if key in of_each else "all"
        yield at.row(
            published_on=edition[0] if edition else None,
            accelerator_raw=key[0],
            accelerators=leading(r["TP (1)"]),
            engine="TensorRT-LLM",
            engine_version="0.5" if "v0.5" in at.file else None,
            checkpoint_raw=r["Model"],
            weights_format=key[1],
            tp=leading(r["TP (1)"]),
            workload="static_batch",
            batch=r["Batch Size"],
            concurrency=r["Batch Size"],
            input_tokens=r["Input Length"],
            output_tokens=r["Output Length"] if rate else 1,
            lengths="exact",
            throughput_raw=key[-1] if rate else None,
            throughput_counts="output" if rate else None,
            throughput_scope=scope if rate else None,
            printed={"throughput_scope": "all"} if scope != "all" and not said else None,
            ttft_mean_ms=None if rate else key[-1],
        )
    for file in raw.files("v1.0*.csv"):
        for at, r in raw.csv(file):
            sizes = dict(re.findall(r"(TP|PP|EP|DP)(\d+)", r["parallel"] or ""))
            yield at.row(
                published_on="2025",
                accelerator_raw=r["gpu"],
                accelerators=r["gpus"],
                engine="TensorRT-LLM",
                engine_version="1.0",
                checkpoint_raw=r["model"],
                weights_format=r["precision"],
                tp=sizes.get("TP"),
                pp=sizes.get("PP"),
                ep=sizes.get("EP"),
                dp=sizes.get("DP"),
                workload="offline",
                input_tokens=r["input_tokens"],
                output_tokens=r["output_tokens"],
                lengths="exact",
                throughput_raw=r["total_output_tokens_per_s"],
                throughput_counts="output",
                throughput_scope="all",
            )


def _lines(raw: Raw) -> Iterator[tuple[Place, Record, tuple, bool, bool]]:
    """Yield (place, record, what makes a line the same, whether it is a rate, whether its heading says per
    GPU)."""
    for file in raw.files("*_perf-overview_tables.md"):
        for at, r, headings in raw.tables(file):
            card = re.match(r"(\w+) GPUs \((\w+)\)", headings[-1] if headings else "")
            rate = next((name for name in r if str(name).startswith("Throughput")), "")
            first = "1st Token Latency (ms)"
            if card and r["Model"] and (rate or first in r):
                key = (*card.groups(), r["Model"], r["Batch Size"], r["TP (1)"], r["Input Length"])
                key += (r["Output Length"], leading(r[rate or first]))
                yield at, r, key, bool(rate), "/GPU" in rate
