"""The front page: how fast one user's answer comes on the reader's accelerator, from what people measured.

`picker` answers a question at once, and assets/picker.js every other one from the same numbers.
"""

import functools
from urllib.parse import urlencode

import jinja2
import pandas as pd

from bench import headlines, site
from bench.paths import DOWNLOADS
from bench.report.published import comparisons, expect_page, lookup
from bench.topics import estimates
from bench.words import plural, two
from llm_measured.core import files, hardware
from llm_measured.predict import answer as predicted
from llm_measured.predict import question
from llm_measured.published import build, comparable

DEVICE, MODEL, BITS = "RTX 4090", "llama-3.1-8b", 4  # what the picker begins with
# How a format of so many bits is asked of the calculator: its format (`expect_page.FORMATS`) and its engine.
ASKED = {
    2: ("Q2_K", "llama.cpp"), 3: ("Q3_K_M", "llama.cpp"), 4: ("Q4_K_M", "llama.cpp"),
    5: ("Q5_K_M", "llama.cpp"), 6: ("Q6_K", "llama.cpp"), 8: ("Q8_0", "llama.cpp"),
    16: ("bf16 or fp16", "any"),
}  # fmt: skip
FEWEST_ROWS = 3  # of a model that the picker offers
USERS = 32  # of the link to what many users get
EXPECTED_DATA = "expected.js"


@functools.cache
def devices() -> list[list]:
    """[name, group, accelerator, memory in GB or None, bandwidth in GB/s or None] of all that can be chosen:
    those that somebody measured, and every other accelerator of the table. `accelerator` is the variant that
    the calculator is asked about: the one with most rows, else the fastest; empty for processors, and where
    nobody states a bandwidth."""
    rows, families = lookup.one_user(), lookup.families()
    cards = hardware.accelerators().sort_values("bandwidth_gb_per_s", ascending=False, na_position="last")
    fastest = cards.drop_duplicates("family").set_index("family")["accelerator"]
    known = rows[rows["accelerator"].isin(cards["accelerator"])].groupby("device")["accelerator"]
    variant = fastest.to_dict() | known.agg(lambda ids: ids.value_counts().index[0]).to_dict()
    others = families.index[(families["kind"] != "CPU") & families["bandwidth_gb_per_s"].notna()]
    answered = set(expect_page.accelerators()["machine"])
    found = []
    for name in sorted({*rows["device"], *others}, key=str.lower):
        group = lookup.group(name)
        card = families.reindex([name]).iloc[0]
        own = variant.get(name, "")
        own = own if group != "CPUs" and own in answered else ""
        memory = None if group == "CPUs" else _plain(card["memory_gb"])
        found.append([name, group, own, memory, _plain(card["bandwidth_gb_per_s"])])
    return found


def _plain(value: float) -> float | None:
    return None if pd.isna(value) else float(value)


def models() -> list[list]:
    """[name, parameters in 10⁹, all names of the shape] of the models with FEWEST_ROWS rows or more."""
    rows = lookup.one_user()
    sizes = hardware.by_model()["parameters_b"]
    counts = rows["model"].value_counts()
    offered = [name for name in counts.index[counts >= FEWEST_ROWS] if name in sizes.index]
    same = lookup.shapes()
    return [
        [name, float(sizes[name]), sorted({name, *(other for other, shape in same.items() if shape == name)})]
        for name in sorted(offered)
        if sizes[name] == sizes[name]
    ]


