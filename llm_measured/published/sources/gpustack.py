"""GPUStack's tuning pages: vLLM, SGLang, TensorRT-LLM and MindIE on A100, H100, H200 and Ascend 910B; each
step is a printout of a serving benchmark.

A page names all GPUs of its machine. A serving command says how many of them ran: one, unless it has a
parallel size. Pages with parameters instead of commands ran on all. Where a request rate is set, the printed
concurrency is a result and not a setting, and is not read."""

import re
from collections.abc import Iterator
from typing import Any

from llm_measured.core import names
from llm_measured.published.reading import LeftOut, Place, Raw, Row, joined, number
from llm_measured.published.sources import about
from llm_measured.published.sources._vllm_bench import itl_of_tokens, printout, result

ABOUT = about("gpustack")
ENGINES = {
    "vLLM": r"\bvllm serve|--(max-model-len|tensor-parallel-size)\b",
    "SGLang": r"\bsglang|--(context-length|mem-fraction-static|tp-size|schedule-conservativeness)\b",
    "TensorRT-LLM": r"\btrtllm-serve",
    "MindIE": r"\bmindie",
}


def rows(raw: Raw) -> Iterator[Row | LeftOut]:
    for file in raw.files(*ABOUT.files):
        text = raw.text(file)
        page = {title: _below(text, title) for title in ("Model", "Hardware", "Engine Version")}
        recommended = _model(text)
        profiles = {
            name: rate for name, rate in re.findall(r"##### (.+)\n+```yaml\n[^`]*?request_rate: (\d+)", text)
        }
        command = lead = profile = ""
        headings: dict[int, str] = {}
        parts = re.split(
            r"(^#{2,5} .*$|^.*(?:Parameters|rofile: ).*$|^ *```(?:bash)?\n[^`]*```)", text, flags=re.M
        )
        place = 1
        for part in parts:
            if title := re.match(r"(#+) (.*)$", part):
                headings = {k: v for k, v in headings.items() if k < len(title[1])} | {
                    len(title[1]): title[2]
                }
                paced = re.fullmatch(r"Rate (\d+)", title[2])
                profile = next((name for name in profiles if title[2].startswith(name)), "")
                profile = f"ShareGPT {paced[1]}RPS" if paced else profile
                command = ""
            elif named := re.match(r".*Profile: `(.*)`", part):
                profile = named[1]
            elif "Parameters" in part:
                lead, command = part, part
            elif "```" in part:
                if "= Serving Benchmark Result" not in part and "bench" not in part:
                    command = f"{lead}\n{part}" if lead else part
                for block in re.finditer(
                    r"(?: *# (?P<step>[^\n]*)\n *)?=+ Serving Benchmark Result =+\n"
                    r"(?P<lines>.*?)\n *(?:={9,}|```)",
                    part,
                    re.S,
                ):
                    line = place + part.count("\n", 0, block.start("lines")) - 1
                    at = Place(raw, file, f"L{line}", [block[0], command, profile])
                    parameters = "Parameters" in command
                    if not parameters and not _model(command):
                        yield at.left_out("no serving command above it")
                    elif _others(_model(command), file.split("__")[2]):
                        yield at.left_out("its command serves another model than its page is of")
                    else:
                        step = (
                            "" if re.match("random|ShareGPT|BS", block["step"] or "") else block["step"] or ""
                        )
                        step = step if step.startswith("--") or not step else f"--attention-backend {step}"
                        whole = f"{command}\n{step}"
                        yield _row(
                            at, block["lines"], whole, headings, page, recommended, profiles.get(profile)
                        )
            place += part.count("\n")


def _row(
    at: Place,
    block: str,
    command: str,
    headings: dict[int, str],
    page: dict[str, str],
    recommended: str,
    rate: str | None,
) -> Row | LeftOut:
    record = printout(block)
    record["request_rate"] = rate if rate and int(rate) < 1000 else None
    tuned = "Optimized" in command or any("Quantization" in title for title in headings.values())
    parameters = "Parameters" in command
    record["model_id"] = recommended if parameters and tuned else _model(command) or page["Model"]
    columns, printed = itl_of_tokens(_without_bursts(result(record)))
    if columns["request_rate"]:
        columns["concurrency"] = None
    return at.row(printed, **columns | _set_up(command, headings, page, record["model_id"], parameters))


