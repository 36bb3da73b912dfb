"""llama-bench on one and two RX 7900 XTX: Llama 2 7B in Q4_0, the Vulkan scoreboard's test, six logs of one
day. The README's two tables repeat no log and name no date, and are not read."""

from collections.abc import Iterator

from llm_measured.published.reading import LeftOut, Raw, Row
from llm_measured.published.sources import Source
from llm_measured.published.sources._llama_bench import line

ABOUT = Source(
    repository="https://github.com/1337hero/rx7900xtx-llama-bench-vulcan",
    commit="6d88857a227b1f89b16a142c07d10200c2823d98",
    licence="MIT",
    kind="community",
    measured_by="1337hero",
    citation="1337hero, rx7900xtx-llama-bench-vulcan, 2025",
    published_on="2025-12-11",
    retrieved="2026-11-26",
    files=("benchmark-results__*.txt",),
)


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