@functools.cache
def measured() -> dict[tuple[str, str, int], list]:
    """{(device, model, bits): [n, lowest, median, highest, sources, engines, models]}; tokens/s of one user
    (`lookup.of_sources` for the median), engines and names of models by their rows."""
    keys = ["device", "model", "bits"]
    cells = lookup.one_user().groupby(keys)
    counts = cells.agg(n=("rate", "size"), sources=("source", "nunique"))
    rates = cells["rate"].agg(["min", "max"])
    rates.insert(1, "median", lookup.of_sources(lookup.one_user(), keys))
    rates = rates.map(lambda rate: float(f"{rate:.3g}"))
    often = {name: _by_frequency(cells[name].value_counts()) for name in ("engine", "named")}
    return {
        (device, model, int(bits)): [
            int(n),
            *rates.loc[(device, model, bits)].tolist(),
            int(sources),
            ", ".join(often["engine"][device, model, bits][:3]),
            " or ".join(often["named"][device, model, bits]),
        ]
        for (device, model, bits), n, sources in counts.itertuples(name=None)
    }


def _by_frequency(counts: pd.Series) -> dict[tuple, list[str]]:
    """{cell: its values, the most frequent first} of the `value_counts` of a column by cells."""
    listed: dict[tuple, list[str]] = {}
    for *cell, value in counts.index:
        listed.setdefault(tuple(cell), []).append(value)
    return listed


def expected(accelerator: str, model: str, bits: int) -> tuple[float, float, float] | None:
    """(expected, low, high) tokens/s of one user by the calculator; None where it does not answer or not
    all of it fits.

    The one place in Python that asks it; in the browser that is `expectedRange` of assets/picker.js.
    """
    form, engine = ASKED[bits]
    asked = dict(zip(question.ASKED, (accelerator, model, expect_page.FORMATS[form], engine)))
    try:
        found = predicted.one(asked)
    except question.Refused:
        return None
    return None if found.outside else (found.rate, found.low, found.high)


def answer(device: str, model: str, bits: int) -> str:
    """The picker's sentences as HTML: what was measured, what is to be expected, what comes nearest."""
    cards, sizes = {row[0]: row for row in devices()}, {row[0]: row for row in models()}
    cell, card = measured().get((device, model, bits)), cards[device]
    found = expected(card[2], model, bits) if card[2] else None
    rows = lookup.link(accelerator_family=device, model=sizes[model][2], one_user_bits=f"{bits} bits")
    links = [(f"The {plural(cell[0], 'row')}", rows, "")] if cell else []
    fits = card[3] is None or sizes[model][1] * comparable.BITS[bits][0] / 8 <= card[3]
    if fits and (many := _many(card[2], model, bits)):
        links.append((f"{USERS} users at once", many, ""))
    links += [
        (words, address, f": {lookup.rate_text(rate)} (n {n})")
        for words, rate, n, address in nearest(device, model, bits)
    ]
    return SAID.render(
        cell=cell, short=lookup.rate_text, plural=plural, expected=found, engine=ASKED[bits][1], links=links
    )  # fmt: skip


def _many(accelerator: str, model: str, bits: int) -> str:
    """The address of the calculator, asked for USERS users of an accelerator; empty for one that it does not
    know."""
    asked = {"accelerator": accelerator, "model": model, "format": ASKED[bits][0], "users": USERS}
    return f"pages/expect.html?{urlencode(asked)}" if accelerator else ""


def nearest(device: str, model: str, bits: int) -> list[tuple[str, float, int, str]]:
    """(words, median tokens/s, n, address) of what comes nearest: two models of about the size on the device,
    two devices of about the bandwidth with the model."""
    sizes = {row[0]: row for row in models()}
    width = {row[0]: row[4] for row in devices()}
    here = [m for d, m, b in measured() if d == device and b == bits and m != model and m in sizes]
    there = [d for d, m, b in measured() if m == model and b == bits and d != device and width.get(d)]
    here.sort(key=lambda m: (round(abs(sizes[m][1] / sizes[model][1] - 1), 4), m))
    there.sort(key=lambda d: (abs(width[d] - (width[device] or 0)), d))
    found = [(f"{m} on {device}", device, m) for m in here[:2]] + [
        (f"{model} on {d}", d, model) for d in there[:2]
    ]
    return [
        (
            words, measured()[d, m, bits][2], measured()[d, m, bits][0],
            lookup.link(accelerator_family=d, model=sizes[m][2], one_user_bits=f"{bits} bits"),
        )
        for words, d, m in found
    ]  # fmt: skip


