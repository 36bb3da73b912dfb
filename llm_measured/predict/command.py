"""What to expect, from what others have published.

llm-measured expect ACCELERATOR MODEL [FORMAT] [ENGINE] …   one question (--help: what may be stated)
llm-measured expect --at-least RATE --model MODEL --weights-format FORMAT …   accelerators that reach it
llm-measured expect --largest ACCELERATOR …           the largest known models that fit
llm-measured expect --most-users --at-least RATE ACCELERATOR MODEL …   users at once that each get the rate
llm-measured expect --how-many --users N --at-least RATE ACCELERATOR MODEL …   accelerators that N users need
llm-measured expect predict DATA OUT    a rate, its interval and its price for each row of a CSV

In a checkout, to estimate anew:
llm-measured expect fit     the coefficients, from all published rows   (make predict-fit)
llm-measured expect prove   families of sources left out whole: intervals and proof   (make expect-proof)
"""

import argparse
import csv
import sys
from collections.abc import Callable
from pathlib import Path

import pandas as pd

from llm_measured.predict import answer, backwards, columns, prices, question
from llm_measured.published import comparable, lookup

MOST_BYTES = 64_000_000


def read(file: str) -> pd.DataFrame:
    """The rows of a CSV, every cell as text; ValueError in one sentence where it is no table to predict."""
    path = Path(file)
    if not path.is_file():
        raise ValueError(f"There is no file {file!r}: make expect DATA=rows.csv OUT=predicted.csv.")
    if path.stat().st_size > MOST_BYTES:
        raise ValueError(f"{path.name} has more than {MOST_BYTES / 1e6:.0f} MB; split it.")
    try:
        rows = pd.read_csv(
            path, dtype=str, keep_default_na=False, encoding="utf-8-sig", encoding_errors="strict"
        )
    except (UnicodeDecodeError, pd.errors.ParserError, pd.errors.EmptyDataError, csv.Error) as error:
        raise ValueError(f"{path.name} is not a CSV in UTF-8 ({type(error).__name__}).") from None
    instead = {"accelerator": "bandwidth_gb_per_s", "model": "parameters_b", "weights_format": "bits"}
    for name in question.ASKED:
        if name not in rows and instead.get(name) not in rows:
            raise ValueError(f"{path.name} has no column {name!r}; it needs {', '.join(question.ASKED)}.")
    return rows


def predict(file: str, out: str) -> str:
    """Write `file` with its predictions to `out`; returns one sentence of what was done. Columns that a
    prediction makes replace those of the same name."""
    rows = read(file)
    made = columns.predictions(rows)
    ends = {"rate": "", "low": "_low", "high": "_high"}
    rates = pd.DataFrame({name: made[answer.PREDICTED + end] for name, end in ends.items()})
    made = made.join(prices.costs(question.read(rows), rates))
    kept = rows.drop(columns=[name for name in made if name in rows])
    kept.join(made).to_csv(out, index=False, float_format="%.6g", lineterminator="\n")
    refused = int((made["refused"] != "").sum())
    return (
        f"{len(rows) - refused} of {len(rows)} rows predicted, {refused} refused (column refused says why)."
    )


def _as_on_cards(setup):
    """One user's measured number, the same as on the page Cards and in published_lookup.csv."""
    if setup["users"] > 1 or setup["accelerators"] > 1 or setup["context"] > comparable.LONGEST_CONTEXT:
        return []
    found = lookup.cell(setup["family"], setup["known_model"], setup["bits"])
    if found.empty:
        return []
    rates = dict.fromkeys(map(lookup.written, found["rate"]))
    by = found["source"]
    other = ""
    if (found["reference"] == "no").any():
        unnamed = found["variant"].fillna("").isin(comparable.NO_VARIANT)
        by = by + (" on " + found["variant"]).mask(unnamed, "")
        other = ", in another setup"
    return [f"Measured by others: {' to '.join(rates)} tokens/s ({' to '.join(by)}{other})."]


