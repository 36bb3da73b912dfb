"""vLLM under Ray Serve: results of vllm bench serve, of several clients together (`all-parts`) or of one.

Rules of this source alone: a `part` file is inside `all-parts` and not read; `all-parts` keeps the
`max_concurrency` of one client, so it is multiplied with the number of parts; the accelerators stand in the
folder's name (replicas x tensor parallel, H100 unless it says H200: the repository's page)."""

import re
from collections.abc import Iterator

from llm_measured.published.reading import LeftOut, Place, Raw, Row, joined, number
from llm_measured.published.sources import about
from llm_measured.published.sources._vllm_bench import itl_of_tokens, result

ABOUT = about("anyscale-ray-serve")


def rows(raw: Raw) -> Iterator[Row | LeftOut]:
    for file in raw.files(*ABOUT.files):
        r = raw.json(file)
        at = Place(raw, file, "/", r)
        folder = file.split("bm_results/")[1].rsplit("/", 1)[0]
        if re.search(r"/part\d+$", "/" + folder):
            yield at.left_out("inside all-parts")
            continue
        columns = result(r)
        printed = {}
        if folder.endswith("all-parts"):
            sisters = file.rsplit("all-parts/", 1)
            parts = len(raw.files(f"{sisters[0]}part*/{sisters[1]}"))
            each = number(columns["concurrency"])
            printed["concurrency"] = each
            columns["concurrency"] = each * parts if each and parts else None
        columns, gaps = itl_of_tokens(columns)
        yield at.row(
            printed=printed | gaps,
            **columns,
            accelerator_raw="H200" if "H200" in folder else "H100",
            accelerators=_cards(folder),
            engine="vLLM",
            backend="Ray Serve",
            flags=joined(configuration=folder),
        )


def _cards(folder: str) -> int | None:
    pairs = re.findall(r"(?<![a-z])(?:[pd])?(\d+)xtp(\d+)", folder)
    return sum(int(count) * int(size) for count, size in pairs) or None
