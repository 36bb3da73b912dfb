"""Single runs on one Apple M3 Max with 64 GB (the repository's page); `decode_tps` includes thinking
tokens.

`cold_ttft_ms` is of a run before the numbered ones; where a numbered run answers in less than a third of it,
its prompt was found in a cache."""

import re
from collections.abc import Iterator

from llm_measured.published.reading import LeftOut, Raw, Row, joined, number, scaled
from llm_measured.published.sources import about

ABOUT = about("apple-alexhiesch")
# A drafting model (Gemma's E2B) or the model's own prediction of several tokens, in the test's name.
DRAFTS = re.compile(r"spec-e2b|e2b-spec|mtp-\d+|dflash-[\d.]+B")
# `kv_cache` has formats of the cache, and whatever else the test is about.
KV_FORMAT = re.compile(r"kv\d|kv-q\d.*|tq[\d.]+bit")


def rows(raw: Raw) -> Iterator[Row | LeftOut]:
    for file in raw.files(*ABOUT.files):
        day = re.search(r"_(\d{4})(\d\d)(\d\d)_", file)
        for at, r in raw.csv(file):
            if r[None]:
                yield at.left_out("another number of fields than the header has")
                continue
            if not number(r["decode_tps"]) or not number(r["completion_tokens"]):
                yield at.left_out("no answer")
                continue
            first, cold = number(r["ttft_ms"]), number(r["cold_ttft_ms"])
            drafts = DRAFTS.search(f"{r['test_name']} {r['kv_cache']}")
            cache = None if r["kv_cache"] == "default" else r["kv_cache"]
            kv_format = cache if cache and KV_FORMAT.fullmatch(cache) else None
            yield at.row(
                measured_on="-".join(day.groups()) if day else None,
                accelerator_raw="Apple M3 Max",
                accelerator_memory_gb=64,
                accelerators=1,
                engine=r["backend"],
                engine_version=r["backend_version"],
                flags=joined(test=r["test_id"], prompt=r["prompt_type"], cache=None if kv_format else cache),
                checkpoint_raw=r["test_name"]
                if r["model"] in (None, "")
                else f"{r['model']} ({r['test_name']})",
                weights_format=r["quant"],
                kv_format=kv_format,
                speculative=drafts[0] if drafts else None,
                workload="single",
                concurrency=1,
                input_tokens=r["prompt_tokens"],
                output_tokens=r["completion_tokens"],
                lengths="exact",
                prefix_cached=True if first and cold and first < cold / 3 else None,
                throughput_raw=r["decode_tps"],
                throughput_counts="output",
                throughput_scope="all",
                prompt_tokens_per_s=r["prefill_tps"],
                ttft_mean_ms=r["ttft_ms"],
                e2e_mean_ms=scaled(r["total_time_s"], 1000),
                statistic="single",
                runs=1,
                peak_memory_bytes=scaled(r["peak_mem_mb"], "1e6"),
            )
