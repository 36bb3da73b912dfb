"""Questions asked backwards: which accelerators reach a rate, which models fit on an accelerator, how many
users at once get a rate, and how many accelerators they need."""

import json
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pandas as pd

from llm_measured.core import hardware
from llm_measured.predict import answer, nearest, prices, question, step

MOST_LINES = 40  # of a table in a terminal
MOST_MODELS = 15
GROUPS = (1, 2, 4, 8)  # accelerators that share one copy of a model
MOST_ASKED = 1_000_000  # users that `how_many` divides among copies


def _answers(asked: Mapping[str, object], column: str, names: list[str]) -> pd.DataFrame:
    """One row per name that is answered and fits without the host's memory: setups with rate, low, high
    (tokens/s) and prices.COLUMNS."""
    table = question.read(pd.DataFrame([dict(asked)] * len(names), dtype=object).assign(**{column: names}))
    table = table[table["refused"] == ""]
    table = table[answer.fits(table) == 0]
    if table.empty:
        return table.assign(rate=0.0, low=0.0, high=0.0, **dict.fromkeys(prices.COLUMNS, 0.0))
    found = answer.interval(table)
    rates = pd.DataFrame({"rate": 1 / found["seconds"], "low": 1 / found["high"], "high": 1 / found["low"]})
    return table.join(rates).join(prices.costs(table, rates))


def reaching(asked: Mapping[str, object], rate: float) -> pd.DataFrame:
    """Accelerators of the table on which a model is expected to reach `rate` tokens/s, the slowest first;
    columns machine, accelerators, rate, low, high, sure (the whole interval reaches it), exact (who measured
    the setup: sources), usd_per_million_output_tokens, price_source. question.Refused where the rest of the
    question has no answer."""
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
    return table.assign(sure=table["low"] >= rate, exact=exact)


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
    if setup["memory_bytes"] != setup["memory_bytes"]:
        raise question.Refused(f"The memory of {setup['machine']} is not known; state memory_gb.")
    table = _answers(asked, "model", hardware.models()["model"].tolist())
    table = table[table["rate"] >= rate].drop_duplicates("model")
    table = table.assign(weights_gb=step.weight_bytes(table) / 1e9)
    return table.sort_values(["parameters", "rate"], ascending=False, kind="stable")


@dataclass(frozen=True)
class Users:
    """How many users at once get a rate: as expected, with the whole interval, and how many fit in memory;
    `setup` is that of two of them."""

    expected: int
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
    setup, held = table.iloc[1], float(step.most_users(table.iloc[1:2], question.ROOM)[0])
    fitting = table[answer.fits(table) == 0]
    if fitting.empty:
        return Users(0, 0, 0.0, setup)
    found = answer.interval(fitting)
    expected, sure = (int(np.cumprod(1 / found[end] >= rate).sum()) for end in ("seconds", "high"))
    return Users(expected, min(sure, expected), held, setup)


