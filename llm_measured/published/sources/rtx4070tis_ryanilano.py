"""llama-bench on one RTX 4070 Ti SUPER at 250 W, one sequence at context depths up to 32,768: 512 prompt and
128 new tokens are llama-bench's defaults, which no file here states, so both lengths stay empty. The JSON
files beside these tables (not here) state what all runs have alike: Qwen3.6, its cache in q8_0, all experts
of the mixture on the host."""

import re
from collections.abc import Iterator

from llm_measured.published.reading import LeftOut, Raw, Row, scaled
from llm_measured.published.sources import about
from llm_measured.published.sources._tables import single

ABOUT = about("rtx4070tis-ryanilano")
MODELS = {"27B": "qwen3.6-27b", "35B": "qwen3.6-35b-a3b"}


def rows(raw: Raw) -> Iterator[Row | LeftOut]:
    for file in raw.files("results__*throughput.csv"):
        versions = raw.files(file.replace("throughput.csv", "versions.txt"))
        told = raw.text(versions[0]) if versions else ""
        commit = re.search(r"source git commit:\s+(\w+)", told)
        limit = re.search(r"power \(limit,max\):\s+([\d.]+) W", told)
        for at, r in raw.csv(file):
            if r["status"] != "OK":
                yield at.left_out(f"the run failed ({r['status']})")
                continue
            yield at.row(
                **single(r["tg_tok_s"]),
                measured_on=file.split("__")[1][:10],
                accelerator_raw="NVIDIA GeForce RTX 4070 Ti SUPER",
                accelerators=1,
                power_limit_w=limit[1] if limit else None,
                engine="llama.cpp",
                engine_version=commit[1] if commit else None,
                backend="CUDA",
                host_cpu="AMD Ryzen 7 7800X3D 8-Core Processor",
                checkpoint_raw=r["label"],
                model=MODELS[r["label"].split("_")[0]],
                weights_format=r["quant"],
                kv_format="q8_0",
                offload="exps=CPU" if r["type"] == "moe" else None,
                context_depth=r["depth"],
                prompt_tokens_per_s=r["pp_tok_s"],
                peak_memory_bytes=scaled(r["vram_peak_mib"], 2**20),
            )
