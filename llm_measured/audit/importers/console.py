"""What benchmark tools print, as people paste it into issues and blogs: lines of a name and a value.

vLLM's and SGLang's "Serving Benchmark Result" (vllm-project/vllm `vllm/benchmarks/serve.py`,
sgl-project/sglang `python/sglang/bench_serving.py`), `vllm bench throughput` and `latency`, trtllm-bench's
"PERFORMANCE OVERVIEW" (NVIDIA/TensorRT-LLM `tensorrt_llm/bench/dataclasses/reporting.py`),
`ollama run --verbose` (ollama/ollama `api/types.go`), and the timings of llama.cpp's server and tools.
Samples in data/audits/samples are made up in the same form.
"""

import re
from collections.abc import Iterator
from functools import cache

from llm_measured.audit import frame, quantities
from llm_measured.audit.importers import numerals
from llm_measured.audit.importers.content import Content
from llm_measured.core import names

TOOL = "console text"
VLLM, SGLANG, TRTLLM, OLLAMA, LLAMA, MLX = (
    "vllm bench",
    "SGLang bench_serving",
    "trtllm-bench",
    "ollama",
    "llama.cpp",
    "mlx_lm",
)
VALUE = re.compile(r"^(?P<number>[-+]?[\d.,]+(?:[eE][-+]?\d+)?)\s*(?P<unit>[A-Za-z/ ]{0,24})$")
OF_RUN = {"engine", "model", "engine_version", "device_times", "name"}  # may come again in one result
FEWEST_NAMES = 2  # of measured quantities that make lines a result
MOST_LINES, LINE_CHARS = 200_000, 400
# What loggers and quotes put before a line: a moment, a level, a process.
PREFIX = re.compile(
    r"^(?:[>\s|]+|\x1b\[[\d;]*m|\([^()]{1,60}pid=\d+[^()]{0,20}\)\s*|\[[^\[\]]{1,60}\]\s*"
    r"|(?:INFO|WARNING|DEBUG)\s+[\d:., \-]{4,30}|(?:INFO|WARNING|DEBUG)\s*[-:]\s+"
    r"|\d{4}-\d\d-\d\d[T ][\d:.,+Z]+\s*-?\s*)+"
)
SERVING = re.compile(r"=+ *Serving Benchmark Result *=+", re.I)
# Mean TTFT (ms):                          118.42
LINE = re.compile(r"^(?P<name>[A-Za-z\d][\w /.,%&()\[\]\-]{1,70}?)\s*[:=]\s+(?P<value>\S.*)$")
# Words alone begin a section; what stands under parameters was asked for and not measured.
HEADING = re.compile(r"[A-Za-z][A-Za-z _-]{2,60}")
PARAMETERS = re.compile(r"parameter|setting|argument|option|config", re.I)
NUMBER = re.compile(r"^[-+]?\d[\d,]*(?:\.\d+)?(?:[eE][-+]?\d+)?")


@cache
def _printed() -> dict[str, dict[str, str]]:
    """{tool: {name without its unit, in small letters: column of the frame}} of printed.csv."""
    found: dict[str, dict[str, str]] = {}
    for row in quantities.rows_of("printed.csv"):
        found.setdefault(row["tool"], {})[row["name"]] = row["column"]
    return found


