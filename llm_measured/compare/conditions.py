"""Which levels of two sides belong together, and what differs between them besides the figures.

A condition that differs is one of three things: it is what is compared (engine, version, format, device), it
makes the two not comparable (model, lengths, data set, ...), or it is noted.
"""

import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from llm_measured.compare.reading import Level, format_words
from llm_measured.core import names

COMPARED, BLOCKS, NOTED = "compared", "not comparable", "noted"
LOAD = "concurrency", "request_rate", "all_at_once", "batch_size", "device_times", "depth_tokens"
NEVER_SPLITS = {"host", "tool", "warmup_requests"}  # what rows of one side may differ in and still be repeats
LENGTHS = {"prompt_tokens": "prompt tokens", "output_tokens": "output tokens"}
# Condition -> (what readers call it, what a difference means).
MEANING = {
    "model": ("model", BLOCKS),
    "dataset": ("data set", BLOCKS),
    "tokenizer": ("tokenizer, which counts the tokens", BLOCKS),
    "device_times": ("engine called without a server", BLOCKS),
    "burstiness": ("burstiness of arrivals", BLOCKS),
    "temperature": ("sampling temperature", NOTED),
    "ignore_eos": ("end token ignored", NOTED),
    "warmup_requests": ("warm-up requests", NOTED),
    "tool": ("load generator", NOTED),
    "endpoint": ("endpoint", NOTED),
    "weights": ("number format", COMPARED),
    "engine": ("engine", COMPARED),
    "engine_version": ("engine version", COMPARED),
    "option": ("option", COMPARED),
    "settings": ("settings", COMPARED),
    "gpu": ("device", COMPARED),
    "tensor_parallel": ("devices", COMPARED),
    "host": ("host", COMPARED),
    "commit": ("commit", COMPARED),
}
UNSTATED = "model", "gpu", "engine_version", "weights", "dataset", "warmup_requests"  # worth a word if absent
FAILED, LATE = 0.05, 0.1  # share of failed requests, share of the TTFT by which a client is late
LOAD_NAMES = {"concurrency": "concurrency", "request_rate": "requests/s", "batch_size": "batch"}


@dataclass(frozen=True)
class Difference:
    """One condition that differs: `name` for readers, the two values as text, its `effect`, a `sentence`."""

    name: str
    a: str
    b: str
    effect: str
    sentence: str = ""


@dataclass
class Pair:
    """Levels of both sides that were measured under the same load, repeats in a list; `blocked`: why they
    are not comparable, empty where they are."""

    name: str
    a: list[Level]
    b: list[Level]
    blocked: list[Difference]


def canonical(level: Level, condition: str) -> object:
    """A condition's value as far as it tells two results apart: spellings of one model or device are one."""
    value = level.conditions.get(condition)
    if value is None:
        return None
    if condition == "warmup_requests":
        return float(value) > 0
    if condition == "tensor_parallel":
        return float(value)
    if not isinstance(value, str):
        return value
    if condition in ("model", "tokenizer"):
        # Fine-tunes of one shape cost the same time, and are not the same model: the name has to agree.
        return format_words(value)[0]
    if condition == "weights":
        return " ".join(format_words(value)[1]) or value.strip().lower()
    if condition == "gpu":
        try:
            read = names.accelerator(value)
        except names.UnknownName:
            return value.strip().lower()
        return read.candidates, read.count
    if condition == "option" and value.startswith("speculative decoding"):
        return "speculative decoding"  # the tokens of a step are a figure
    return value.strip().lower()


def match(a: Sequence[Level], b: Sequence[Level]) -> tuple[list[Pair], list[str], list[str]]:
    """(pairs, names of the levels that A alone has, names of those that B alone has)."""
    keys = _keys(a, b)
    sides = []
    for levels in (a, b):
        found = defaultdict(list)
        for level in levels:
            found[tuple(_key(level, name, keys) for name in keys)].append(level)
        sides.append(found)
    pairs, alone = [], []
    for key, levels in sides[0].items():
        if key in sides[1]:
            others = sides[1][key]
            pairs.append(Pair(_name(key, keys, [*levels, *others]), levels, others, []))
    for mine, other in (sides, sides[::-1]):
        alone.append([_name(key, keys, levels) for key, levels in mine.items() if key not in other])
    return pairs, alone[0], alone[1]


