"""Prem's tables of 14 engines on one A100-80GB: tokens/s of one sequence, mean ± sd of ten runs."""

import re
from collections.abc import Iterator

from llm_measured.published.reading import LeftOut, Raw, Row, after_sign, leading
from llm_measured.published.sources import about
from llm_measured.published.sources._tables import single

ABOUT = about("premai")
FORMATS = ("float32", "float16", "int8", "int4")


def rows(raw: Raw) -> Iterator[Row | LeftOut]:
    for file in raw.files(*ABOUT.files):
        for at, r, headings in raw.tables(file):
            if "Engine" not in r or not headings:
                continue
            if "memory" in headings[-1].lower():
                yield at.left_out("memory, not speed")
                continue
            model = next((h for h in reversed(headings) if re.search(r"\d+B", h)), None)
            for precision in FORMATS:
                if (r[precision] or "-") != "-" and model:
                    yield at.cell(precision).row(
                        **single(leading(r[precision])),
                        accelerator_raw="A100-80GB",
                        accelerators=1,
                        engine=re.sub(r"\[([^\]]*)\].*", r"\1", r["Engine"]),
                        checkpoint_raw=model,
                        weights_format=precision,
                        statistic="mean",
                        runs=10,
                        spread=after_sign(r[precision]),
                        spread_kind="sd",
                    )