SAID = jinja2.Environment(autoescape=True, trim_blocks=True, lstrip_blocks=True).from_string("""\
<p>
{% if cell and cell[0] > 1 %}
<b>{{ short(cell[1]) }} to {{ short(cell[3]) }} tokens/s</b> for one user in {{ cell[0] }} measurements of
{{ cell[6] }} ({{ cell[5] }}); {{ short(cell[2]) }} in the median
{{- " of the medians of " ~ cell[4] ~ " sources" if cell[4] > 1 else ", all of one source" }}.
{% elif cell %}
<b>{{ short(cell[2]) }} tokens/s</b> for one user: one measurement of {{ cell[6] }} ({{ cell[5] }}).
{% else %}
<b>Nobody here has measured exactly this.</b>
{% endif %}
<span id="picker-expected">
{% if expected %}
A calculation from all published rows{{ ", asked for " ~ engine ~ "," if engine != "any" }} says about
{{ short(expected[0]) }} ({{ short(expected[1]) }} to {{ short(expected[2]) }})
{{- ": trust the measurements more" if cell }}.
{% endif %}
</span></p>
<p>
{% for words, address, note in links %}
{{ "· " if not loop.first }}<a href="{{ address }}">{{ words }}</a>{{ note }}
{% endfor %}
</p>
""")


def picker() -> str:
    """The picker as HTML, prefilled and answered; writes EXPECTED_DATA, the calculator's data, beside it."""
    DOWNLOADS.mkdir(parents=True, exist_ok=True)
    packed = expect_page.packed(expect_page.payload())
    files.write_whole(DOWNLOADS / EXPECTED_DATA, f'globalThis.expectedData="{packed}";\n')
    cards, sizes = devices(), models()
    place = {row[0]: k for k, row in enumerate(cards)}, {row[0]: k for k, row in enumerate(sizes)}
    data = {
        "devices": cards,
        "models": sizes,
        "asked": ASKED,
        "users": USERS,
        "context": question.USUAL_CONTEXT,
        "least": {bits: low for bits, (low, _) in comparable.BITS.items()},
        "measured": [
            [place[0][device], place[1][model], bits, *cell]
            for (device, model, bits), cell in measured().items()
            if model in place[1]
        ],
    }
    groups = [(group, [row[0] for row in cards if row[1] == group]) for group in lookup.GROUPS]
    return PICKER.render(
        groups=groups, models=sizes, bits=list(comparable.BITS),
        start={"device": DEVICE, "model": MODEL, "bits": BITS},
        answer=answer(DEVICE, MODEL, BITS),
        data=expect_page.packed(data),
        expected=EXPECTED_DATA,
    )  # fmt: skip


PICKER = jinja2.Environment(autoescape=True, trim_blocks=True, lstrip_blocks=True).from_string("""\
<form id="picker" aria-label="How fast will it run?">
<div><label for="picker-device">Accelerator</label>
<select id="picker-device" name="device" disabled>
{% for group, names in groups %}
<optgroup label="{{ group }}">
{% for name in names %}
<option{{ ' selected' if name == start.device }}>{{ name }}</option>
{% endfor %}
</optgroup>
{% endfor %}
</select></div>
<div><label for="picker-model">Model</label>
<select id="picker-model" name="model" disabled>
{% for name, size, _ in models %}
<option value="{{ name }}"{{ ' selected' if name == start.model }}>{{ name }}</option>
{% endfor %}
</select></div>
<div><label for="picker-bits">Bits per weight</label>
<select id="picker-bits" name="bits" disabled>
{% for count in bits %}
<option value="{{ count }}"{{ ' selected' if count == start.bits }}>{{ count }} bits</option>
{% endfor %}
</select></div>
</form>
<div id="picker-said" role="status" aria-live="polite">{{ answer | safe }}</div>
<noscript><p>Without JavaScript: <a href="pages/published.html">all accelerators in one table</a>.</p>
</noscript>
<script type="text/plain" id="picker-data" data-expected="downloads/{{ expected }}">{{ data }}</script>
<script src="assets/expect.js" defer></script>
<script src="assets/picker.js" defer></script>
""")


