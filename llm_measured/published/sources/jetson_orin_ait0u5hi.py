"""One Jetson AGX Orin 64 GB: one, three and six requests sent together, and long prompts with some 30 new
tokens. The rate of a long prompt holds the prompt's time, so its seconds are read instead. No file says how
TTFT was taken, so neither it nor the times of the prefix cache are read."""

import re
from collections.abc import Iterator
from typing import Any

from llm_measured.published.reading import LeftOut, Place, Raw, Row, joined
from llm_measured.published.sources import about

ABOUT = about("jetson-orin-ait0u5hi")
# Model, format, engine, speculation and flash attention of each printout, as the pages beside them say.
LLAMA, MTP = "llama.cpp", "MTP"
SET_UPS = {
    "agentworld-35b-Q4": ("Qwen-AgentWorld-35B-A3B", "IQ4_NL", LLAMA, None, "on"),
    "qwen38-27b-Q4": ("Qwen3.8-27B", "Q4_K_M", LLAMA, None, "on"),
    "qwen38-27b-MTP": ("Qwen3.8-27B-MTP", "Q4_K_M", LLAMA, MTP, "on"),
    "llamacpp-Q4-noFA": ("Qwen3.8-27B", "UD-Q4_K_M", LLAMA, None, "off"),
    "llamacpp-Q4-flashattn": ("Qwen3.8-27B", "UD-Q4_K_M", LLAMA, None, "on"),
    "llamacpp-Q4-MTP": ("Qwen3.8-27B-MTP", "Q4_K_M", LLAMA, MTP, None),
    "vllm-0.20-AWQ-INT4": ("Qwen3.8-27B", "AWQ-INT4", "vLLM", None, None),
    "perf__qwen-agentworld-35b": ("Qwen-AgentWorld-35B-A3B", "IQ4_NL", LLAMA, None, "on"),
    "perf__qwen3.6-35b": ("Qwen3.6-35B-A3B", None, LLAMA, MTP, "on"),
    "perf__qwen3.8-27b-mtp": ("Qwen3.8-27B-MTP", "Q4_K_M", LLAMA, MTP, "on"),
}
TOGETHER = re.compile(r"N= *(\d+) .*wall= *([\d.]+)s.*gen(?:_tokens)?= *(\d+) .*AGG(?: tok/s)?= *([\d.]+)")
LONG = re.compile(r"CTX_TARGET=\d+ PROMPT_TOKENS=(\d+) GEN_TOKENS=(\d+) WALL_S=([\d.]+)")


def rows(raw: Raw) -> Iterator[Row | LeftOut]:
    for file in raw.files(*ABOUT.files):
        name = file.removeprefix("results__raw__").removesuffix(".txt")
        if name not in SET_UPS:
            continue
        model, form, engine, drafted, attention = SET_UPS[name]
        common: dict[str, Any] = {
            "accelerator_raw": "Jetson AGX Orin 64GB",
            "accelerators": 1,
            "engine": engine,
            "engine_version": "0.20" if engine == "vLLM" else None,
            "flags": joined(flash_attn=attention),
            "checkpoint_raw": model,
            "weights_format": form,
            "speculative": drafted,
            "lengths": "exact",
        }
        text = raw.text(file)
        day = re.match(r"=== (\d{4}-\d\d-\d\d)T", text)
        for number, line in enumerate(text.splitlines(), start=1):
            at = Place(raw, file, f"L{number}", line)
            if told := TOGETHER.search(line):
                requests = int(told[1])
                yield at.row(
                    **common,
                    workload="closed_loop" if requests > 1 else "single",
                    concurrency=requests,
                    output_tokens=int(told[3]) / requests,
                    throughput_raw=told[4],
                    throughput_counts="output",
                    throughput_scope="all",
                    requests=requests,
                    duration_s=told[2],
                )
            elif told := LONG.match(line):
                yield at.row(
                    **common,
                    measured_on=day[1] if day else None,
                    workload="single",
                    concurrency=1,
                    input_tokens=told[1],
                    output_tokens=told[2],
                    latency_raw_s=told[3],
                )
