"""llama-bench sweeps on one Ryzen AI Max+ 395: the whole llama-bench record of each point, with memory
and power.

`avg_power_w` is the mean over `duration_s`, loading of the model included: it is kept only where the measured
tokens fill nearly all of that time, and stands in `as_printed` elsewhere."""

import math
from collections.abc import Iterator

from llm_measured.published.reading import LeftOut, Raw, Row, joined, number, scaled
from llm_measured.published.sources import about

ABOUT = about("strix-halo-lhl")
GENERATING = 0.9  # least share of duration_s that the measured tokens take where its mean power is theirs
MACHINE = "AMD Ryzen AI Max+ 395 (Radeon 8060S)"  # the one of the repository: many records name only a GPU


def rows(raw: Raw) -> Iterator[Row | LeftOut]:
    for file in raw.files(*ABOUT.files):
        for at, r in raw.jsonl(file):
            bench = r["bench_raw"]
            if not isinstance(bench, dict):
                yield at.left_out("the run failed: no record of llama-bench")
                continue
            prompt, answer = bench.get("n_prompt") or 0, bench.get("n_gen") or 0
            if bool(prompt) == bool(answer):
                yield at.left_out("prompt and answer in one number, or neither")
                continue
            speed = {"throughput_raw": bench.get("avg_ts")} if answer else {}
            runs = len(bench.get("samples_ts") or [])
            measured_s = runs * (prompt + answer) / (number(bench.get("avg_ts")) or math.inf)
            same_window = measured_s >= GENERATING * (number(r["duration_s"]) or math.inf)
            yield at.row(
                printed={"power_w": r["avg_power_w"]},
                measured_on=str(bench.get("test_time") or "")[:10] or None,
                accelerator_raw=bench.get("cpu_info") or MACHINE,
                accelerators=1,
                host_cpu=bench.get("cpu_info"),
                engine="llama.cpp",
                engine_version=joined(build=bench.get("build_number"), commit=bench.get("build_commit")),
                backend=bench.get("backends"),
                flags=joined(
                    build=r["build"],
                    flash_attn=bench.get("flash_attn"),
                    n_ubatch=bench.get("n_ubatch"),
                    n_gpu_layers=bench.get("n_gpu_layers"),
                    use_mmap=bench.get("use_mmap"),
                    hipblaslt=r["hipblaslt"],
                ),
                checkpoint_raw=str(bench.get("model_filename") or "").rsplit("/", 1)[-1],
                parameters_b=scaled(bench.get("model_n_params"), "1e-9"),
                weights_bytes=bench.get("model_size"),
                weights_format=str(bench.get("model_type") or "").split("B ", 1)[-1] or None,
                kv_format=bench.get("type_k"),
                workload="single",
                concurrency=1,
                input_tokens=prompt or None,
                output_tokens=answer or None,
                lengths="exact",
                context_depth=bench.get("n_depth"),
                prefill_chunk=bench.get("n_ubatch") if prompt else None,
                prompt_tokens_per_s=bench.get("avg_ts") if prompt else None,
                throughput_counts="output" if answer else None,
                throughput_scope="all" if answer else None,
                statistic="mean",
                runs=runs or None,
                spread=bench.get("stddev_ts"),
                spread_kind="sd",
                power_w=r["avg_power_w"] if same_window else None,
                power_scope="package" if same_window else None,
                peak_memory_bytes=scaled(r["gtt_peak_mib"], 2**20),
                duration_s=r["duration_s"],
                **speed,
            )
