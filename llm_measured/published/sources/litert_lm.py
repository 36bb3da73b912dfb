"""LiteRT-LM's table, one sequence: 1024 prompt and 256 generated tokens on a phone and a MacBook."""

import re
from collections.abc import Iterator

from llm_measured.published.reading import LeftOut, Raw, Row, leading, scaled
from llm_measured.published.sources import about
from llm_measured.published.sources._tables import single

ABOUT = about("litert-lm")


def rows(raw: Raw) -> Iterator[Row | LeftOut]:
    for file in raw.files(*ABOUT.files):
        sizes: dict = {}
        for at, r, _ in raw.tables(file):
            if r["Model Size (Mb)"]:
                sizes[r["Model"]] = (r["Model Size (Mb)"], r["Quantization"])
            if not r["Decode (tokens/sec)"]:
                continue
            size, precision = sizes.get(r["Model"], (None, None))
            yield at.row(
                **single(leading(r["Decode (tokens/sec)"])),
                accelerator_raw=re.sub(r"<[^>]*>", " ", r["Device"] or ""),
                accelerators=1,
                engine="LiteRT-LM",
                backend=r["Backend"],
                checkpoint_raw=r["Model"],
                weights_format=precision,
                weights_bytes=scaled(size, "1e6"),
                input_tokens=1024,
                output_tokens=256,
                lengths="exact",
                prompt_tokens_per_s=leading(r["Prefill (tokens/sec)"]),
            )