def how_many(asked: Mapping[str, object], users: int, rate: float) -> pd.DataFrame:
    """How many accelerators `users` users at once need for `rate` tokens/s each: one row per number of
    accelerators that share a copy of the model (GROUPS) and give a user the rate, the fewest first; columns
    group, users (of one copy), copies, accelerators, and sure (accelerators for the whole interval, NaN
    where no number is enough)."""
    rows = []
    for group in GROUPS:
        found = most_users({**asked, "accelerators": str(group)}, rate)
        if found.expected:
            copies = -(-users // found.expected)
            sure = group * -(-users // found.sure) if found.sure else np.nan
            rows.append((group, found.expected, copies, group * copies, sure))
    table = pd.DataFrame(rows, columns=["group", "users", "copies", "accelerators", "sure"])
    return table.sort_values(["accelerators", "group"], ignore_index=True)


def most_users_text(asked: Mapping[str, object], rate: float, in_json: bool = False) -> str:
    """`most_users` as a sentence, or as JSON."""
    found = most_users(asked, rate)
    setup, held = found.setup, found.fit
    if in_json:
        shown = {name: setup[name] for name in ("machine", "accelerators", "model", "context")}
        shown |= {"output_tokens_per_s_of_each": rate, "most_users": found.expected}
        shown |= {"most_users_whole_interval": found.sure, "users_that_fit": held if held < np.inf else None}
        return json.dumps(shown, indent=2, ensure_ascii=False, allow_nan=False)
    count = f"{setup['accelerators']:g} × " if setup["accelerators"] > 1 else ""
    head = f"{count}{setup['machine']}, {setup['model']}, {setup['bits']:.3g} bits:"
    if not held:
        return f"{head} it does not fit; state more --accelerators, fewer --bits or a shorter --context."
    fit = f"; the memory holds {held:,.0f}" if held < np.inf else ""
    if not found.expected:
        return f"{head} not even one user is expected to get {rate:g} tokens/s{fit}."
    more = " or more" if found.expected == question.MOST_USERS else ""
    return (
        f"{head} {found.expected}{more} users at once are expected to get {rate:g} tokens/s each, "
        f"{found.sure} of them with the whole interval{fit} (caches of {setup['context']:,.0f} tokens, "
        f"prompts of {setup['prompt']:,.0f}, answers of {setup['answer']:,.0f})."
    )


def how_many_text(asked: Mapping[str, object], rate: float, in_json: bool = False) -> str:
    """`how_many` as lines, or as JSON."""
    text = str(asked.get("concurrency") or "")
    if not text.isdigit() or not 1 <= int(text) <= MOST_ASKED:
        raise question.Refused(f"--how-many needs --users, a whole number from 1 to {MOST_ASKED:,}.")
    table = how_many(dict(asked) | {"concurrency": ""}, int(text), rate)
    titles = [
        "accelerators of a copy",
        "users of a copy",
        "copies",
        "accelerators",
        "with the whole interval",
    ]
    shown = table.set_axis(titles, axis=1)
    if in_json:
        return _json(shown)
    if shown.empty:
        *first, last = GROUPS
        return (
            f"No {', '.join(map(str, first))} or {last} of them hold the model and are expected to give one "
            f"user {rate:g} tokens/s."
        )
    return _lines(f"For {int(text):,} users at once with {rate:g} tokens/s each:", shown, MOST_LINES)


def reaching_text(asked: Mapping[str, object], rate: float, in_json: bool = False) -> str:
    """`reaching` as lines, or as JSON."""
    table = reaching(asked, rate)
    shown = pd.DataFrame(
        {
            "accelerator": table["machine"],
            "tokens/s": table["rate"],
            "from": table["low"],
            "to": table["high"],
            "sure": table["sure"].map({True: "yes", False: ""}),
            "$ per 10⁶ tokens": table[prices.PER_MILLION],
            "price": table["price_source"],
            "measured by": table["exact"],
        }
    )
    if in_json:
        return _json(shown)
    if shown.empty:
        return f"No accelerator of the table holds the model and is expected to reach {rate:g} tokens/s."
    count = float(table["accelerators"].iloc[0])
    each = f" ({count:g} of each)" if count > 1 else ""
    head = (
        f"{len(shown)} accelerators{each} hold the model and are expected to reach {rate:g} tokens/s, "
        f"{int(table['sure'].sum())} of them with the whole interval (sure)."
    )
    return _lines(head, shown, MOST_LINES)


def largest_text(asked: Mapping[str, object], rate: float, in_json: bool = False) -> str:
    """`largest` as lines, or as JSON."""
    table = largest(asked, rate)
    shown = pd.DataFrame(
        {
            "model": table["model"],
            "10⁹ parameters": table["parameters"] / 1e9,
            "active": table["active"] / 1e9,
            "weights (GB)": table["weights_gb"],
            "tokens/s": table["rate"],
            "from": table["low"],
            "to": table["high"],
        }
    )
    if in_json:
        return _json(shown)
    if shown.empty:
        return f"No known model fits{f' and is expected to reach {rate:g} tokens/s' if rate else ''}."
    fast = f" and are expected to reach {rate:g} tokens/s" if rate else ""
    return _lines(f"{len(shown)} known models fit{fast}, the largest first.", shown, MOST_MODELS)


def _json(shown: pd.DataFrame) -> str:
    return shown.to_json(orient="records", indent=2, force_ascii=False, double_precision=6)


def _lines(head: str, shown: pd.DataFrame, most: int) -> str:
    words = shown.head(most).to_string(index=False, float_format=answer.short, na_rep="")
    rest = [f"… and {len(shown) - most} more (--json has all)."] if len(shown) > most else []
    return "\n".join([head, words, *rest])
