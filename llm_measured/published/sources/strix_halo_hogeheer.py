"""Tables of one person's guide to a Ryzen AI Max+ 395: single streams, and totals over parallel slots.

headline_claims, max_performance_campaign and smoke_tests repeat other tables and are not read; a row with the
status `external-reference` is somebody else's number."""

import re
from collections.abc import Iterator

from llm_measured.core.definitions import Fields
from llm_measured.published.reading import LeftOut, Raw, Record, Row, joined, scaled
from llm_measured.published.sources import about

ABOUT = about("strix-halo-hogeheer")


def rows(raw: Raw) -> Iterator[Row | LeftOut]:
    for file in raw.files(*ABOUT.files):
        for at, r in raw.csv(file):
            if r["status"] != "measured-local":
                yield at.left_out(f"not measured here ({r['status'] or 'no status'})")
                continue
            name = file.rsplit("/", 1)[-1]
            if name in ("multi_user.csv", "server_shootout.csv"):
                yield at.row(**_common(r), **_many(r))
            elif name == "benchmarks.csv":
                yield at.cell("tg").row(
                    **_common(r), **_one(r["tg_tps"], None), context_depth=None, lengths=None
                )
                if r["pp_tps"]:
                    yield at.cell("pp").row(**_common(r), **_one(None, r["pp_tps"]))
            elif name == "filled_kv_decode.csv":
                yield at.row(
                    **_common(r),
                    **_one(r["eval_tps_mean"], r["prompt_eval_tps_mean"]),
                    input_tokens=r["tokens_evaluated_mean"],
                    output_tokens=r["n_predict"],
                    lengths="mean",
                    runs=r["reps"],
                    kv_format=r["cache_type_k"],
                )
            else:
                test = r["workload"] or r["metric"] or ""
                generated = test.startswith("tg")
                speed = (r["tps"], None) if generated else (None, r["tps"])
                length = re.match(r"[a-z]+(\d+)", test)
                tokens: Fields = {"output_tokens" if generated else "input_tokens": length and length[1]}
                yield at.row(
                    **_common(r),
                    **_one(*speed),
                    **tokens,
                    lengths="exact",
                    context_depth=r["context_tokens"],
                    spread=r["stddev_tps"],
                    spread_kind="sd" if r["stddev_tps"] else None,
                )


def _common(r: Record) -> dict:
    return {
        "measured_on": r["date"],
        "accelerator_raw": "Ryzen AI Max+ 395",
        "accelerators": 1,
        "engine": r["server"] or r["tool"],
        "engine_version": r["build_or_version"] or r["tool_build"],
        "backend": joined(backend=r["backend"], driver=r["driver"]),
        "flags": joined(mesa_or_rocm=r["mesa_or_rocm"] or r["mesa_or_driver"], kernel=r["kernel"]),
        "checkpoint_raw": r["model"],
        "weights_format": r["quant"],
        "weights_bytes": scaled(r["model_size_gb"], "1e9"),
    }


def _one(generated: str | None, prompt: str | None) -> dict:
    return {
        "workload": "single",
        "concurrency": 1,
        "throughput_raw": generated,
        "throughput_counts": "output" if generated else None,
        "throughput_scope": "all" if generated else None,
        "prompt_tokens_per_s": prompt,
        "statistic": "mean",
    }


def _many(r: Record) -> dict:
    return {
        "workload": "closed_loop",
        "concurrency": r["parallel_slots"] or r["concurrency"],
        "output_tokens": r["tokens_per_request"],
        "lengths": "max",
        "throughput_raw": r["aggregate_tps_mean"],
        "throughput_counts": "output",
        "throughput_scope": "all",
        "ttft_mean_ms": scaled(r["mean_ttft_s"], 1000),
        "ttft_p95_ms": scaled(r["p95_ttft_s"], 1000),
        "itl_mean_ms": r["mean_itl_ms"],
        "itl_p95_ms": r["p95_itl_ms"],
        "statistic": "mean",
        "runs": r["reps"],
        "failed": r["errors"],
    }