# Lines that are more than a name and a value, each with an example.
# Throughput: 12.30 requests/s, 5678.90 total tokens/s, 2345.60 output tokens/s
THROUGHPUT = re.compile(
    r"^Throughput: (?P<requests_per_s>[\d.]+) requests/s, (?P<total_tokens_per_s>[\d.]+) (?:total )?tokens/s"
    r"(?:, (?P<output_tokens_per_s>[\d.]+) output tokens/s)?"
)
# Avg latency: 1.25 seconds; 99% percentile latency: 1.31 seconds
LATENCY = re.compile(r"^(?P<statistic>Avg|(?:50|90|95|99)% percentile) latency: (?P<seconds>[\d.]+) seconds")
# prompt eval time =  444.18 ms /   800 tokens (    0.56 ms per token,  1801.07 tokens per second)
LLAMA_TIME = re.compile(
    r"(?P<part>prompt eval|eval|total) time *= *(?P<ms>[\d.]+) ms / *(?P<tokens>\d+) (?:tokens|runs)"
    r"(?: *\( *[\d.]+ ms per token, *(?P<tokens_per_s>[\d.]+) tokens per second\))?"
)
# Prompt: 512 tokens, 890.112 tokens-per-sec
MLX_LINE = re.compile(
    r"^(?P<part>Prompt|Generation): (?P<tokens>\d+) tokens, (?P<tokens_per_s>[\d.]+) tokens-per-sec"
)
# [Latency] P99    : 1234.5678
BREAKDOWN = re.compile(
    r"^\[(?P<time>Latency|TTFT|TPOT|ITL)\] (?P<statistic>P50|P90|P95|P99|MINIMUM|MAXIMUM|AVERAGE)"
    r"\s*: *(?P<ms>[\d.,]+)",
    re.I,
)
# AVG:   128.00   128.00   256.00     (prompt, answer and both, as trtllm-bench's data set asks them)
DATA_SET = re.compile(r"^AVG: +(?P<prompt>[\d.]+) +(?P<answer>[\d.]+) +[\d.]+$")
MODEL = re.compile(r"^Model(?: name)?: +([\w./:-]{3,100})$", re.I)
DEVICE = re.compile(r"^(?:Hardware|GPU|Device|Accelerator)s?: +(\S.{1,80})$", re.I)
RUNS = re.compile(r" --runs (\d{1,3})\b")  # of llama-benchy's command
MARKS = str.maketrans("", "", "*`_")  # that make a name bold
# vllm bench serve … --num-prompts 3000 --random-output-len 128
ASKED = re.compile(r"--(?P<what>num-prompts|random-output-len|output-len)[ =](?P<number>\d+)\b")
RUN = re.compile(r"ollama run (?:--verbose )?([\w./:-]{2,80})")
NAMESPACE = re.compile(
    r"\b(model|tensor_parallel_size|max_concurrency|request_rate|dtype)=(?:'([^']{0,120})'|([\w.]+))"
)
TEXT_COLUMNS = {"model", "engine", "engine_version", "weights", "dtype"}


def matches(content: Content) -> bool:
    return not content.is_json and any(True for _ in blocks(content.whole_text))


def load(content: Content, file: str) -> frame.Audited:
    levels = [_finished(tool, found) for tool, found in blocks(content.whole_text)]
    made = [frame.make(file, tool, [level]) for tool, level in levels]
    read = frame.join(made, one_file=True)
    tools = ", ".join(dict.fromkeys(tool for tool, _ in levels))
    read.notes.append((file, f"Printed results of {tools} were read: {len(levels)} in all."))
    return read


def lines_of_names(text: str) -> list[list[str]]:
    """A table of the lines `name: value unit` that mean something that is measured, whatever tool printed
    them: its header, and a row each time a name comes again; empty where fewer than FEWEST_NAMES do."""
    rows: list[dict[str, str]] = [{}]
    asked = False
    for line in text.splitlines()[:MOST_LINES]:
        plain = PREFIX.sub("", line[:LINE_CHARS]).strip()
        if HEADING.fullmatch(plain):
            asked = bool(PARAMETERS.search(plain))
        match = LINE.match(plain)
        value = VALUE.match(match["value"].strip()) if match else None
        if not match or not value:
            continue
        bare, unit = match["name"].strip(), value["unit"].strip()
        named = f"{bare} ({unit})" if unit else bare
        # A rate's unit may only repeat its name: `Output tokens per second: 48.2 tokens/s`.
        name = next((one for one in (named, bare) if quantities.meaning(one)), "")
        word = (quantities.meaning(name) or ("",))[0]
        if not name or (asked and not (word in quantities.table() and quantities.table()[word].setting)):
            continue
        if rows[-1].get(name, value["number"]) != value["number"]:
            rows.append({})
        rows[-1][name] = value["number"]
    header = list(dict.fromkeys(name for row in rows for name in row))
    measured = quantities.measured()
    known = [name for name in header if quantities.meaning(name)[0].startswith(tuple(measured))]
    if len(known) < FEWEST_NAMES:
        return []
    return [header, *([row.get(name, "") for name in header] for row in rows)]


