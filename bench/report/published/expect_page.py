"""What expect.qmd shows: the calculator with everything that assets/expect.js computes from, and tables."""

import base64
import dataclasses
import functools
import gzip
import json

import jinja2
import numpy as np
import pandas as pd

from llm_measured.core import hardware, names
from llm_measured.predict import answer, effects, fit, machines, nearest, prices, proof, question, step
from llm_measured.published import build, sources

# What a reader chooses from: label, and the format as sources write it.
FORMATS = {
    "bf16 or fp16": "bf16",
    "fp8 or int8": "fp8",
    "Q8_0": "Q8_0",
    "Q6_K": "Q6_K",
    "Q5_K_M": "Q5_K_M",
    "Q4_K_M": "Q4_K_M",
    "Q4_0": "Q4_0",
    "int4: AWQ, GPTQ, MLX 4-bit": "int4",
    "mxfp4": "mxfp4",
    "Q3_K_M": "Q3_K_M",
    "Q2_K": "Q2_K",
}
# What may be stated instead of a name: column of a question -> (label, what is shown at first, whether it may
# be empty), by the list whose choice `STATED` it belongs to.
STATED = "stated"
STATED_NUMBERS = {
    "accelerator": {
        "bandwidth_gb_per_s": ("Its bandwidth (GB/s)", "460", False),
        "memory_gb": ("Its memory (GB, may be empty)", "128", True),
    },
    "model": {
        "parameters_b": ("Its parameters (10⁹)", "8", False),
        "active_b": ("Of these a token passes (10⁹, empty: all)", "", True),
    },
    "format": {"bits": ("Bits per weight", "4.5", False)},
    "engine": {},
}
STATED_TITLES = {
    "accelerator": "another: I state its bandwidth",
    "model": "another: I state its size",
    "format": "other: I state the bits",
}
GOAL = 0.15  # the median error that was aimed at
START = {"accelerator": "rtx-4090", "model": "llama-3.1-8b", "format": "Q4_K_M", "engine": "llama.cpp"}
EXAMPLES = [
    ("rtx-4090", "llama-3.1-8b", "Q4_K_M", "llama.cpp"),
    ("rtx-3090", "qwen3-32b", "Q4_K_M", "llama.cpp"),
    ("h100-sxm", "llama-3.1-8b", "bf16", "vllm"),
    ("h200-sxm", "llama-3.1-70b", "fp8", "vllm"),
    ("m4-max-40c", "llama-3.1-8b", "int4", "mlx"),
    ("ryzen-ai-max-395", "gpt-oss-120b", "mxfp4", "llama.cpp"),
]


# Fields of `question.Setup` that each part of a question decides by itself.
CARD = ["machine", "family", "architecture", "accelerator_class", "vendor", "bandwidth_low", "bandwidth"]
CARD += ["bandwidth_most", "memory_bytes", "peak_flops", "guessed"]
MODEL = ["model", "model_kind", "parameters", "active", "read_parameters", "layers", "hidden"]
MODEL += ["cache_bytes_per_token", "mixture", "guessed"]
FORMAT = ["format", "scheme", "bits", "least_bits"]
ENGINE = ["engine", "engine_family", "engine_kind"]
# What the parts are read beside, one at a time: any other would do that leaves nothing to guess.
BESIDE = {"accelerator": "h100-sxm", "model": "llama-3.1-8b", "weights_format": "fp8", "engine": "any"}
POINTS = ["machine", "architecture", "accelerators", "split", "bandwidth", "model", "mixture", "active"]
POINTS += [
    "format",
    "bits",
    "engine",
    "engine_family",
    "context",
    "users",
    "source",
    "measured_on",
    "rate",
    "rows",
]


LOADS = [1.0, *answer.LOADS]  # users up to which a regime goes


def fitted(model: effects.Model) -> dict:
    """The shipped fit of a model as assets/expect.js reads it: effects with their widths, and the covariance
    in units of `fit.UNIT` (the lower triangle, row by row)."""
    found = fit.committed(model)
    lower = found.covariance[np.tril_indices(len(found.effects))] / fit.UNIT
    return {
        "on": model.on,
        "askable": [[e.name, e.on, e.columns, e.factor, found.variances[e.name]] for e in model.askable],
        "keys": ["|".join(key) for key in found.index],
        "effects": found.effects.tolist(),
        "covariance": " ".join(map(str, np.rint(lower).astype(int))),
        "noise": found.noise,
        "of_sources": [[e.factor, found.variances[e.name]] for e in model.of_sources],
        "hidden": model.hidden,
        "sharp": fit.SHARP,
    }


