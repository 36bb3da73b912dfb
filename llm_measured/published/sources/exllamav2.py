"""ExLlamaV2's table of tokens/s of one sequence on an RTX 3090 Ti and an RTX 4090."""

from collections.abc import Iterator

from llm_measured.published.reading import LeftOut, Raw, Row, leading
from llm_measured.published.sources import about
from llm_measured.published.sources._tables import single

ABOUT = about("exllamav2")
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
