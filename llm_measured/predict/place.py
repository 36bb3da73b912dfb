"""Where the figures of an audited file stand: the expected range, and the published rows that come nearest.

llm-measured audit FILE... --place    the audit, then this; both read what the audit's options state

Of a setup that was measured with one request at a time that level is placed, of others the one with the
fewest at once, where the model goes that far.
"""

import sys
from collections.abc import Iterator, Sequence

import pandas as pd

from llm_measured.audit import frame, importers, report
from llm_measured.predict import answer, command, question

FLAG = "--place"
SETUPS = 6  # of a file at most; a sweep over models has more
SETUP = ["model", "gpu", "weights", "engine", "engine_version", "tensor_parallel"]


def main(words: Sequence[str] | None = None) -> int:
    """Audit the files that `words` name, then place them; the exit code is the audit's."""
    given = [word for word in (sys.argv[1:] if words is None else words) if word != FLAG]
    code = report.main(given)
    read = _read(report.arguments(given))
    if read is not None:
        print("\nPLACE")
        for line in lines(read):
            print(report.plain(line))
    return code


def _read(options):
    """The files once more, with what the options state; None where none can be read, as the audit said."""
    facts = {
        name: getattr(options, name)
        for name in (*report.FACTS, *report.COUNTS)
        if getattr(options, name) is not None
    }
    mapping, parts = dict(pair.split("=", 1) for pair in options.map if "=" in pair), []
    for path in report.expand(options.files)[0]:
        try:
            parts.append(importers.read(path, mapping))
        except (ValueError, MemoryError):
            continue
    return frame.join(parts).overruled(**facts) if parts else None


def lines(audited: frame.Audited) -> Iterator[str]:
    """For each setup of the file a line of what was measured and is expected, and the published rows nearest
    to it; for one that cannot be placed, why."""
    levels = audited.levels.assign(rate=_rate(audited))
    setups = list(levels.groupby(SETUP, sort=False, dropna=False))
    for _, rows in setups[:SETUPS]:
        yield from _placed(rows)
    if len(setups) > SETUPS:
        yield f"- {len(setups) - SETUPS} more setups of the file were not placed; name a file of fewer."


def _rate(audited):
    """Tokens/s of one request while it generates, of each level: 1 / TPOT, else its requests' own rate."""
    levels, good = audited.levels, audited.good().groupby("level")
    own = (good["output_tokens"].sum() - good.size()) / (good["e2e_s"].sum() - good["ttft_s"].sum())
    tpot = frame.centre(levels, "tpot")
    found = (1 / tpot).fillna(levels["level"].map(own)).fillna(1 / frame.centre(levels, "itl"))
    for column in ("request_tokens_per_s_p50", "request_tokens_per_s_mean", "request_tokens_per_s"):
        found = found.fillna(levels[column])
    return found


def _placed(rows: pd.DataFrame) -> Iterator[str]:
    """The lines of one setup, of its levels `rows`, whose `rate` is tokens/s of one request."""
    alone = rows[_alone(rows)]
    several = alone.empty and rows["concurrency"].between(2, question.MOST_USERS).any()
    rows = rows[rows["concurrency"] == rows["concurrency"].min()] if several else rows
    comparable = rows if several else alone
    first = rows.iloc[0]
    name = f"{first['model'] or 'a model'}, {first['gpu'] or 'a device'}, {first['engine'] or 'an engine'}"
    try:
        found = answer.one(_asked(comparable if len(comparable) else rows, several))
    except question.Refused as refused:
        yield f"- {name}: no place. {refused}"
        return
    users = found.setup["users"]
    load = f"each of {users:g} requests at once" if several else "one request alone"
    yield f"- {name}: {_compared(found, load, comparable['rate'].dropna(), rows['rate'].dropna())}"
    if found.outside:
        yield "  The weights do not fit; the range is what it would be if they did."
    if found.setup["guessed"]:
        yield f"  Guessed: {'; '.join(found.setup['guessed'])}."
    nearest = found.exact if len(found.exact) else found.near
    yield (
        "  Measured by others, this setup and engine family:"
        if len(found.exact)
        else "  Published and nearest:"
    )
    for _, row in nearest.head(5).iterrows():
        yield f"  {command.case(row)}"


def _compared(found: answer.Answer, load: str, comparable: pd.Series, rates: pd.Series) -> str:
    """Where the median of the `comparable` rates (tokens/s of one request) stands in the expected range;
    without any, what the file has instead: `rates`, of all its levels."""
    inside = f"{found.low:.3g} to {found.high:.3g} in 92 of 100 sources"
    expected = f"{found.rate:.3g} tokens/s expected of {load}, {inside}"
    if len(comparable):
        rate = float(comparable.median())
        where = "inside"
        if rate < found.low:
            where = "below it"
        elif rate > found.high:
            where = "above it"
        return f"{rate:.3g} tokens/s measured; {expected}: {where}."
    if len(rates):
        return (
            f"{rates.median():.3g} tokens/s of each request under load, which is not predicted; {expected}."
        )
    return f"the file has no rate of single requests; {expected}."


def _alone(rows):
    """Which levels had one request at a time."""
    return (rows["concurrency"] == 1) | (rows["batch_size"] == 1)


def _asked(rows, several):
    """The question that `answer.one` answers: the setup, with half an answer behind the prompt in the
    cache; `several`: with its requests at once."""
    first = rows.iloc[0]
    engine = f"{first['engine']} {first['engine_version']}".strip()
    context = rows["prompt_tokens"].median() + rows["output_tokens"].median() / 2
    load = {}
    if several:
        load["concurrency"] = f"{max(round(first['concurrency']), 2)}"
        for column in ("prompt_tokens", "output_tokens"):
            tokens = rows[column].median()
            name = column.replace("output", "answer")
            load[name] = "" if pd.isna(tokens) else f"{max(tokens, 1):g}"
    return load | {
        "accelerator": first["gpu"],
        "model": first["model"],
        "weights_format": first["weights"],
        "engine": engine,
        "accelerators": "" if pd.isna(first["tensor_parallel"]) else f"{first['tensor_parallel']:g}",
        "context": "" if pd.isna(context) else f"{context:g}",
    }
