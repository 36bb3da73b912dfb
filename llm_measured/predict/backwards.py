"""Questions asked backwards: which accelerators reach a rate, and which models fit on an accelerator."""

from collections.abc import Mapping

import pandas as pd

from llm_measured.core import hardware
from llm_measured.predict import answer, nearest, prices, question, step

MOST_LINES = 40  # of a table in a terminal
MOST_MODELS = 15


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
            "--at-least asks for accelerators: name none, or add --largest. What else is asked goes by name: "
            "--model, --weights-format, --engine."
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
