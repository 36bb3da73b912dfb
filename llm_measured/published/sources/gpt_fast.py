"""gpt-fast's tables: tokens/s of one sequence on A100-80GB at 330 W, 1 to 8 of them, and on one die of an
MI250X. Lines of Llama-2 and Mixtral are of the repository's first month, December 2023, those of Llama-3.1 of
its last change."""

import re
from collections.abc import Iterator

from llm_measured.published.reading import LeftOut, Place, Raw, Row, leading
from llm_measured.published.sources import about
from llm_measured.published.sources._tables import single

ABOUT = about("gpt-fast")


def rows(raw: Raw) -> Iterator[Row | LeftOut]:
    for file in raw.files(*ABOUT.files):
        model = None
        for at, r, headings in raw.tables(file):
            cards = [k for k in r if re.fullmatch(r"\d+ GPU", str(k))]
            if cards:
                for name in cards:
                    yield _row(at.cell(name), "Mixtral 8x7B", r[name], r[""] or "", int(name[0]), "")
                continue
            if "Tokens/Second" not in r:
                continue
            model = r["Model"] or model
            split = "Tensor Parallelism" in headings[-1] or any("Tensor Parallelism" in h for h in headings)
            count = leading(r["Number of GPUs"]) if "Number of GPUs" in r else 8 if split else 1
            amd = any(h == "AMD" or "MI-250x" in h for h in headings)
            yield _row(
                at, model, r["Tokens/Second"], r["Technique"] or "Base", count, "MI250X die" if amd else ""
            )


def _row(at: Place, model: str | None, cell: str, technique: str, count: float, card: str) -> Row | LeftOut:
    if cell.strip().upper() == "OOM":
        return at.left_out("out of memory")
    technique = technique.strip()
    precision = "bfloat16" if re.search(r"base", technique, re.I) else technique
    return at.row(
        **single(leading(cell)),
        measured_on=None if "Llama-3" in (model or "") else "2023-12",
        accelerator_raw=card or "A100-80GB",
        accelerators=count,
        tp=count,
        power_limit_w=None if card else 330,
        engine="gpt-fast",
        checkpoint_raw=model,
        weights_format=precision,
    )
