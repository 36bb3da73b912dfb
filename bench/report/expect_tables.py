"""What to expect of cards that people have, computed before a page asks: `make expect-tables`.

    python -m bench.report.expect_tables      writes downloads/expect/<card>.js, with downloads/cards.js

The cards and models with most published rows, the formats published of each model, in the engine that is
used most on that card; COUNTS of cards, USERS at once, CONTEXTS of tokens. Of every other card one user's
answers of the models that were measured on most cards, in the commonest format of four bits. Beside them
stands what was measured of each model and format. A page only looks both up. What an engine does not run at
all is absent; of what does not fit stands how many GB it needs.
"""

import itertools
import math
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from bench import paths
from bench.report import cards
from bench.report.cards import CHOICE, CONTEXTS, COUNTS, SIXTEEN, USERS
from llm_measured.core import hardware
from llm_measured.core.files import csv_text, write_whole
from llm_measured.predict import columns, question
from llm_measured.published import comparable

MOST_CARDS, MOST_MODELS, MOST_FORMATS = 60, 30, 3
WIDELY = 22  # of the models: those that were measured on most cards
FEW_MODELS = 11  # of each card beyond MOST_CARDS
MOST_BYTES_OF_A_CARD, MOST_BYTES = 60_000, 4_000_000
FOLDER = paths.DOWNLOADS / "expect"
SHORT = FOLDER / "short.csv"  # what one user is to expect on one card in the shortest context
SHORT_COLUMNS = ["device", "model", "format", "bits", "engine", "tokens_per_s_user", "low", "high"]
SHORT_COLUMNS += ["needs_gb", "users_at_10", "gb"]
MEASURED = ["measured_low", "measured_high", "least", "most", "rows", "who", "aside"]
# From so many times the highest that was measured on (or the lowest), an answer says what was otherwise then.
FAR, YEARS = 1.25, 2


def accelerators() -> dict[str, str]:
    """Return {card: its variant that is asked about}, the cards with most rows first: the variant with most
    rows of its own, else the one whose memory is fastest."""
    rows = cards.rows()
    table = hardware.accelerators().sort_values("bandwidth_gb_per_s", ascending=False)
    fastest = table.drop_duplicates("family").set_index("family")["accelerator"]
    known = rows[rows["variant"].isin(table["accelerator"])]
    commonest = known.groupby("device")["variant"].agg(lambda ids: ids.value_counts().index[0])
    devices = rows["device"].value_counts().index
    variants = {device: commonest.get(device, fastest.get(device)) for device in devices}
    return {device: variant for device, variant in variants.items() if variant is not None}


def models() -> dict[str, list[str]]:
    """Return {model: the formats that most sources have published of it}: the models that were measured on
    most cards by most sources, then those of several sources with most rows."""
    rows = comparable.one_user()
    sizes = hardware.by_model()["parameters_b"].dropna()
    rows = rows[rows["model"].isin(sizes.index) & (rows["format"] != "")]
    rows = rows.assign(format=rows["format"].replace(SIXTEEN))
    spread = rows.groupby("model").apply(lambda part: len(part[["device", "source"]].drop_duplicates()))
    several = rows.groupby("model").filter(lambda part: part["source"].nunique() > 1)
    ordered = [*spread.sort_values(ascending=False).index[:WIDELY], *several["model"].value_counts().index]
    found = {}
    for model in list(dict.fromkeys(ordered))[:MOST_MODELS]:
        counts = rows[rows["model"] == model].groupby("format")["source"].agg(["nunique", "size"])
        counts = counts.sort_values(["nunique", "size"], ascending=False)
        found[model] = list(counts.index[:MOST_FORMATS])
    return found


def engines() -> pd.Series:
    """Return the engine with most rows of each card and format, and under the format "" of each card."""
    rows = cards.rows()
    rows = rows[rows["engine"] != ""]
    rows = rows.assign(format=rows["format"].replace(SIXTEEN))
    both = pd.concat([rows, rows.assign(format="")])
    return both.groupby(["device", "format"])["engine"].agg(lambda names: names.value_counts().index[0])


