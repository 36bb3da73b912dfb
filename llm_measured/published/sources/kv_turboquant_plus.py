"""KV formats of llama.cpp, and three of the repository's own, on machines of its author and of testers: rate,
perplexity and divergence from a cache in 16 bits. Which machine and model a table is of stands in its heading
or in the sentence above it; tables without one, and rates that mix prompt and answer, are not read."""

import re
from collections.abc import Iterator

from llm_measured.published.reading import LeftOut, Raw, Row, leading
from llm_measured.published.sources import about
from llm_measured.published.sources._tables import single

ABOUT = about("kv-turboquant-plus")
# Words above a table: machine, model, format of the weights, backend, tokens in the cache.
SETUPS = {
    "RTX 3090": ("NVIDIA GeForce RTX 3090", "Qwen3.5-9B", "Q4_K_M", "CUDA", 0),
    "RX 9070 XT": ("AMD Radeon RX 9070 XT", "Qwen2.5-7B", "Q4_K_M", "ROCm", 0),
    "M1 Max 64GB": ("Apple M1 Max", "Qwen3.5-35B-A3B", "Q8_0", "Metal", 38596),
    "Decode Speed — MoE": ("Apple M5 Max", "Qwen3.5-35B-A3B", None, "Metal", 0),
    "Real-world server": ("Apple M5 Max", "Qwen3.5-35B-A3B", None, "Metal", 24000),
    "Qwen 3 397B IQ2_XS": ("Apple M1 Ultra", "Qwen3.5-397B-A17B", "IQ2_XS", "Metal", 0),
    "KL Divergence vs f16": ("Apple M5 Max", "Qwen3.5-35B-A3B", "Q8_0", "Metal", 0),
}
DECODE = ("Decode t/s", "Decode tok/s", "Short (tg128)", "tg128 tok/s", "tg128 t/s")


def rows(raw: Raw) -> Iterator[Row | LeftOut]:
    for file in raw.files(*ABOUT.files):
        for at, record, headings in raw.tables(file):
            # The nearest words count: the sentence above a table, then its heading.
            near = [setup for text in reversed(headings) for words, setup in SETUPS.items() if words in text]
            if not near:
                continue
            machine, model, weights, backend, depth = near[0]
            cache = _cache(record)
            value = next((record[name] for name in DECODE if record.get(name)), None)
            depth = _depth(record) if "Context" in record else 0 if "tg128 t/s" in record else depth
            scores = {"Mean KLD": "KLD against 16 bits"}
            scores |= {"PPL (wikitext-2)": "perplexity, wikitext-2"}
            score = next((name for name in scores if leading(record.get(name)) is not None), None)
            number = str(record.get(score) or "").strip("* ").replace(",", "") if score else None
            measured = single(leading(value)) if value else {}
            yield at.row(
                **measured,
                accelerator_raw=machine,
                accelerators=1,
                engine="llama.cpp",
                backend=backend,
                flags="fork=turboquant_plus",
                checkpoint_raw=model,
                weights_format=weights,
                kv_format=cache,
                context_depth=depth,
                quality=number if number and number != "NaN" else None,
                quality_metric=scores[score] if score and number != "NaN" else None,
            )


def _cache(record: dict) -> str | None:
    """The KV format of a line: one, or of K and V apart."""
    if "K" in record and "V" in record:
        parts = [str(record[name]).strip("* ") for name in ("K", "V")]
        return parts[0] if parts[0] == parts[1] else f"K {parts[0]}, V {parts[1]}"
    name = next((record[column] for column in ("KV", "Config", "Cache") if record.get(column)), "q8_0")
    apart = re.fullmatch(r"(\w+)-K \+ (\w+)-V", str(name).strip("* "))
    return f"K {apart[1]}, V {apart[2]}" if apart else str(name).strip("* ")


def _depth(record: dict) -> int:
    return int(
        float(str(record["Context"]).rstrip("kK")) * (1000 if "k" in str(record["Context"]).lower() else 1)
    )