def read(column: str, texts: list[str]) -> pd.DataFrame:
    """Setups of questions that differ in `column`, without those that are refused."""
    beside = {name: value for name, value in BESIDE.items() if name != column}
    if column == "engine":  # a vendor's accelerators are refused to engines that nobody has on them
        beside = beside | {"accelerator": "", "bandwidth_gb_per_s": "1000"}
    found = question.read(pd.DataFrame({column: texts}, dtype=object).assign(**beside))
    return found[found["refused"] == ""]


def offered(column: str, texts: list[str], field: str) -> pd.DataFrame:
    """`read` of those names that mean themselves."""
    found = read(column, texts)
    return found[found[field] == pd.Series(texts, dtype=object)[found.index]].reset_index(drop=True)


@functools.cache
def accelerators() -> pd.DataFrame:
    """Setups of all accelerators that the calculator answers for, with title, by name."""
    cards = hardware.accelerators().sort_values("name", key=lambda s: s.str.lower())
    table = offered("accelerator", cards["accelerator"].tolist(), "machine")
    return table.assign(title=table["machine"].map(cards.set_index("accelerator")["name"]))


def _models() -> pd.DataFrame:
    table = offered("model", sorted(hardware.models()["model"]), "model")
    own = [_own_scheme(name, "any") for name in table["model"]]
    return table.assign(longest=table["model"].map(question.CONTEXTS), own_scheme=own)


def _own_scheme(model: str, engine: str) -> str | None:
    """The kind of format of a model or an engine where nobody names one; None where none follows."""
    try:
        return names.number_format("", model, engine).scheme
    except names.UnknownName:
        return None


def _stated() -> dict:
    """The accelerator that no table has, as a dict for JSON; its bandwidth, memory and peak are stated."""
    asked = BESIDE | {"accelerator": "", "bandwidth_gb_per_s": "1000"}
    setup = question.read(pd.DataFrame([asked], dtype=object)).iloc[0]
    return {name: setup[name] for name in CARD if not name.startswith("bandwidth")} | {"memory_bytes": None}


def _formats() -> pd.DataFrame:
    return read("weights_format", list(FORMATS.values())).assign(label=list(FORMATS))


def _engines() -> pd.DataFrame:
    """Setups of the engines that published rows have, with vendors (of accelerators that they have it on),
    offloads, and how they split a model over several: server_split, other_split."""
    table = offered("engine", ["any", *sorted(nearest.published()["engine"].unique())], "engine")
    vendors, family = question.vendors(), table["engine_family"]
    table["vendors"] = [sorted(vendors.get(name, [])) for name in family]
    table["own_scheme"] = [_own_scheme("", name) for name in table["engine"]]
    table["offloads"] = family.isin(machines.OFFLOADING)
    for column, made in (("server_split", "NVIDIA server"), ("other_split", "NVIDIA card")):
        table[column] = [question.split("", 2, name, made, question.TODAY) for name in family]
    return table


def _stretches(classes: pd.Series, engines: pd.DataFrame) -> dict[str, float]:
    """{class of accelerator|family of engines|split|mixture|users up to: how many times wider an interval has
    to be}."""
    kinds = engines[["engine_family", "engine_kind"]].drop_duplicates()
    table = pd.DataFrame({"accelerator_class": classes.unique()}).merge(kinds, how="cross")
    table = table.merge(pd.DataFrame({"split": ["one", "tensor", "layers"]}), how="cross")
    table = table.merge(pd.DataFrame({"mixture": ["dense", "mixture"]}), how="cross")
    table = table.merge(pd.DataFrame({"users": LOADS}), how="cross")
    known = answer.regimes()["stretch"]
    wide = answer.regime(table).map(known).fillna(known.max())
    table["users"] = table["users"].map("{:g}".format)
    keys = table["accelerator_class"].str.cat(
        [table[c] for c in ("engine_family", "split", "mixture", "users")], "|"
    )
    return dict(zip(keys, wide))


def _part(table: pd.DataFrame, columns: list[str]) -> dict:
    """A table for JSON; what is not known is null."""
    part = table[columns].astype(object)
    return {"columns": columns, "rows": part.where(part.notna(), None).to_numpy().tolist()}


