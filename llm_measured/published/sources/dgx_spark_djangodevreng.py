"""vLLM on one DGX Spark: closed loops of llama-benchy (01 to 06, in Markdown) and open loops of vllm
bench serve.

`t/s (total)` is of all requests together, `t/s (req)` of one; ttfr is the time to the first answer of the
server, e2e_ttft to the first token."""

import re
from collections.abc import Iterator

from llm_measured.published.reading import LeftOut, Place, Raw, Record, Row, after_sign, joined, leading
from llm_measured.published.sources import about
from llm_measured.published.sources._vllm_bench import itl_of_tokens, result

ABOUT = about("dgx-spark-djangodevreng")
TEST = re.compile(r"(pp|tg)(\d+)(?: @ d(\d+))?(?: \(c(\d+)\))?")


def rows(raw: Raw) -> Iterator[Row | LeftOut]:
    for described in raw.files("results/*/meta.json"):
        folder = described.rsplit("/", 1)[0]
        setup = _setup(raw.json(described), folder)
        for file in raw.files(f"{folder}/0?-*.md"):
            prompt = None
            for at, r, _ in raw.tables(file):
                found = TEST.fullmatch(r["test"] or "")
                if not found:
                    if "t/s (total)" in r:
                        yield at.left_out("a test that the importer does not know")
                    continue
                if found[1] == "pp":
                    prompt = found[2]
                yield _closed(at, r, found, prompt, setup)
        for file in raw.files(f"{folder}/??-*.json"):
            r = raw.json(file)
            if isinstance(r, dict) and "total_output_tokens" in r:
                columns, gaps = itl_of_tokens(result(r))
                yield Place(raw, file, "/", r).row(printed=gaps, **setup | columns | {"accelerators": 1})


def _setup(meta: Record, folder: str) -> dict:
    config = meta["server_config"] or Record()
    extra = config["extra_vllm_args"] or ""
    draft = re.search(r"--speculative-config\s+(\S.*?)(?=\s--|$)", extra)
    cached = config["enable_prefix_caching"]
    return {
        "measured_on": str(meta["generated_at"] or "")[:10] or None,
        "accelerator_raw": meta["hardware"],
        "accelerators": 1,
        "engine": "vLLM",
        "engine_version": meta["vllm_version_reported"],
        "image": meta["vllm_image"],
        "flags": joined(
            profile=meta["profile"],
            max_model_len=config["max_model_len"],
            gpu_memory_utilization=config["gpu_memory_utilization"],
            driver=meta["driver_version"],
        ),
        "checkpoint_raw": meta["model"],
        "weights_format": re.sub(r"-(v\d+|spec)$", "", str(meta["profile"] or folder.rsplit("/", 1)[-1])),
        "kv_format": config["kv_cache_dtype"],
        "speculative": draft[1] if draft else "stated" if "spec" in str(meta["profile"]) else None,
        "prefix_cached": None if cached is None else bool(cached),
    }


def _closed(at: Place, r: Record, found: re.Match, prompt: str | None, setup: dict) -> Row | LeftOut:
    generated = found[1] == "tg"
    total, each = r["t/s (total)"], r["t/s (req)"]
    together = found[4] or 1
    return at.row(
        **setup,
        workload="single" if together in (1, "1") else "closed_loop",
        concurrency=together,
        input_tokens=prompt,
        output_tokens=found[2] if generated else None,
        lengths="exact",
        context_depth=found[3],
        throughput_raw=leading(total) if generated else None,
        throughput_counts="output" if generated else None,
        throughput_scope="all" if generated else None,
        prompt_tokens_per_s=None if generated else leading(total),
        tpot_mean_ms=None,
        ttft_mean_ms=None if generated else leading(r["e2e_ttft (ms)"]),
        statistic="mean",
        runs=3,
        spread=after_sign(total),
        spread_kind="sd",
        caveat=None if generated or not each else None,
    )
