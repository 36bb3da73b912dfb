"""Questions asked backwards: which accelerators reach a rate, which models fit on an accelerator, how many
users at once get a rate, and how many accelerators they need."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pandas as pd

from llm_measured.core import hardware
from llm_measured.predict import answer, nearest, prices, question, step

MOST_LINES = 40  # of a table in a terminal
GROUPS = (1, 2, 4, 8)  # accelerators that share one copy of a model
MOST_ASKED = 1_000_000  # users that `how_many` divides among copies


def _answers(asked: Mapping[str, object], column: str, names: list[str]) -> pd.DataFrame:
    """One row per name that is answered and fits without the host's memory, of which the size is known:
    setups with rate, low, high, likely_low, likely_high (tokens/s) and prices.COLUMNS."""
    table = question.read(pd.DataFrame([dict(asked)] * len(names), dtype=object).assign(**{column: names}))
    table = table[(table["refused"] == "") & table["memory_bytes"].notna()]
    table = table[step.outside(table) == 0]
    if table.empty:
        return table.assign(**dict.fromkeys([*answer.RATES, *prices.COLUMNS], 0.0))
    rates = answer.rates(answer.interval(table))
    return table.join(rates).join(prices.costs(table, rates))


def reaching(asked: Mapping[str, object], rate: float) -> pd.DataFrame:
    """Accelerators of the table on which a model is expected to reach `rate` tokens/s, the slowest first;
    columns machine, accelerators, rate, low, high, sure (yes: the whole interval reaches it; likely: two of
    three sources), exact (who measured the setup: sources), usd_per_million_output_tokens, price_source.
    question.Refused where the rest of the question has no answer."""
    if asked.get("accelerator") or asked.get("bandwidth_gb_per_s"):
        raise question.Refused(
            "--at-least asks for accelerators: name none, or add --largest, --most-users or --how-many. What "
            "else is asked goes by name: --model, --weights-format, --engine."
        )
    # What is wrong with the rest of the question is said once, not for every accelerator.
    beside = {"accelerator": "", "bandwidth_gb_per_s": "1000", "memory_gb": ""}
    setup = question.read(pd.DataFrame([dict(asked) | beside], dtype=object)).iloc[0]
    if setup["refused"]:
        raise question.Refused(setup["refused"])
    names = hardware.accelerators()["accelerator"].tolist()
    table = _answers(asked, "accelerator", names)
    table = table[table["rate"] >= rate].sort_values("rate")
    exact = [", ".join(sorted(set(nearest.exact(row)["source"]))) for _, row in table.iterrows()]
    likely = np.where(table["likely_low"] >= rate, "likely", "")
    return table.assign(sure=np.where(table["low"] >= rate, "yes", likely), exact=exact)


def largest(asked: Mapping[str, object], rate: float = 0.0) -> pd.DataFrame:
    """Known models that fit on an accelerator and are expected to reach `rate` tokens/s, the largest first;
    columns model, parameters, active, weights_gb, rate, low, high. question.Refused where the rest of the
    question has no answer."""
    if asked.get("model") or asked.get("parameters_b"):
        raise question.Refused("--largest asks for models: name none.")
    beside = {"parameters_b": "1"}
    setup = question.read(pd.DataFrame([dict(asked) | beside], dtype=object)).iloc[0]
    if setup["refused"]:
        raise question.Refused(setup["refused"])
    _known_memory(setup)
    table = _answers(asked, "model", hardware.models()["model"].tolist())
    table = table[table["rate"] >= rate].drop_duplicates("model")
    table = table.assign(weights_gb=step.weight_bytes(table) / 1e9)
    return table.sort_values(["parameters", "rate"], ascending=False, kind="stable")


def _known_memory(setup: pd.Series) -> None:
    if setup["memory_bytes"] != setup["memory_bytes"]:
        raise question.Refused(f"The memory of {setup['machine']} is not known; state memory_gb.")


@dataclass(frozen=True)
class Users:
    """How many users at once get a rate: as expected, `low` to `high` in two of three sources, `sure` with
    the whole interval, and how many fit in memory; `setup` is that of two of them."""

    expected: int
    low: int
    high: int
    sure: int
    fit: float
    setup: pd.Series


def most_users(asked: Mapping[str, object], rate: float) -> Users:
    """The most users at once of whom each, and each of any fewer, is expected to get `rate` tokens/s, up to
    question.MOST_USERS. question.Refused where the rest of the question has no answer."""
    numbers = [str(n) for n in range(1, question.MOST_USERS + 1)]
    rows = pd.DataFrame([dict(asked)] * len(numbers), dtype=object).assign(concurrency=numbers)
    table = question.read(rows)
    if table["refused"].iloc[0]:
        raise question.Refused(table["refused"].iloc[0])
    # One user's context is what is stated or short; of more it has their prompts in it.
    setup, held = table.iloc[1], float(step.most_users(table.iloc[1:2])[0])
    _known_memory(setup)
    fitting = table[step.outside(table) == 0]
    if fitting.empty:
        return Users(0, 0, 0, 0, 0.0, setup)
    found = answer.rates(answer.interval(fitting))
    counts = {end: int(np.cumprod(found[end] >= rate).sum()) for end in answer.RATES}
    return Users(counts["rate"], counts["likely_low"], counts["likely_high"], counts["low"], held, setup)


def how_many(asked: Mapping[str, object], users: int, rate: float) -> pd.DataFrame:
    """How many accelerators `users` users at once need for `rate` tokens/s each: one row per number of
    accelerators that share a copy of the model (GROUPS) and give a user the rate, the fewest first; columns
    group, users (of one copy), copies, accelerators, fewest and most (accelerators in two of three sources,
    NaN where no number is enough)."""
    rows = []
    for group in GROUPS:
        found = most_users({**asked, "accelerators": str(group)}, rate)
        if found.expected:
            copies, fewest = (-(-users // each) for each in (found.expected, found.high))
            most = group * -(-users // found.low) if found.low else np.nan
            rows.append((group, found.expected, copies, group * copies, group * fewest, most))
    table = pd.DataFrame(rows, columns=["group", "users", "copies", "accelerators", "fewest", "most"])
    return table.sort_values(["accelerators", "group"], ignore_index=True)


def most_users_text(asked: Mapping[str, object], rate: float, in_json: bool = False) -> str:
    """`most_users` as a sentence, or as JSON."""
    found = most_users(asked, rate)
    setup, held = found.setup, found.fit
    if in_json:
        shown = {name: setup[name] for name in ("machine", "accelerators", "model", "context")}
        shown |= {"output_tokens_per_s_of_each": rate, "most_users": found.expected}
        shown |= {"most_users_low": found.low, "most_users_high": found.high}
        return answer.as_json("most_users", shown | {"most_users_sure": found.sure, "users_that_fit": held})
    count = f"{setup['accelerators']:g} × " if setup["accelerators"] > 1 else ""
    head = f"{count}{setup['machine']}, {setup['model']}, {setup['bits']:.3g} bits:"
    if not held:
        return f"{head} it does not fit; state more --accelerators, fewer --bits or a shorter --context."
    if not found.high:
        return f"{head} not even one user is likely to get {rate:g} tokens/s; the memory holds {held:,.0f}."
    more = " or more" if found.expected == question.MOST_USERS else ""
    return (
        f"{head} {found.expected}{more} users at once are expected to get {rate:g} tokens/s each, "
        f"{found.low} to {found.high} in two of three sources; the memory holds {held:,.0f} (caches of "
        f"{setup['context']:,.0f} tokens, prompts of {setup['prompt']:,.0f}, answers of "
        f"{setup['answer']:,.0f})."
    )


def how_many_text(asked: Mapping[str, object], rate: float, in_json: bool = False) -> str:
    """`how_many` as lines, or as JSON."""
    text = str(asked.get("concurrency") or "")
    if not text.isdigit() or not 1 <= int(text) <= MOST_ASKED:
        raise question.Refused(f"--how-many needs --users, a whole number from 1 to {MOST_ASKED:,}.")
    table = how_many(dict(asked) | {"concurrency": ""}, int(text), rate)
    titles = ["accelerators of a copy", "users of a copy", "copies", "accelerators", "from", "to"]
    shown = table.set_axis(titles, axis=1)
    if in_json:
        return answer.as_json("how_many", shown)
    if shown.empty:
        *first, last = GROUPS
        return (
            f"No {', '.join(map(str, first))} or {last} of them hold the model and are expected to give one "
            f"user {rate:g} tokens/s."
        )
    head = f"For {int(text):,} users at once with {rate:g} tokens/s each (from, to: in two of three sources):"
    return _lines(head, shown)


def reaching_text(asked: Mapping[str, object], rate: float, in_json: bool = False) -> str:
    """`reaching` as lines, or as JSON."""
    table = reaching(asked, rate)
    titles = ["accelerator", "tokens/s", "from", "to", "sure", "$ per 10⁶ tokens", "price", "measured by"]
    names = ["machine", "rate", "low", "high", "sure", prices.PER_MILLION, "price_source", "exact"]
    shown = table[names].set_axis(titles, axis=1)
    if in_json:
        return answer.as_json("accelerators", shown)
    if shown.empty:
        return f"No accelerator of the table holds the model and is expected to reach {rate:g} tokens/s."
    count = float(table["accelerators"].iloc[0])
    each = f" ({count:g} of each)" if count > 1 else ""
    head = (
        f"{len(shown)} accelerators{each} hold the model and are expected to reach {rate:g} tokens/s, "
        f"{int((table['sure'] == 'yes').sum())} of them with the whole interval (sure: yes), "
        f"{int((table['sure'] == 'likely').sum())} more in two of three sources (likely)."
    )
    return _lines(head, shown)


def largest_text(asked: Mapping[str, object], rate: float, in_json: bool = False) -> str:
    """`largest` as lines, or as JSON."""
    table = largest(asked, rate)
    titles = ["model", "10⁹ parameters", "active", "weights (GB)", "tokens/s", "from", "to"]
    names = ["model", "parameters", "active", "weights_gb", "rate", "low", "high"]
    shown = table[names].set_axis(titles, axis=1)
    shown[titles[1:3]] /= 1e9
    if in_json:
        return answer.as_json("models", shown)
    if shown.empty:
        return f"No known model fits{f' and is expected to reach {rate:g} tokens/s' if rate else ''}."
    fast = f" and are expected to reach {rate:g} tokens/s" if rate else ""
    return _lines(f"{len(shown)} known models fit{fast}, the largest first.", shown)


def _lines(head: str, shown: pd.DataFrame) -> str:
    words = shown.head(MOST_LINES).to_string(index=False, float_format=answer.short, na_rep="")
    rest = [f"… and {len(shown) - MOST_LINES} more (--json has all)."] if len(shown) > MOST_LINES else []
    return "\n".join([head, words, *rest])
