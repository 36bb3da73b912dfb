"""The explorer: every configuration of every experiment, to filter, draw, compare and download in a browser.

Python makes the rows (`bench.topics.explorer`), Vega-Lite draws them, assets/explorer*.js joins the two.
The rows travel in the page itself, so that it works from a file as well as from a server.
"""

import base64
import gzip
import json

import jinja2
import pandas as pd
from matplotlib.colors import to_hex

from bench import style
from bench.observations import schema
from bench.topics import estimates, explorer
from llm_measured.core.columns import COLUMNS
from llm_measured.core.definitions import Fields
from llm_measured.core.metrics import METRICS

# What the axes show first; the first two of them that an experiment measures.
START = ["output_tokens_per_s", "ttft_s", "tpot_s", "perplexity", "tpot_p50_s", "peak_memory_bytes"]
AXES = {
    "latency": ("ttft_s", "output_tokens_per_s"),
    "batching": ("output_tokens_per_s", "tpot_s"),
    "serving": ("output_tokens_per_s", "tpot_p50_s"),
    "quality": ("output_tokens_per_s", "perplexity"),
}
# Filters, in the order of the page.
FILTERS = {
    "backend": "engine",
    "option": "option",
    "bits": "bits",
    "gpu": "device",
    "model": "model",
    "host": "host",
    "tensor_parallel": "tensor parallel",
    "backend_version": "version",
    "weights": "weights",
    "data_parallel": "replicas",
    "loop": "loop",
    "state": "state",
    "batch_size": "batch size",
    "prompt_tokens": "prompt tokens",
}
# These are offered even where they hold one value only.
ALWAYS = ["backend", "option", "bits", "gpu", "model", "host", "tensor_parallel"]
VERDICTS = {
    "better": "better",
    "worse": "worse",
    "more": "more",
    "less": "less",
    "equal": estimates.EQUAL,
    "one_each": estimates.ONE_EACH,
    "no_scatter": estimates.ONE_EACH,
    "not_connected": estimates.NEVER_MET,
    "none": estimates.NO_RUNS,
    "elsewhere": "not compared: another machine, model or condition",
    "zero": "no ratio: a value is not above zero",
}


def experiment(requests: pd.DataFrame, name: str) -> Fields:
    """One experiment of the payload: name, csv (`explorer.frame`), uneven, comparisons, and the metrics on
    its axes."""
    table = explorer.points(requests, name)
    frame, odd = explorer.frame(table), explorer.uneven(table)
    known = [metric for metric in explorer.NAMES if metric in frame]
    x, y = AXES.get(name) or ([m for m in START if m in known] + known)[:2]
    axes = {"x": x if x in known else known[0], "y": y if y in known else known[-1]}
    csv = frame.replace(r"[\r\n]+", " ", regex=True).to_csv(index=False, lineterminator="\n")
    compared = explorer.comparisons(requests, name)
    return {"name": name, "csv": csv, "uneven": odd, "comparisons": compared, "metrics": known, **axes}


def _read(requests: pd.DataFrame, name: str) -> pd.DataFrame:
    """The requests that an experiment is made of: its own, and for scores the rates of the runs whose answers
    they score. A run of another experiment then leaves what was made of these as it was."""
    return requests[requests["experiment"].isin([name, schema.SCORES.get(name, name)])]


def payload(requests: pd.DataFrame) -> Fields:
    """What the page's scripts need, as a dict that JSON can hold."""
    found = [experiment(_read(requests, name), name) for name in explorer.experiments(requests)]
    return {
        "experiments": found,
        "metrics": {name: _metric(METRICS[name]) for each in found for name in each["metrics"]},
        "filters": FILTERS,
        "always": ALWAYS,
        "conditions": explorer.CONDITION,
        "titles": {name: COLUMNS[name].title for name in explorer.CONDITION},
        "colours": {name: to_hex(look[0]) for name, look in style.looks(requests).items()},
        "verdicts": VERDICTS,
    }


def _metric(metric):
    """What the page states of one metric."""
    words = {"label": metric.head, "title": metric.meaning, "formula": metric.formula}
    return words | {"factor": metric.factor, "direction": explorer.direction(metric.name)}


def packed(data: Fields) -> str:
    """`data` as JSON, compressed, in base64: a page of many runs stays light, and nothing in it is markup."""
    text = json.dumps(data, separators=(",", ":"), allow_nan=False)
    return base64.b64encode(gzip.compress(text.encode(), mtime=0)).decode()


def block(requests: pd.DataFrame) -> str:
    """The explorer as a block of HTML: its controls, its data, and the shared scripts that it loads."""
    data = payload(requests)
    return TEMPLATE.render(data=packed(data), names=[each["name"] for each in data["experiments"]])


TEMPLATE = jinja2.Environment(autoescape=True, trim_blocks=True, lstrip_blocks=True).from_string("""\
<link rel="stylesheet" href="assets/explorer.css">
<div id="explorer" hidden>
<form id="explorer-controls" aria-label="What is shown">
<div class="axes">
<label>Experiment <select name="experiment">
{% for name in names %}
<option>{{ name }}</option>
{% endfor %}
</select></label>
{% for axis, word in (("x", "X axis"), ("y", "Y axis")) %}
<label>{{ word }} <select name="{{ axis }}"></select></label>
<label>{{ axis | upper }} scale
<select name="{{ axis }}scale"><option>linear</option><option>log</option></select></label>
{% endfor %}
<label class="tick"><input type="checkbox" name="front"> Pareto front</label>
<label class="tick"><input type="checkbox" name="bars"> 95 % intervals</label>
</div>
<div class="filters" role="group" aria-label="Filters"></div>
</form>
<p id="explorer-count" role="status"></p>
<p id="explorer-mixed" class="mixed" hidden></p>
<div id="explorer-chart" role="application" tabindex="0" aria-describedby="explorer-keys"
aria-label="The configurations of the table below as points"></div>
<p id="explorer-marked" class="small" role="status"></p>
<p id="explorer-keys" class="small">Hover over a point to see what it is; click two to compare them. With the
keyboard: Tab to the chart, arrow keys from point to point, Enter to choose one.</p>
<p id="explorer-front-note" class="small"></p>
<h3 id="explorer-two">Two of them compared</h3>
<div class="axes">
<label>First <select name="a" form="explorer-controls"></select></label>
<label>Second <select name="b" form="explorer-controls"></select></label>
</div>
<div id="explorer-compared" role="status"></div>
<h3 id="explorer-rows">The rows of this view</h3>
<p class="actions"><button type="button" id="explorer-csv">Download CSV of this view</button>
<button type="button" id="explorer-clear">Clear filters</button></p>
<div class="table-scroll" role="region" tabindex="0" aria-label="The rows of this view">
<table class="sortable n-last" id="explorer-table" data-quarto-disable-processing="true">
<thead></thead><tbody></tbody></table>
</div>
</div>
<script type="text/plain" id="explorer-data" data-encoding="gzip base64">{{ data }}</script>
<script src="assets/vega.min.js" defer></script>
<script src="assets/explorer-frames.js" defer></script>
<script src="assets/explorer.js" defer></script>
""")
