"""The calculator of expect.qmd: a form, and the JSON that assets/planner.js computes from."""

import json

import jinja2

from llm_measured.core.definitions import Fields
from llm_planner import candidates, check, engines, shapes, steady, step_time

MACHINE = "memory_bytes bandwidth_bytes_per_s link_bytes_per_s".split()
SHAPE = "layers hidden_size intermediate_size heads_values kv_heads block head kv_values tied".split()
# Name, label, value, step of every number that a reader may change.
NUMBERS = [
    ("prompt_tokens", "Prompt tokens", 1000, 1),
    ("answer_tokens", "Answer tokens", 1000, 1),
    ("rate", "Requests per second", 20, "any"),
    ("ttft_ms", "TTFT at most (ms)", 1000, "any"),
    ("tpot_ms", "TPOT at most (ms)", 30, "any"),
    ("usd_per_gpu_hour", "Dollars per GPU hour", None, "any"),
]
HEADS = [
    "GPUs of a replica",
    "replicas",
    "GPUs",
    "requests at once",
    "TTFT (ms)",
    "TPOT (ms)",
    "requests/s of a replica",
    "dollars per hour",
    "dollars per million output tokens",
]
BLIND = (
    "The calculator is blind for queues, for arrivals that bunch, for the error of the coefficients and for "
    "percentiles: its TTFT and TPOT are means of a replica that always has the same number of requests, so "
    "that the simulator often asks for more GPUs."
)
START = {"model": "llama-3.1-8b", "weights": "bf16", "engine": "vllm", "gpu": "h100_sxm"}

TEMPLATE = jinja2.Environment(autoescape=True, trim_blocks=True, lstrip_blocks=True).from_string("""\
<form id="planner" class="planner" aria-label="Calculator">
{% for name, label, choices in selects %}
<div><label for="planner-{{ name }}">{{ label }}</label>
<select id="planner-{{ name }}" name="{{ name }}">
{% for value, text in choices %}
<option value="{{ value }}"{{ ' selected' if value == start[name] }}>{{ text }}</option>
{% endfor %}
</select></div>
{% endfor %}
{% for name, label, value, step in numbers %}
<div><label for="planner-{{ name }}">{{ label }}</label>
<input id="planner-{{ name }}" name="{{ name }}" type="number" min="0"
step="{{ step }}" value="{{ value }}" required></div>
{% endfor %}
</form>
<p id="planner-status" class="planner-status" role="status" aria-live="polite"></p>
<noscript><p>The calculator needs JavaScript; <code>notebooks/plan.ipynb</code> does not.</p></noscript>
<div class="table-scroll" role="region" tabindex="0" aria-label="Answers of the calculator">
<table id="planner-answers" class="sortable">
<caption>Each replica with as many requests at once as hold the goal; means, without queues.</caption>
<thead><tr>
{% for head in heads %}
<th scope="col"{{ ' class="number"' | safe if not loop.first }}>{{ head }}</th>
{% endfor %}
</tr></thead>
<tbody></tbody>
</table>
</div>
<script type="application/json" id="planner-data">{{ data | safe }}</script>
<script src="assets/planner.js"></script>
""")


def data() -> Fields:
    """Everything that assets/planner.js needs, as a dict for JSON: shapes, devices, engines, coefficients of
    every engine on every device with the half widths of their errors, prices, constants.
    """
    names = shapes.names()
    machines = {name: shapes.device(name) for name in _gpus()}
    return {
        "models": {name: {f: getattr(shapes.shape(name), f) for f in SHAPE} for name in dict.fromkeys(names)},
        "devices": {
            name: {field: float(row[field]) for field in MACHINE}
            | {"peaks": {bits: float(shapes.peak(row, bits)) for bits in shapes.WEIGHT_BYTES}}
            for name, row in machines.items()
        },
        "engines": {name: _engine(name) for name in engines.ENGINES},
        "kv_bytes": {
            "|".join((engine, gpu, weights)): engines.kv_bytes(_case(engine, gpu, weights))
            for engine in engines.ENGINES
            for gpu in machines
            for weights in shapes.WEIGHT_BYTES
        },
        "fits": _fits(machines, dict.fromkeys(names)),
        "prices": {name: price for name in machines if (price := _price(name))},
        "tensor_parallel": list(steady.TENSOR_PARALLEL),
        "constants": {
            "weight_bytes": shapes.WEIGHT_BYTES,
            "reduction_s": step_time.REDUCTION_S,
            "activation_passes": step_time.ACTIVATION_PASSES,
            "attention_share": step_time.ATTENTION_SHARE,
            "step_tokens": engines.STEP_TOKENS,
            "slots": engines.SLOTS,
        },
    }


def _gpus():
    return list(shapes.devices())


def _case(engine, gpu, weights):
    return engines.Case("llama-3.1-8b", gpu, engine, weights, 1, engines.SLOTS, 1000, 1000, "plan")


def _engine(name):
    taken = "mixed chunked memory_share of_free buffers_bytes".split()
    known = {key: engines.ENGINES[name][key] for key in taken}
    return known | {
        "prefill_latencies": engines.RULES.prefill_latencies[name],
        "one_shot": name == engines.RULES.one_shot,
    }


def _fits(machines, models):
    fits, found = check.Fits(), {}
    for engine in engines.ENGINES:
        for gpu in machines:
            errors = {}
            for model in models:
                coefficients, widths, unknown = fits.of(engine, gpu, model)
                errors[model] = {"ttft_width": float(widths[0]), "tpot_width": float(widths[1])}
                errors[model]["unknown"] = unknown.replace("gpu", "GPU")
            found[f"{engine}|{gpu}"] = {"coefficients": [float(c) for c in coefficients], "errors": errors}
    return found


def _price(gpu):
    try:
        return candidates.price(gpu)[0]
    except ValueError:
        return None


def html() -> str:
    """The form, an empty table of answers, the JSON and the script, as HTML for a raw block of Markdown."""
    known = data()
    titles = shapes.devices()
    selects = [
        ("model", "Model", [(name, name) for name in known["models"]]),
        ("weights", "Weights", [(name, name) for name in shapes.WEIGHT_BYTES]),
        ("engine", "Engine", [(name, name) for name in known["engines"]]),
        ("gpu", "GPU", [(name, titles[name]) for name in known["devices"]]),
    ]
    price = known["prices"][START["gpu"]]
    numbers = [(n, label, price if value is None else value, step) for n, label, value, step in NUMBERS]
    # `<` would end the element; JSON may write it as an escape.
    text = json.dumps(known).replace("<", "\\u003c")
    return TEMPLATE.render(selects=selects, numbers=numbers, start=START, heads=HEADS, data=text)
