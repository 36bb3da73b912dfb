"""llama-benchy against llama.cpp's server for gfx906 (Instinct MI50 and MI60), one stream, means of two runs.

The JSON names neither cards nor number formats nor checkpoints but by a nickname; a DFlash or MTP file is
speculative by its name."""

from collections.abc import Iterator

from llm_measured.published.reading import LeftOut, Raw, Row, day
from llm_measured.published.sources import about
from llm_measured.published.sources._tables import single

ABOUT = about("mi50-fank")


def rows(raw: Raw) -> Iterator[Row | LeftOut]:
    for file in raw.files(*ABOUT.files):
        whole = raw.json(file)
        drafted = next((way for way in ("DFlash", "MTP") if way.lower() in file.lower()), None)
        for at, r in raw.json_items(file, "benchmarks"):
            if r["concurrency"] != 1 or r["is_context_prefill_phase"]:
                yield at.left_out("the filling of a context, or several streams")
                continue
            yield at.row(
                **single(r.at("tg_throughput", "mean")),
                measured_on=day(whole["timestamp"]),
                accelerator_raw="gfx906 (MI50 or MI60)",
                accelerator="variant unknown",
                engine="llama.cpp",
                backend="ROCm",
                checkpoint_raw=whole["model"],
                speculative=drafted,
                input_tokens=r["prompt_size"],
                output_tokens=r["response_size"],
                lengths="exact",
                context_depth=r["context_size"],
                prefix_cached="yes" if whole["prefix_caching_enabled"] else "no",
                prompt_tokens_per_s=r.at("pp_throughput", "mean"),
                ttft_mean_ms=r.at("e2e_ttft", "mean"),
                statistic="mean",
                runs=len(r.at("tg_throughput", "values") or []) or None,
                spread=r.at("tg_throughput", "std"),
                spread_kind="sd",
                caveat="number of cards, power and number format stand in no file",
            )
