"""A server's own counters of prompt tokens, before and after a level: they must equal the sum of its rows."""

import re
import urllib.error
from collections.abc import Sequence
from http.client import HTTPException

import pandas as pd

from bench import endpoint
from llm_measured.core.definitions import Fields

# Family of counters -> (the counter of prompt tokens, whether it has the cached ones too, that of cached
# ones). llama.cpp counts what it computed, vLLM and SGLang whole prompts.
FAMILIES = {
    "llamacpp": ("llamacpp:prompt_tokens_total", False, "llamacpp:prompt_tokens_cached_total"),
    "vllm": ("vllm:prompt_tokens_total", True, "vllm:prompt_tokens_cached_total"),
    "sglang": ("sglang:prompt_tokens_total", True, "sglang:cached_tokens_total"),
    "reference": ("reference:prompt_tokens_computed_total", False, "reference:prompt_tokens_cached_total"),
}
LINE = re.compile(r"^([a-zA-Z_:][\w:]*)(?:\{[^}]*\})?\s+([-+.\deE]+|NaN)", re.MULTILINE)
PATIENCE_S = 30


def read(url: str, token: str = "") -> Fields:
    """{family, prompt_tokens, cached_tokens} since the server began; {why} in one sentence where it has
    no such counters or does not answer."""
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    try:
        return parsed(endpoint.get(url, "/metrics", headers, PATIENCE_S).decode(errors="replace"))
    except urllib.error.HTTPError as failure:
        return {"why": f"The server has no counters (GET /metrics: HTTP {failure.code})."}
    except (OSError, HTTPException, ValueError) as failure:
        return {"why": f"The server does not answer when asked for its counters ({type(failure).__name__})."}


def parsed(text: str) -> Fields:
    """`read` of a page of counters; those of several engines behind one address are added."""
    sums: dict[str, float] = {}
    for name, value in LINE.findall(text):
        sums[name] = sums.get(name, 0.0) + float(value)
    for family, (prompt, whole, cached) in FAMILIES.items():
        if prompt in sums and cached in sums:
            total = sums[prompt] if whole else sums[prompt] + sums[cached]
            return {"family": family, "prompt_tokens": total, "cached_tokens": sums[cached]}
    return {"why": "The server's counters have no prompt tokens and cached tokens that are known here."}


def level(before: Fields, after: Fields, rows: Sequence[Fields]) -> Fields:
    """What the counters say of one level, and what its rows do: for the sidecar.

    `before` and `after` as `read` gives them; `rows` have prompt_tokens, cached_tokens, error, and
    sent_s (NaN or None where nothing was sent). Keys prompt_tokens and cached_tokens of the counters
    (differences), of the rows (`rows_…`), `cut_tokens` (prompts of turns that were sent and failed:
    counted by the server or not); or `why` they say nothing.
    """
    if why := before.get("why") or after.get("why"):
        return {"why": why}
    good = [row for row in rows if not row["error"]]
    cut = [row for row in rows if row["error"] and not pd.isna(row.get("sent_s"))]
    if any(pd.isna(row.get("cached_tokens")) for row in good):
        return {"why": "The server does not report cached tokens for every request."}
    return {
        "family": after["family"],
        **{name: after[name] - before[name] for name in ("prompt_tokens", "cached_tokens")},
        **{f"rows_{name}": sum(row[name] for row in good) for name in ("prompt_tokens", "cached_tokens")},
        "cut_tokens": sum(row.get("prompt_tokens") or 0 for row in cut),
    }
