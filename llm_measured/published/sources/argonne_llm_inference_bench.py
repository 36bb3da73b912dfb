"""LLM-Inference-Bench of Argonne: latency of one batch; its throughput is computed from it, prompt and
answer together. Input and output have the same length.

Rules of this source alone. llama.cpp's "batch" is `-b` of llama-bench, the chunk of *one* prompt (README
of the repository): concurrency 1, `prefill_chunk`. `avg_power` of Fig_16 and of part of Fig_10 is in
milliwatts: more than 20 kW for one accelerator can be nothing else. Fig_3 writes two formats with a comma
between and no quotes: its fields are joined again. Fig_2_a without KV cache recomputes the prompt at each
token. Fig_1_b, 21 and 22 have other columns, and are not read."""

import re
from collections.abc import Iterator

from llm_measured.published.reading import LeftOut, Place, Raw, Record, Row, joined, number, scaled
from llm_measured.published.sources import about

ABOUT = about("argonne-llm-inference-bench")
OTHER = re.compile(r"Fig_(1_b|21|22)")


def rows(raw: Raw) -> Iterator[Row | LeftOut]:
    seen: set[tuple] = set()
    for file in sorted(raw.files(*ABOUT.files), key=lambda f: (f.startswith("Fig_"), f)):
        for at, r in raw.csv(file):
            if OTHER.match(file):
                yield at.left_out("a table of other columns (heat map, first token), not read")
                continue
            r = _joined_again(r)
            latency = r["Latency"] or r["latency"]
            key = (
                r["Hardware"],
                r["Framework"],
                r["Model"],
                r["Input Output Length"],
                r["Batch Size"],
                latency,
            )
            if file.startswith("Fig_") and key in seen:
                yield at.left_out("another file of the source has the same row")
                continue
            seen.add(key)
            yield _row(at, r, latency)


def _joined_again(r: Record) -> Record:
    fields = r[None]
    if not fields or len(fields) <= 9 or "kv_cache_dtype" not in r:
        return r
    keys = [k for k in r if k is not None]
    place = keys.index("kv_cache_dtype")
    extra = len(fields) - len(keys)
    merged = [*fields[:place], ", ".join(fields[place : place + extra + 1]), *fields[place + extra + 1 :]]
    return Record(zip(keys, merged))


def _row(at: Place, r: Record, latency: str | None) -> Row | LeftOut:
    batch, one = r["Batch Size"], r["Framework"] == "llama.cpp"
    length = number(r["Input Output Length"])
    formats = dict(re.findall(r"(Weight|KV Cache)\s*=\s*(\w+)", r["kv_cache_dtype"] or ""))
    power = number(r["avg_power"])
    milliwatts = bool(power) and power > 20_000 * (number(r["Num of Hardware"]) or 1)
    no_cache = "without" in (r["KV Cache"] or "").lower()
    draft = r["speculative model"]
    return at.row(
        printed=({"batch": batch, "concurrency": batch, "workload": "static_batch"} if one else {})
        | ({"power_w": power} if milliwatts else {}),
        accelerator_raw=r["Hardware"],
        accelerators=r["Num of Hardware"],
        engine=r["Framework"],
        flags=joined(
            kv_cache=r["KV Cache"],
            kv_block=r["KV Cache Block_size"],
            parallelism=r["Parallelism Type"],
        ),
        checkpoint_raw=r["Model"],
        weights_format=formats.get("Weight"),
        kv_format=formats.get("KV Cache"),
        speculative=(None if draft is None else "none" if draft.lower() == "none" else draft),
        workload="single" if one else "static_batch",
        batch=None if one else batch,
        concurrency=1 if one else batch,
        prefill_chunk=batch if one else None,
        input_tokens=length,
        output_tokens=length,
        lengths="exact",
        throughput_raw=r["Throughput"] or r["throughput"],
        throughput_counts="input+output",
        throughput_scope="all",
        latency_raw_s=latency,
        power_w=scaled(power, "0.001") if milliwatts else power,
        power_scope="accelerators" if power else None,
        caveat="without a KV cache every token computes the prompt again" if no_cache else None,
    )