def _keys(a, b):
    """Conditions that have to agree: the load, and what varies within a side; for lengths the groups'
    borders."""
    keys: dict[str, list[float]] = {name: [] for name in LOAD}
    for name in MEANING:
        several = any(len({canonical(level, name) for level in side}) > 1 for side in (a, b))
        if several and name not in NEVER_SPLITS:
            keys[name] = []
    # What a file calls its levels tells them apart where both sides call them so.
    called = [{canonical(level, "name") for level in side} for side in (a, b)]
    if called[0] == called[1] and len(called[0]) > 1:
        keys["name"] = []
    for name in LENGTHS:
        if any(_varies(side, name, keys) for side in (a, b)):
            keys[name] = _borders([level.conditions[name] for level in (*a, *b)])
    return keys


def _varies(levels, name, keys):
    """Whether levels of one run and one load have lengths that differ by more than a fifth."""
    groups = defaultdict(list)
    for level in levels:
        value = level.conditions[name]
        if value:
            groups[level.run, tuple(_key(level, k, keys) for k in keys)].append(value)
    return any(max(group) > 1.2 * min(group) for group in groups.values())


def _borders(values):
    ordered = sorted(value for value in values if value)
    return [math.sqrt(x * y) for x, y in zip(ordered, ordered[1:]) if y > 1.2 * x]


def _key(level, name, keys):
    if name in LENGTHS:
        value = level.conditions[name]
        return None if value is None else sum(value > border for border in keys[name])
    value = canonical(level, name)
    if name in ("batch_size", "tensor_parallel") and value == 1:
        return None
    return None if name in ("all_at_once", "device_times") and not value else value


def _name(key, keys, levels):
    """What readers call a level: its load, and what else tells it from the others."""
    words = []
    for name, value in zip(keys, key):
        if value is None or name == "device_times" or (name == "depth_tokens" and not value):
            continue
        if name == "all_at_once":
            words.append("all at once")
        elif name in LENGTHS:
            stated = [level.conditions[name] for level in levels if level.conditions[name]]
            words.append(f"{sum(stated) / len(stated):,.0f} {LENGTHS[name]}")
        elif name == "depth_tokens":
            words.append(f"{value:,.0f} tokens in the cache")
        elif name in LOAD_NAMES:
            words.append(f"{LOAD_NAMES[name]} {value:g}")
        else:
            words.append(str(value[0][0] if isinstance(value, tuple) else value))
    if not words:
        single = (level.conditions[name] == 1 for level in levels for name in ("batch_size", "concurrency"))
        return "one request at a time" if any(single) else "load not stated"
    return ", ".join(words)


def differences(
    pairs: Sequence[Pair], sides: Sequence[Sequence[Level]], margin: float, allow: Sequence[str] = ()
) -> tuple[list[Difference], list[str]]:
    """(what differs over all pairs, the most telling first; names of conditions that no file states). Without
    a pair it is what differs between the sides.

    Marks pairs whose lengths, streaming, failures or client make them not comparable. `allow`: conditions, by
    their names in MEANING or "lengths", that are noted instead.
    """
    a = [level for pair in pairs for level in pair.a] or sides[0]
    b = [level for pair in pairs for level in pair.b] or sides[1]
    found = [*_failures(a, b)]
    for name, (title, effect) in MEANING.items():
        values = [{canonical(level, name) for level in side} for side in (a, b)]
        texts = [_texts(side, name) for side in (a, b)]
        if values[0] == values[1]:
            continue
        effect = NOTED if name in allow else effect
        if any(side == {None} for side in values):
            effect = NOTED
        found.append(Difference(title, texts[0], texts[1], effect, _sentence(name, title, texts, effect)))
    for pair in pairs:
        pair.blocked = [] if "lengths" in allow else _lengths(pair, margin)
        pair.blocked += _validity(pair)
    unstated = [
        MEANING[name][0]
        for name in UNSTATED
        if all(canonical(level, name) is None for side in sides for level in side)
    ]
    order = [BLOCKS, COMPARED, NOTED]
    return sorted(found, key=lambda one: order.index(one.effect)), unstated


