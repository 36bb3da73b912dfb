"""A table of engines on one machine with an RTX 4090 and an RTX 3090, one sequence of a Mistral-7B
(shisa-7b)."""

from collections.abc import Iterator

from llm_measured.published.reading import LeftOut, Raw, Row, scaled
from llm_measured.published.schema import UNKNOWN_VARIANT
from llm_measured.published.sources import FACTS, Source
from llm_measured.published.sources._tables import single

ABOUT = Source(
    repository="https://github.com/AUGMXNT/inference-benchmark",
    commit="bd03d1df87a6b31a90dbc2f0ad6302d7e235cb9f",
    licence=FACTS,
    kind="community",
    measured_by="AUGMXNT",
    citation="AUGMXNT, inference-benchmark, 2023",
    published_on="2023-12-12",
    files=("*README*.md",),
)


def rows(raw: Raw) -> Iterator[Row | LeftOut]:
    for file in raw.files(*ABOUT.files):
        kept: list = []
        for at, r, _ in raw.tables(file):
            if "Avg Tok/s" not in r:
                continue
            if r["Software"]:
                kept.append((at, r))
            elif kept:  # a line that goes on with the cells above it
                for name in ("Settings", "Notes"):
                    kept[-1][1][name] = " ".join(p for p in (kept[-1][1][name], r[name]) if p)
        for at, r in kept:
            if not r["Avg Tok/s"]:
                yield at.left_out("no number: it did not run")
                continue
            notes = r["Notes"] or ""
            one = "4090 only" in notes
            settings = r["Settings"] or ""
            yield at.row(
                **single(r["Avg Tok/s"]),
                accelerator_raw="RTX 4090" if one else "RTX 4090 + RTX 3090",
                accelerator=None if one else UNKNOWN_VARIANT,
                accelerators=1 if one else None,
                engine=r["Software"],
                flags=f"settings={settings}" if settings else None,
                checkpoint_raw="shisa-7b-v1 (Mistral 7B)",
                weights_format=settings.split(" torch")[0] or None,
                peak_memory_bytes=scaled(r["Max Mem"], 2**20),
                caveat=None if one else "which of the two cards, or both, is not stated for every row",
            )
