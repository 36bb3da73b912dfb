"""Boards of localmaxxing.com, as llmfit's cache kept them: single requests on cards that people own.

A board shows the fastest of each kind of card, so its rates are above what most owners get. `batchSize` of
128 and more is llama.cpp's `-b`. Where output rate and total rate give the same time, the output rate is the
whole request's and holds the prompt's time. llama-bench's `-d` is a context depth, and llama-bench drafts
nothing, whatever the model's name says. Where the notes name two cards and the entry one, a row says so."""

import re
from collections.abc import Iterator
from typing import Any

from llm_measured.published import names
from llm_measured.published.reading import LeftOut, Raw, Record, Row, day, joined, number, scaled
from llm_measured.published.sources import about
from llm_measured.published.sources._tables import single

ABOUT = about("localmaxxing")
ENGINES = {"lmstudio": "LM Studio", "vllm": "vLLM", "mlx": "MLX"}
IN_HOST_MEMORY = re.compile(r"(?:--n-cpu-moe|-ncmoe) [1-9]\d*|--cpu-moe|(?:-ot|--override-tensor) \S*CPU")
DRAFTED = {"mtp": "MTP", "dflash": "DFlash", "eagle": "EAGLE"}


def rows(raw: Raw) -> Iterator[Row | LeftOut]:
    seen = set()
    for at, line in raw.jsonl("benchmark_cache_union.jsonl"):
        r = line["row"]
        machine, engine = r["hardware"], r["engine"]
        batch = number(r["batchSize"]) or 1
        set_up = (r.at("user", "id"), r.at("model", "hfId"), machine["gpuName"], engine["quantization"])
        again = (*set_up, r["promptTokens"], r["outputTokens"], r["contextLength"], r["tokSOut"])
        if again in seen:
            yield at.left_out("the same measurement was sent before")
            continue
        seen.add(again)
        if 1 < batch < 128 or (batch >= 128 and engine["engineName"] != "llama.cpp"):
            yield at.left_out("a batch that may be sequences, or prompt tokens that are read together")
            continue
        yield at.row(**single(r["tokSOut"]) | _columns(r, machine, engine, batch))


def _columns(r: Record, machine: Record, engine: Record, batch: float) -> dict[str, Any]:
    flags, model = r["engineFlags"] or Record(), str(r.at("model", "hfId"))
    base = r.at("model", "baseModel", "hfId")
    prompt, answer = number(r["promptTokens"]) or None, number(r["outputTokens"]) or None
    rate, total = number(r["tokSOut"]), number(r["tokSTotal"])
    both = bool(rate and total and prompt and answer and prompt > answer)
    first = number(r["ttftMs"])
    # A first token that took less than the tolerance says nothing of what the rate holds.
    told_apart = not (first and rate and answer and first / 1000 < 0.02 * answer / rate)
    whole = both and told_apart and abs(rate * (prompt + answer) / answer / total - 1) < 0.02
    chip = " ".join(dict.fromkeys(f"{machine['chipFamily']} {machine['chipVariant']}".split()))
    name = machine["gpuName"] or (f"Apple {chip}" if machine["chipFamily"] else machine["cpu"])
    told = f"{model} {flags['commandSnippet']} {r['notes']}".lower()
    method = next((DRAFTED[way] for way in DRAFTED if way in told), "not stated")
    command = str(flags["commandSnippet"] or "")
    bench = command.startswith("llama-bench")
    host = IN_HOST_MEMORY.search(command)
    drafted = flags["mtpEnabled"] is True or flags["specDecoding"] is True or method != "not stated"
    depth = re.search(r"\s-d (\d+)\b", command) if bench else None
    kept = re.search(r"\s(?:-ctk|--cache-type-k) (\w+)", command)
    two = re.search(r"\bdual gpu\b|\bdevice: \w+,\w", str(r["notes"]).lower())
    caveats = [
        "the rate is of the whole request and holds the prompt's time" if whole else None,
        "the notes name two cards, the entry one" if two and machine["gpuCount"] == 1 else None,
    ]
    split = number(flags["tensorParallel"])
    return {
        "original_id": r["id"],
        "published_on": day(r["createdAt"]),
        "accelerator_raw": name,
        "accelerator_memory_gb": machine["vramGb"] or machine["unifiedMemoryGb"],
        "accelerators": machine["gpuCount"],
        "tp": split,
        "host_cpu": machine["cpu"] if machine["gpuName"] else None,
        "engine": ENGINES.get(engine["engineName"], engine["engineName"]),
        "engine_version": str(engine["engineVersion"] or "").lstrip("@"),
        "backend": engine["backend"],
        "flags": joined(context=r["contextLength"], ngl=flags["gpuLayers"], flash_attn=flags["flashAttn"]),
        "checkpoint_raw": model,
        # A fine-tune has the shape of the model that it was made from; one with experts taken out has not.
        "model": names.model(model) or (names.model(base) if base and "reap" not in model.lower() else None),
        "weights_format": engine["quantization"],
        "kv_format": flags["kvCacheDtype"] or (kept[1] if kept else None),
        "speculative": method if drafted and not bench else None,
        "context_depth": depth[1] if depth else None,
        "offload": host[0].lstrip("-") if host else None,
        "prefill_chunk": batch if batch >= 128 else None,
        "input_tokens": prompt,
        "output_tokens": answer,
        "ttft_mean_ms": r["ttftMs"],
        "prompt_tokens_per_s": r["tokSPrefill"],
        "power_w": r["totalPowerWatts"],
        "power_scope": "accelerators" if r["totalPowerWatts"] else None,
        "peak_memory_bytes": scaled(r["peakVramGb"], "1e9"),
        "caveat": "; ".join(filter(None, caveats)) or None,
    }
