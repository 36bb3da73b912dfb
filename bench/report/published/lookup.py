"""How fast one user's answer comes, looked up: published rows by accelerator, model class and bits.

A row counts where one request ran at a time on one accelerator, with a short context and without
speculation, and where no check objects. Nothing is estimated here; `does not fit` is arithmetic.
"""

import functools
import re
from dataclasses import dataclass
from urllib.parse import urlencode

import jinja2
import numpy as np
import pandas as pd

from bench import html, memo
from llm_measured.core import hardware
from llm_measured.published import answers, build, derived
from llm_measured.published.comparable import (
    BOARD,
    bits_of,
    builds,
    device,
    families,
    qualifies,
    shapes,
)

# Of a card: where less of its bandwidth is reached, the host or the engine sets the pace, and not the card.
LEAST_MBU = 0.1
LEAST_BITS = {4: 4.25, 16: 16.0}  # per weight and scale, of the smallest usual format of the bucket

BOARDS = "integrated GPUs, NPUs, boards"
GROUPS = (
    "NVIDIA GeForce and RTX", "Apple", "AMD and Intel GPUs", "CPUs", "phones", BOARDS,
    "data-centre accelerators",
)  # fmt: skip


@dataclass(frozen=True)
class Class:
    """Models that a reader takes for one: by `model`, or by parameters (10⁹) and, of a mixture of experts,
    those that a token passes (`active`); `bits` per weight."""

    title: str
    bits: int
    parameters: tuple[float, float] = (0, 0)
    active: tuple[float, float] | None = None
    model: str = ""

    def of(self, rows: pd.DataFrame) -> pd.Series:
        """Which of `rows` (of `one_user`) belong to the class."""
        own = rows["bits"] == self.bits
        if self.model:
            return own & (rows["model"] == self.model)
        own &= rows["parameters_b"].between(*self.parameters)
        sparse = rows["active_b"] < 0.95 * rows["parameters_b"]
        return own & (sparse & rows["active_b"].between(*self.active) if self.active else ~sparse)

    @property
    def least_bytes(self) -> float:
        """Bytes of the weights of the smallest model of the class."""
        if self.model:
            sizes = hardware.by_model()["parameters_b"]
            return sizes[self.model] * 1e9 * LEAST_BITS[self.bits] / 8
        return self.parameters[0] * 1e9 * LEAST_BITS[self.bits] / 8


CLASSES = (
    Class("7–8B, 4 bits", 4, (6.5, 9.3)),
    Class("7–8B, 16 bits", 16, (6.5, 9.3)),
    Class("1B, 4 bits", 4, (0.9, 1.9)),
    Class("3–4B, 4 bits", 4, (2.7, 4.6)),
    Class("12–14B, 4 bits", 4, (11.5, 15.5)),
    Class("24–34B, 4 bits", 4, (23, 35)),
    Class("30B-A3B, 4 bits", 4, (25, 37), (2.5, 4.6)),
    Class("70B, 4 bits", 4, (65, 75)),
    Class("gpt-oss-20b", 4, model="gpt-oss-20b"),
    Class("gpt-oss-120b", 4, model="gpt-oss-120b"),
)


def group(name: str) -> str:
    """Which of GROUPS a device (`device`) belongs to."""
    if name.endswith(" CPUs"):
        return "CPUs"
    card = families().reindex([name]).iloc[0]
    if card["kind"] == "phone":
        return "phones"
    if card["vendor"] == "Apple":
        return "Apple"
    if card["kind"] in ("integrated", "NPU") or name == BOARD or card.isna().all():
        return BOARDS
    if card["vendor"] == "NVIDIA" and re.search("RTX|GTX|Titan|Quadro|laptop", name, re.I):
        return GROUPS[0]
    if card["vendor"] in ("AMD", "Intel") and re.search("RX |Radeon|Arc|Pro", name):
        return "AMD and Intel GPUs"
    return "data-centre accelerators"


