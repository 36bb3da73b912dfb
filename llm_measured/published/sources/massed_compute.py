"""vllm bench serve on rented accelerators; image models and runs of transformers are left out."""

import re
from collections.abc import Iterator

from llm_measured.published.reading import LeftOut, Place, Raw, Record, Row
from llm_measured.published.sources import FACTS, Source
from llm_measured.published.sources._vllm_bench import itl_of_tokens, result

ABOUT = Source(
    repository="https://github.com/Massed-Compute/gpu-benchmark",
    commit="d676aae24ca786ebaa65821ffbef37a64827b26d",
    licence=FACTS,
    kind="vendor",
    measured_by="Massed Compute",
    citation="Massed Compute, GPU benchmark, 2026",
    published_on="2026-07-23",
    files=("results/raw/*.json",),
)


def rows(raw: Raw) -> Iterator[Row | LeftOut]:
    for file in raw.files(*ABOUT.files):
        r = raw.json(file)
        at = Place(raw, file, "/", r)
        if "vllm-c" not in file or not isinstance(r, Record) or "output_throughput" not in r:
            yield at.left_out("no result of a server (images, or one request of transformers)")
            continue
        machine = re.search(r"/gpu_(\d+)x_([\w-]+)/", file)
        columns, gaps = itl_of_tokens(result(r))
        yield at.row(
            printed=gaps,
            **columns,
            accelerator_raw=machine[2].replace("_", " ") if machine else None,
            accelerators=machine[1] if machine else None,
            engine="vLLM",
        )
