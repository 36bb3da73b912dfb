"""Runs that anybody sent to localscore.ai: each the mean over nine prompt and answer lengths."""

from collections.abc import Iterator

from llm_measured.published.reading import LeftOut, Raw, Row, scaled
from llm_measured.published.sources import about

ABOUT = about("localscore")
MILLISECONDS = {"ms": 1, "s": 1000, "sec": 1000}
BILLIONS: dict[str, float | str] = {"M": "0.001", "B": 1}
GIGABYTES: dict[str, float | str] = {"GB": 1, "MB": "0.001", "TB": 1000, "GIB": 1, "MIB": "0.001"}


def rows(raw: Raw) -> Iterator[Row | LeftOut]:
    for file in raw.files(*ABOUT.files):
        for at, r in raw.csv(file, delimiter="\t"):
            milliseconds = MILLISECONDS.get(r["ttft_unit"] or "ms")
            billions = BILLIONS.get(r["model_params_unit"] or "M")
            gigabytes = GIGABYTES.get((r["accel_ram_unit"] or "GB").upper())
            if milliseconds is None or billions is None or gigabytes is None:
                yield at.left_out("a unit that the importer does not know")
                continue
            processor = r["accel_type"] == "CPU"
            yield at.row(
                original_id=r["test_num"],
                measured_on=str(r["test_date"] or "")[:10].replace(".", "-") or None,
                accelerator_raw=r["accel_name"],
                accelerator="cpu" if processor else None,
                accelerator_memory_gb=None if processor else scaled(r["accel_ram"], gigabytes),
                accelerators=1,
                host_cpu=r["system_cpu"],
                engine="llamafile",
                backend=r["accel_type"],
                checkpoint_raw=r["model_name"],
                parameters_b=scaled(r["model_params"], billions),
                weights_format=r["model_quant"],
                workload="single",
                concurrency=1,
                lengths="mixed",
                throughput_raw=r["gen_tps"],
                throughput_counts="output",
                throughput_scope="all",
                prompt_tokens_per_s=r["prompt_tps"],
                ttft_mean_ms=scaled(r["ttft"], milliseconds),
                statistic="mean",
                runs=9,
            )
