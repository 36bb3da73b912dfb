"""vLLM on four RTX PRO 6000: one model of 397B parameters in AWQ and NVFP4, with and without drafted tokens,
by requests in flight and context. The rate of all is that of one times their number. The other engine's files
(`results_*`) have another form and are not read, nor is TTFT, as contexts may stand in the prefix cache."""

from collections.abc import Iterator

from llm_measured.published.reading import LeftOut, Place, Raw, Row, day, scaled
from llm_measured.published.sources import about

ABOUT = about("rtx6kpro")


def rows(raw: Raw) -> Iterator[Row | LeftOut]:
    for file in raw.files(*ABOUT.files):
        whole = raw.json(file)
        told = whole["metadata"]
        common = {
            "measured_on": day(told["timestamp"]),
            "accelerator_raw": "NVIDIA RTX PRO 6000 Blackwell Server Edition",
            "accelerators": 4,
            "tp": 4,
            "engine": "vLLM",
            "engine_version": "0.17.0rc1",
            "checkpoint_raw": told["model"],
            "flags": f"checkpoint={file.split('__vllm_')[1].rpartition('_')[0]}",
            "weights_format": "AWQ" if "_awq_" in file else "NVFP4",
            "speculative": "none" if "_nomtp" in file else "MTP",
        }
        for at, r in raw.json_items(file, "results"):
            if r["num_errors"] or not r["aggregate_tps"]:
                yield at.left_out("requests failed, or none was answered")
                continue
            yield at.row(
                **common,
                workload="single" if r["concurrency"] == 1 else "closed_loop",
                concurrency=r["concurrency"],
                max_num_seqs=128,
                context_depth=r["context_tokens"],
                throughput_raw=r["aggregate_tps"],
                throughput_counts="output",
                throughput_scope="all",
                requests=r["num_completed"],
            )
        for length, r in (whole["prefill"] or {}).items():
            yield Place(raw, file, f"/prefill/{length}", [told, length, r]).row(
                **common,
                workload="single",
                concurrency=1,
                input_tokens=length,
                lengths="exact",
                prompt_tokens_per_s=r["tok_per_sec"],
                ttft_mean_ms=scaled(r["ttft_seconds"], 1000),
            )