def line(text: str) -> dict[str, str]:
    """A computed text as `pages.say` takes it; empty where there is none."""
    return {"line": text} if text else {}


def own_rows() -> headlines.Rows:
    """Return the rows of the largest model with real weights whose speed two engines or more have measured,
    the reference among them, in runs whose tokens were not left unchecked.

    A model that was asked three prompts only (`sizes`) has these; no model has both forms.
    """
    runs = site.table("runs")
    runs = runs[(runs["weights"] == "real") & (runs["not_judged"] == "") & (runs["shared_by"] == "")]
    sizes = hardware.by_model()["parameters_b"]
    found = []
    for model, part in runs.groupby("model"):
        own = part[part["experiment"] == "latency"]
        own = own if len(own) else part[part["experiment"] == "sizes"]
        reference = headlines.of_option(own, headlines.REFERENCE)
        if own["backend"].nunique() > 1 and reference.any():
            found.append((float(sizes.get(model, 0)), model, own["experiment"].iloc[0]))
    _, model, experiment = max(found, default=(0, "", "latency"))
    return headlines.Rows(model or "none", experiment)


def model_words(model: str) -> str:
    """`smollm2-135m, 0.13 billion parameters`."""
    sizes = hardware.by_model()["parameters_b"]
    return f"{model}, {sizes[model]:.2g} billion parameters" if model in sizes else model


def processor_line() -> str:
    """What our own runs say of a processor: the fastest, and the fastest that answers as the reference."""
    rows = own_rows()
    if rows.front.empty:
        return ""
    every = site.table("runs")
    unchecked = every[(every["model"] == rows.model) & (every["not_judged"] != "")]
    among = " of those whose tokens we could check" if len(unchecked) else ""
    means = rows.means(headlines.RATE).sort_values(ascending=False)
    best = means.index[0]
    lost = rows.lost(best)
    asked = f"{plural(rows.front['prompts'].max(), 'prompt')} of {rows.front['max_new_tokens'].max():.0f}"
    first = (
        f"We measured {rows.front['backend'].nunique()} engines on two cores ({rows.on}) with "
        f"{model_words(rows.model)}, {asked} new tokens: **{' '.join(best)}** has the highest mean "
        f"speed{among}, {two(means.iloc[0])} tokens/s"
        f"{f', and answers worse ({lost})' if lost else ''}{_solved(rows, best)}."
    )
    shipped = next((config for config in means.index if config[1] == headlines.SHIPPED), best)
    if shipped != best:
        pair = headlines.ratios(best, shipped)
        faster = headlines.direction(pair[pair["model"] == rows.model]) == estimates.FASTER
        first += (
            f" The file as people download it, **{' '.join(shipped)}**, has {two(means[shipped])} tokens/s"
            f"{_solved(rows, shipped)}; {'it is slower' if faster else 'no sure difference in speed'}."
        )
    if alike := headlines.answers_alike(rows):
        return f"{first} {alike}"
    if rows.alike() == [headlines.REFERENCE]:
        reference = headlines.REFERENCE
        wide = [key for key in means.index if key[1].startswith("float32") and key[0] != reference[0]]
        others = "other option" if wide else "option with fewer bits"
        return (
            f"{first} Every {others} differs somewhere from the answers of **{' '.join(reference)}**, "
            f"{two(means[reference])} tokens/s."
        )
    return first


