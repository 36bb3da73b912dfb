"""One machine with four RTX 3090: what a rate counts stands in `output_tps_kind`; curves over concurrency.

llama.cpp's `split_mode: layer` gives each card its layers, which is a pipeline; its `tp` is the
number of cards."""

import json
from collections import Counter
from collections.abc import Iterator

from llm_measured.published.reading import LeftOut, Place, Raw, Record, Row, joined, number, scaled
from llm_measured.published.sources import about

ABOUT = about("4x3090")
WORDS = ("auto", "gguf", "awq", "fp8", "fp8_e5m2", "fp8_e4m3", "bfloat16", "float16", "q8_0", "q4_0", "f16")


def rows(raw: Raw) -> Iterator[Row | LeftOut]:
    for file in raw.files(*ABOUT.files):
        for at, r in raw.jsonl(file):
            if r["record_kind"] not in (None, "measurement"):
                yield at.left_out(f"no measurement ({r['record_kind']})")
                continue
            kind = str(r["output_tps_kind"] or "unknown")
            if kind == "unknown" or r["output_tok_s"] is None:
                yield at.left_out(
                    "not stated what the rate counts" if r["output_tok_s"] is not None else "no output rate"
                )
            else:
                yield _point(at, r, kind.startswith("single"))
            points = [_named(p) for p in r["curve"] or [] if isinstance(p, dict)]
            levels = Counter(point.get("concurrency") for point in points)
            for index, point in enumerate(points):
                if levels[point.get("concurrency")] > 1:
                    yield at.cell(f"curve/{index}").left_out(
                        "two curves in one, and not said how they differ"
                    )
                    continue
                same = point.get("concurrency") == r["concurrency"]
                if same and point.get("output_tok_s") == r["output_tok_s"]:
                    continue
                yield _point(
                    at.cell(f"curve/{index}"),
                    Record(
                        r
                        | {
                            name: None
                            for name in ("avg_power_w", "vram_peak_mib", "ttft_p99_ms", "e2e_p99_ms")
                        }
                        | {
                            "concurrency": point.get("concurrency"),
                            "output_tok_s": point.get("output_tok_s"),
                            "ttft_p50_ms": point.get("ttft_p50"),
                            "ttft_p99_ms": point.get("ttft_p99"),
                            "itl_p50_ms": point.get("itl_p50"),
                            "tpot_p50_ms": point.get("tpot_p50"),
                            "e2e_p99_ms": point.get("e2e_p99"),
                            "failed": point.get("errors"),
                            "run_id": f"{r['run_id']}#c{point.get('concurrency')}",
                        }
                    ),
                    number(point.get("concurrency")) == 1,
                )


RATES = {"conc": "concurrency", "out_tps": "output_tok_s"}
TIMES = {"ttft_ms": "ttft_p50", "tpot_ms": "tpot_p50"}


def _named(point: dict) -> dict:
    """`point` of a curve under one set of names: some curves have shorter ones. Where these have a TPOT, the
    first point repeats the record's medians; of the others nobody says which statistic their times are."""
    short = RATES | (TIMES if "tpot_ms" in point else {})
    return {short.get(name, name): value for name, value in point.items()}


def _point(at: Place, r: Record, single: bool) -> Row | LeftOut:
    knobs = r["knobs"] if isinstance(r["knobs"], dict) else {}
    draft = r["spec_decode"]
    cards = (number(r["tp"]) or 1) * (number(r["pp"]) or 1) * (number(r["instances"]) or number(r["dp"]) or 1)
    by_layers = knobs.get("split_mode") == "layer"
    parallel = {"tp": 1, "pp": r["tp"]} if by_layers else {"tp": r["tp"], "pp": r["pp"]}
    return at.row(
        printed={"tp": r["tp"], "pp": r["pp"]},
        original_id=r["run_id"],
        measured_on=r["date"],
        accelerator_raw="RTX 3090",
        accelerators=cards,
        power_limit_w=r["power_limit_w"],
        engine=r["engine"],
        engine_version=r["engine_version"],
        flags=joined(
            max_model_len=r["context_len"],
            **{
                k: v
                for k, v in knobs.items()
                if not k.startswith("_") and isinstance(v, (int, float)) or v in WORDS
            },
        ),
        checkpoint_raw=r["model_variant"] or r["model"],
        weights_format=r["quant"],
        kv_format=r["kv_cache_dtype"],
        **parallel,
        dp=r["instances"] or r["dp"],
        speculative=json.dumps(draft, sort_keys=True) if isinstance(draft, dict) else draft,
        workload="single" if single else "closed_loop",
        concurrency=r["concurrency"] or (1 if single else None),
        max_num_seqs=knobs.get("max_num_seqs"),
        input_tokens=r["prompt_tokens"],
        output_tokens=r["gen_tokens"],
        lengths="exact",
        throughput_raw=r["output_tok_s"],
        throughput_counts="output",
        throughput_scope="all",
        prompt_tokens_per_s=r["prefill_tok_s"],
        ttft_p50_ms=r["ttft_p50_ms"],
        ttft_p99_ms=r["ttft_p99_ms"],
        tpot_p50_ms=r["tpot_p50_ms"],
        itl_p50_ms=r["itl_p50_ms"],
        e2e_p99_ms=r["e2e_p99_ms"],
        power_w=r["avg_power_w"],
        power_scope="accelerators" if r["avg_power_w"] else None,
        peak_memory_bytes=scaled(r["vram_peak_mib"], 2**20),
        failed=r["failed"],
        caveat="conditions inferred by the source's author, not recorded"
        if r["normalization_status"] == "inferred"
        else None,
    )