def payload() -> dict:
    """Everything that the calculator needs but for `points`, as a dict for JSON."""
    cards, engines = accelerators(), _engines()
    stated = _stated()
    classes = pd.concat([cards["accelerator_class"], pd.Series([stated["accelerator_class"]])])
    priced = {name: prices.listed(name) for name in dict.fromkeys(prices.table()["accelerator"])}
    return {
        "accelerators": _part(cards, [*CARD, "title"]),
        "models": _part(_models(), [*MODEL, "longest", "own_scheme"]),
        "formats": _part(_formats(), [*FORMAT, "label"]),
        "engines": _part(
            engines, [*ENGINE, "vendors", "offloads", "server_split", "other_split", "own_scheme"]
        ),
        "stated": stated,
        "prices": {name: dataclasses.asdict(price) for name, price in priced.items() if price},
        "fits": {model.name: fitted(model) for model in (effects.STEP, effects.SMALL, effects.PROMPT)},
        "small": effects.SMALL_CLASSES,
        "stretches": _stretches(classes, engines),
        "loads": LOADS,
        "constants": {
            "layer_s": step.LAYER_S,
            "reduction_s": step.REDUCTION_S,
            "sequence_s": step.SEQUENCE_S,
            "prompt_tokens": fit.PROMPT_TOKENS,
            "nothing": step.NOTHING,
            "start_s": step.START_S,
            "room": question.ROOM,
            "host_bandwidth": question.HOST_GB_PER_S * 1e9,
            "quantile": answer.QUANTILE,
            "offload_spread": answer.OFFLOAD_SPREAD,
            "unit": fit.UNIT,
            "operations_per_byte": machines.OPERATIONS_PER_BYTE["GPU"],
            "prompt_stretch": answer.regimes().at["prompts", "stretch"],
        },
    }


def points() -> dict:
    """The published cases, and their sources: {source: [citation, address]}."""
    table = nearest.published()
    about = sources.listed()
    return {
        "points": _part(table, POINTS),
        "sources": {
            name: [about[name].citation, about[name].repository] for name in sorted(table["source"].unique())
        },
    }


def packed(data: dict) -> str:
    """`data` as JSON, compressed, in base64."""
    text = json.dumps(data, separators=(",", ":"), allow_nan=False, default=_number)
    return base64.b64encode(gzip.compress(text.encode(), mtime=0)).decode()


def _number(value: object) -> object:
    return value.item() if isinstance(value, np.generic) else str(value)


def calculator() -> str:
    """The calculator: form, empty answers, data and scripts."""
    data = payload() | points()
    cards = accelerators()
    selects = [
        ("accelerator", "Accelerator", list(zip(cards["machine"], cards["title"]))),
        *(
            (name, label, [(row[at], row[at]) for row in data[part]["rows"]])
            for name, label, part, at in (
                ("model", "Model", "models", 0),
                ("format", "Weights", "formats", len(FORMAT)),
                ("engine", "Engine", "engines", 0),
            )
        ),
    ]
    limits = question.NUMBERS
    stated = {
        name: [
            (column, *shown, limits[column][0], limits[column][1])
            for column, shown in STATED_NUMBERS[name].items()
        ]
        for name in STATED_NUMBERS
    }
    return TEMPLATE.render(
        selects=selects,
        stated=stated,
        titles=STATED_TITLES,
        price=limits["usd_per_gpu_hour"],
        start=START,
        context=f"{question.USUAL_CONTEXT:.0f}",
        prompt=f"{question.USUAL_PROMPT:.0f}",
        data=packed(data),
        most_users=question.MOST_USERS,
        answer=f"{question.USUAL_ANSWER:.0f}",
    )


