"""Accelerators and models that people have measured: what the page Cards, Start and How much read.

    python -m bench.report.cards    writes downloads/cards.js, cards.csv, and the rows of each card and model

Numbers are those of data/tables/published_lookup.csv; the rows are those of the published table. Each file is
one assignment, which a page loads as a script, so that it works from disk too.
"""

import functools
import json
import re

import jinja2
import pandas as pd

from bench import html, paths, site
from llm_measured.core import hardware
from llm_measured.core.definitions import Value
from llm_measured.core.files import csv_text, write_whole
from llm_measured.predict import columns, question
from llm_measured.published import build, comparable, derived, lookup, sources

GROUPS = (
    "NVIDIA GeForce and RTX", "Apple", "AMD and Intel GPUs", "CPUs", "phones",
    "integrated GPUs, NPUs, boards", "data-centre accelerators",
)  # fmt: skip
CONSUMER, APPLE, OTHERS, CPUS, PHONES, BOARDS, CENTRES = GROUPS
CARDS = CONSUMER, OTHERS, CENTRES  # of which several work together
# The models of the plain table, in 4 bits.
SHOWN = ("llama-3.1-8b", "qwen2.5-14b", "qwen3-30b-a3b", "llama-3-70b", "gpt-oss-120b")
# What How much offers, in the order of its answers (bench/report/expect_tables.py).
COUNTS, USERS, CONTEXTS = (1, 2, 4), (1, 8, 32), (1024, 8192, 32768)
CELL = ["device", "model", "bits"]
NEXT = ["up", "equal", "down"]
CHOICE = ["device", "model", "format", "accelerators"]
SIXTEEN = {"F16": "BF16"}  # one format to a reader
DEVICES = paths.DOWNLOADS / "cards.csv"  # what `devices` returns, for the plain table
# What a reader sees of a published row, in the order of the page.
ROW_COLUMNS = {
    "named": "model", "card": "card", "format": "format", "engine": "engine", "version": "version",
    "accelerators": "cards", "users": "users", "before": "tokens before", "output_tokens": "answer",
    "rate": "tokens/s of each", "all": "tokens/s of all", "ttft_ms": "TTFT, ms", "date": "date",
    "source": "source", "note": "note", "row_id": "row",
}  # fmt: skip


def address(name: str) -> str:
    """Return the name of a card or a model as an address has it: `RTX 4090` is rtx-4090."""
    return re.sub(r"[^a-z0-9.]+", "-", name.lower().replace("+", "-plus")).strip("-")


def group(name: str) -> str:
    """Return which of GROUPS a device belongs to."""
    card = comparable.families().reindex([name]).iloc[0]
    if name.endswith(" CPUs"):
        return CPUS
    if card["kind"] == "phone":
        return PHONES
    if card["vendor"] == "Apple":
        return APPLE
    if card["kind"] in ("integrated", "NPU") or card.isna().all():
        return BOARDS
    if card["vendor"] == "NVIDIA" and re.search("RTX|GTX|Titan|Quadro|laptop", name, re.I):
        return CONSUMER
    if card["vendor"] in ("AMD", "Intel") and re.search("RX |Radeon|Arc|Pro", name):
        return OTHERS
    return CENTRES


def numbers() -> pd.DataFrame:
    """Return a row per card and model of the plain table, those of SHOWN in 4 bits: low (of the two numbers
    where sources lie far apart) and text, the number with * of another setup, where nobody measured in the
    usual one, or ° of localscore alone."""
    table = site.published("lookup")
    table = table[(table["bits"] == 4) & table["model"].isin(SHOWN)]
    usual = table["number"].notna()
    in_cell = usual.groupby([table[name] for name in CELL]).transform("any")
    number = table["number"].where(in_cell, table["number_in_another_setup"])
    crowd = usual & (table["source"] == lookup.CROWD)
    by_cell = table.assign(number=number, in_cell=in_cell, crowd=crowd).groupby(CELL)
    found = by_cell.agg(low=("number", "min"), high=("number", "max"))
    mark = by_cell["crowd"].any().map({True: "°", False: ""}).where(by_cell["in_cell"].any(), "*")
    found["text"] = [rate(low, high) + of for low, high, of in zip(found["low"], found["high"], mark)]
    return found[found["low"].notna()].reset_index()


