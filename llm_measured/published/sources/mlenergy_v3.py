"""The ML.ENERGY Leaderboard v3: output tokens/s of all GPUs in steady state, energy of the GPUs only.

`max_num_seqs` is the limit that was set, `avg_batch_size` what was measured. Energy per token is power
divided by throughput, not a measurement of its own. Files of models/ repeat tasks/ and are not read."""

from collections.abc import Iterator

from llm_measured.published.reading import LeftOut, Raw, Row, joined
from llm_measured.published.sources import about

ABOUT = about("mlenergy-v3")


def rows(raw: Raw) -> Iterator[Row | LeftOut]:
    for file in raw.files(*ABOUT.files):
        task = file.rsplit("/", 1)[-1].removesuffix(".json")
        for at, r in raw.json_items(file, "configurations"):
            if "output_throughput_tokens_per_sec" not in r:
                yield at.left_out("no text generation")
                continue
            if task in ("image-chat", "video-chat"):
                yield at.left_out("prompts of images or video")
                continue
            yield at.row(
                accelerator_raw=r["gpu_model"],
                accelerators=r["num_gpus"],
                engine="vLLM",
                flags=joined(task=task),
                checkpoint_raw=r["model_id"],
                parameters_b=r["total_params_billions"],
                active_b=r["activated_params_billions"],
                weights_format=r["weight_precision"],
                tp=r["tensor_parallel"],
                ep=r["expert_parallel"],
                dp=r["data_parallel"],
                workload="closed_loop",
                max_num_seqs=r["max_num_seqs"],
                in_flight_mean=r["avg_batch_size"],
                output_tokens=r["avg_output_len"],
                lengths="dataset",
                throughput_raw=r["output_throughput_tokens_per_sec"],
                throughput_counts="output",
                throughput_scope="all",
                itl_p50_ms=r["median_itl_ms"],
                itl_p90_ms=r["p90_itl_ms"],
                itl_p95_ms=r["p95_itl_ms"],
                itl_p99_ms=r["p99_itl_ms"],
                power_w=r["avg_power_watts"],
                power_scope="accelerators",
                energy_j_per_output_token=r["energy_per_token_joules"],
                energy_j_per_request=r["energy_per_request_joules"],
            )
