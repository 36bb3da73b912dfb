"""llama-bench on one and two RX 7900 XTX: Llama 2 7B in Q4_0, the Vulkan scoreboard's test, six logs of one
day. The README's two tables repeat no log and name no date, and are not read."""

from collections.abc import Iterator

from llm_measured.published.reading import LeftOut, Raw, Row
from llm_measured.published.sources import about
from llm_measured.published.sources._llama_bench import line

ABOUT = about("rx7900xtx-1337hero")


def rows(raw: Raw) -> Iterator[Row | LeftOut]:
    for file in raw.files(*ABOUT.files):
        commit = raw.text(file).partition("Commit: ")[2].split("\n")[0]
        for at, r, headings in raw.tables(file):
            columns = line(r, 2 if any("DUAL" in heading for heading in headings) else 1)
            if columns is None:
                yield at.left_out("a test that the importer does not know")
                continue
            # The file's own heading; the page says Llama 2.
            columns["checkpoint_raw"] = "Llama-2-7B Q4_0"
            yield at.row(
                **columns,
                printed={"checkpoint_raw": r["model"]},
                measured_on="2025-12-11",
                accelerator_raw="AMD Radeon RX 7900 XTX",
                engine_version=commit or None,
            )
