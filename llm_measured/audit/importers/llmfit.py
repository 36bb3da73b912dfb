"""What `llmfit bench --share` sends: a machine and one result per model, one answer at a time, times in ms.

As AlexsJones/llmfit keeps them (`llmfit-core/data/community`). A rate is the mean over answers: of
llama.cpp's server of the whole answer, of Ollama of its decoding alone.
"""

from llm_measured.audit import frame
from llm_measured.audit.importers.content import Content, seconds_from_ms

TOOL = "llmfit"
LOOKED_FOR = "tool with the name llmfit, and hardware"
WHOLE_ANSWER = "llamacpp"  # the provider whose rate has the prompt's time in it


def matches(content: Content) -> bool:
    found = content.json
    tool = found.get("tool") if isinstance(found, dict) else None
    return isinstance(tool, dict) and tool.get("name") == "llmfit" and "hardware" in found


def load(content: Content, file: str) -> frame.Audited:
    machine = content.json["hardware"]
    levels = [
        {
            "model": one["model"],
            "gpu": machine.get("hardwareName"),
            "tensor_parallel": machine.get("gpuCount"),
            "engine": "llama.cpp" if one.get("provider") == WHOLE_ANSWER else one.get("provider"),
            "concurrency": 1,
            "requests": one.get("numRuns"),
            "output_tokens": one.get("avgOutputTokens"),
            "ttft_mean_s": seconds_from_ms(one.get("avgTtftMs")),
            "e2e_mean_s": seconds_from_ms(one.get("avgTotalMs")),
            "request_tokens_per_s_mean": one.get("avgTps"),
            "request_tokens_per_s_min": one.get("minTps"),
            "request_tokens_per_s_max": one.get("maxTps"),
        }
        for one in content.json.get("results") or []
    ]
    return frame.make(file, TOOL, levels)
