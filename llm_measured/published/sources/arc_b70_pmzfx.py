"""llama-bench on one and two Intel Arc Pro B70: one JSON file for each model, with the speeds of prompt
and answer, in two layouts. Power is of all cards in the machine, idle ones too, so it is not read."""

from collections.abc import Iterator

from llm_measured.published.reading import LeftOut, Place, Raw, Row, joined, scaled
from llm_measured.published.sources import about
from llm_measured.published.sources._llama_bench import rate

ABOUT = about("arc-b70-pmzfx")


def rows(raw: Raw) -> Iterator[Row | LeftOut]:
    for file in raw.files(*ABOUT.files):
        r = raw.json(file)
        results = r["results"] or {}
        tests = {
            name: (value["tokens_per_sec"], value["std_dev"])
            for name, value in results.items()
            if isinstance(value, dict)
        }
        for kind in ("pp", "tg"):
            if results.get(f"{kind}_tokens_per_sec"):
                speed, spread = results[f"{kind}_tokens_per_sec"], results[f"{kind}_std_dev"]
                tests[f"{kind}{r[f'{kind}_size']}"] = (speed, spread)
        for test, (speed, spread) in tests.items():
            at = Place(raw, file, f"/results/{test}", [r, test])
            columns = rate(test, speed, spread)
            if columns is None:
                yield at.left_out(f"a test that the importer does not know ({test})")
                continue
            yield at.row(
                **columns,
                measured_on=r["date"],
                accelerator_raw="Intel Arc Pro B70",
                accelerator_memory_gb=32,
                accelerators=r["gpu_count"],
                pp=r["gpu_count"] if r["gpu_count"] != 1 else None,
                engine="llama.cpp",
                engine_version=r["build_version"] or r["build_info"],
                backend=r["backend"],
                flags=joined(sycl_f16=r["sycl_f16"], flash_attn=r["flash_attention"], threads=r["threads"]),
                checkpoint_raw=r["model_id"],
                weights_format=r["quantization"],
                kv_format=r["cache_type_k"],
                weights_bytes=scaled(r["file_size_gib"], 2**30),
            )
