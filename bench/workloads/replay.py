"""A trace as a workload: capped, scaled, spread, sampled, its lengths and blocks mapped to a smaller size."""

from collections.abc import Sequence

import numpy as np

from bench.workloads import Session, Turn, Workload, timing
from bench.workloads.traces import Trace
from bench.workloads.words import Words


def workload(
    trace: Trace,
    text: Sequence[int],
    source: Sequence,
    most_tokens: int,
    block_tokens: int | None = None,
    length_scale: float = 1.0,
    time_scale: float = 1.0,
    gap_cap_s: float | None = None,
    sample: float = 1.0,
    first_s: float = 0.0,
    last_s: float | None = None,
    due: str = "timestamp",
    history: str = "given",
    drop_long: bool = False,
    seed: int = 0,
) -> Workload:
    """The sessions of `trace` as token ids.

    Of the sessions that begin between `first_s` and `last_s` of the trace a random share `sample` is kept,
    always whole. Gaps between the turns of a session are capped at `gap_cap_s`, ticks spread, and then all
    moments multiplied by `time_scale` (2: half as fast). Where the trace has hash ids, each of its blocks
    becomes one of `block_tokens` tokens (None: as many as it had), a remainder stays one, and answers shrink
    alike; hit rates by blocks stay the same. Elsewhere lengths are multiplied by `length_scale`. `drop_long`:
    sessions with a turn beyond `most_tokens` are left out, and counted in `about`; else they are refused.
    `text`, `source` and `seed` as in `conversations.make`. ValueError for what cannot be.
    """
    if not (length_scale > 0 and time_scale > 0):
        raise ValueError("length_scale and time_scale of a trace must be above 0.")
    if block_tokens is not None and block_tokens < 2:
        raise ValueError(
            "block_tokens of a trace must be 2 or more, so that a remainder is less than a block."
        )
    if gap_cap_s is not None and not gap_cap_s > 0:
        raise ValueError("gap_cap_s of a trace must be above 0; leave it out for no cap.")
    trace = _kept(trace, first_s, last_s, sample, seed)
    sizes = _sizes(trace, block_tokens, length_scale)
    trace, sizes, dropped = _fitting(trace, sizes, most_tokens, drop_long)
    at_s, tick = _moments(trace.requests, gap_cap_s, time_scale, seed)
    gaps = _gaps(trace.requests, at_s, gap_cap_s, time_scale)
    words, size = Words(text, source), block_tokens or trace.block_tokens
    prompts = _growing(trace, sizes, words) if trace.blocks is None else _of_blocks(trace, sizes, size, words)
    sessions = _sessions(trace.requests, sizes, prompts, at_s, gaps, due)
    about = trace.about | {
        "workload": "trace",
        "block_tokens": block_tokens if trace.blocks is not None else None,
        "length_scale": length_scale,
        "time_scale": time_scale,
        "gap_cap_s": gap_cap_s,
        "tick_spread_s": tick,
        "sample_of_sessions": sample,
        "first_s": first_s,
        "last_s": last_s,
        "seed": seed,
        "sessions_beyond_context": dropped,
        "turns_that_do_not_extend": _branches(sessions),
    }
    return Workload(sessions, due, history, about=about)


def _kept(trace, first_s, last_s, share, seed):
    """Whole sessions that begin in the requested part, a random share of them."""
    requests = trace.requests
    if first_s or last_s is not None:
        begins = requests.groupby("session")["at_s"].first()
        if begins.isna().all():
            raise ValueError("This trace has no moments: a part of its time cannot be taken.")
        inside = begins[(begins >= first_s) & (begins < (np.inf if last_s is None else last_s))]
        trace = trace.of_sessions(set(inside.index))
        if not len(inside):
            raise ValueError(f"No session of the trace begins between {first_s:g} and {last_s} s of it.")
    return trace.of_sessions(timing.sample(trace.requests["session"], share, seed))


def _sizes(trace, block_tokens, length_scale):
    """[(prompt tokens, new tokens)] of each request as it is sent."""
    prompts, answers = (trace.requests[name].to_numpy() for name in ("prompt_tokens", "new_tokens"))
    if trace.blocks is None:
        scaled = (np.maximum(1, np.rint(values * length_scale)) for values in (prompts, answers))
        return list(zip(*(values.astype(int).tolist() for values in scaled)))
    size = block_tokens or trace.block_tokens
    whole, rest = np.divmod(prompts, trace.block_tokens)
    scaled = np.rint(rest * size / trace.block_tokens)
    rest = np.where(rest > 0, np.clip(scaled, 1, size - 1), 0)
    answers = np.maximum(1, np.rint(answers * size / trace.block_tokens))
    return list(zip((whole * size + rest).astype(int).tolist(), answers.astype(int).tolist()))