TEMPLATE = jinja2.Environment(autoescape=True, trim_blocks=True, lstrip_blocks=True).from_string("""\
<link rel="stylesheet" href="assets/expect.css">
<form id="expect" class="calculator" aria-label="What to expect">
{% for name, label, choices in selects %}
<div><label for="expect-{{ name }}">{{ label }}</label>
<select id="expect-{{ name }}" name="{{ name }}">
{% if titles[name] %}
<option value="stated">{{ titles[name] }}</option>
{% endif %}
{% for value, text in choices %}
<option value="{{ value }}"{{ ' selected' if value == start[name] }}>{{ text }}</option>
{% endfor %}
</select></div>
{% for column, text, value, optional, least, most in stated[name] %}
<div data-stated="{{ name }}" hidden><label for="expect-{{ column }}">{{ text }}</label>
<input id="expect-{{ column }}" name="{{ column }}" type="number" min="{{ least }}" max="{{ most }}"
step="any" value="{{ value }}"{{ ' required' if not optional }} disabled></div>
{% endfor %}
{% endfor %}
<div><label for="expect-accelerators">How many of them</label>
<input id="expect-accelerators" name="accelerators" type="number" min="1" max="1024" step="1"
value="1" required></div>
<div><label for="expect-users">Users at once</label>
<input id="expect-users" name="users" type="number" min="1" max="{{ most_users }}" step="1" value="1"
required></div>
<div><label for="expect-prompt">Prompt (tokens)</label>
<input id="expect-prompt" name="prompt" type="number" min="1" max="200000" step="1"
value="{{ prompt }}" required></div>
<div><label for="expect-answer">Answer (tokens)</label>
<input id="expect-answer" name="answer" type="number" min="2" max="200000" step="1"
value="{{ answer }}" required></div>
<div><label for="expect-split">Several are used</label>
<select id="expect-split" name="split"><option value="">as the engine does</option>
<option value="tensor">side by side (tensor parallel)</option>
<option value="layers">by layers, one after the other</option></select></div>
<div><label for="expect-context">Context of each user (tokens)</label>
<input id="expect-context" name="context" type="number" min="0" max="20000000" step="1"
value="{{ context }}" required></div>
<div><label for="expect-claim">A rate you were told (tokens/s)</label>
<input id="expect-claim" name="claim" type="number" min="0" step="any"></div>
<div><label for="expect-usd_per_gpu_hour">Dollars per hour of one</label>
<input id="expect-usd_per_gpu_hour" name="usd_per_gpu_hour" type="number" min="{{ price[0] }}"
max="{{ price[1] }}" step="any"></div>
</form>
<div id="expect-said" role="status" aria-live="polite"></div>
<div id="expect-picture"></div>
<noscript><p>The calculator needs JavaScript; <code>make expect</code> does not.</p></noscript>
<div class="table-scroll" role="region" tabindex="0" aria-label="Published measurements that come nearest">
<table id="expect-nearest" class="sortable" data-quarto-disable-processing="true">
<caption>The published measurements that come nearest, medians of a source's rows of one setting.</caption>
<thead><tr><th scope="col">accelerator</th><th scope="col" class="number">tokens/s of each</th>
<th scope="col">model</th><th scope="col">format</th>
<th scope="col">engine</th><th scope="col" class="number">accelerators</th>
<th scope="col" class="number">users</th>
<th scope="col" class="number">context (tokens)</th>
<th scope="col" class="number">of bandwidth ÷ bytes (%)</th>
<th scope="col">source</th></tr></thead><tbody></tbody>
</table>
</div>
<script type="text/plain" id="expect-data" data-encoding="gzip base64">{{ data }}</script>
<script src="assets/expect.js" defer></script>
""")


def examples() -> pd.DataFrame:
    """What to expect of some common settings, one row each, for a reader without JavaScript."""
    questions = pd.DataFrame(EXAMPLES, columns=question.ASKED)
    made = answer.predictions(questions)
    return pd.DataFrame(
        {
            "accelerator": questions["accelerator"],
            "model": questions["model"],
            "weights": questions["weights_format"],
            "engine": questions["engine"],
            "expected (tokens/s)": made[answer.PREDICTED],
            "from": made[f"{answer.PREDICTED}_low"],
            "to": made[f"{answer.PREDICTED}_high"],
            "bound (tokens/s)": made["bound_output_tokens_per_s"],
            "something guessed": made["estimated"].map({True: "yes", False: "no"}),
        }
    )


@functools.cache
def _proof() -> pd.DataFrame:
    return proof.one_user()


COUNTED = {
    "median": "median error (%)",
    "p90": "90th percentile (%)",
    "inside": "inside the interval (%)",
    "division median": "one division, median (%)",
    "division p90": "one division, 90th (%)",
    "nearest median": "nearest row, median (%)",
    "nearest p90": "nearest row, 90th (%)",
}


def _counted(counted: pd.DataFrame, first: str) -> pd.DataFrame:
    shown = {name: counted[name] for name in ("cases", "sources")}
    shown |= {label: 100 * counted[name] for name, label in COUNTED.items()}
    shown["interval, × or ÷"] = counted["width"]
    return pd.DataFrame(shown).rename_axis(first).reset_index()


def proved() -> pd.DataFrame:
    """How far answers are off for sources left out, by kind of setup, beside naive answers."""
    whole = proof.summary(_proof().assign(regime="all"), "regime")
    return _counted(pd.concat([whole, proof.summary(_proof(), "regime")]), "kind of setup")


def proved_of_many() -> pd.DataFrame:
    """How far answers for several users are off for sources left out, by users and kind of model."""
    table = proof.several_users()
    whole = proof.summary(table.assign(regime="all"), "regime")
    order = [f"{load}, {kind}" for load in answer.LOADS.values() for kind in ("dense", "mixtures")]
    counted = proof.summary(table, "regime")
    kinds = [name for name in order if name in counted.index]
    return _counted(pd.concat([whole, counted.loc[kinds]]), "users at once")