def questions(devices: dict[str, str], offered: dict[str, list[str]], users: Sequence[int]) -> pd.DataFrame:
    """Return every question of the `offered` models, a row each: device, and the columns that
    `columns.expect` reads."""
    used = engines()
    asked = []
    for device, model in itertools.product(devices, sorted(offered)):
        for form in offered[model]:
            engine = used.get((device, form), used.get((device, "")))
            if engine is None:
                continue
            alone = len(users) == 1 or cards.group(device) not in cards.CARDS
            counts = COUNTS[:1] if alone else COUNTS
            for count, many, context in itertools.product(counts, users, CONTEXTS):
                asked.append((device, devices[device], count, model, form, engine, many, context))
    names = ["device", "accelerator", "accelerators", "model", "format", "engine", "users", "context_tokens"]
    return pd.DataFrame(asked, columns=names)


def every() -> pd.DataFrame:
    """Return all answers: everything of the MOST_CARDS cards with most rows that are answered, of all others
    one user's of few models in one format of four bits."""
    devices, offered, bits = accelerators(), models(), _bits()
    found = answers(questions(dict(list(devices.items())[: MOST_CARDS + 10]), offered, USERS))
    found = found[found["device"].isin(found["device"].unique()[:MOST_CARDS])]
    few = {}
    for model in list(offered)[:FEW_MODELS]:
        few[model] = [form for form in offered[model] if round(bits[form]) == 4][:1] or offered[model][:1]
    others = {device: devices[device] for device in devices if device not in set(found["device"])}
    return pd.concat([found, answers(questions(others, few, USERS[:1]))])


def answers(asked: pd.DataFrame) -> pd.DataFrame:
    """Return questions with what is to be expected; those that no engine answers are absent. Of a context
    that is longer than a model was made for there is what one of its shape needs, and no rate."""
    names = asked["model"].drop_duplicates()
    longest = dict(zip(names, names.map(question.longest_context).astype(float)))
    beyond = asked["context_tokens"] > asked["model"].map(longest)
    named = asked["model"].mask(beyond, asked["model"].map(dict(zip(names, names.map(cards.asked_as)))))
    found = asked.join(columns.expect(asked.assign(model=named)))
    found["tokens_per_s_user"] = found["tokens_per_s_user"].mask(beyond)
    return found[found["needs_gb"].notna()]


def measured(answered: pd.DataFrame) -> pd.DataFrame:
    """Return `cards.by_format` with the column aside: where an answer lies FAR from all that was measured of
    the same, what most of that had otherwise: the variant, the engine, or one of YEARS ago."""
    short = answered[(answered["users"] == 1) & (answered["context_tokens"] == CONTEXTS[0])]
    short = short[[*CHOICE, "tokens_per_s_user", "accelerator", "engine"]]
    found = cards.by_format().merge(short, on=CHOICE, how="left", suffixes=("", "_asked"))
    return found.assign(aside=[_aside(row) for row in found.to_dict("records")])


def _aside(row: dict[str, Any]) -> str:
    if row["tokens_per_s_user"] >= FAR * row["most"]:
        side = "above"
    elif row["tokens_per_s_user"] <= row["least"] / FAR:
        side = "below"
    else:
        return ""
    other = row["variant"] not in (*comparable.NO_VARIANT, row["accelerator"])
    words = [f"on {row['variant']}"] if other else []
    words += [f"with {row['engine']}"] if row["engine"] not in ("", row["engine_asked"]) else []
    words += [f"in {row['year']}"] if row["year"] and float(row["year"]) <= question.TODAY - YEARS else []
    most = "mostly " if row["rows"] > 1 else ""
    here = f" on {row['accelerator']}" if other else ""
    return f"{here}, {side} all that was measured, {most}{' '.join(words)}" if words else ""


def pack_measured(found: pd.DataFrame) -> dict:
    """Return {model: {format: {number of cards: MEASURED}}} of one card."""
    packed: dict[str, dict] = {}
    for row in found.astype(object).to_dict("records"):
        by_format = packed.setdefault(row["model"], {}).setdefault(row["format"], {})
        by_format[int(row["accelerators"])] = [cards.plain(row[name]) for name in MEASURED]
    return packed


