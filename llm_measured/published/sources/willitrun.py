"""llama.cpp's scoreboards (discussions 15013, 15021, 10879, 4167) as willitrun copied them: best of what
was sent.

The chip is the one in `notes`, as the contributor wrote it: `device` is willitrun's own mapping, and
stands in as_printed. The format is that of `llm_setup` and `notes`, not of `benchmark_id`, which may call
all of Apple's rows 4 bit. Rows of other data sets that willitrun copies (localscore, …) are not read
twice."""

import re
from collections.abc import Iterator

from llm_measured.published.reading import LeftOut, Raw, Row, joined
from llm_measured.published.sources import about

ABOUT = about("willitrun")
FORMATS = {"F16": "F16", "Q8_0": "Q8_0", "Q4_0": "Q4_0"}


def rows(raw: Raw) -> Iterator[Row | LeftOut]:
    for file in raw.files(*ABOUT.files):
        for at, r in raw.jsonl(file):
            if r["task"] not in (None, "llm") or r["metric"] != "tok/s":
                yield at.left_out("no speed of text generation")
                continue
            notes = dict(
                part.strip().split("=", 1) for part in str(r["notes"] or "").split(";") if "=" in part
            )
            chip = notes.get("chip")
            setup = r["llm_setup"] or {}
            format_ = next((f for f in FORMATS if re.search(rf"\b{f}\b", str(r["notes"] or ""))), None)
            many = re.search(r"Concurrency=(\d+)", str(r["notes"] or ""))
            together = int(many[1]) if many else 1
            answer, prompt = setup.get("generation_tokens"), setup.get("prompt_tokens")
            generated = bool(answer) or "__tg" in str(r["benchmark_id"])
            called = str(r["benchmark_id"]).split("__")
            spread = re.match(r"±?([\d.]+)", notes.get("stddev", ""))
            yield at.row(
                printed={"weights_format": called[2] if len(called) > 2 else None}
                | ({"accelerator_raw": r["device"]} if chip else {}),
                original_id=r["benchmark_id"],
                kind="vendor" if (r["source"] or {}).get("type") == "official_docs" else "community",
                accelerator_raw=chip or r["device"],
                accelerators=1,
                engine=r["framework"],
                engine_version=joined(commit=notes.get("commit")),
                backend=notes.get("backend"),
                flags=joined(flash_attention=_flash(r["notes"])),
                checkpoint_raw=r["model"],
                weights_format=format_ or setup.get("quantization_format") or r["precision"],
                workload="single" if together == 1 else "closed_loop",
                concurrency=together,
                input_tokens=prompt if not generated else None,
                output_tokens=answer if generated else None,
                lengths="exact" if answer or prompt else None,
                throughput_raw=r["value"] if generated else None,
                throughput_counts="output" if generated else None,
                throughput_scope="all" if generated else None,
                prompt_tokens_per_s=None if generated else r["value"],
                statistic="best" if chip else None,
                spread=spread[1] if spread else None,
                spread_kind="sd" if spread else None,
            )


def _flash(notes: str | None) -> str | None:
    found = re.search(r"(without|with) Flash Attention", notes or "")
    return {"with": "on", "without": "off"}[found[1]] if found else None