def devices() -> pd.DataFrame:
    """Return a row per card that was measured, those with a number of SHOWN and the widest memory first:
    device, address, group, memory_gb (of the largest sold, as on the box), bandwidth_gb_per_s, unsure (which
    of the two rest on no datasheet), rows, sources, and its neighbours by bandwidth in its group."""
    found = _counted("device")
    cards = hardware.accelerators().groupby("family")
    found = found.join(cards[["memory_gb", "bandwidth_gb_per_s"]].max(), on="device")
    # Figures that rest on no datasheet that somebody here has seen, as `expect` says of them.
    unsure = cards["unsure"].agg(lambda each: " and ".join(sorted(set(" ".join(each.dropna()).split()))))
    found["unsure"] = found["device"].map(unsure).fillna("")
    found["group"] = found["device"].map(group)
    found["address"] = found["device"].map(address)
    found = _neighbours(found, "bandwidth_gb_per_s", "device")
    found["shown"] = found["device"].isin(numbers()["device"])
    return found.sort_values("shown", ascending=False, kind="stable", ignore_index=True)


def _neighbours(found: pd.DataFrame, size: str, name: str) -> pd.DataFrame:
    """Cards or models, those of most `size` first, with the names of the next with more of it (up), with less
    (down), and with as much (equal; the last one's is the first): all of one group."""
    found = found.sort_values([size, name], ascending=[False, True], ignore_index=True)
    sized = found.loc[found[size].notna(), [size, "group", name]][::-1]
    for side, direction in (("up", "forward"), ("down", "backward")):
        found[side] = found[name].map(
            pd.merge_asof(
                sized, sized, on=size, by="group", direction=direction, allow_exact_matches=False
            ).set_index(f"{name}_x")[f"{name}_y"]
        )
    alike = found.groupby([size, "group"])[name]
    following = alike.shift(-1).fillna(alike.transform("first"))
    return found.assign(equal=following.where(following != found[name]))


def _counted(by: str) -> pd.DataFrame:
    """How many rows of how many sources each card or model has."""
    table = rows()[rows()[by] != ""]
    return table.groupby(by).agg(rows=("source", "size"), sources=("source", "nunique")).reset_index()


def models() -> pd.DataFrame:
    """Return a row per model that was measured, the largest first: model, parameters_b, active_b, rows,
    sources, asked (`asked_as`), context_tokens (how many it was made for), and neighbours by parameters."""
    found = _counted("model")
    found = found.join(hardware.by_model()[["parameters_b", "active_b"]], on="model")
    found["address"] = found["model"].map(address)
    found["asked"] = found["model"].map(asked_as)
    found["context_tokens"] = found["model"].map(question.longest_context)
    return _neighbours(found.assign(group=""), "parameters_b", "model").drop(columns="group")


def asked_as(model: str) -> str:
    """Return of all models that are looked up under `model` the one that was made for most tokens."""
    alike = [name for name, under in comparable.shapes().items() if under == model]
    if question.longest_context(model) is None:
        return model
    return max([model, *alike], key=lambda name: question.longest_context(name) or 0)


def rate(low: float, high: float) -> str:
    """Return a rate, or a range of two, with two digits below 10 and else none after the point."""
    ends = [lookup.written(end) for end in (low, high)]
    return ends[0] if ends[0] == ends[1] else f"{ends[0]} to {ends[1]}"


def table() -> str:
    """Return the look-up as HTML: a row per card, the number of each of SHOWN in 4 bits, the widest memory
    first; each card and model leads to its own address. The marks are those of `cells`."""
    if not DEVICES.exists():
        write()
    found = numbers().set_index(["device", "model"])[["text", "low"]].T.to_dict("list")
    every = pd.read_csv(DEVICES).fillna({"unsure": ""}).to_dict("records")
    rows = [(card, [found.get((card["device"], name)) for name in SHOWN]) for card in every]
    return TABLE.render(rows=rows, models=[(name, address(name)) for name in SHOWN], number=html.number)


TABLE = jinja2.Environment(autoescape=True, trim_blocks=True, lstrip_blocks=True).from_string("""\
<div id="cards">
<div class="table-scroll" role="region" tabindex="0" aria-label="Tokens/s of one user, by card">
<table data-quarto-disable-processing="true">
<thead><tr><th scope="col">card</th>
{% for name, to in models %}<th scope="col" class="number"><a href="?{{ to }}">{{ name }}</a></th>{% endfor %}
<th scope="col" class="number">GB</th><th scope="col" class="number">GB/s</th>
</tr></thead>
<tbody>
{% for card, cells in rows %}
<tr><th scope="row"><a href="?{{ card.address }}">{{ card.device }}</a></th>
{%- for cell in cells %}
<td class="number"{% if cell %} data-sort="{{ cell[1] }}">{{ cell[0] }}{% else %}>–{% endif %}</td>
{%- endfor %}
{%- for value, name in ((card.memory_gb, "memory"), (card.bandwidth_gb_per_s, "bandwidth")) %}
<td class="number"{% if value == value %} data-sort="{{ value }}"{% endif %}>{{ number(value) }}
{%- if name in card.unsure %}<abbr title="unsure: no datasheet was seen">?</abbr>{% endif %}</td>
{%- endfor %}</tr>
{% endfor %}
</tbody></table></div>
</div>
""")


