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
from llm_measured.audit.importers import numerals
from llm_measured.audit.importers.content import Content
from llm_measured.core.definitions import Fields, Value

TOOL = "llama-bench"
NAMED, BATCHED = {"model_type", "avg_ts"}, {"PP", "TG", "N_KV"}
PRINTED = ["test", "t/s"]  # the last columns of its Markdown
TEST = re.compile(
    r"(?:pp\s*(?P<n_prompt>\d+))?\s*\+?\s*(?:tg\s*(?P<n_gen>\d+))?(?:\s*@\s*d\s*(?P<n_depth>\d+))?"
)
RATE = {"pp": "prompt_tokens_per_s", "tg": "output_tokens_per_s", "pp+tg": "total_tokens_per_s"}
STATED = {"engine": "llama.cpp", "temperature": 0, "device_times": 1}
COLD = 3.0  # times as slow as the slowest of the others, from which a first sample was cold


def matches(content: Content) -> bool:
    if content.is_json:
        return bool(content.objects) and set(content.objects[0]) >= NAMED
    printed = content.header[:1] == ["model"] and content.header[-2:] == PRINTED
    return printed or any({*content.header} >= names for names in (NAMED, BATCHED))


def load(content: Content, file: str) -> frame.Audited:
    if content.is_json:
        rows = content.objects
    else:
        rows = [dict(zip(content.header, row, strict=False)) for row in content.rows()]
    if rows and rows[0].keys() >= BATCHED:
        tool = "llama-batched-bench" if "B" in rows[0] else "llama-sweep-bench"
        return frame.make(file, tool, [STATED | _batched(row) for row in rows])
    notes = [*filter(None, map(_cold, rows))]
    return frame.make(file, TOOL, [STATED | _level(row) for row in rows], notes=notes)


def _batched(row: Fields) -> Fields:
    number = {name: _number(value) for name, value in row.items()}
    steps, time, alone = number["TG"] or None, number.get("T_TG s"), "B" not in row
    return {
        "name": "batch",
        "batch_size": number.get("B", 1),
        "depth_tokens": number["N_KV"] if alone else None,
        "prompt_tokens": number["PP"],
        "output_tokens": steps,
        "prefill_s": number.get("T_PP s"),
        "decode_s": time,
        "prompt_tokens_per_s": number.get("S_PP t/s"),
        "total_tokens_per_s": number.get("S t/s"),
        "output_tokens_per_s": number.get("S_TG t/s") if alone else None,
        "tpot_mean_s": time / steps if time and steps else None,
    }


def _level(row: Fields) -> Fields:
    test = TEST.match(row.get("test", ""))
    row = row | (test.groupdict() if test and "test" in row else {})
    prompt, generated, depth = (_number(row.get(name)) or 0 for name in ("n_prompt", "n_gen", "n_depth"))
    name = "pp+tg" if prompt and generated else "pp" if prompt else "tg"
    printed, _, spread = str(row.get("avg_ts", row.get("t/s"))).partition("±")
    rate, type_ = _number(printed), row.get("model_type")
    seconds = row.get("samples_ns")
    size = _number(row.get("model_size") or row.get("size"), "model_bytes")
    return {
        "name": name,
        RATE[name]: rate,
        "tpot_mean_s": 1 / rate if name == "tg" and rate else None,
        "spread_tokens_per_s": _number(row.get("stddev_ts", spread)),
        "prompt_tokens": prompt or depth,
        "output_tokens": generated,
        "depth_tokens": depth,
        "batch_size": 1,
        "warmup_requests": 1,  # it runs each test once before it counts
        "runs": len(seconds) if isinstance(seconds, list) else None,
        "sample_tokens_per_s": _mean(row.get("samples_ts")),
        "sample_s": (_mean(seconds) or _number(row.get("avg_ns")) or float("nan")) * 1e-9,
        "model": row.get("model_filename") or type_ or row.get("model"),
        "option": type_,
        "weights": type_ or row.get("model"),
        "model_bytes": size if name == "tg" else None,
        "model_parameters": _number(row.get("model_n_params") or row.get("params"), "model_parameters"),
        "gpu": row.get("gpu_info") or row.get("cpu_info"),
        "tensor_parallel": len(row["gpu_info"].split(",")) if row.get("gpu_info") else None,
        "engine": f"llama.cpp {row.get('backends') or row.get('backend') or ''}".strip(),
        "engine_version": str(row.get("build_number") or row.get("build_commit") or ""),
        "settings": ", ".join(
            f"{one}={row[one]}" for one in filter(_is_setting, row) if str(row[one]).strip()
        ),
    }


def _is_setting(name: str) -> bool:
    word, _ = quantities.meaning(name) or ("", None)
    return word in quantities.table() and quantities.table()[word].kind == "setting"


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


def _number(value: Value, word: str = "") -> float | None:
    """The number of a text such as `4.58 GiB` or `8.03 B`, None where it is none."""
    number = numerals.numbers(pd.Series([value], dtype=object), word=word)[0].iloc[0]
    return number if number == number else None
