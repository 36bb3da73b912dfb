"""Which unit a column of times has that names none: the one in which the table's own arithmetic holds."""

import itertools

import numpy as np
import pandas as pd

FACTORS = {"seconds": 1.0, "milliseconds": 1e-3, "microseconds": 1e-6}
# Where even the shortest is above so many, a time whose table has no arithmetic is in milliseconds: as
# seconds it would be long, and as milliseconds anything shorter would be faster than any engine.
SECONDS_AT_MOST = {"ttft": 5.0, "tpot": 0.5, "itl": 0.5, "e2e": 300.0, "duration": 1e5}
RARE = 200  # hundredths of a natural logarithm by which microseconds without a word must fit better
FAR = 7.0  # of a natural logarithm, as far as a wrong unit is: more counts no more
STATISTICS = "_mean", "", "_p50"
GUESSED = "guessed"  # begins what the report says first of a reading


def resolve(table: pd.DataFrame, unknown: dict[str, str], requests: bool = False) -> list[str]:
    """Bring the columns of `unknown` (name in the file -> column of `table`) to seconds, in place; one
    sentence for each that says what it was read as and why. `requests`: each row is one, and so is its rate.

    Columns of one quantity share a unit. Of all combinations the one counts in which
    TTFT + TPOT x (tokens - 1) = e2e, requests/s x e2e <= requests at once, tokens/s x duration = tokens and
    TTFT <= e2e fit best.
    """
    kinds = sorted({_kind(word) for word in unknown.values()} - {""})
    kinds = [
        kind for kind in kinds if any(table[w].notna().any() for w in unknown.values() if _kind(w) == kind)
    ]
    if not kinds:
        return []
    best, chosen = np.inf, (1.0,) * len(kinds)
    for factors in itertools.product(FACTORS.values(), repeat=len(kinds)):
        scale = dict(zip(kinds, factors, strict=True))
        found = _misfit(table, unknown, scale, requests)
        prior = sum(_unlikely(table, unknown, kind, factor) for kind, factor in scale.items())
        if found + 0.01 * prior < best:
            best, chosen = found + 0.01 * prior, factors
    scale = dict(zip(kinds, chosen, strict=True))
    fit = _misfit(table, unknown, scale, requests)
    others = [{**scale, kind: factor} for kind in kinds for factor in (1.0, 1e-3) if factor != scale[kind]]
    arithmetic = all(_misfit(table, unknown, other, requests) > fit + 0.5 for other in others)
    alike: dict[tuple[str, bool], list[str]] = {}
    shown: dict[str, str] = {}
    for name, word in unknown.items():
        factor = scale.get(_kind(word), 1.0)
        shown[name] = _shown(table[word])
        table[word] = table[word] * factor
        unit = next(unit for unit, size in FACTORS.items() if size == factor)
        alike.setdefault((unit, arithmetic), []).append(name)
    notes = []
    for (unit, decided), names in alike.items():
        read = (
            f"{', '.join(names)} {'has' if len(names) == 1 else 'have'} no unit in the name; read as {unit}"
        )
        if decided:
            why = ", as the table's own rates and times fit only so" if unit != "seconds" else ""
            notes.append(f"{read}{why}.")
        else:
            other = "milliseconds" if unit == "seconds" else "seconds"
            ranges = "; ".join(shown[name] for name in names[:3])
            notes.append(
                f"{read}, which is {GUESSED}: nothing decides whether {ranges} are {unit} or {other}."
            )
    return notes


def _shown(values):
    """The range of a column as the file prints it."""
    known = values.dropna()
    if known.empty:
        return "its figures"
    return f"{known.min():g} to {known.max():g}" if len(known) > 1 else f"{known.iloc[0]:g}"


def _kind(word):
    return next((kind for kind in SECONDS_AT_MOST if word.startswith(kind)), "")


def _unlikely(table, unknown, kind, factor):
    """How far a factor is from what the size of the figures alone would say."""
    columns = [word for word in unknown.values() if _kind(word) == kind]
    figures = table[columns].to_numpy(float)
    shortest = np.nanmin(np.where(figures > 0, figures, np.nan), initial=np.inf)
    likely = 1e-3 if shortest > SECONDS_AT_MOST[kind] else 1.0
    sure = 3 if kind in ("tpot", "itl") else 1  # no engine takes half a second for a token
    return sure * abs(np.log10(factor / likely)) + RARE * (factor < 1e-5)


def _misfit(table, unknown, scale, requests):
    """Sum over the identities of how far the table is from each: the median of logarithms, each at most FAR,
    and how far the rows are from it."""
    factor = {word: scale.get(_kind(word), 1.0) for word in unknown.values()}

    def time(kind):
        for q in STATISTICS:
            word = f"{kind}{q}_s"
            if word in table:
                return table[word] * factor.get(word, 1.0)
        return pd.Series(np.nan, table.index)

    def column(*names):
        out = pd.Series(np.nan, table.index)
        for name in names:
            out = out.fillna(table[name]) if name in table else out
        return out

    ttft, e2e, duration = time("ttft"), time("e2e"), time("duration")
    step = time("tpot").fillna(time("itl"))
    tokens = column("output_tokens", "max_new_tokens")
    at_once = column("batch_size", "concurrency").clip(lower=1)
    answers = column("requests_per_s").fillna(column("output_tokens_per_s") / tokens)
    if "sent_s" in table and len(table) > 4:
        begun = table["sent_s"].max() - table["sent_s"].min()
        answers = answers.fillna(len(table) / begun) if begun > 0 else answers
    own = ("output_tokens_per_s",) if requests else ()
    built = ttft.fillna(0) + step * (tokens - 1)
    equal = [
        e2e / built,
        answers.where(at_once.notna()) * e2e.fillna(built) / at_once,
        column("request_tokens_per_s", *own) * e2e.fillna(built) / tokens,
        column("requests_per_s") * duration / column("requests", "asked"),
        column("output_tokens_per_s") * duration / column("total_output_tokens"),
    ]
    order = [ttft / e2e, e2e / duration, step * 5 / e2e.where(tokens > 10)]
    total = 0.0
    for ratio, one_sided in [*((r, False) for r in equal), *((r, True) for r in order)]:
        ratio = ratio[np.isfinite(ratio) & (ratio > 0)]
        if len(ratio):
            logs = np.log(ratio).clip(-FAR, FAR)
            far = float(logs.median())
            # A right unit fits all rows alike: lengths that are the most that was asked make one factor.
            total += max(far, 0.0) if one_sided else abs(far) + float((logs - far).abs().mean())
    return total