def errors() -> pd.DataFrame:
    """How far sources that were left out are off, one row per source, the nearest first."""
    table = _counted(proof.summary(_proof(), "source").sort_values("median"), "source")
    others = table["source"].map(proof.family)
    table["sources"] = others.where(others != table["source"])
    return table.rename(columns={"sources": "left out with"})


def disagreements() -> pd.DataFrame:
    """Settings that two families of sources measured, the furthest apart first."""
    table = proof.disagreements(_proof()).sort_values("ratio", ascending=False)
    count = table["accelerators"].map("{:g} × ".format).replace("1 × ", "")
    return pd.DataFrame(
        {
            "accelerator": count + table["machine"],
            "model": table["model"],
            "format": table["format"],
            "engine": table["engine_family"],
            "one source, tokens/s": table["one"] + ": " + table["rate_one"].map("{:.3g}".format),
            "another, tokens/s": table["other"] + ": " + table["rate_other"].map("{:.3g}".format),
            "faster ÷ slower": table["ratio"],
        }
    )


@functools.cache
def _asked() -> pd.DataFrame:
    return pd.read_csv(proof.REFUSED, keep_default_na=False)


def refusals() -> pd.DataFrame:
    """Why eligible rows of one user are not answered, one row per kind of reason."""
    table = _asked()
    counted = table[table["refused"] != ""].groupby("refused")["rows"].sum().sort_values(ascending=False)
    return pd.DataFrame({"reason": counted.index, "rows": counted.to_numpy()})


def waiting() -> pd.DataFrame:
    """The log of predictions that wait for measurements."""
    table = proof.awaited()
    return pd.DataFrame(
        {
            "accelerator": table["accelerator"],
            "model": table["model"],
            "weights": table["weights_format"],
            "engine": table["engine"],
            "predicted on": table["date"],
            "expected (tokens/s)": table[answer.PREDICTED],
            "from": table[f"{answer.PREDICTED}_low"],
            "to": table[f"{answer.PREDICTED}_high"],
            "today's answer (tokens/s)": table["today"],
            "published (tokens/s)": table["published"],
            "published by": table["published_by"],
            "measured (tokens/s)": table["measured"],
            "by": table["sources"],
        }
    )


def _of_many() -> dict[str, object]:
    table = proof.several_users()
    whole = proof.summary(table.assign(all="all"), "all").loc["all"]
    shares = {
        "median": whole["median"],
        "p90": whole["p90"],
        "inside": whole["inside"],
        "division": whole["division median"],
        "division_p90": whole["division p90"],
        "nearest": whole["nearest median"],
        "nearest_p90": whole["nearest p90"],
    }
    return {
        **{f"many_{name}": f"{100 * share:.0f} %" for name, share in shares.items()},
        "many_width": f"{(table['high'] / table['low']).median():.1f}",
        "many_cases": f"{len(table):,}",
        "many_sources": table["source"].nunique(),
        "many_families": table["left_out"].nunique(),
    }


def numbers() -> dict[str, object]:
    """What the page's sentences say."""
    table, asked, apart = _proof(), _asked(), proof.disagreements(_proof())
    whole = proof.summary(table.assign(all="all"), "all").loc["all"]
    by_source = proof.summary(table, "source")["median"]
    above = table[table["rate"] > 1.0001 * table["bound"]]
    refused = asked.loc[asked["refused"] != "", "rows"].sum() / asked["rows"].sum()
    percents = {
        "median": whole["median"],
        "p90": whole["p90"],
        "inside": whole["inside"],
        "division": whole["division median"],
        "division_p90": whole["division p90"],
        "nearest": whole["nearest median"],
        "nearest_p90": whole["nearest p90"],
        "at_bound": (table["high"] >= 0.999 * table["bound"]).mean(),
        "by_source": by_source.median(),
        "refused": refused,
        "goal_error": GOAL,
        "apart": apart["ratio"].median() - 1,
        "floor": proof.floor(apart),
    }
    return {
        **{name: f"{100 * share:.0f} %" for name, share in percents.items()},
        "goal": "reaches" if whole["median"] <= GOAL else "misses",
        "within": int((by_source <= GOAL).sum()),
        "width": f"{(table['high'] / table['low']).median():.1f}",
        "pairs": len(apart),
        "cases": f"{len(table):,}",
        "rows": f"{int(table['rows'].sum()):,}",
        "sources": table["source"].nunique(),
        "families": table["left_out"].nunique(),
        "machines": table["machine"].nunique(),
        "above": len(above),
        "above_sources": ", ".join(sorted(above["source"].unique())) or "none",
        "version": build.VERSION,
        **_of_many(),
    }
