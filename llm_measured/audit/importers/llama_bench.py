"""llama-bench, of llama.cpp: its JSON, JSON lines, CSV and Markdown.

Read from files that a build of llama.cpp wrote here, and as ggml-org/llama.cpp
`tools/llama-bench/README.md` documents them. Every row is one
test on one stream: `pp` reads prompts of n_prompt tokens, `tg` generates n_gen tokens one by one, so its 1
/ rate is the TPOT.
"""

import re

from llm_measured.audit import frame
from llm_measured.audit.importers import declared
from llm_measured.audit.importers.content import Content

TOOL = "llama-bench"
# What llama-batched-bench (ggml-org/llama.cpp `tools/batched-bench/README.md`) calls its columns.
# llama-sweep-bench has the same for one stream, after N_KV tokens each.
BATCHED = {"PP", "TG", "N_KV"}
PRINTED = ["test", "t/s"]  # the last columns of its Markdown
# Its settings, as quantities.csv names them.
SETTINGS = (
    "type_k type_v n_gpu_layers ngl n_cpu_moe n_threads threads flash_attn fa n_batch n_ubatch split_mode sm "
    "tensor_split main_gpu use_mmap mmap no_kv_offload"
).split()
BILLIONS = {"K": 1e3, "M": 1e6, "B": 1e9, "T": 1e12}
GIB = {"KiB": 2**10, "MiB": 2**20, "GiB": 2**30}


def matches(content: Content) -> bool:
    if content.is_json:
        return bool(content.objects) and {"model_type", "avg_ts"} <= set(content.objects[0])
    if BATCHED <= set(content.header):
        return True
    printed = content.header[:1] == ["model"] and content.header[-2:] == PRINTED
    return {"model_type", "avg_ts"} <= set(content.header) or printed


def load(content: Content, file: str) -> frame.Audited:
    if content.is_json:
        rows = content.objects
    elif BATCHED <= set(content.header):
        tests = [dict(zip(content.header, row, strict=False)) for row in content.rows()]
        tool = "llama-batched-bench" if "B" in content.header else "llama-sweep-bench"
        return frame.make(file, tool, [_batched(row) for row in tests])
    else:
        rows = [dict(zip(content.header, row, strict=False)) for row in content.rows()]
        rows = rows if "avg_ts" in content.header else [_from_markdown(row) for row in rows]
    return frame.make(file, TOOL, [_level(row) for row in rows], notes=[*filter(None, map(_cold, rows))])


COLD = 3.0  # times as slow as the slowest of the others, from which a first sample was cold


def _cold(row):
    """A sentence on a first sample that was cold, as the mean has it in; empty where it was not."""
    samples = row.get("samples_ts")
    if not isinstance(samples, list) or len(samples) < 3 or not 0 < COLD * samples[0] < min(samples[1:]):
        return ""
    rest = _mean(samples[1:])
    return (
        f"The first of {len(samples)} samples was cold: {samples[0]:.4g} tokens/s, the others {rest:.4g}; "
        "the published mean has it in."
    )


def _batched(row):
    """One line of llama-batched-bench: prompts of PP tokens in batches of B read in T_PP seconds, then TG
    tokens of each generated in T_TG; its S_TG is a rate of decoding alone."""
    number = {name: _number(value) for name, value in row.items()}
    steps = number.get("TG") or 0
    return {
        "name": "batch",
        "engine": "llama.cpp",
        "batch_size": number.get("B", 1),
        "depth_tokens": None if "B" in row else number.get("N_KV"),
        "prompt_tokens": number.get("PP"),
        "output_tokens": steps or None,
        "prefill_s": number.get("T_PP s"),
        "decode_s": number.get("T_TG s"),
        "prompt_tokens_per_s": number.get("S_PP t/s"),
        "total_tokens_per_s": number.get("S t/s"),
        "output_tokens_per_s": None if "B" in row else number.get("S_TG t/s"),
        "tpot_mean_s": number["T_TG s"] / steps if number.get("T_TG s") and steps else None,
        "temperature": 0,
        "device_times": 1,
    }


def _level(row):
    number = lambda name: _number(row.get(name))  # noqa: E731
    prompt, generated, rate = number("n_prompt") or 0, number("n_gen") or 0, number("avg_ts") or float("nan")
    samples = row.get("samples_ns")
    level = {
        "engine": "llama.cpp",
        "engine_version": str(row.get("build_number") or row.get("build_commit") or ""),
        "batch_size": 1,
        "model_bytes": number("model_size") if generated and not prompt else None,
        "device_times": 1,
        "runs": len(samples) if isinstance(samples, list) else None,
        "settings": _settings(row),
        "temperature": 0,
        "warmup_requests": 1,  # it runs each test once before it counts
        "tensor_parallel": _devices(row),
        "sample_tokens_per_s": _mean(row.get("samples_ts")),
        "sample_s": (_mean(samples) or number("avg_ns") or float("nan")) * 1e-9,
    }
    level |= declared.read(declared.rows(TOOL)[""], row)
    return level | _rates(prompt, generated, number("n_depth") or 0, rate)


def _settings(row):
    """`name=value` of the settings that have no column of their own."""
    return ", ".join(f"{name}={row[name]}" for name in SETTINGS if str(row.get(name, "")).strip())


def _devices(row):
    """Devices that the file lists; one where it names a single one."""
    listed = str(row.get("gpu_info") or "").split(",")
    return len(listed) if listed[0].strip() else None


def _mean(values):
    """Mean of a list of numbers; None where there is none."""
    numbers = [v for v in values or [] if isinstance(v, (int, float))] if isinstance(values, list) else []
    return sum(numbers) / len(numbers) if numbers else None


RATE = {"pp": "prompt_tokens_per_s", "tg": "output_tokens_per_s", "pp+tg": "total_tokens_per_s"}


def _rates(prompt, generated, depth, rate):
    """Figures of one test: a rate of prompt tokens, of output tokens, or of both together; `depth` tokens
    lie in the cache before."""
    name = "pp+tg" if prompt and generated else "pp" if prompt else "tg"
    lengths = {"depth_tokens": depth, "prompt_tokens": prompt or depth, "output_tokens": generated}
    step = {"tpot_mean_s": 1 / rate} if name == "tg" and rate else {}
    return {"name": name, RATE[name]: rate} | lengths | step


def _from_markdown(row):
    """A line of the Markdown in the names of the JSON."""
    test = re.match(r"(pp|tg)\s*(\d+)(?:\s*\+\s*tg\s*(\d+))?(?:\s*@\s*d\s*(\d+))?", row.get("test", ""))
    size = re.match(r"([\d.]+) ([KMG]iB)", row.get("size", ""))
    params = re.match(r"([\d.]+) ?([KMBT])", row.get("params", ""))
    rate, _, spread = (part.strip() for part in row.get("t/s", "").partition("±"))
    kind, n, more, depth = test.groups() if test else ("", 0, 0, 0)
    return row | {
        "model_filename": row.get("model"),
        "backends": row.get("backend", ""),
        "model_size": float(size[1]) * GIB[size[2]] if size else None,
        "model_n_params": float(params[1]) * BILLIONS[params[2]] if params else None,
        "n_prompt": n if kind == "pp" else 0,
        "n_gen": more if kind == "pp" else n,
        "n_depth": depth,
        "avg_ts": rate,
        "stddev_ts": spread,
    }


def _number(value):
    try:
        return float(value)
    except (TypeError, ValueError):
        return None
