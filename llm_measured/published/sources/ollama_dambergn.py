"""Printouts of `ollama run --verbose` on Raspberry Pis, a Tesla P40, an RTX 4060 Ti and two old Xeons: one
file for each model and machine. The tables of the page repeat them and are not read. The number format is
that of ollama's default tag of early 2025, which no file states."""

import re
from collections.abc import Iterator

from llm_measured.published.reading import LeftOut, Place, Raw, Row, leading
from llm_measured.published.sources import about
from llm_measured.published.sources._tables import single

ABOUT = about("ollama-dambergn")
MACHINES = {
    "4060ti_16gb?": ("NVIDIA GeForce RTX 4060 Ti 16GB", 1),
    "2xp40_48gb": ("Tesla P40", 2),
    "p40_24gb": ("Tesla P40", 1),
    "raspberry_pi_?4": ("Raspberry Pi 4", 1),
    "raspberry_pi_?5": ("Raspberry Pi 5", 1),
    "2xxeon": ("2x Xeon E5-2690 v4", 2),
}


def rows(raw: Raw) -> Iterator[Row | LeftOut]:
    for file in raw.files(*ABOUT.files):
        text = raw.text(file)
        named = re.fullmatch(r"data__(.+)\.md", file)[1]
        machine = next((m for m in MACHINES if re.search(rf"_{m}$", named, re.I)), None)
        metrics = dict(re.findall(r"^([a-z ]+):\s+(.+)$", text, re.M))
        at = Place(raw, file, "/", metrics)
        if machine is None or "eval rate" not in metrics:
            yield at.left_out("no printout of a run")
            continue
        accelerator, count = MACHINES[machine]
        yield at.row(
            **single(leading(metrics["eval rate"])),
            accelerator_raw=accelerator,
            accelerators=count,
            nodes=1,
            pp=2 if machine == "2xp40_48gb" else None,
            engine="ollama",
            checkpoint_raw=re.sub(rf"_{machine}$", "", named, flags=re.I).replace("_", ":"),
            input_tokens=leading(metrics.get("prompt eval count")),
            output_tokens=leading(metrics.get("eval count")),
            lengths="exact",
            prompt_tokens_per_s=leading(metrics.get("prompt eval rate")),
            statistic="single",
            runs=1,
        )