def blocks(text: str) -> Iterator[tuple[str, dict]]:
    """(tool, {column: value}) of each result that the text prints, in its order."""
    tool, found, about = "", {}, {}
    for line in text.splitlines()[:MOST_LINES]:
        raw = line[:LINE_CHARS]
        about |= _about(line[:4_000])
        plain = PREFIX.sub("", raw).strip()
        begins, pairs = _read(plain, raw, tool)
        again = set(pairs) & set(found) - OF_RUN
        if begins == SGLANG and tool == VLLM and not again:
            tool = SGLANG  # both begin with one heading
        elif begins and (begins != tool or SERVING.search(plain) or again):
            whole = _whole(found)
            if whole:
                yield tool, about | found
            # Counts that stand twice before the first time are one result's.
            tool, found = begins, {} if whole or begins != tool else found
        elif again:
            continue  # the breakdown repeats a mean
        if tool or begins:
            found |= pairs
    if _whole(found):
        yield tool, about | found


def stated(text: str) -> dict[str, str | float]:
    """The model, the device and the repeats that lines of a text state for all of it (`**Model:** qwen3-8b`),
    where it states one of each; a device only where a table knows it."""
    named: dict[str, dict[str, None]] = {"model": {}, "gpu": {}, "runs": {}}
    for line in text.splitlines()[:MOST_LINES]:
        plain = line[:LINE_CHARS].translate(MARKS).strip("-> \t")
        for column, pattern in (("model", MODEL), ("gpu", DEVICE)):
            if match := pattern.match(plain):
                named[column][match[1].strip()] = None
        if match := RUNS.search(line[:4_000]):
            named["runs"][match[1]] = None
    one: dict[str, str | float]
    one = {column: next(iter(values)) for column, values in named.items() if len(values) == 1}
    if "runs" in one:
        one["runs"] = float(one["runs"])
    if "gpu" in one:
        try:
            names.accelerator(str(one["gpu"]))
        except names.UnknownName:
            del one["gpu"]
    return one


def _whole(found: dict) -> bool:
    """Whether a block holds something that was measured."""
    return any(key.endswith(("_s", "_rate")) and key != "request_rate" for key in found)


def _about(line: str) -> dict:
    """What a command or its printed options say of the run that follows."""
    out = {}
    if "Namespace(" in line:
        for name, quoted, bare in NAMESPACE.findall(line):
            value = quoted or bare
            column = {"max_concurrency": "concurrency", "tensor_parallel_size": "tensor_parallel"}.get(
                name, name
            )
            if value not in ("None", "auto", "inf", ""):
                out[column] = value if column in TEXT_COLUMNS else _number(value)
    for asked in ASKED.finditer(line):
        out["asked" if asked["what"] == "num-prompts" else "max_new_tokens"] = float(asked["number"])
    named = RUN.search(line) or MODEL.match(PREFIX.sub("", line[:LINE_CHARS]).strip())
    if named:
        out["model"] = named[1]
    return out


def _read(plain: str, raw: str, tool: str) -> tuple[str, dict]:
    """(the tool whose result this line belongs to, {column: value} of the line), both empty for any other
    line. `plain` is the line without a logger's prefix, `raw` with it, `tool` the one of the lines before."""
    if SERVING.search(plain):
        return VLLM, {}
    if match := THROUGHPUT.match(plain):
        rates = {column: float(rate) for column, rate in match.groupdict().items() if rate}
        return VLLM, rates | {"device_times": 1, "name": "throughput"}
    if match := LATENCY.match(plain):
        column = _statistic_of_time(f"{match['statistic']} latency (s)")
        return VLLM, {column: float(match["seconds"]), "device_times": 1, "name": "latency"}
    if match := LLAMA_TIME.search(plain):
        return LLAMA, _of_llama(match)
    if match := MLX_LINE.match(plain):
        tokens, rate = float(match["tokens"]), float(match["tokens_per_s"])
        if match["part"] == "Prompt":
            return MLX, {"prompt_tokens": tokens, "prompt_tokens_per_s": rate}
        return MLX, {"output_tokens": tokens, "decode_rate": rate}
    if match := BREAKDOWN.match(raw.strip().lstrip("> ")):
        column = _statistic_of_time(f"{match['statistic']} {match['time']} (ms)")
        return "", {column: _number(match["ms"]) / 1e3} if tool == TRTLLM else {}
    if (match := DATA_SET.match(plain)) and tool == TRTLLM:
        return "", {"prompt_tokens": float(match["prompt"]), "max_new_tokens": float(match["answer"])}
    match = LINE.match(plain)
    return _named(match["name"].strip().lower(), match["value"].strip(), tool) if match else ("", {})