def _without_bursts(columns: dict[str, Any]) -> dict[str, Any]:
    """`columns` without times per output token that are not within half and twice what the mean answer took:
    those of tokens that arrived together."""
    names_of_mean = ("e2e_mean_ms", "ttft_mean_ms", "tpot_mean_ms")
    whole, first, each = (number(columns.get(name)) for name in names_of_mean)
    answer = columns["output_tokens"]
    if whole is None or first is None or each is None or not answer or answer <= 1:
        return columns
    if 0.5 <= each * (answer - 1) / (whole - first) <= 2:
        return columns
    return {name: value for name, value in columns.items() if not name.startswith(("tpot_", "itl_"))}


def _set_up(
    command: str, headings: dict[int, str], page: dict[str, str], model: str, parameters: bool
) -> dict[str, Any]:
    """Columns of machine and engine that a serving command, or a list of parameters, states."""
    said = f"{command} {headings.get(4, '')}".lower() if parameters else command
    engine = next((name for name, sign in ENGINES.items() if re.search(sign, said, re.I)), None)
    engine = engine or next((name for name in ENGINES if headings.get(4) == name), None)
    tp, pp, dp, ep = (
        _setting(command, rf"-{n}", f"--{n}-size", f"--{n}_size", f"--{long}-parallel-size")
        for n, long in (("tp", "tensor"), ("pp", "pipeline"), ("dp", "data"), ("ep", "expert"))
    )
    whole = re.match(r"(\d+) ×|.*x(\d+)$", page["Hardware"])
    on_page = int(next(n for n in whole.groups() if n)) if whole else 1
    inside = "enable-dp-attention" in command  # replicas of the attention alone
    used = int(tp or 1) * int(pp or 1) * (1 if inside else int(dp or 1))
    version = re.search(rf"{engine}(?:-Ascend)?:? v?(\S+)", page["Engine Version"]) if engine else None
    drafted = re.search(r"speculative\S*?(?:\"method\": ?\"|-algo(?:rithm)?[= ])(\w+)", command)
    form = re.search(r"FP8|W8A8|AWQ|W4A16|INT4|INT8|NVFP4", model, re.I)
    quantised = _setting(command, "--quantization")
    settings = {name: value for name, value in re.findall(r"--([\w-]+)(?:[= ]([^\s\\-]\S*))?", command)}
    settings = {n: v or "on" for n, v in settings.items() if n not in ("model", "model-path", "host", "port")}
    return {
        "accelerator_raw": re.sub(
            r"^A single |^\d+ × |x\d+$| GPUs?| NPU|( on a single node)?\.$", "", page["Hardware"]
        ),
        "accelerators": on_page if parameters else used,
        "tp": tp,
        "pp": pp,
        "dp": dp,
        "ep": ep,
        "engine": engine,
        "engine_version": version[1] if version else None,
        "flags": joined(**settings),
        "weights_format": form[0] if form else quantised,
        "kv_format": _setting(command, "--kv-cache-dtype"),
        "speculative": drafted[1] if drafted else None,
        "max_num_seqs": _setting(command, "--max-num-seqs", "--max-running-requests"),
    }


def _setting(command: str, *names: str) -> str | None:
    found = re.search(rf"(?:{'|'.join(names)})[= ]([\w.]+)", command)
    return found[1] if found else None


def _model(command: str) -> str:
    """The model that a serving command names, "" where it names none."""
    found = re.search(r"(?:(?:vllm|mindie|trtllm-)\s?serve|--model(?:-path)?)[= ](\S+)", command)
    return found[1] if found else ""


def _others(command: str, page: str) -> bool:
    """Whether both names are of known models, and of different ones."""
    try:
        return names.model(command).candidates != names.model(page).candidates
    except names.UnknownName:
        return False


def _below(text: str, title: str) -> str:
    """The paragraph below a page's heading "### title"."""
    found = re.search(rf"^### {title}\n+((?:.+\n)+)", text, re.M)
    return found[1].strip().removeprefix("- ") if found else ""
