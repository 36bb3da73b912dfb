"""llama-bench, of llama.cpp: its JSON, JSON lines, CSV and Markdown.

Read from files that a build of llama.cpp wrote here, and as ggml-org/llama.cpp
`tools/llama-bench/README.md` documents them. Every row is one test on one stream: `pp` reads prompts of
n_prompt tokens, `tg` generates n_gen tokens one by one, so its 1 / rate is the TPOT. llama-batched-bench
(`tools/batched-bench/README.md`) reads prompts of PP tokens in batches of B in T_PP seconds, then generates
TG tokens of each in T_TG; llama-sweep-bench does so for one stream, after N_KV tokens.
"""

import re

import pandas as pd

from llm_measured.audit import frame, quantities
from llm_measured.audit.importers import declared, numerals
from llm_measured.audit.importers.content import Content
from llm_measured.core.definitions import Fields, Value

TOOL, BATCHED, SWEEP = "llama-bench", "llama-batched-bench", "llama-sweep-bench"
MARKS, MARKS_OF_BATCHES = {"model_type", "avg_ts"}, {"PP", "TG", "N_KV"}
PRINTED = ["test", "t/s"]  # the last columns of its Markdown
TEST = re.compile(
    r"(?:pp\s*(?P<n_prompt>\d+))?\s*\+?\s*(?:tg\s*(?P<n_gen>\d+))?(?:\s*@\s*d\s*(?P<n_depth>\d+))?"
)
RATE = {"pp": "prompt_tokens_per_s", "tg": "output_tokens_per_s", "pp+tg": "total_tokens_per_s"}
LENGTHS = "prompt_tokens", "output_tokens", "depth_tokens"
COLD = 3.0  # times as slow as the slowest of the others, from which a first sample was cold


def matches(content: Content) -> bool:
    if content.is_json:
        return bool(content.objects) and set(content.objects[0]) >= MARKS
    printed = content.header[:1] == ["model"] and content.header[-2:] == PRINTED
    return printed or any({*content.header} >= names for names in (MARKS, MARKS_OF_BATCHES))


def load(content: Content, file: str) -> frame.Audited:
    if content.is_json:
        rows = content.objects
    else:
        rows = [dict(zip(content.header, row, strict=False)) for row in content.rows()]
    if rows and rows[0].keys() >= MARKS_OF_BATCHES:
        tool = BATCHED if "B" in rows[0] else SWEEP
        return frame.make(file, tool, [_batched(row, tool) for row in rows])
    return frame.make(file, TOOL, list(map(_level, rows)), notes=[*filter(None, map(_cold, rows))])


def _batched(row: Fields, tool: str) -> Fields:
    figures = {quantities.snaked(name): value for name, value in row.items()}
    level = declared.read(declared.rows(tool)[""], figures)
    time, steps = level.get("decode_s"), level.get("output_tokens") or None
    return level | {"output_tokens": steps, "tpot_mean_s": time / steps if time and steps else None}


def _level(row: Fields) -> Fields:
    test = TEST.match(row.get("test", ""))
    row = row | (test.groupdict() if test and "test" in row else {})
    row = row | {"build_number": row.get("build_number") or None}  # of a build without a repository 0
    level = declared.read(declared.rows(TOOL)[""], row)
    prompt, generated, depth = (level.get(name) or 0 for name in LENGTHS)
    name = "pp+tg" if prompt and generated else "pp" if prompt else "tg"
    rate = level.pop("output_tokens_per_s", None)
    seconds = row.get("samples_ns")
    spread = numerals.spreads(pd.Series([row.get("t/s", "")]))
    level |= dict(zip(LENGTHS, (prompt or depth, generated, depth)))
    level |= {"name": name, RATE[name]: rate, "sample_tokens_per_s": _mean(row.get("samples_ts"))}
    if isinstance(seconds, list) and seconds:
        level |= {"runs": len(seconds), "sample_s": 1e-9 * sum(seconds) / len(seconds)}
    if name == "tg":
        level["tpot_mean_s"] = 1 / rate if rate else None
    else:
        level["model_bytes"] = None
    if spread is not None:
        level["spread_tokens_per_s"] = spread[0]
    if row.get("gpu_info"):
        level["tensor_parallel"] = len(row["gpu_info"].split(","))
    stated = [name for name in row if _is_setting(name) and str(row[name]).strip()]
    return level | {"settings": ", ".join(f"{name}={row[name]}" for name in stated)}


def _is_setting(name: str) -> bool:
    word, _ = quantities.meaning(name) or ("", None)
    return quantities.kind(word) == "setting"


def _cold(row: Fields) -> str:
    """A sentence on a first sample that was cold, as the mean has it in; empty where it was not."""
    samples = row.get("samples_ts")
    if not isinstance(samples, list) or len(samples) < 3 or not 0 < COLD * samples[0] < min(samples[1:]):
        return ""
    return (
        f"The first of {len(samples)} samples was cold: {samples[0]:.4g} tokens/s, the others "
        f"{_mean(samples[1:]):.4g}; the published mean has it in."
    )


def _mean(values: Value) -> float | None:
    return sum(values) / len(values) if isinstance(values, list) and values else None
