"""llama.cpp on phones, 256 prompt and 64 generated tokens; the backend is the one that ran, not the
requested."""

from collections.abc import Iterator

from llm_measured.published.reading import LeftOut, Raw, Row, joined, scaled
from llm_measured.published.sources import about

ABOUT = about("pocketpal")


def rows(raw: Raw) -> Iterator[Row | LeftOut]:
    for file in raw.files(*ABOUT.files):
        whole = raw.json(file)
        bench = whole["bench"] or {}
        for at, r in raw.json_items(file, "runs"):
            if r["status"] != "ok":
                yield at.left_out(f"the run did not succeed ({r['status'] or 'no status'})")
                continue
            requested = {"gpu": "opencl", "npu": "hexagon"}.get(
                r["requested_backend"], r["requested_backend"]
            )
            yield at.row(
                printed={"backend": requested},
                measured_on=str(r["timestamp"] or "")[:10] or None,
                accelerator_raw=whole["soc"],
                accelerators=1,
                engine="llama.rn",
                engine_version=joined(version=whole["llama_rn_version"], commit=whole["commit"]),
                backend=r["effective_backend"],
                flags=r["settings_fingerprint"].replace(";", "; ") if r["settings_fingerprint"] else None,
                checkpoint_raw=r["model_id"],
                weights_format=r["quant"],
                weights_bytes=scaled(r.at("log_signals", "memory_buffers", "weights_total_mib"), 2**20),
                kv_format=r.at("effective_init_params", "cache_type_k"),
                workload="single",
                concurrency=1,
                input_tokens=bench.get("pp"),
                output_tokens=bench.get("tg"),
                lengths="exact",
                throughput_raw=r["tg_avg"],
                throughput_counts="output",
                throughput_scope="all",
                prompt_tokens_per_s=r["pp_avg"],
                statistic="mean",
                runs=bench.get("nr"),
                peak_memory_bytes=scaled(r["peak_memory_mb"], "1e6"),
            )
