"""Whether a server that does not say so answers repeated prompts from a cache: a trial before the run.

A prompt that was computed before costs a cache nothing, so a load of repeated prompts measures the cache.
Servers that report cached tokens are believed, request by request; of the others one prompt is sent twice, a
few times over, with another prompt each time.
"""

from collections.abc import Sequence

import numpy as np

from llm_measured.core.definitions import Fields

PAIRS = 3
# The slowest repetition that takes less than this share of the fastest new prompt's time was not computed:
# times of one prompt scatter by less, and a machine whose speed flips would have to do so every other time.
SHARE = 0.7
SWITCHES = (
    "vLLM --no-enable-prefix-caching, SGLang --disable-radix-cache, TGI PREFIX_CACHING=0 in its environment "
    "(USE_PREFIX_CACHING=0 in 2.3), MLC --prefix-cache-mode disable, LMDeploy without "
    "--enable-prefix-caching, llama.cpp cache_prompt false in the request"
)
REPORTS = "vLLM --enable-prompt-tokens-details, SGLang --enable-cache-report"


def twice(prompts: Sequence) -> list:
    """`prompts`, each followed by itself: what a trial sends, one after the other."""
    return [prompt for prompt in prompts for _ in range(2)]


def result(rows: list[Fields]) -> Fields:
    """What the measured columns of the requests `twice` show: a dict for the sidecar.

    `reported`: whether the server reports cached tokens, `cached_tokens` how many of all repetitions;
    `template_tokens`: cached tokens that prompts sent for the first time have in common, which only the
    server's chat template can be; `fresh_ttft_s` and `repeated_ttft_s`: TTFT of each prompt and of its
    repetition, s; `cached`: whether repetitions came faster than they can be computed (None where the server
    reports, and is believed).
    RuntimeError where a request failed.
    """
    failed = [row["error"] for row in rows if row["error"]]
    if failed:
        raise RuntimeError(f"The trial for a prefix cache failed, so nothing was measured: {failed[0]}")
    reported = any(row.get("cached_tokens") is not None for row in rows)
    fresh, repeated = ([float(row["ttft_s"]) for row in rows[k::2]] for k in (0, 1))
    return {
        "prompt_tokens": int(rows[0]["prompt_tokens"]),
        "reported": reported,
        "cached_tokens": sum(row["cached_tokens"] for row in rows[1::2]) if reported else None,
        "template_tokens": min((row.get("cached_tokens") or 0 for row in rows[2::2]), default=0),
        "fresh_ttft_s": fresh,
        "repeated_ttft_s": repeated,
        "cached": None if reported else max(repeated) < SHARE * min(fresh),
    }


def why_not(trial: Fields) -> str:
    """Why a server with this `result` may not be measured, in a sentence that names the fix; else empty."""
    if not trial["cached"]:
        return ""
    fresh, repeated = (1e3 * np.median(trial[name]) for name in ("fresh_ttft_s", "repeated_ttft_s"))
    return (
        f"The server answers from a prefix cache and does not report it: a new prompt of "
        f"{trial['prompt_tokens']} tokens takes {fresh:.3g} ms to its first token, the same one again "
        f"{repeated:.3g} ms, faster than it can compute it. Switch the cache off ({SWITCHES}), or have it "
        f"report cached tokens ({REPORTS})."
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
