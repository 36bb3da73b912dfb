"""llama-bench and an MLX bench on Apple M4, M5, M4 Max and M3 Ultra, and on one to four Framework Desktops
that share a model over RPC. A `tg512` varies in its `prompt_size`, and no file says whether that is a depth
or an answer's length: it stands in `flags`. The MacBook Air's 128 GB are no M4's, so memory stays empty."""

import re
from collections.abc import Iterator

from llm_measured.published.reading import LeftOut, Raw, Row, day, joined, number, scaled
from llm_measured.published.sources import about
from llm_measured.published.sources._tables import single

ABOUT = about("machine-tests-alexziskind")


def rows(raw: Raw) -> Iterator[Row | LeftOut]:
    for file in raw.files(*ABOUT.files):
        llama = "llama_bencher" in file
        for at, r in raw.csv(file):
            machines = 1 + (number(r["rpc_nodes"]) or 0)
            prompt = re.fullmatch(r"pp(\d+)", str(r["test_type"]))
            if prompt:
                rate = single(None) | {"prompt_tokens_per_s": r["tokens_per_second"]}
                rate |= {"input_tokens": prompt[1], "lengths": "exact"}
            else:
                rate = single(r["tokens_per_second"])
            yield at.row(
                **rate,
                measured_on=day(r["timestamp"]),
                accelerator_raw=f"Apple {r['hardware_cpu']}"
                if r["hardware_make"] == "Apple"
                else r["hardware_cpu"],
                accelerator_memory_gb=r["hardware_mem_gb"] if r["hardware_cpu"] != "M4" else None,
                accelerators=machines,
                nodes=machines,
                pp=machines if machines > 1 else None,
                engine="llama.cpp" if llama else "MLX",
                backend=str(r["backend"] or "Metal").split(",")[0],
                flags=joined(
                    rpc="on" if machines > 1 else None, prompt_size=None if prompt else r["prompt_size"]
                ),
                checkpoint_raw=r["model_name"],
                parameters_b=r["params_b"] if llama else None,
                weights_bytes=scaled(r["model_size_gb"], 2**30),
                weights_format=r["quantization"],
                spread=r["std_dev"] if llama else None,
                spread_kind="sd" if llama else None,
                statistic="mean" if llama else None,
            )