def _solved(rows: headlines.Rows, config: headlines.Config) -> str:
    """How many programming problems an option solves beside the reference, on whatever machine both were
    scored, in the version whose speed was measured; empty where they were not."""
    versions = rows.runs.loc[headlines.of_option(rows.runs, config), "backend_version"]
    table = site.table("humaneval")
    of = headlines.of_option(table, config) & (table["model"] == rows.model)
    table = table[of & table["fewer"].notna() & table["backend_version"].isin(versions)]
    if table.empty:
        return ""
    row = table.sort_values("fewer", kind="stable").iloc[-1]  # of several machines the one that lost most
    return (
        f"; of HumanEval's programming problems it solves {row['verdict']} than the same 4-bit file in "
        f"{row['reference']}"
    )


def quantization_line() -> str:
    """What people published of four bits against sixteen, for one user: the sentence of Comparisons."""
    bits = next(each for each in comparisons.COMPARISONS if each.by == "bits")
    pairs = comparisons.pairs(bits)
    found = comparisons.pooled(pairs[pairs["against"] == "4 bits"])
    return (
        f"Files of 4 to 5 bits a weight are {found.factor:.1f} ({found.low:.1f} to {found.high:.1f}) times "
        f"as fast as 16 bits ({found.rows} settings of {found.sources} sources)."
    )


def news() -> str:
    """What is new: the latest version of the published table as its changelog has it, and our latest runs."""
    rows = build.table()
    last = rows["retrieved"].max()
    new = rows.loc[rows["retrieved"] == last, "source"].unique()
    words = [
        f"Published table {build.VERSION}, read until {last}: {len(rows):,} rows of "
        f"{rows['source'].nunique()} sources, {len(new)} of them read last."
    ]
    runs = site.table("runs")
    if len(runs):
        day = runs["started"].str[:10]
        own = runs[day == day.max()]
        versions = own.groupby("backend")["backend_version"].max().str.split(",").str[0]
        named = ", ".join(f"{name} {version.removeprefix(f'{name} ')}" for name, version in versions.items())
        words.append(f"Our latest runs, {day.max()}: {plural(len(own), 'run')} ({named}).")
    return "\n".join(f"- {text}" for text in words)


# What the front picture shows of the devices that somebody measured: those that readers ask for most.
SHOWN = (
    "RTX 5090", "RTX PRO 6000 Blackwell", "RTX 4090", "RTX 3090", "RTX 4070 Ti SUPER", "RTX 4060 Ti",
    "RTX 3060", "H100", "Apple M4 Max", "Apple M4 Pro", "Apple M4", "RX 7900 XTX", "Ryzen AI Max+ 395",
    "desktop CPUs", "laptop CPUs", "Snapdragon 8 Elite",
)  # fmt: skip


def shown_rows() -> pd.DataFrame:
    """The published rows of the front picture: device and rate (tokens/s of one user), the fastest first."""
    rows = lookup.one_user()
    own = rows[(rows["model"] == MODEL) & (rows["bits"] == BITS) & rows["device"].isin(SHOWN)]
    order = own.groupby("device")["rate"].max().sort_values(ascending=False).index
    return own[["device", "rate"]].sort_values(
        "device", key=lambda name: name.map(list(order).index), kind="stable"
    )


def shown_own() -> pd.DataFrame:
    """Our own rows of the front picture: on each kind of processor every engine and number format; columns
    device and rate (mean over its runs)."""
    rows = own_rows()
    if rows.runs.empty:
        return pd.DataFrame({"device": [], "rate": []})
    means = rows.runs.groupby(["gpu", *headlines.CONFIG])[headlines.RATE].mean().reset_index()
    table = means.assign(device=means["gpu"].map(headlines.processor), rate=means[headlines.RATE])
    order = table.groupby("device")["rate"].max().sort_values(ascending=False).index
    return table[["device", "rate"]].sort_values("device", key=lambda name: name.map(list(order).index))