def _fitting(trace, sizes, most_tokens, drop_long):
    """(trace, sizes, how many sessions were dropped) of the sessions that fit into the context."""
    totals = np.array([prompt + new for prompt, new in sizes])
    long = totals > most_tokens
    if not long.any():
        return trace, sizes, 0
    sessions = set(trace.requests["session"][long])
    every = trace.requests["session"].nunique()
    if not drop_long:
        raise ValueError(
            f"{long.sum()} of {len(sizes)} requests need more than the context of {most_tokens} tokens, the "
            f"longest {totals.max()}: take a smaller block_tokens or length_scale, a model with a longer "
            f"context, or drop_long, which leaves out {len(sessions)} of {every} sessions."
        )
    if len(sessions) == every:
        raise ValueError(f"Every session of the trace needs more than the context of {most_tokens} tokens.")
    rows = trace.requests["session"].isin(sessions).to_numpy()
    kept = trace.of_sessions(set(trace.requests["session"]) - sessions)
    return kept, [size for size, out in zip(sizes, rows) if not out], len(sessions)


def _moments(requests, gap_cap_s, time_scale, seed):
    """(moments in seconds of the replay, from 0; the tick that was spread, s of the trace)."""
    known = requests["at_s"].notna().to_numpy()
    moved = requests["at_s"].to_numpy(dtype=float).copy()
    tick = timing.tick_s(moved[known])
    moved[known] = timing.spread(moved[known], seed)
    moved = timing.capped(requests.assign(at_s=moved), gap_cap_s).to_numpy()
    return (moved - np.nanmin(moved)) * time_scale if known.any() else moved, tick


def _gaps(requests, at_s, gap_cap_s, time_scale):
    """Seconds of think time before each later turn: as recorded, else between the moments of two turns."""
    if "gap_s" in requests:
        return requests["gap_s"].clip(upper=gap_cap_s).to_numpy() * time_scale
    return requests.assign(at_s=at_s).groupby("session")["at_s"].diff().to_numpy()


def _growing(trace, sizes, words):
    """Prompts that repeat as much of the turn before as the trace says, or all of it, and go on with new
    tokens."""
    made, contexts = [], {}
    prefixes = trace.requests.get("prefix_tokens")
    scale = [size[0] / n for size, n in zip(sizes, trace.requests["prompt_tokens"])]
    for k, ((tokens, new), session) in enumerate(zip(sizes, trace.requests["session"])):
        before = contexts.get(session, ())
        shared = len(before) if prefixes is None else round(prefixes[k] * scale[k])
        kept = before[: min(shared, tokens - 1)]
        prompt = kept + words(tokens - len(kept), "user", session, k)
        contexts[session] = prompt + words(new, "answer", session, k)
        made.append(prompt)
    return made


def _of_blocks(trace, sizes, block_tokens, words):
    """Prompts whose equal blocks have equal tokens."""
    known, made = {}, []
    for ids, (tokens, _) in zip(trace.blocks, sizes):
        prompt = []
        for k, block in enumerate(ids):
            if block not in known:  # an id has one size wherever it is: the reader has seen to that
                known[block] = words(min(block_tokens, tokens - k * block_tokens), "block", block)
            prompt.extend(known[block])
        made.append(tuple(prompt))
    return made


def _sessions(requests, sizes, prompts, at_s, gaps, due):
    """`Session`s in the order of their first turn."""
    turns = {}
    for k, (session, turn) in enumerate(zip(requests["session"], requests["turn"])):
        first, before = turn == 1, turns.setdefault(session, [])
        by_clock = not np.isnan(at_s[k]) and (first or due == "timestamp")
        if first and not by_clock:
            raise ValueError("This trace has no moments: give it a column at_s.")
        if not first and not by_clock and np.isnan(gaps[k]):
            raise ValueError(
                "This trace has neither a moment nor a gap for a later turn: give it at_s or gap_s."
            )
        added = prompts[k] if first else _added(before[-1], prompts[k])
        gap = None if by_clock else max(0.0, float(gaps[k]))
        before.append(Turn(prompts[k], added, sizes[k][1], float(at_s[k]) if by_clock else None, gap))
    ordered = sorted(turns.values(), key=lambda of_session: of_session[0].at_s)
    return tuple(Session(number, tuple(made)) for number, made in enumerate(ordered, start=1))


def _added(before, prompt):
    """What the user adds to the turn `before` and its answer; at least one token."""
    shared = 0
    for one, other in zip(before.prompt, prompt):
        if one != other:
            break
        shared += 1
    return prompt[min(shared + before.new_tokens, len(prompt) - 1) :]


def _branches(sessions):
    """Turns whose prompt does not begin with the whole prompt of the turn before."""
    pairs = ((a, b) for session in sessions for a, b in zip(session.turns, session.turns[1:]))
    return sum(b.prompt[: len(a.prompt)] != a.prompt for a, b in pairs)
