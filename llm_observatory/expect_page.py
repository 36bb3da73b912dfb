"""What expect.qmd shows: the calculator with everything that assets/expect.js computes from, and tables."""

import base64
import functools
import gzip
import json
from collections.abc import Callable

import jinja2
import numpy as np
import pandas as pd

from bench import hardware
from llm_observatory import build, expect, expect_proof, sources
from llm_observatory import expect_names as names

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
GOAL = 0.15  # the median over sources of the error that was aimed at
START = {"accelerator": "rtx-4090", "model": "llama-3.1-8b", "format": "Q4_K_M", "engine": "llama.cpp"}
EXAMPLES = [
    ("rtx-4090", "llama-3.1-8b", "Q4_K_M", "llama.cpp"),
    ("rtx-3090", "qwen3-32b", "Q4_K_M", "llama.cpp"),
    ("h100-sxm", "llama-3.1-8b", "bf16", "vllm"),
    ("h200-sxm", "llama-3.1-70b", "fp8", "vllm"),
    ("m4-max-40c", "llama-3.1-8b", "int4", "mlx"),
    ("ryzen-ai-max-395", "gpt-oss-120b", "mxfp4", "llama.cpp"),
]


def fitted(found: expect.Fit) -> dict:
    """The fit as assets/expect.js reads it: what a new source's setup needs of effects and covariance (the
    lower triangle, row by row, as base64 of float32)."""
    asked = [("reading", expect.EFFICIENCY), ("layers", expect.OVERHEAD)]
    effects = [(part, effect) for part, of in asked for effect in of]
    names_ = {effect.name for _, effect in effects}
    kept = [(key, at) for key, at in found.index.items() if key[0] in names_]
    at = np.array([place for _, place in kept])
    matrix = found.covariance[np.ix_(at, at)][np.tril_indices(len(at))]
    return {
        "asked": [[part, e.name, list(e.columns), e.factor, found.variances[e.name]] for part, e in effects],
        "keys": ["|".join(key) for key, _ in kept],
        "effects": [float(f"{v:.6g}") for v in found.effects[at]],
        "covariance": base64.b64encode(matrix.astype("<f4").tobytes()).decode(),
        "unseen": found.noise + sum(found.variances[name] for name in expect.UNSEEN),
        "width": found.quantile * found.stretch,
        "shift": found.shift,
        "layer_s": expect.LAYER_S,
    }


def payload() -> dict:
    """Everything that the calculator needs, as a dict for JSON."""
    found = expect.committed()
    cases = expect.cases(expect.observatory())
    cards = hardware.accelerators()
    cards = cards[cards["bandwidth_gb_per_s"].notna()].sort_values("name", key=lambda s: s.str.lower())
    return {
        "fit": fitted(found),
        "accelerators": [
            [
                row.accelerator,
                row.name,
                names.architecture(row.accelerator, row.family),
                row.bandwidth_gb_per_s,
                _plain(row.memory_gb),
                row.family,
                names.kind(row.accelerator, row.family),
            ]
            for row in cards.itertuples(index=False)
        ],
        "models": _models(),
        "formats": [_format(label, form) for label, form in FORMATS.items()],
        "engines": [
            [engine, family, names.engine_kind(family), family in names.BY_LAYERS]
            for engine, family in [("any", "any")]
            + sorted({(e, f) for e, f in zip(cases["engine"], cases["engine_family"]) if f != "any"})
        ],
        "points": {
            "columns": POINTS,
            "rows": cases.assign(rate=cases["rate"].round(2), bound=cases["bound"].round(2))[POINTS]
            .to_numpy()
            .tolist(),
        },
        "sources": {
            name: [module.ABOUT.citation, module.ABOUT.repository]
            for name, module in sources.modules()
            if name in set(cases["source"])
        },
        "start": START,
    }


POINTS = [
    "machine",
    "architecture",
    "accelerators",
    "model",
    "format",
    "bits",
    "engine",
    "engine_family",
    "source",
    "rate",
    "bound",
    "rows",
]


def _format(label: str, form: str) -> list:
    known = names.weights_format(form, "", "any")
    return [label, known.bits, known.name, known.scheme]


def _plain(value: float) -> float | None:
    return None if value != value else float(value)


def _models() -> list[list]:
    """Of each model whose size is known: id, parameters that a token reads and that memory holds (10⁹),
    whether it is a mixture of experts, layers and their kind."""
    table = hardware.models()
    asked = pd.DataFrame(
        {
            "accelerator": "mi355x",
            "model": table["model"],
            "weights_format": "fp8",
            "engine": "any",
            "accelerators": 64,
        }
    )
    known = expect.setups(asked)
    known = known[known["read_bytes"].notna()].sort_values("model")
    return [
        [
            row.model,
            round(row.read_bytes / 1e9, 5),
            round(row.parameters / 1e9, 5),
            row.mixture == "mixture",
            round(row.layers, 3),
            row.model_kind,
        ]
        for row in known.itertuples()
    ]