def pack(answered: pd.DataFrame) -> dict:
    """Return {model: {format: [engine, answers]}} of one card; an answer is [tokens/s of each user, low,
    high, GB that it needs, users who get 10 tokens/s], or only the GB where it does not fit or was not made
    for such a context, or 0 where no engine answers; they stand in the order of COUNTS, USERS and CONTEXTS.
    """
    found: dict[str, dict] = {}
    keys = ["accelerators", "users", "context_tokens"]
    order = list(itertools.product(COUNTS, USERS, CONTEXTS))
    for (model, form, engine), part in answered.groupby(["model", "format", "engine"], sort=False):
        listed = dict(zip(part[keys].itertuples(index=False, name=None), _numbers(part)))
        found.setdefault(model, {})[form] = [engine, [listed.get(key, 0) for key in order]]
    return found


def _numbers(part: pd.DataFrame) -> list:
    listed = []
    shown = ["tokens_per_s_user", "low", "high", "needs_gb", "users_at_10"]
    for rate, low, high, needs, users in part[shown].itertuples(index=False, name=None):
        needs = _short(needs)
        listed.append(
            needs if rate != rate else [_short(rate), _short(low, 2), _short(high, 2), needs, _count(users)]
        )
    return listed


def _count(users: float) -> int | None:
    """A number of users; nothing where it is not known, as where nobody says how much memory there is."""
    return int(users) if math.isfinite(users) else None


def _short(value: float, digits: int = 3) -> float:
    number = float(f"{value:.{digits}g}")
    return int(number) if number == int(number) else number


def _bits() -> pd.Series:
    """Bits of each format, by its name."""
    rows = comparable.one_user()
    return rows.groupby("format")["bits"].agg(lambda bits: bits.value_counts().index[0])


def write() -> list[str]:
    """Write a script for each card, and SHORT; return a sentence on their sizes. Ends with 1 where one is too
    large."""
    sizes = {}
    found = every()
    beside = measured(found)
    held = hardware.by_accelerator()["memory_gb"]
    for device in dict.fromkeys([*found["device"], *beside["device"]]):
        name, part = cards.address(device), found[found["device"] == device]
        variant = next(iter(part["accelerator"]), "")
        value = {"card": name, "variant": variant, "gb": cards.plain(held.get(variant)), "of": pack(part)}
        value["measured"] = pack_measured(beside[beside["device"] == device])
        write_whole(FOLDER / f"{name}.js", cards.script("answers", value))
        sizes[name] = (FOLDER / f"{name}.js").stat().st_size
    large = [name for name, size in sizes.items() if size > MOST_BYTES_OF_A_CARD]
    if large or sum(sizes.values()) > MOST_BYTES:
        sys.exit(f"Too large: {', '.join(large) or 'all files together'}, {sum(sizes.values()):,} bytes.")
    found["bits"] = found["format"].map(_bits())
    found["gb"] = found["accelerator"].map(held)
    one = (found["accelerators"] == 1) & (found["users"] == 1) & (found["context_tokens"] == CONTEXTS[0])
    short = found[one].merge(beside[[*CHOICE, *MEASURED]], on=CHOICE, how="left")
    write_whole(SHORT, csv_text(short[[*SHORT_COLUMNS, *MEASURED]]))
    most = max(sizes, key=lambda name: sizes[name])
    return [
        f"{FOLDER}: {len(found):,} answers of {len(sizes)} cards, {sum(sizes.values()) / 1e6:.2g} MB, the "
        f"largest {most}, {sizes[most] / 1e3:.0f} kB"
    ]


def short() -> pd.DataFrame:
    """Return what one user is to expect on one card in the shortest context, made where it is not there."""
    if not SHORT.exists():
        main([])
    return pd.read_csv(SHORT)


def stale() -> bool:
    """Return whether the answers are older than what they are made from, or are not there."""
    package = paths.ROOT / "llm_measured"
    inputs = [*package.rglob("*.csv*"), *package.rglob("*.py"), Path(__file__), Path(cards.__file__)]
    newest = max(file.stat().st_mtime for file in [*inputs, *paths.TABLES.glob("published_*.csv")])
    return not SHORT.exists() or SHORT.stat().st_mtime < newest


def main(arguments: Sequence[str]) -> None:
    """Write cards and answers; with --if-needed only where they are older than what they are made from."""
    if "--if-needed" in arguments and not stale():
        return
    cards.write()
    print(*write(), sep="\n")


if __name__ == "__main__":
    main(sys.argv[1:])
