"""llama-bench of Llama 3 8B and 70B on rented GPUs and four Macs, 2024: one sequence, eight tests a line. The
overview above these tables repeats two of their columns and is not read."""

import re
from collections.abc import Iterator

from llm_measured.published.reading import LeftOut, Raw, Row, leading
from llm_measured.published.sources import about
from llm_measured.published.sources._llama_bench import rate

ABOUT = about("xiongjiedai")


def rows(raw: Raw) -> Iterator[Row | LeftOut]:
    for file in raw.files(*ABOUT.files):
        card = ""
        for at, r, headings in raw.tables(file):
            if "tg 1024" not in r:
                continue
            card = r["GPU"] or card  # a card's second line leaves its name out
            several = re.search(r"\* (\d+)$", card)
            count = int(several[1]) if several else 1
            size, _, quantised = r["Model"].partition(" ")
            for test in [name for name in r if re.fullmatch(r"(pp|tg) \d+", name)]:
                if r[test] == "OOM":
                    yield at.cell(test).left_out("out of memory")
                    continue
                yield at.cell(test).row(
                    **(rate(test, leading(r[test])) or {}),
                    measured_on="2024-05",
                    accelerator_raw=card,
                    accelerators=count,
                    pp=count if count > 1 else None,
                    engine="llama.cpp",
                    backend="Metal" if any("Apple" in heading for heading in headings) else "CUDA",
                    checkpoint_raw=f"LLaMA 3 {size}",
                    weights_format=quantised,
                )
