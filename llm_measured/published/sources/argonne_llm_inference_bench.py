"""LLM-Inference-Bench of Argonne: latency of one batch; its throughput is computed from it, prompt and
answer together. Input and output have the same length.

What the files leave out stands in the source's scripts and READMEs. A100: jobs of Polaris (vLLM/A100,
run_benchmarks.sh), whose A100 have 40 GB and NVLink (argonne-lcf/user-guides, Polaris, machine-overview).
H100: "H100 80GB HBM3", 700 W (llama.cpp/H100/README.MD, nvidia-smi of September 2024). GH200: JLSE's
(vLLM/GH200/README.MD), which is a "GH200 480GB" with 95 GB and 3.5 TB/s of triad (an Argonne author's
jtchilders/floptic, results/jlse_gpu_gh200.md). MI250 with vLLM: cards of two dies, as 4 and 8 in parallel
(run-throughput-bench.sh) are the file's 2 and 4, and Llama-2-70B in 16 bits is on two. Versions: README of
each folder, vLLM/GH200/run-throughput-bench.sh, TensorRT-LLM/H100's requirements.txt. Measured in 2024: Qwen2
of June is in it, the paper is of November.

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
MACHINES = {
    "Nvidia A100 GPU": "a100-sxm-40gb",
    "Nvidia H100 GPU": "h100-sxm",
    "Nvidia GH200 GPU": "gh200-96gb",
}
VERSIONS = {
    ("Nvidia GH200 GPU", "vLLM"): "0.5.3.post1",
    ("Nvidia GH200 GPU", "TensorRT-LLM"): "0.12.0",
    ("Nvidia H100 GPU", "TensorRT-LLM"): "0.11.0",
    ("Intel PVC GPU", "vLLM"): "0.5.2",
    ("Intel Max 1550", "vLLM"): "0.5.2",
    ("AMD MI250 GPU", "vLLM"): "0.6.1",
    ("AMD MI300X GPU", "vLLM"): "0.6.1",
}
WAYS = {"tp": r"TP|Tensor", "pp": r"PP|Pipeline"}
WITHOUT_CACHE = "without a KV cache every token computes the prompt again"
STARTED = (
    "some 17 s of each latency are a start, the same at every length: the source's own lines of Intel Max "
    "1550, the same card, have 2.0 s where these have 18.7"
)


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


def _ways(text: str | None, cards: str | None) -> dict[str, str | None]:
    """Return tp and pp of "TP", "Pipeline Parallelism", "Hybrid TP = 2 and PP = 2"; none where experts are
    split."""
    found = {name: re.search(rf"\b(?:{way})\b\W*(\d*)", text or "") for name, way in WAYS.items()}
    return {name: way[1] or cards for name, way in found.items() if way and "EP" not in (text or "")}


def _row(at: Place, r: Record, latency: str | None) -> Row | LeftOut:
    card, engine, cards = r["Hardware"], r["Framework"], r["Num of Hardware"]
    batch, one = r["Batch Size"], engine == "llama.cpp"
    length = number(r["Input Output Length"])
    formats = dict(re.findall(r"(Weight|KV Cache)\s*=\s*(\w+)", r["kv_cache_dtype"] or ""))
    power = number(r["avg_power"])
    milliwatts = bool(power) and power > 20_000 * (number(cards) or 1)
    no_cache = "without" in (r["KV Cache"] or "").lower()
    caveat = STARTED if (card, engine, cards) == ("Intel PVC GPU", "vLLM", "1") else None
    in_dies = (card, engine) == ("AMD MI250 GPU", "vLLM")
    draft = r["speculative model"]
    return at.row(
        printed=({"batch": batch, "concurrency": batch, "workload": "static_batch"} if one else {})
        | ({"power_w": power} if milliwatts else {}),
        measured_on="2024",
        accelerator_raw=card,
        accelerator="mi250" if in_dies else MACHINES.get(card),
        accelerators=cards,
        engine=engine,
        engine_version=VERSIONS.get((card, engine)),
        flags=joined(
            kv_cache=r["KV Cache"],
            kv_block=r["KV Cache Block_size"],
            parallelism=r["Parallelism Type"],
        ),
        checkpoint_raw=r["Model"],
        weights_format=formats.get("Weight"),
        kv_format=formats.get("KV Cache"),
        speculative=(None if draft is None else "none" if draft.lower() == "none" else draft),
        **_ways(r["Parallelism Type"], cards),
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
        caveat=WITHOUT_CACHE if no_cache else caveat,
    )
