"""J. Geerling's tables of ollama's evaluation rate, from Raspberry Pi to Mac Studio. Power is the peak at the
wall and no mean, so it is not read; the older page repeats rows of the newer one, which are left out, as are
clusters and models that are partly in the CPU's memory. No number format is stated (ollama's default)."""

import re
from collections.abc import Iterator

from llm_measured.published.reading import LeftOut, Raw, Row, leading
from llm_measured.published.sources import about
from llm_measured.published.sources._tables import single

ABOUT = about("geerlingguy")


def rows(raw: Raw) -> Iterator[Row | LeftOut]:
    before = set()
    for file in raw.files(*ABOUT.files):
        for at, r, headings in raw.tables(file):
            if "Eval Rate" not in r:
                continue
            system = re.sub(r"<sup>\d</sup>|\[|\]|\(https[^)]*\)", "", r["System"]).strip()
            repeated = (headings[-1], r["CPU/GPU"], leading(r["Eval Rate"]))
            if repeated in before:
                yield at.left_out("the newer page has the same row")
            elif r["CPU/GPU"] not in ("CPU", "GPU"):
                yield at.left_out("partly on the GPU and partly on the CPU")
            elif "Cluster" in system:
                yield at.left_out("a cluster of machines, whose split no column states")
            else:
                before.add(repeated)
                card = re.search(r"\(((?:Nvidia|AMD|Intel Arc)[^)]*)\)", system) or re.search(
                    r"\(((?:M\d|Nvidia)[^)]*)\)", system
                )
                yield at.row(
                    **single(leading(r["Eval Rate"])),
                    accelerator_raw=card[1] if card and r["CPU/GPU"] == "GPU" else system,
                    accelerators=1,
                    host_cpu=system,
                    engine="ollama",
                    backend="CPU" if r["CPU/GPU"] == "CPU" else None,
                    checkpoint_raw=headings[-1],
                )