def _on_several() -> pd.DataFrame:
    """The rows of one user's short prompts on more than one card."""
    found = rows()
    plain = (found["speculative"] == "none") | (found["speculative"] == "")
    short = found["before"] <= comparable.LONGEST_CONTEXT
    found = found[(found["accelerators"] > 1) & (found["users"] == 1) & plain & short]
    return found[(found["model"] != "") & (found["device"] != "") & found["rate"].notna()]


def together() -> pd.DataFrame:
    """Return a row per card, model, bits, source and number of cards above one (accelerators), of one user's
    short prompts, as published_lookup has them for one card: median, least, most, rows, formats, engines."""
    by_number = _on_several().groupby([*CELL, "source", "accelerators"])
    return by_number.agg(
        median=("rate", "median"), least=("rate", "min"), most=("rate", "max"), rows=("rate", "size"),
        formats=("format", _joined), engines=("engine", _joined),
    ).reset_index()  # fmt: skip


def by_format() -> pd.DataFrame:
    """Return a row per CHOICE of what was measured with one user's short prompts, most rows first:
    measured_low and measured_high (the number of the cell where that is of this format, else least and most),
    least, most, rows, who (the source, or how many), and the variant, engine and year of most rows."""
    alone = comparable.one_user()
    every = pd.concat([alone[~alone["outside"]].assign(accelerators=1.0), _on_several()])
    every = every[(every["model"] != "") & (every["format"] != "")]
    every = every.assign(format=every["format"].replace(SIXTEEN), year=every["half_year"].str[:4])
    chosen = every.groupby(CHOICE)
    found = chosen["rate"].agg(least="min", most="max", rows="size")
    several = chosen["source"].nunique()
    found["who"] = chosen["source"].first().where(several == 1, several.map("{} sources".format))
    for name in ("variant", "engine", "year"):
        found[name] = chosen[name].agg(lambda values: values.value_counts().index[0])
    numbers = site.published("lookup").dropna(subset=["number"])
    numbers = numbers.assign(accelerators=1.0, format=numbers["format"].replace(SIXTEEN))
    found = found.join(numbers.groupby(CHOICE)["number"].agg(measured_low="min", measured_high="max"))
    found = found.fillna({"measured_low": found["least"], "measured_high": found["most"]})
    return found.reset_index().sort_values("rows", ascending=False, kind="stable")


def _joined(values: pd.Series) -> str:
    return ", ".join(sorted({form for text in values.dropna() for form in text.split(", ")} - {""}))


@functools.cache
def rows() -> pd.DataFrame:
    """Return the published rows that a reader can look through, ROW_COLUMNS and device, model, bits: without
    MLPerf's, which stand alone, without duplicates and without what a check excludes."""
    whole = build.table()
    whole = whole[
        whole["comparable_within"].isna() & whole["duplicate_of"].isna() & (whole["audit"] != "excluded")
    ]
    made, figures = comparable.measured(whole), derived.derived(whole)
    # A model looked up under another of its shape, and a class of processors, say which one a row is of.
    named = made["named"].where(made["named"] != "", made["checkpoint"])
    processor = made["device"] + ": " + whole["host_cpu"].fillna(whole["accelerator_raw"])
    unstated = made["accelerators"].isna().map({True: "cards not stated", False: ""})
    found = made.assign(
        named=named.where((made["model"] == "") | (named == made["model"]), made["model"] + ": " + named),
        accelerators=made["accelerators"].fillna(1),  # as in the look-up; the note says so
        card=processor.where(made["device"].str.endswith(" CPUs"), made["device"]),
        before=whole["context_depth"].fillna(0) + whole["input_tokens"].fillna(0),
        all=figures["output_tokens_per_s"],
        ttft_ms=whole["ttft_mean_ms"].fillna(whole["ttft_p50_ms"]),
        date=whole["measured_on"].fillna(whole["published_on"]).astype("string").str[:10],
        note=whole["audit_notes"].where(whole["audit"] == "flagged", unstated),
    )
    found = found[found["rate"].notna() | found["all"].notna()]
    return found.sort_values(["model", "bits", "rate"], ascending=[True, True, False])


def plain(value: Value) -> Value:
    """Return a value as JSON has it: numbers with three digits, nothing for what is missing."""
    if isinstance(value, float) and value == value:
        return int(value) if value.is_integer() else float(f"{value:.3g}")
    if isinstance(value, float):
        return None
    return None if value is None or value is pd.NA or value == "" else value


