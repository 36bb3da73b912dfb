"""llama-bench on Macs: one file for each model, speeds of prompts and answers of several lengths."""

import re
from collections.abc import Iterator

from llm_measured.published.reading import LeftOut, Place, Raw, Row, joined, number, scaled
from llm_measured.published.sources import about

ABOUT = about("mac-llm-bench")


def rows(raw: Raw) -> Iterator[Row | LeftOut]:
    for file in raw.files(*ABOUT.files):
        whole = raw.json(file)
        chip = whole.at("hardware", "chip")
        cores = whole.at("hardware", "gpu_cores")
        size = whole.at("model", "file_size_gb")
        for test, speed in (whole["speed"] or {}).items():
            at = Place(raw, file, f"/speed/{test}", [whole, test])
            found = re.fullmatch(r"(pp|tg)(\d+)", test)
            if not found:
                yield at.left_out(f"a test that the importer does not know ({test})")
                continue
            generated = found[1] == "tg"
            yield at.row(
                measured_on=str(whole["timestamp"] or "")[:10] or None,
                accelerator_raw=f"{chip} {cores}-core GPU" if cores else chip,
                accelerator_memory_gb=whole.at("hardware", "total_ram_gb"),
                accelerators=1,
                engine="mlx-lm" if "/mlx/" in file else whole.at("runtime", "name"),
                engine_version=None
                if whole.at("runtime", "version") == "unknown"
                else whole.at("runtime", "version"),
                backend="Metal",
                flags=joined(**{k: v for k, v in (whole["parameters"] or {}).items()}),
                checkpoint_raw=whole.at("model", "name"),
                weights_format=whole.at("model", "quant"),
                # "GB" are GiB: Llama 3.2 1B in Q4_K_M has 0.81 GB, and the file says 0.75.
                weights_bytes=scaled(size, 2**30) if number(size) else None,
                printed={"weights_bytes": scaled(size, "1e9")} if number(size) else None,
                workload="single",
                concurrency=1,
                lengths="exact",
                input_tokens=None if generated else found[2],
                output_tokens=found[2] if generated else None,
                throughput_raw=speed if generated else None,
                throughput_counts="output" if generated else None,
                throughput_scope="all" if generated else None,
                prompt_tokens_per_s=None if generated else speed,
                peak_memory_bytes=scaled(whole.at("memory", "peak_rss_gb"), "1e9"),
            )