def packed(data: dict) -> str:
    """`data` as JSON, compressed, in base64."""
    text = json.dumps(data, separators=(",", ":"), allow_nan=False, default=_number)
    return base64.b64encode(gzip.compress(text.encode(), mtime=0)).decode()


def _number(value: object) -> object:
    return value.item() if isinstance(value, np.generic) else str(value)


def joined(device: Callable[[str], str | None], planner: dict) -> dict:
    """The planner's data (`llm_planner.calculator.data`) with its devices and models under the names that
    this page has for them; what the page alone may join. `device`: a planner's device to an accelerator."""
    cards = {name: device(name) for name in planner["devices"]}
    models = {name: hardware.model(name) for name in planner["models"]}
    return {
        "data": planner,
        "devices": {own: name for name, own in cards.items() if own},
        "models": {own: name for name, own in models.items() if own},
        "weights": {"16": "bf16", "8": "fp8", "4": "int4", "4.5": "nvfp4"},
        "engines": {engine: name for name in planner["engines"] for engine, _ in [names.engine(name)]},
    }


def device(name: str) -> str | None:
    """The accelerator's id that a planner's device name says."""
    found = names.machine(name.replace("_", " "))
    return None if isinstance(found, str) else found.name


def calculator(planner: dict) -> str:
    """The calculator: form, empty answers, data and scripts; `planner` as `joined` has it."""
    data = payload()
    selects = [
        ("accelerator", "Accelerator", [(row[0], row[1]) for row in data["accelerators"]]),
        ("model", "Model", [(row[0], row[0]) for row in data["models"]]),
        ("format", "Weights", [(row[0], row[0]) for row in data["formats"]]),
        ("engine", "Engine", [(row[0], row[0]) for row in data["engines"]]),
    ]
    return TEMPLATE.render(selects=selects, start=START, data=packed(data), planner=packed(planner))


TEMPLATE = jinja2.Environment(autoescape=True, trim_blocks=True, lstrip_blocks=True).from_string("""\
<link rel="stylesheet" href="assets/expect.css">
<form id="expect" class="planner" aria-label="What to expect">
{% for name, label, choices in selects %}
<div><label for="expect-{{ name }}">{{ label }}</label>
<select id="expect-{{ name }}" name="{{ name }}">
{% for value, text in choices %}
<option value="{{ value }}"{{ ' selected' if value == start[name] }}>{{ text }}</option>
{% endfor %}
</select></div>
{% endfor %}
<div><label for="expect-accelerators">How many of them</label>
<input id="expect-accelerators" name="accelerators" type="number" min="1" max="1024" step="1"
value="1" required></div>
<div><label for="expect-claim">A rate that you were told (tokens/s, may be empty)</label>
<input id="expect-claim" name="claim" type="number" min="0" step="any"></div>
<div><label for="expect-users">Users at a time</label>
<input id="expect-users" name="users" type="number" min="1" max="4096" step="1" value="1" required></div>
<div><label for="expect-prompt">Their prompts (tokens)</label>
<input id="expect-prompt" name="prompt" type="number" min="1" max="200000" step="1"
value="1000" required></div>
<div><label for="expect-answer">Their answers (tokens)</label>
<input id="expect-answer" name="answer" type="number" min="2" max="200000" step="1"
value="500" required></div>
</form>
<div id="expect-said" role="status" aria-live="polite"></div>
<div id="expect-picture"></div>
<noscript><p>The calculator needs JavaScript; <code>make expect</code> does not.</p></noscript>
<div class="table-scroll" role="region" tabindex="0" aria-label="Published measurements that come nearest">
<table id="expect-nearest" class="sortable" data-quarto-disable-processing="true">
<caption>The published measurements that come nearest, medians of a source's rows of one setting.</caption>
<thead><tr><th scope="col">accelerator</th><th scope="col">model</th><th scope="col">format</th>
<th scope="col">engine</th><th scope="col" class="number">accelerators</th>
<th scope="col" class="number">tokens/s</th><th scope="col" class="number">of the bound (%)</th>
<th scope="col">source</th></tr></thead><tbody></tbody>
</table>
</div>
<script type="text/plain" id="expect-data" data-encoding="gzip base64">{{ data }}</script>
<script type="text/plain" id="expect-planner" data-encoding="gzip base64">{{ planner }}</script>
<script src="assets/planner.js" defer></script>
<script src="assets/expect.js" defer></script>
""")