def script(name: str, value: Value) -> str:
    """Return the script that assigns `value` to `name`."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":")).replace("</", "<\\/")
    return f"globalThis.{name}={text};\n"


def packed(table: pd.DataFrame) -> dict[str, list]:
    """Return a table as JSON takes it: its columns, and its rows as lists."""
    rows = [[plain(value) for value in row] for row in table.astype(object).itertuples(index=False)]
    return {"columns": list(table), "rows": rows}


def best_engines(measured: pd.DataFrame) -> dict[str, list]:
    """Return {device: [engine, settings in which it was fastest, settings]} of the settings (source, model,
    bits) in which one source measured two engines or more on it, one user, half the weights or more on it."""
    shared = ["device", "source", "model", "bits"]
    rates = measured[measured["engine"] != ""].groupby([*shared, "engine"])["rate"].median().reset_index()
    several = rates[rates.groupby(shared)["engine"].transform("size") > 1]
    won = several.loc[several.groupby(shared)["rate"].idxmax()]
    found = {}
    for device, part in won.groupby("device"):
        counts = part["engine"].value_counts()
        found[device] = [counts.index[0], int(counts.iloc[0]), len(part)]
    return found


def index() -> dict:
    """Return what downloads/cards.js has: cards and models with their neighbours, the number of each cell by
    source, where each source lies, and of each model's formats the bits and the GB that one user needs."""
    table, measured = site.published("lookup"), comparable.one_user()
    measured = measured[~measured["outside"]]
    best = best_engines(measured)
    cards, own = devices(), models()
    cards["variants"] = [_memories(name) for name in cards["device"]]
    cards["best"] = [best.get(name) for name in cards["device"]]
    formats = measured[(measured["format"] != "") & (measured["model"] != "")].replace({"format": SIXTEEN})
    formats = formats.groupby(["model", "format", "bits"]).size().reset_index(name="n")
    formats["needs_gb"] = _needs(formats)
    shown = "device address group memory_gb variants bandwidth_gb_per_s unsure rows sources best"
    named = "accelerators source median least most rows formats engines number"
    table = pd.concat([table.assign(accelerators=1), together()])
    return {
        "groups": GROUPS,
        "cards": CARDS,
        "devices": packed(cards[[*shown.split(), *NEXT]]),
        "models": packed(own.drop(columns=["parameters_b", "active_b"]).assign(size=_sizes(own))),
        "lookup": packed(table[[*CELL, *named.split()]]),
        "formats": packed(formats),
        "asked": {"count": COUNTS, "users": USERS, "context": CONTEXTS},
        "sources": {name: source.repository for name, source in sources.listed().items()},
    }


def _needs(formats: pd.DataFrame) -> pd.Series:
    """How many GB each model and format needs of any card with one user and the shortest context."""
    asked = formats.assign(context_tokens=CONTEXTS[0])
    asked = asked.assign(accelerator="RTX 4090", accelerators=1, engine="llama.cpp", users=1)
    return columns.expect(asked)["needs_gb"]


def _sizes(models: pd.DataFrame) -> list[str]:
    """How many parameters each model has: `30.5 · 10⁹ parameters, 3.3 a token`; empty where nobody says."""
    words = []
    for whole, active in zip(models["parameters_b"], models["active_b"]):
        text = "" if pd.isna(whole) else f"{html.number(whole)} · 10⁹ parameters"
        words.append(text if pd.isna(active) else f"{text}, {html.number(active)} · 10⁹ a token")
    return words


def _memories(device: str) -> list[float]:
    """The sizes of memory that a card is sold with, in GB, the largest first."""
    cards = hardware.accelerators()
    sizes = cards.loc[cards["family"] == device, "memory_gb"].dropna()
    return sorted(set(sizes), reverse=True)


def write() -> None:
    """Write cards.js, DEVICES, and cards/<address>.js with the rows of each card and each model."""
    write_whole(paths.DOWNLOADS / "cards.js", script("cards", index()))
    write_whole(DEVICES, csv_text(devices()))
    every = rows()
    for by in ("device", "model"):
        for name, part in every[every[by] != ""].groupby(by):
            shown = part[list(ROW_COLUMNS)].rename(columns=ROW_COLUMNS)
            text = script("cardRows", packed(shown))
            write_whole(paths.DOWNLOADS / "cards" / f"{address(name)}.js", text)


if __name__ == "__main__":
    write()
    print(f"{paths.DOWNLOADS / 'cards.js'}, and a file of rows for each card and model beside it")
