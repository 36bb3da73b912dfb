"""A trial before the run: what a server says is held against its own times and texts.

A prompt that was computed before costs a cache nothing, so a load of repeated prompts measures the cache. A
prompt that a server cuts costs less than it seems to. Neither is believed to a server's word alone.
"""

import math
from collections.abc import Sequence

import numpy as np

from llm_measured.core.definitions import Fields

PROMPTS = 3
# Both repetitions below this share of both new prompts' times, and faster by so much, s: a cache answered.
CACHED_SHARE, CACHED_S = 0.3, 0.05
COMPUTED_SHARE = 0.7  # as much of a new prompt's time: the repetition was computed
CUT_SHARE, CUT_TOKENS = 0.9, 256  # of a prompt of so many tokens less came back than this share: it was cut
SWITCHES = (
    "vLLM --no-enable-prefix-caching, SGLang --disable-radix-cache, TGI PREFIX_CACHING=0 in its environment "
    "(USE_PREFIX_CACHING=0 in 2.3), MLC --prefix-cache-mode disable, LMDeploy without "
    "--enable-prefix-caching, llama.cpp cache_prompt false in the request"
)
REPORTS = "vLLM --enable-prompt-tokens-details, SGLang --enable-cache-report"


def trial(prompts: Sequence) -> list:
    """Return what a trial sends, one after the other, of PROMPTS prompts of one length: new, new, again, new,
    again. The first warms the server up and is thrown away."""
    first, second, third = prompts
    return [first, second, second, third, third]


def result(rows: list[Fields]) -> Fields:
    """Return what the measured columns of a `trial` show: a dict for the sidecar.

    `reported`: whether the server reports cached tokens, `cached_tokens` how many of both repetitions;
    `template_tokens`: the most cached tokens of a prompt sent for the first time, which only the server's
    chat template can be; `fresh_ttft_s` and `repeated_ttft_s`: TTFT of each prompt and of its repetition, s
    (the whole time of an answer that was not streamed); `cached`: whether repetitions came faster than they
    can be computed, None where the times do not tell. RuntimeError where a request failed.
    """
    failed = [row["error"] for row in rows if row["error"]]
    if failed:
        raise RuntimeError(f"The trial before the run failed, so nothing was measured: {failed[0]}")
    times = [float(row["e2e_s"] if math.isnan(row["ttft_s"]) else row["ttft_s"]) for row in rows]
    fresh, repeated = times[1::2], times[2::2]
    hits = [row.get("cached_tokens") for row in rows]
    reported, cached = any(hit is not None for hit in hits), None
    if max(repeated) < CACHED_SHARE * min(fresh) and min(fresh) - max(repeated) > CACHED_S:
        cached = True
    elif max(repeated) >= COMPUTED_SHARE * min(fresh):
        cached = False
    return {
        "prompt_tokens": int(rows[0]["prompt_tokens"]),
        "reported": reported,
        "cached_tokens": sum(hit or 0 for hit in hits[2::2]) if reported else None,
        "template_tokens": max(hits[k] or 0 for k in (0, 1, 3)),
        "fresh_ttft_s": fresh,
        "repeated_ttft_s": repeated,
        "cached": cached,
    }


def why_not(trial: Fields, off: bool = False) -> str:
    """Return why a server with this `result` may not be measured, in a sentence that names the fix; else
    empty. A cache that reports its hits is known request by request, and refused only where it is declared
    `off`."""
    counted = (trial["cached_tokens"] or 0) > 2 * trial["template_tokens"]
    fresh, repeated = (1e3 * np.median(trial[name]) for name in ("fresh_ttft_s", "repeated_ttft_s"))
    if off and counted:
        return (
            f"The cache is declared off, and the server reports {trial['cached_tokens']} cached tokens of "
            f"two prompts sent again. Switch it off ({SWITCHES}), or declare it: -p cache on."
        )
    if not trial["cached"] or counted:
        return ""
    said = " and does not report it"
    if trial["reported"]:
        said += f" (it reports {trial['cached_tokens']} cached tokens)"
    return (
        f"The server answers from a prefix cache{said}: a new prompt of "
        f"{trial['prompt_tokens']} tokens takes {fresh:,.1f} ms to its first token, the same one again "
        f"{repeated:,.1f} ms, faster than it can compute it. Switch the cache off ({SWITCHES}), or have it "
        f"report cached tokens ({REPORTS})."
    )


def unknown(trial: Fields) -> str:
    """Return that nobody can tell whether a cache answers, in a sentence; empty where the times tell."""
    if trial["cached"] is not None:
        return ""
    fresh, repeated = (1e3 * np.median(trial[name]) for name in ("fresh_ttft_s", "repeated_ttft_s"))
    return (
        f"Whether a prefix cache answers is unknown: a new prompt takes {fresh:,.1f} ms to its first token, "
        f"the same one again {repeated:,.1f} ms. Every prompt of a level is new, so none is in it."
    )


def cut(rows: list[Fields], sent_tokens: int, share: float = CUT_SHARE) -> str:
    """Return that the server cut the new prompts of a trial, of `sent_tokens` each, in a sentence; empty
    where at least `share` of them came back. Some servers count cached tokens apart."""
    back = sorted(
        row["prompt_tokens"] + (row.get("cached_tokens") or 0) for row in (rows[0], rows[1], rows[3])
    )
    if sent_tokens < CUT_TOKENS or back[1] >= share * sent_tokens:
        return ""
    return (
        f"The server cut the prompt: of {sent_tokens} tokens {back[1]} came back, twice. Its context is "
        f"{back[1]} tokens or little more: start it with a longer one, or measure shorter prompts, -p scale."
    )


def broken_history(rows: list[dict], block_tokens: int = 1) -> str:
    """Where the prefix of a second turn broke, in a sentence; empty where it did not, or nobody can tell.

    `rows`: the measured columns of the two turns of a trial, the second with the first and its answer for
    history. The first one computed its prompt and its answer but for the last token, and whole blocks of that
    are expected.
    """
    first, second = rows
    computed, cached = first["prompt_tokens"] + first["output_tokens"] - 1, second.get("cached_tokens")
    if cached is None or cached >= computed // block_tokens * block_tokens - block_tokens:
        return ""
    where = "answer" if cached >= first["prompt_tokens"] - block_tokens else "prompt"
    return (
        f"The prefix of a second turn broke after {cached} of {computed} tokens, in the first turn's "
        f"{where}: the server's template rewrites earlier turns, or the text of an answer encodes to other "
        "tokens than it had. What this load hits ends there."
    )