def examples() -> pd.DataFrame:
    """What to expect of some common settings, one row each, for a reader without JavaScript."""
    questions = pd.DataFrame(EXAMPLES, columns=expect.ASKED)
    made = expect.predictions(questions)
    return pd.DataFrame(
        {
            "accelerator": questions["accelerator"],
            "model": questions["model"],
            "weights": questions["weights_format"],
            "engine": questions["engine"],
            "expected (tokens/s)": made[expect.PREDICTED],
            "from": made[f"{expect.PREDICTED}_low"],
            "to": made[f"{expect.PREDICTED}_high"],
            "bound (tokens/s)": made["bound_output_tokens_per_s"],
            "estimated": made["estimated"].map({True: "yes", False: "no"}),
        }
    )


def errors() -> pd.DataFrame:
    """How far sources that were left out are off, one row per source."""
    table = expect_proof.by_source().sort_values("error", na_position="last")
    return pd.DataFrame(
        {
            "source": table["source"],
            "left out with": table["left_out"].where(table["left_out"] != table["source"]),
            "cases": table["cases"],
            "median error (%)": 100 * table["error"],
            "90th percentile (%)": 100 * table["p90"],
            "with its own factor known (%)": 100 * table["within"],
            "inside the interval (%)": 100 * table["coverage"],
            "of that 95 % (%)": [
                f"{100 * low:.0f} to {100 * high:.0f}" if low == low else None
                for low, high in zip(table["coverage_low"], table["coverage_high"])
            ],
            "rows refused (%)": 100 * table["refused"],
        }
    )


def disagreements() -> pd.DataFrame:
    """Settings that two families of sources measured, the furthest apart first."""
    table = _disagreements().sort_values("ratio", ascending=False)
    count = table["accelerators"].map("{:g} × ".format).replace("1 × ", "")
    return pd.DataFrame(
        {
            "accelerator": count + table["family"],
            "model": table["model"],
            "format": table["format"],
            "engine": table["engine_family"],
            "one source, tokens/s": table["one"] + ": " + table["rate_one"].map("{:.3g}".format),
            "another, tokens/s": table["other"] + ": " + table["rate_other"].map("{:.3g}".format),
            "faster ÷ slower": table["ratio"],
        }
    )


@functools.cache
def _disagreements() -> pd.DataFrame:
    rows = expect.observatory()
    return expect_proof.disagreements(expect.cases(rows), expect_proof.families(rows))


def refusals() -> pd.DataFrame:
    """Why eligible rows of the observatory are not predicted, one row per kind of reason."""
    table = pd.read_csv(expect_proof.PROOF)
    table = table[table["refused"].notna()]
    kinds = table["refused"].str.replace(
        r"'[^']*'|(?<=parameters of ).*(?= is not)|[\d.]+ GB|(?<=accelerators )[\d.e+]+", "…", regex=True
    )
    counted = table.groupby(kinds)["rows"].sum().sort_values(ascending=False)
    return pd.DataFrame({"reason": counted.index, "rows": counted.to_numpy()})


def waiting() -> pd.DataFrame:
    """The log of predictions that wait for measurements."""
    table = expect_proof.awaited()
    return pd.DataFrame(
        {
            "accelerator": table["accelerator"],
            "model": table["model"],
            "weights": table["weights_format"],
            "engine": table["engine"],
            "predicted on": table["date"],
            "expected (tokens/s)": table[expect.PREDICTED],
            "from": table[f"{expect.PREDICTED}_low"],
            "to": table[f"{expect.PREDICTED}_high"],
            "bound (tokens/s)": table["bound_output_tokens_per_s"],
            "measured (tokens/s)": table["measured"],
            "by": table["sources"],
        }
    )


def numbers() -> dict[str, object]:
    """What the page's sentences say."""
    cases = expect.cases(expect.observatory())
    above = cases[cases["rate"] > cases["bound_most"]]
    told = expect_proof.by_source()
    errors = told["error"].dropna()
    apart = _disagreements()
    return {
        "reached": f"{100 * errors.median():.0f} %",
        "goal": "reaches" if errors.median() <= GOAL else "misses",
        "goal_error": f"{100 * GOAL:.0f} %",
        "pairs": len(apart),
        "apart": f"{100 * (apart['ratio'].median() - 1):.0f} %",
        "floor": f"{100 * expect_proof.floor(apart):.0f} %",
        "cases": f"{len(cases):,}",
        "rows": f"{int(cases['rows'].sum()):,}",
        "sources": cases["source"].nunique(),
        "machines": cases["machine"].nunique(),
        "above": len(above),
        "above_sources": ", ".join(sorted(above["source"].unique())) or "none",
        "version": build.VERSION,
        "context": f"{expect.LONGEST_CONTEXT:,}",
        "proof": expect_proof.sentence(),
    }
