"""ExLlamaV2's table of tokens/s of one sequence on an RTX 3090 Ti and an RTX 4090."""

from collections.abc import Iterator

from llm_measured.published.reading import LeftOut, Raw, Row, leading
from llm_measured.published.sources import Source
from llm_measured.published.sources._tables import single

ABOUT = Source(
    repository="https://github.com/turboderp-org/exllamav2",
    commit="da07facd10b5c7f35b03664c41a3090c9f093de5",
    licence="MIT",
    kind="vendor",
    measured_by="turboderp",
    citation="turboderp, ExLlamaV2, performance, 2023",
    published_on="2023-12",
    files=("*README*.md",),
)
CARDS = {"3090Ti": "RTX 3090 Ti", "4090": "RTX 4090"}


def rows(raw: Raw) -> Iterator[Row | LeftOut]:
    for file in raw.files(*ABOUT.files):
        for at, r, _ in raw.tables(file):
            for name, card in CARDS.items():
                if r[name] and r["Mode"]:
                    mode = r["Mode"] if r["Mode"] != "GPTQ" else f"GPTQ 4 bit, groups of {r['grpsz']}"
                    yield at.cell(name).row(
                        **single(leading(r[name])),
                        accelerator_raw=card,
                        accelerators=1,
                        engine="ExLlamaV2",
                        checkpoint_raw=f"{r['Model']} {r['Size']}",
                        weights_format=mode,
                    )