def _failures(a, b):
    """Failed requests of either side, at any share."""
    failed = [sum(level.conditions["failed"] for level in side) for side in (a, b)]
    if not any(failed):
        return
    texts = []
    for lost, side in zip(failed, (a, b)):
        done = sum(level.requests or 0 for level in side)
        texts.append(f"{lost:g} of {lost + done:g}" if done else f"{lost:g}")
    yield Difference("failed requests", texts[0], texts[1], NOTED)


def devices(levels: Sequence[Level]) -> float | None:
    """How many devices shared the model, by the files or by the device's name; None where it is not stated
    or differs between the levels."""
    counts = set()
    for level in levels:
        named = canonical(level, "gpu")
        counts.add(canonical(level, "tensor_parallel") or (named[1] if isinstance(named, tuple) else None))
    count = counts.pop() if len(counts) == 1 else None
    return float(count) if isinstance(count, int | float) and count else None


def _texts(levels, name):
    shown = dict.fromkeys(_shown(level, name) for level in levels)
    return ", ".join(shown) if len(shown) < 4 else f"{len(shown)} different"


def _shown(level, name):
    value = level.conditions.get(name)
    if name == "device_times":
        return "yes" if value == 1 else "no"
    if value is None:
        return "not stated"
    return f"{value:g}" if isinstance(value, float) else str(value)


def _sentence(name, title, texts, effect):
    if effect == BLOCKS:
        return f"Not comparable: {title} differs; --allow {name} compares all the same."
    if "not stated" in texts:
        return f"One side does not state its {title}: if it differs, this is no comparison of the rest."
    return ""


def _mean(levels, name):
    values = [level.conditions[name] for level in levels if level.conditions[name] is not None]
    return sum(values) / len(values) if values else None


def _lengths(pair: Pair, margin: float) -> list[Difference]:
    """Lengths whose means differ by more than the margin, and by more than requests drawn from one
    distribution do (2.6 standard errors, where the file has its requests)."""
    found = []
    for name, title in LENGTHS.items():
        one, other = _mean(pair.a, name), _mean(pair.b, name)
        drawn = 2.6 * math.hypot(_error(pair.a, name), _error(pair.b, name))
        if not one or not other or abs(other - one) <= drawn:
            continue
        if abs(math.log(other / one)) > math.log1p(max(margin, 0.05)):
            found.append(
                Difference(
                    title,
                    f"{one:.4g}",
                    f"{other:.4g}",
                    BLOCKS,
                    f"Requests have {one:.4g} {title} in A and {other:.4g} in B; set one length for both "
                    "(ignore_eos, a fixed output length), or --allow lengths.",
                )
            )
    return found


def _error(levels, name):
    """Standard error of the mean length over runs; 0 where no file has its requests."""
    errors = [level.conditions.get(f"{name}_error") or 0.0 for level in levels]
    return math.sqrt(sum(error**2 for error in errors)) / len(levels)


def _validity(pair: Pair) -> list[Difference]:
    """What makes the figures of either side no figures of its load."""
    sides = [[level.conditions for level in side] for side in (pair.a, pair.b)]
    streamed = [all(one["streamed"] for one in side) for side in sides]
    failed = [max(one["failed_share"] for one in side) for side in sides]
    late = [max((one["late_share"] or 0) for one in side) for side in sides]
    found = []
    if streamed[0] != streamed[1]:
        said = "One side was not streamed: its first token comes with the last. Stream both."
        found.append(("streamed", ["yes" if one else "no" for one in streamed], said))
    if max(failed) > FAILED:
        said = f"{max(failed):.0%} of the requests failed: the figures are of those that did not."
        found.append(("failed requests", [f"{one:.0%}" for one in failed], said))
    if max(late) > LATE:
        said = "The client sends late: its queue is part of the times or of the rate. Use more workers."
        found.append(("client late by", [f"{one:.0%} of the TTFT" for one in late], said))
    return [Difference(name, a, b, BLOCKS, said) for name, (a, b), said in found]