def _of_llama(line: re.Match) -> dict:
    """{column: value} of a line of llama.cpp's timings."""
    seconds, tokens = float(line["ms"]) / 1e3, float(line["tokens"])
    if line["part"] == "total":
        return {"e2e_s": seconds}
    if line["part"] == "prompt eval":
        found, rate = {"prefill_s": seconds, "prompt_tokens": tokens}, "prompt_tokens_per_s"
    else:
        found, rate = {"decode_s": seconds, "output_tokens": tokens}, "decode_rate"
    return found | ({rate: float(line["tokens_per_s"])} if line["tokens_per_s"] else {})


def _named(name: str, value: str, tool: str) -> tuple[str, dict]:
    """(tool, {column: value}) of a line of a name and a value."""
    if "retokenized" in name:
        return "", _value("retokenized_output_tokens", value, "") if "generated" in name else {}
    bare, _, unit = name.partition(" (")
    unit = unit.split(")")[0]
    if bare in _printed()["ollama"]:
        return OLLAMA, _value(_printed()["ollama"][bare], value, unit)
    if tool in (VLLM, SGLANG) and (column := _statistic_of_time(f"{bare} (ms)")):
        # No time begins a result: vLLM prints its median once more as the P50.
        return "", _value(column, value, unit or "ms")
    if tool in (VLLM, SGLANG) and bare in _printed()["serve"]:
        return (SGLANG if bare == "traffic request rate" else tool), _value(
            _printed()["serve"][bare], value, unit
        )
    if bare == "successful requests":
        return VLLM, _value("requests", value, unit)
    trt_unit = "tokens/sec" in unit or "req/sec" in unit or "tps/" in unit
    if bare in _printed()["trtllm-bench"] and (tool == TRTLLM or trt_unit or "tensorrt" in bare):
        return TRTLLM, _value(_printed()["trtllm-bench"][bare], value, unit)
    return "", {}


def _statistic_of_time(name: str) -> str:
    """The column of a statistic of a request's time (`p99 TTFT (ms)`), empty for anything else."""
    column = (quantities.meaning(name) or ("",))[0]
    return column if column.startswith(frame.TIMES) and column.count("_") == 2 else ""


def _value(column: str, value: str, unit: str) -> dict:
    """{column: the value in its unit}, empty where there is none."""
    if not column:
        return {}
    if column in TEXT_COLUMNS:
        return {column: value[:120]} if value.lower() not in ("none", "n/a", "null") else {}
    number = _seconds(value, unit) if column.endswith("_s") and "per_s" not in column else _number(value)
    return {column: number} if number is not None else {}


def _seconds(value: str, unit: str) -> float | None:
    """Seconds of `2m27.99s`, of `204.563ms`, or of a number whose unit stands in the name."""
    if len(numerals.PART.findall(value)) and (seconds := numerals.span(value.replace(" ", ""))) is not None:
        return seconds
    number = _number(value)
    factor = quantities.UNITS.get(unit.strip().lower(), 1.0)
    return None if number is None else number * factor


def _number(value: str) -> float | None:
    match = NUMBER.match(value)
    return float(match[0].replace(",", "")) if match else None


def _finished(tool: str, found: dict) -> tuple[str, dict]:
    """A block as a level of the frame: means of lengths, and what follows from the tool itself."""
    level = dict(found)
    requests = level.get("requests")
    if requests and tool in (VLLM, SGLANG):
        for total, mean in (
            ("total_prompt_tokens", "prompt_tokens"),
            ("total_output_tokens", "output_tokens"),
        ):
            if level.get(total) is not None:
                level[mean] = level[total] / requests
    if tool in (OLLAMA, LLAMA, MLX):
        level |= {"concurrency": 1, "engine": tool, "batch_size": None}
        rate = level.pop("decode_rate", None)
        level |= {"tpot_s": 1 / rate} if rate else {}
    dtype = level.pop("dtype", None)
    if dtype:
        level["weights"] = f"{level.get('weights', '')} {dtype}".strip()
    if (accepted := level.pop("accepted", None)) and accepted > 1:
        level["option"] = f"speculative decoding, {accepted:.3g} tokens a step"
    if tool == TRTLLM:
        level.setdefault("engine", "TensorRT-LLM")
    return tool, level