def told(found: answer.Answer, cases: bool = True) -> str:
    """An answer in lines; `cases`: with the published ones beside it."""
    setup = found.setup
    count = f"{setup['accelerators']:g} × " if setup["accelerators"] > 1 else ""
    engine = setup["engine"] if setup["engine"] != "any" else "an engine of which nothing is said"
    lines = [
        f"{count}{setup['machine']}, {setup['model']} ({setup['parameters'] / 1e9:.4g} · 10⁹ parameters, "
        f"{setup['active'] / 1e9:.4g} active), {setup['bits']:.3g} bits, {engine}, "
        f"{setup['context']:,.0f} tokens in the cache{_load(setup)}."
    ]
    lines += _as_on_cards(setup) if cases else []
    if cases and len(found.exact):
        lines.append("Rows of this setup and engine family:")
        lines += [f"  {case(row)}" for _, row in found.exact.head(6).iterrows()]
    lines.append(_memory(found))
    users = setup["users"]
    bound = f"; the bound is {answer.short(found.bound)}" if found.bound else ""
    lines.append(
        f"Expected: {answer.short(found.rate)} tokens/s{' of each user' if users > 1 else ''}, "
        f"{answer.short(found.low)} to {answer.short(found.high)} in 92 of 100 sources, "
        f"{answer.short(found.likely_low)} to {answer.short(found.likely_high)} in two of three{bound}."
    )
    for one in found.variants:
        fits = "fits" if not one.outside else "does not fit"
        rate, low, high = (answer.short(each) for each in (one.rate, one.low, one.high))
        lines.append(f"  if it is {one.setup['machine']}: {rate} tokens/s, {low} to {high}; {fits}.")
    if users > 1:
        rate, low, high = (answer.short(users * each) for each in (found.rate, found.low, found.high))
        lines.append(f"All {users:g} users together: {rate} tokens/s, {low} to {high}.")
    parts = {name: share for name, share in found.shares.items() if share >= 0.01}
    lines.append(
        "Of a token's time: "
        + ", ".join(f"{name} {100 * share:.0f} %" for name, share in parts.items())
        + "."
    )
    lines += _cost(found)
    seconds, low, high = found.first_token_s
    waits = ", alone on the machine; how long it waits beside the others is not answered"
    lines.append(
        f"First token of a prompt of {setup['prompt']:,.0f} tokens: {seconds:.3g} s "
        f"({low:.2g} to {high:.2g}){waits if users > 1 else ''}."
    )
    if setup["guessed"]:
        lines.append("Guessed: " + "; ".join(setup["guessed"]) + ".")
    if cases:
        lines.append("Published and nearest:")
        lines += [f"  {case(row)}" for _, row in found.near.iterrows()]
    return "\n".join(lines)


def _load(setup: pd.Series) -> str:
    """How many users there are and what each sends, for a line; empty for one user."""
    if setup["users"] == 1:
        return ""
    return (
        f" of each of {setup['users']:g} users at once, prompts of {setup['prompt']:,.0f} tokens and answers "
        f"of {setup['answer']:,.0f}"
    )


def _cost(found: answer.Answer) -> list[str]:
    """Dollars per million tokens in a line; none where the setup does not run."""
    if not found.answered:
        return []
    if found.usd_per_million is None:
        listed = sorted(set(prices.table()["accelerator"]))
        return [f"Cost: no price is listed (there are {', '.join(listed)}); state --usd-per-gpu-hour."]
    middle, low, high = found.usd_per_million
    users = found.setup["users"]
    of = "for one user" if users == 1 else f"for all {users:g} users"
    return [
        f"Cost: ${answer.short(middle)} per million output tokens {of} (${answer.short(low)} to "
        f"${answer.short(high)}), at "
        f"${found.price.usd_per_gpu_hour:.2f} an hour of each accelerator ({found.price.source}); "
        f"the time of {'prompts' if users == 1 else 'the own prompt'} is not in it."
    ]


def as_json(found: answer.Answer) -> str:
    """An answer as JSON; what nobody states is null."""
    setup = found.setup
    cost = found.usd_per_million or (None, None, None)
    shown = {
        **{name: setup[name] for name in ("machine", "accelerators", "split", "model", "format", "bits")},
        **{name: setup[name] for name in ("engine", "context", "users")},
        "users_that_fit": found.users_fit,
        answer.PREDICTED: found.rate,
        f"{answer.PREDICTED}_low": found.low,
        f"{answer.PREDICTED}_high": found.high,
        **{
            f"{answer.PREDICTED}_all{end}": setup["users"] * rate
            for end, rate in (("", found.rate), ("_low", found.low), ("_high", found.high))
        },
        "bound_output_tokens_per_s": found.bound,
        "fits": not found.outside if found.held_gb < float("inf") else None,
        "runs": found.answered,
        "weights_gb": found.weights_gb,
        "cache_gb": found.cache_gb,
        "held_gb": found.held_gb,
        "prompt_tokens": setup["prompt"],
        "answer_tokens": setup["answer"],
        **dict(zip(("ttft_s", "ttft_s_low", "ttft_s_high"), found.first_token_s)),
        **dict(zip(prices.COLUMNS, cost)),
        "price_usd_per_gpu_hour": found.price.usd_per_gpu_hour if found.price else None,
        "price_source": found.price.source if found.price else None,
        "guessed": list(setup["guessed"]),
        "variants": [
            {"machine": one.setup["machine"], answer.PREDICTED: one.rate, "fits": not one.outside}
            for one in found.variants
        ],
        "measured": _cases(found.exact),
        "nearest": _cases(found.near),
    }
    return answer.as_json("rate", shown)


def _cases(table: pd.DataFrame) -> list[dict]:
    return table.astype(object).where(table.notna(), None).to_dict("records")


