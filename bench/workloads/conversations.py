"""Conversations made from distributions: sessions that arrive at a rate, grow turn by turn, share prompts."""

from collections.abc import Sequence

import numpy as np

from bench.workloads import Session, Turn, Workload
from bench.workloads.words import Words
from llm_measured.core import naming

DISTRIBUTIONS = {
    "constant": ("value",),
    "uniform": ("lowest", "highest"),
    "exponential": ("mean",),
    "lognormal": ("median", "sigma"),
}


def draw(what: str, text: str, count: int, random: np.random.Generator) -> np.ndarray:
    """`count` values of the distribution that `text` names: `constant 3`, `uniform 2 8` (whole numbers, both
    ends included), `exponential 60`, `lognormal 120 0.8` (median, sigma of the logarithm).

    ValueError for another one, which says what `what` is.
    """
    name, *numbers = str(text).split()
    known = DISTRIBUTIONS[naming.choose(f"distribution of {what}", name, DISTRIBUTIONS)]
    try:
        values = [float(number) for number in numbers]
    except ValueError:
        values = []
    if len(values) != len(known) or min(values) < 0 or not np.isfinite(values).all():
        raise ValueError(
            f"{what} must be `{name} {' '.join(known)}` with numbers that are 0 or more, not {text!r}."
        )
    if name == "constant":
        return np.full(count, values[0])
    if name == "uniform":
        if values[0] > values[1]:
            raise ValueError(f"{what}: the lowest of {text!r} is above the highest; swap them.")
        return random.integers(round(values[0]), round(values[1]), count, endpoint=True).astype(float)
    if name == "exponential":
        return random.exponential(values[0], count)
    return random.lognormal(np.log(max(values[0], 1e-9)), values[1], count)


def make(
    text: Sequence[int],
    source: Sequence,
    sessions: int,
    session_rate: float,
    most_tokens: int,
    turns: str = "uniform 2 8",
    groups: int = 4,
    system_tokens: str = "constant 64",
    first_tokens: str = "lognormal 48 0.7",
    added_tokens: str = "lognormal 32 0.7",
    answer_tokens: str = "lognormal 48 0.5",
    think_s: str = "exponential 2",
    due: str = "gap",
    history: str = "given",
    seed: int = 0,
) -> Workload:
    """`sessions` conversations, of which `session_rate` begin per second (Poisson).

    `text` are the ids of the study's text, `source` what makes this level's prompts its own (`words.Words`).
    Each session belongs to one of `groups`, whose system prompt begins all of its prompts (0: none is
    shared). A first turn adds `first_tokens`, a later one `added_tokens` after the answer before, and each is
    answered with `answer_tokens`. Between an answer and the next turn lie `think_s` seconds; with `due`
    timestamp the same seconds lie between two moments. A first turn is cut to `most_tokens`, and a session
    ends before a turn that would need more: `about` counts both. All distributions as `draw` takes them, the
    same for the same seed. ValueError for what cannot be.
    """
    if sessions < 1 or not session_rate > 0 or groups < 0:
        raise ValueError(
            "A load of conversations needs sessions, a session_rate above 0, and groups of 0 or more."
        )
    random, words = np.random.default_rng([seed, 4]), Words(text, source)
    starts = np.cumsum(random.exponential(1 / session_rate, sessions))
    counts = np.maximum(1, np.rint(draw("turns", turns, sessions, random))).astype(int)
    systems = np.rint(draw("system_tokens", system_tokens, max(groups, 1), random)).astype(int)
    made, left_out, cut = [], 0, 0
    for number, (start, count) in enumerate(zip(starts, counts), start=1):
        group = int(random.integers(groups)) if groups else None
        head = () if group is None else words(int(systems[group]), "system", group)
        lengths = {
            name: np.maximum(1, np.rint(draw(name, spec, int(count), random))).astype(int)
            for name, spec in (("added_tokens", added_tokens), ("answer_tokens", answer_tokens))
        }
        first = max(1, round(float(draw("first_tokens", first_tokens, 1, random)[0])))
        fits = most_tokens - len(head) - int(lengths["answer_tokens"][0])
        if fits < 1:
            raise ValueError(
                f"A system prompt of {len(head)} tokens and an answer of {lengths['answer_tokens'][0]} leave "
                f"nothing of the context of {most_tokens} tokens: shorten system_tokens or answer_tokens."
            )
        lengths["added_tokens"][0], cut = min(first, fits), cut + (first > fits)
        thinks = draw("think_s", think_s, int(count), random)
        of_session = _turns(words, number, head, lengths, thinks, float(start), due, most_tokens)
        left_out += int(count) - len(of_session)
        made.append(Session(number, of_session, group))
    about = {
        "workload": "conversations",
        "session_rate": session_rate,
        "turns": turns,
        "groups": groups,
        "system_tokens": system_tokens,
        "first_tokens": first_tokens,
        "added_tokens": added_tokens,
        "answer_tokens": answer_tokens,
        "think_s": think_s,
        "seed": seed,
        "turns_beyond_context": left_out,
        "first_turns_cut_to_context": cut,
    }
    return Workload(tuple(made), due, history, about=about)


def _turns(words, number, head, lengths, thinks, start, due, most_tokens):
    """The turns of session `number`, which begins at `start`, as far as they fit into `most_tokens`."""
    prompt, made, at_s = (), [], start
    for turn, (added, answer) in enumerate(zip(lengths["added_tokens"], lengths["answer_tokens"])):
        new = words(int(added), "user", number, turn)
        new = head + new if turn == 0 else new
        prompt += new
        if len(prompt) + answer > most_tokens:
            break
        by_clock = turn == 0 or due == "timestamp"
        at_s += float(thinks[turn]) if turn else 0.0
        moment, gap = (at_s, None) if by_clock else (None, float(thinks[turn]))
        made.append(Turn(prompt, new, int(answer), moment, gap))
        prompt += words(int(answer), "answer", number, turn)
    return tuple(made)
