"""RTX 3090 rigs of owners, and some 4090 and 5090: tokens/s of one request, for an essay and for code.

The page is written by hand. A row is read where its cell begins with one plain pair of rates and its rig has
one kind of card. Of two pairs the one called `decode` is read; the other holds the prompt's time. Where the
two prompts' rates differ by more than 5 %, tokens were drafted, even if the row names no method. Prompt
speeds are a log's last ten seconds, and are not read."""

import re
from collections.abc import Iterator
from typing import Any

from llm_measured.published.reading import LeftOut, Raw, Row, day, joined
from llm_measured.published.sources import about
from llm_measured.published.sources._tables import single

ABOUT = about("club-3090")
PAIR = r"(\d+(?:\.\d+)?) / (\d+(?:\.\d+)?)"
CARDS = re.compile(r"(\d)× (?:NVIDIA )?((?:RTX )?(?:3080|3090 Ti|3090|4090|5090|A5000)|Tesla V100-SXM2-16GB)")
MODEL = re.compile(r"(?:[\w.-]+/)?(?:qwen3\.\d-|gemma-4-)[\w.-]*\d+b[\w.-]*|ornith\d+b", re.I)
ENGINES = {"ik-llama": "ik_llama.cpp", "beellama": "beellama.cpp", "llama": "llama.cpp", "vllm": "vLLM"}
FORMATS = (
    r"(?:UD-)?I?Q\d(?:_[A-Z0-9]+)+|(?<=/)(?:nvfp4|fp8|autoround-int4|(?:google-)?qat-w4a16)(?=/)"
    r"|(?<=[-/])awq(?:-int4)?(?=[./-])|NVFP4|W4A16|W4A8|W8A8|AutoRound INT4|FP8 wts|iq4ks|iq4xs|q8kxl"
)
DRAFTED = re.compile(r"DFlash|MTP|Eagle-?3|two-stage|ngram", re.I)
WAYS = {"mtp": "MTP", "dflash": "DFlash"}
PLAIN = re.compile(r"no[- ]MTP|spec-off|no[ -]spec-dec|no drafter|MTP off", re.I)


def rows(raw: Raw) -> Iterator[Row | LeftOut]:
    for at, r, headings in raw.tables("BENCHMARKS.md"):
        if "Narr / Code TPS" not in r:
            continue
        columns = _columns(r, headings)
        if isinstance(columns, str):
            yield at.left_out(columns)
            continue
        essay, code = columns.pop("pair")
        for prompt, rate in (("essay", essay), ("code", code)):
            flags = joined(prompt=prompt, rate=columns["flags"])
            yield at.cell(prompt).row(**single(rate) | columns | {"flags": flags})


def _columns(r: dict[str, Any], headings: tuple[str, ...]) -> dict[str, Any] | str:
    """What both rates of a line have in common and the `pair` of them, or why it is left out."""
    compose, rig, _, _, told, *others = (cell.replace("*", "") for cell in r.values())
    section, heading = headings[1].split(" (")[0], " ".join(headings[2:])
    said = re.match(PAIR + r"(.*)", told)
    if not said or re.search(PAIR, re.sub(r"\(.*\)", "", said[3])):
        return "not one plain pair of rates"
    cards = CARDS.findall(rig)
    if len({card for _, card in cards}) != 1:
        return "no rig of one kind of card"
    if re.search("offload|diffusion", headings[1], re.I):
        return "weights partly in the CPU's memory, or a diffusion model"
    model = MODEL.search(compose)
    if section == "MoE models" and not model:
        return "names no model"
    tp = re.search(r"TP=(\d)", compose) or re.search(r"TP=(\d)", heading)
    decode = re.search(rf"decode:? {PAIR}", said[3])
    essay, code = decode.groups() if decode else said.groups()[:2]
    notes = " ".join([told, *others])
    apart = abs(float(code) / float(essay) - 1) > 0.05
    plain = PLAIN.search(compose) or (not apart and PLAIN.search(notes))
    way = (
        DRAFTED.search(compose) or DRAFTED.search(notes if apart else "") or re.search(r"MTP(?= n=\d)", notes)
    )
    watts = set(re.findall(r"([\d/]+) ?W\b", rig)) if "no power cap" not in rig else set()
    engine = next((ENGINES[e] for e in ENGINES if e in f"{compose} {heading}".lower()), None)
    version = re.search(r"\bv0\.\d+\.\d+", compose)
    form = re.search(FORMATS, re.sub(r"\S+ KV\b", "", f"{r.get('Quant', '')} {compose}"), re.I)
    if not form and compose.startswith("`dual.yml"):  # as its table of the two runs' weights says
        form = ["INT4"] if section in ("Qwen3.6-27B", "Gemma 4 31B") else None
    cache = r.get("KV", "").replace("*", "")
    if "AutoRound" in cache:  # one row has the weights' format in that column
        form, cache = [cache], ""
    return {
        "pair": (essay, code),
        "measured_on": next((day(cell) for cell in others if day(cell)), None),
        "accelerator_raw": "RTX " + cards[0][1].removeprefix("RTX ")
        if cards[0][1][0] != "T"
        else cards[0][1],
        "accelerators": tp[1] if tp else cards[0][0],
        "tp": tp[1] if tp else None,
        "power_limit_w": min(watts) if len(watts) == 1 and "/" not in min(watts) else None,
        "engine": engine or ("vLLM" if tp or ".yml" in compose else None),
        "engine_version": version[0] if version else None,
        "flags": "decode" if decode or re.match(r" ?\(?decode", said[3]) else None,
        "checkpoint_raw": model[0] if model else section,
        "weights_format": form[0].replace("q8kxl", "Q8_K_XL") if form else None,
        "kv_format": re.split(r" \((?![KV]\))| @|;| —", cache)[0],
        "speculative": "none"
        if plain
        else WAYS.get(way[0].lower(), way[0])
        if way
        else "not stated"
        if apart
        else None,
    }