@functools.cache
def one_user() -> pd.DataFrame:
    """The published rows that tell one user's speed, without those of cards below LEAST_MBU; columns row_id,
    device, model (its shape's name), named (its own), bits (a key of BITS), rate (tokens/s), engine, source,
    accelerator, format, parameters_b, active_b, backend, build (llama.cpp's number, NaN where it is not
    stated), mbu (the weights' bytes a second over the datasheet's bandwidth; NaN where that is unknown)."""
    return memo.kept((f"{__name__}.one_user", build.VERSION), _one_user)


def _one_user() -> pd.DataFrame:
    rows = build.table()
    rows = rows[qualifies(rows)]
    # A processor's run on a machine with a card says nothing of the card.
    on_processor = rows["flags"].astype("string").fillna("").str.contains(r"n_gpu_layers=0\b")
    rows = rows[~(on_processor & (rows["accelerator_family"] != "CPU")).astype(bool)]
    known, figures = derived.datasheet(rows), derived.derived(rows)
    made = pd.DataFrame(
        {
            "row_id": rows["row_id"],
            "device": device(rows),
            "model": rows["model"].map(lambda name: shapes().get(name, name)),
            "named": rows["model"],
            "bits": bits_of(rows),
            "rate": figures["output_tokens_per_s_per_request"],
            "engine": rows["engine"].fillna("not stated"),
            "source": rows["source"],
            "accelerator": rows["accelerator"],
            "format": rows["weights_format"],
            "parameters_b": known["parameters"] / 1e9,
            "active_b": known["active"] / 1e9,
            "backend": rows["backend"],
            "build": builds(rows),
            "mbu": figures["mbu"],
        },
        index=rows.index,
    )
    waiting = (made["mbu"] < LEAST_MBU) & (made["device"].map(families()["kind"]) == "GPU")
    return made[made["rate"].gt(0) & made["device"].notna() & made["bits"].notna() & ~waiting]


@functools.cache
def many_users() -> pd.DataFrame:
    """The published rows of two users or more at once, without speculation, that no check objects to; columns
    device, model, bits (a key of BITS), rate (tokens/s of all users, per accelerator), engine, source,
    accelerators, format, users, input_tokens, output_tokens."""
    return memo.kept((f"{__name__}.many_users", build.VERSION), _many_users)


def _many_users() -> pd.DataFrame:
    rows = answers.usable()
    rows = rows[(rows["in_flight"] >= 2) & (rows["speculative"].fillna("none") == "none")]
    made = pd.DataFrame(
        {
            "device": device(rows),
            "model": rows["model"].map(lambda name: shapes().get(name, name)),
            "bits": bits_of(rows),
            "rate": rows["output_tokens_per_s_per_accelerator"],
            "engine": rows["engine"].fillna("not stated"),
            "source": rows["source"],
            "accelerators": rows["accelerators"],
            "format": rows["weights_format"],
            "users": rows["in_flight"],
            **{name: rows[name] for name in ("input_tokens", "output_tokens")},
        }
    )
    return made[made["rate"].gt(0) & made["device"].notna() & made["bits"].notna()]


def classes_of(rows: pd.DataFrame) -> pd.Series:
    """The title of each row's class, None where it has none; `rows` as `one_user` has them."""
    found = pd.Series(None, index=rows.index, dtype=object)
    for each in CLASSES:
        found[each.of(rows)] = each.title
    return found


def of_sources(rows: pd.DataFrame, keys: list[str]) -> pd.Series:
    """The median of the sources' medians of `rows` by `keys`: tokens/s, each source counting alike."""
    return rows.groupby([*keys, "source"])["rate"].median().groupby(level=keys).median()


@dataclass(frozen=True)
class Cell:
    """What people measured of one class on one device: tokens/s of one user (the median of the sources'
    medians, and the lowest and highest of all), and how many measurements."""

    median: float
    low: float
    high: float
    n: int
    link: str


def link(**filters: str | list[str]) -> str:
    """The address of the Explorer with the rows that `filters` (`expect_explorer.FILTERS`) keep."""
    several = {name: [values] if isinstance(values, str) else values for name, values in filters.items()}
    query = [(f"o-{name}", value) for name, values in several.items() for value in values]
    return f"pages/explore.html?{urlencode(query)}#published-by-others"


