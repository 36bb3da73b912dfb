"""llama-bench on two Ryzen AI Max+ 395 machines, one sequence. Each curve_summary.csv repeats the points of a
results.json and is not read; of mtp-summary.json the means over seven prompts are."""

from collections.abc import Iterator

from llm_measured.published.reading import LeftOut, Raw, Row, joined, scaled
from llm_measured.published.sources import about

ABOUT = about("strix-halo-kyuz0")
MACHINE = "AMD Ryzen AI Max+ 395 (Radeon 8060S)"


def rows(raw: Raw) -> Iterator[Row | LeftOut]:
    for file in raw.files("*results.json"):
        whole = raw.json(file)
        meta = (whole.get("meta") if isinstance(whole, dict) else None) or {}
        builds = {b.get("hash"): b.get("number") for b in meta.get("builds") or [] if isinstance(b, dict)}
        for at, r in raw.json_items(file, "runs"):
            if r["error"]:
                yield at.left_out(f"the run failed ({r['error_type'] or 'no reason stated'})")
                continue
            kind, length = str(r["test"])[:2], str(r["test"])[2:].split(" ")[0].split("@")[0]
            generated = kind == "tg"
            if kind not in ("pp", "tg") or not length.isdigit():
                yield at.left_out(f"a test that the importer does not know ({r['test']})")
                continue
            yield at.row(
                measured_on=str(meta.get("generated_at") or "")[:10] or None,
                accelerator_raw=MACHINE,
                accelerators=1,
                engine="llama.cpp",
                engine_version=joined(build=r.at("build", "number"), commit=r.at("build", "hash")),
                backend=r["env"],
                flags=joined(flash_attn=r["fa"], ngl=r["ngl"], mmap=r["mmap"], rpc=r["rpc"]),
                checkpoint_raw=r["model_clean"],
                parameters_b=r["params_b"],
                weights_bytes=scaled(r["file_size_gib"], 2**30),
                weights_format=r["quant"],
                workload="single",
                concurrency=1,
                input_tokens=None if generated else length,
                output_tokens=length if generated else None,
                lengths="exact",
                context_depth=r["context_tokens"] or (0 if r["context"] == "default" else None),
                throughput_raw=r["tps_mean"] if generated else None,
                throughput_counts="output" if generated else None,
                throughput_scope="all" if generated else None,
                prompt_tokens_per_s=None if generated else r["tps_mean"],
                statistic="mean",
                spread=r["tps_std"],
                spread_kind="sd",
            )
        for at, r in raw.json_items(file, "points"):
            generated = r["series"] == "generation"
            box = next((b for b in meta.get("toolboxes") or [] if b.get("id") == r["toolbox"]), {})
            build = first_build(box) or {"hash": next(iter(builds), None), "number": None}
            yield at.row(
                published_on=ABOUT.published_on,
                accelerator_raw=MACHINE,
                accelerators=1,
                engine="llama.cpp",
                engine_version=joined(
                    build=build.get("number") or builds.get(build["hash"]), commit=build["hash"]
                ),
                backend=r["toolbox"],
                flags=joined(profile=r["profile"], batch=r["batch"], ubatch=r["ubatch"]),
                checkpoint_raw=r["model"],
                weights_format=r["quant"],
                workload="single",
                concurrency=1,
                input_tokens=None if generated else r["prompt_tokens"],
                output_tokens=r["generation_tokens"] if generated else None,
                lengths="exact",
                context_depth=r["starting_depth"],
                throughput_raw=r["mean"] if generated else None,
                throughput_counts="output" if generated else None,
                throughput_scope="all" if generated else None,
                prompt_tokens_per_s=None if generated else r["mean"],
                statistic="mean",
                runs=len(r["samples"] or []) or None,
                spread=r["stddev"],
                spread_kind="sd",
            )
    for file in raw.files("*mtp-summary.json"):
        for at, r in raw.json_items(file):
            yield at.row(
                accelerator_raw=MACHINE,
                accelerators=1,
                engine="llama.cpp",
                backend=r["toolbox"],
                checkpoint_raw=r["model"],
                weights_format=str(r["model"] or "").rsplit("-", 1)[-1],
                speculative="none" if r["mode"] == "baseline" else r["mode"],
                workload="single",
                concurrency=1,
                lengths="mixed",
                throughput_raw=r["avg_tok_s"],
                throughput_counts="output",
                throughput_scope="all",
                prompt_tokens_per_s=r["avg_prompt_tok_s"],
                statistic="mean",
                requests=len(r["results"] or []) or None,
            )


def first_build(box: dict) -> dict | None:
    """The one build of a toolbox, None where it names several or none."""
    found = box.get("builds") or []
    return found[0] if len(found) == 1 else None
