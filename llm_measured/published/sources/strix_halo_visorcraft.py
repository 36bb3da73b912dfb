"""llama-bench on a Ryzen AI Max+ 395 at 85 and 120 W: the tables of BENCHMARKS.md whose cells have a
deviation. The others repeat these, are of other people, or are timings of single requests."""

import re
from collections.abc import Iterator

from llm_measured.published.reading import LeftOut, Raw, Row, after_sign, leading, scaled
from llm_measured.published.sources import about
from llm_measured.published.sources._llama_bench import rate, unit

ABOUT = about("strix-halo-visorcraft")


def rows(raw: Raw) -> Iterator[Row | LeftOut]:
    for file in raw.files(*ABOUT.files):
        for at, record, headings in raw.tables(file):
            above = " ".join(headings)
            watts = re.findall(r"\b(85|120) ?W\b", above)
            backend = str(record.get("Backend") or "Vulkan RADV").strip("* ")
            for name, cell in record.items():
                test = re.match(r"(pp512|tg128)", str(name))
                if test is None or "Model" not in record or "±" not in str(cell):
                    continue
                model = str(record["Model"]).strip("* ")
                active = re.search(r"\bA(\d+(?:\.\d+)?)B\b", model)
                yield at.cell(test[1]).row(
                    **rate(test[1], leading(cell), after_sign(cell)) or {},
                    accelerator_raw="AMD Ryzen AI Max+ 395 (Radeon 8060S)",
                    accelerator_memory_gb=128,
                    accelerators=1,
                    power_limit_w=watts[-1] if watts else None,
                    engine="llama.cpp",
                    engine_version="b8038",
                    backend=backend,
                    checkpoint_raw=re.sub(r" \(?I?Q\d\w*\)?$", "", model),
                    weights_format=model.split()[-1].strip("()"),
                    weights_bytes=unit(record.get("Size")),
                    active_b=active[1] if active else None,
                    parameters_b=scaled(unit(re.sub(r"(?<=\d)B", " B", str(record.get("Params")))), "1e-9"),
                )