def _memory(found: answer.Answer) -> str:
    users = found.setup["users"]
    of = f" of {users:g} users" if users > 1 else ""
    needs = f"weights {found.weights_gb:.3g} GB and cache {found.cache_gb:.3g} GB{of}"
    fit = f"; {found.users_fit:,.0f} users would fit at that context" if users > 1 else ""
    if found.held_gb == float("inf"):
        return f"Memory: {needs}; how much there is nobody stated."
    if not found.away and not found.outside:
        return f"Fits: {needs} of {found.held_gb:.3g} GB{fit}."
    if found.away:
        parts = "experts" if found.setup["mixture"] == "mixture" else "layers"
        stated = found.setup[["host_bandwidth", "host_sold"]].notna().any()
        guess = "" if stated else ", a guess: state --host or --host-bandwidth-gb-per-s"
        whole = "Does not fit" if found.outside else "Fits"
        return (
            f"{whole}: {needs}, {found.held_gb:.3g} GB held. {100 * found.away:.0f} % of the weights "
            f"({parts}) stay in the host's memory, which gives {found.host_gb_per_s:.3g} GB/s{guess}."
        )
    held = f"{found.held_gb:.3g} GB held{fit}"
    return f"Does not fit: {needs}, {held}. What follows is what it would be if it did."


def case(row: pd.Series) -> str:
    """A published case in a line: rate, setup, source."""
    count = f"{row['accelerators']:g} × " if row["accelerators"] > 1 else ""
    day = row["measured_on"] if isinstance(row["measured_on"], str) else "no date"
    users = f" of each of {row['users']:g} users" if row["users"] > 1 else ""
    return (
        f"{row['rate']:.4g} tokens/s{users}  {count}{row['machine']}, {row['model']}, {row['format']}, "
        f"{row['engine']}, "
        f"{row['context']:,.0f} tokens  {row['source']} ({day}) {row['source_url']}"
    )


def _question(words: list[str]) -> str:
    parser = argparse.ArgumentParser(
        prog="llm-measured expect", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    for name in question.ASKED:
        parser.add_argument(name, nargs="?", default="", help="as people write it")
    # The same by name, for a question that leaves out the words before.
    for name in question.ASKED:
        option = f"--{name.replace('_', '-')}"
        parser.add_argument(option, dest=f"named_{name}", default="", help=argparse.SUPPRESS)
    parser.add_argument("--accelerators", default="", help="how many")
    parser.add_argument("--split", default="", help="tensor (side by side) or layers (one after the other)")
    parser.add_argument("--host", default="", help="processor beside the accelerator")
    parser.add_argument("--users", "--concurrency", dest="concurrency", default="", help="requests at once")
    for name, limit in question.LIMITS.items():
        if name not in ("accelerators", "concurrency", "accelerator_memory_gb"):
            parser.add_argument(f"--{name.replace('_', '-')}", default="", help=limit.unit)
    parser.add_argument("--at-least", type=float, help="tokens/s of each user: which accelerators reach it")
    parser.add_argument("--most-users", action="store_true", help="how many users at once get --at-least")
    parser.add_argument("--how-many", action="store_true", help="accelerators that --users need for it")
    parser.add_argument("--largest", action="store_true", help="the largest known models that fit")
    parser.add_argument("--json", action="store_true", help="the answer as JSON")
    given = vars(parser.parse_args(words))
    rate, largest, in_json = (given.pop(name) for name in ("at_least", "largest", "json"))
    most, how_many = given.pop("most_users"), given.pop("how_many")
    for name in question.ASKED:
        given[name] = given.pop(f"named_{name}") or given[name]
    if rate is not None and not 0 < rate < 1e6:
        raise question.Refused(f"--at-least is {rate:g}; it is a number of tokens/s above 0.")
    if most or how_many:
        if rate is None:
            raise question.Refused("State the tokens/s that each user is to get: --at-least 20.")
        return (backwards.most_users_text if most else backwards.how_many_text)(given, rate, in_json)
    if largest:
        return backwards.largest_text(given, rate or 0.0, in_json)
    if rate is not None:
        return backwards.reaching_text(given, rate, in_json)
    found = answer.one(given)
    return as_json(found) if in_json else told(found)


def _maker(name: str) -> Callable[[], str]:
    """What estimates anew needs the table of all published rows; imported only when asked for."""
    from llm_measured.predict import proof

    return {"fit": proof.refit, "prove": proof.prove}[name]


def main(words: list[str] | None = None) -> int:
    """Exit status: 0, or 1 with one sentence on stderr."""
    words = list(sys.argv[1:] if words is None else words)
    try:
        if words[:1] == ["predict"] and len(words) == 3:
            print(predict(*words[1:]))
        elif words in (["fit"], ["prove"]):
            print(_maker(words[0])())
        else:
            print(_question(words or ["--help"]))
    except BrokenPipeError:
        raise
    except (ValueError, OSError) as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