def cells() -> dict[tuple[str, str], Cell]:
    """{(device, title of a class): Cell} of what was measured."""
    rows = one_user().assign(title=lambda rows: classes_of(rows)).dropna(subset=["title"])
    medians = of_sources(rows, ["device", "title"])
    return {
        (name, title): Cell(
            float(medians[name, title]),
            part["rate"].min(),
            part["rate"].max(),
            len(part),
            link(accelerator_family=name, model_class=title),
        )
        for (name, title), part in rows.groupby(["device", "title"])
    }


def slow(found: dict[tuple[str, str], Cell], name: str, each: Class) -> bool:
    """Whether a larger class of dense models in as many bits is faster on the device: the host or the engine
    of those who measured this one set the pace, not the memory."""
    own = found.get((name, each.title))
    larger = [
        found[name, other.title].median
        for other in CLASSES
        if (name, other.title) in found
        and other.bits == each.bits
        and not (other.active or other.model)
        and other.parameters[0] > each.parameters[1] > 0
    ]
    return bool(own and larger and max(larger) > own.median)


def fits(name: str, each: Class) -> bool:
    """Whether the weights of the smallest model of a class fit the memory of the largest variant of a device;
    True where its memory is the machine's or is unknown."""
    memory = families()["memory_gb"].get(name, np.nan)
    return bool(np.isnan(memory) or each.least_bytes <= memory * 1e9)


def table() -> str:
    """The look-up as HTML: devices by group, the fastest memory first; in each cell median, from–to and n."""
    found = cells()
    devices = pd.DataFrame({"name": sorted({name for name, _ in found})})
    devices["group"] = devices["name"].map(group)
    devices["width"] = devices["name"].map(families()["bandwidth_gb_per_s"]).fillna(0)
    parts = []
    for title in GROUPS:
        own = devices[devices["group"] == title].sort_values(["width", "name"], ascending=[False, True])
        lines = [
            (
                name,
                [
                    (found.get((name, each.title)), fits(name, each), slow(found, name, each))
                    for each in CLASSES
                ],
            )
            for name in own["name"]
        ]
        parts.append((title, lines))
    return TEMPLATE.render(parts=parts, classes=CLASSES, number=rate_text)


def rate_text(value: float) -> str:
    """A rate with two digits below 10, else without decimals."""
    return html.number(float(f"{value:.2g}")) if value < 10 else f"{value:,.0f}"


TEMPLATE = jinja2.Environment(autoescape=True, trim_blocks=True, lstrip_blocks=True).from_string("""\
<p class="jump">{% for title, lines in parts if lines %}
<a href="#look-up-{{ loop.index }}">{{ title }} ({{ lines | length }})</a>
{% endfor %}</p>
{% for title, lines in parts if lines %}
<h3 id="look-up-{{ loop.index }}">{{ title }}</h3>
<div class="table-scroll" role="region" tabindex="0" aria-label="Speed of one user: {{ title }}">
<table class="sortable look-up" data-quarto-disable-processing="true">
<thead><tr><th scope="col">accelerator</th>
{% for each in classes %}<th scope="col" class="number">{{ each.title }}</th>{% endfor %}
</tr></thead>
<tbody>
{% for name, row in lines %}
<tr><th scope="row">{{ name }}</th>
{%- for cell, fits, slow in row %}
{%- if cell %}<td data-sort="{{ cell.median }}"><a href="{{ cell.link }}"><b>{{ number(cell.median) }}</b></a>
{{- " †" if slow }}
<small>
{%- if cell.n > 1 %}<span>{{ number(cell.low) }}–{{ number(cell.high) }}</span> {% endif -%}
<span>n {{ cell.n }}</span></small></td>
{%- elif not fits %}<td data-sort="" class="too-large">does not fit</td>
{%- else %}<td data-sort=""></td>{% endif %}{% endfor %}</tr>
{% endfor %}
</tbody></table></div>
{% endfor %}
""")
