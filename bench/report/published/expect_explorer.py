"""The observatory's rows for the Explorer: one compressed script of columns, read by assets/observatory.js.

Texts are numbers of a dictionary, numbers are float32 (NaN is unknown), each column one base64 block; so a
page opened from disk loads it like any script."""

import base64
import gzip
import json
from pathlib import Path

import jinja2
import pandas as pd

from bench import html, paths
from bench.report.published import lookup
from llm_measured.core.definitions import Column
from llm_measured.core.files import write_whole
from llm_measured.published import build, derived, sources

NAME = "observatory.js"

# What an axis can show; whether more of it is better, as the page's script has it.
DIRECTIONS = {"higher": 1, "lower": -1, None: 0}
METRICS = {
    "output_tokens_per_s": Column("output tokens/s, all accelerators together", "tokens/s", better="higher"),
    "output_tokens_per_s_per_accelerator": Column(
        "output tokens/s per accelerator", "tokens/s", better="higher"
    ),
    "output_tokens_per_s_per_request": Column("output tokens/s per request", "tokens/s", better="higher"),
    "prompt_tokens_per_s": Column("prompt tokens/s", "tokens/s", better="higher"),
    "mbu": Column("MBU, weights alone, datasheet", "%", 100, better="higher"),
    "mfu": Column("MFU of prompts, datasheet", "%", 100, better="higher"),
    "ttft_ms": Column("TTFT, mean or median", "ms", better="lower"),
    "tpot_ms": Column("TPOT, mean or median", "ms", better="lower"),
    "j_per_output_token": Column("energy of an output token", "J", better="lower"),
    "power_w": Column("power, as stated", "W", better="lower"),
    "in_flight": Column("requests in flight", ""),
    "input_tokens": Column("prompt", "tokens"),
    "output_tokens": Column("answer", "tokens"),
    "context_depth": Column("context before", "tokens"),
    "accelerators": Column("accelerators", ""),
    "bandwidth_gb_per_s": Column("datasheet bandwidth of one accelerator", "GB/s"),
    "weight_bits": Column("bits per weight", ""),
    "parameters_b": Column("parameters", "10⁹"),
    "year": Column("year of measurement or publication", ""),
}
# What can be filtered, in the order of the page; all of it is a condition when two rows are compared.
FILTERS = {
    "source": "source",
    "accelerator_family": "accelerator",
    "model": "model",
    "engine": "engine",
    "weights_format": "weights",
    "workload": "workload",
    "kind": "measured by",
    "audit": "audit",
    "backend": "backend",
    "speculative": "speculation",
    "model_class": "class in the look-up",
    "one_user_bits": "one user, bits",
}
DERIVED = ["model_class", "one_user_bits"]  # of `lookup`: no columns of the table
TEXTS = [
    *FILTERS,
    *("accelerator", "accelerator_raw", "checkpoint_raw", "engine_version", "kv_format", "lengths"),
    *("statistic", "power_scope", "prefix_cached", "throughput_scope", "throughput_counts", "flags"),
    *("measured_on", "comparable_within", "submitter", "division", "category", "original_id"),
    *("source_file", "source_row", "audit_notes"),
]
# Numbers that are conditions, beside the texts.
SET = {
    "accelerators": "accelerators",
    "in_flight": "requests in flight",
    "input_tokens": "prompt length",
    "output_tokens": "answer length",
    "context_depth": "context before",
    "tp": "tensor parallel",
    "ep": "expert parallel",
    "dp": "replicas",
    "power_limit_w": "power limit",
    "request_rate": "arrivals per second",
    "prefill_chunk": "prefill chunk",
}
# Texts in which two rows may differ and still be compared.
NO_CONDITION = [
    *DERIVED,
    "original_id",
    "source_file",
    "source_row",
    "audit",
    "audit_notes",
    "accelerator_raw",
    "checkpoint_raw",
    "comparable_within",
]


def table(rows: pd.DataFrame) -> pd.DataFrame:
    """One row per row of the observatory that any metric can show; columns row_id, TEXTS, METRICS and SET."""
    made, known = derived.derived(rows), derived.datasheet(rows)
    out = rows[["row_id", *(name for name in TEXTS if name not in DERIVED)]].copy()
    alone = lookup.one_user().set_index("row_id")
    out["model_class"] = out["row_id"].map(lookup.classes_of(alone))
    out["one_user_bits"] = out["row_id"].map(alone["bits"].map("{:.0f} bits".format))
    for name in (
        "output_tokens_per_s",
        "output_tokens_per_s_per_accelerator",
        "output_tokens_per_s_per_request",
    ):
        out[name] = made[name]
    for name in ("mbu", "mfu", "j_per_output_token"):
        out[name] = made[name]
    for time in ("ttft", "tpot"):
        out[f"{time}_ms"] = rows[f"{time}_mean_ms"].fillna(rows[f"{time}_p50_ms"])
    for name in (
        "prompt_tokens_per_s",
        "power_w",
        "input_tokens",
        "output_tokens",
        "context_depth",
        "accelerators",
    ):
        out[name] = rows[name]
    out["in_flight"] = derived.in_flight(rows)
    out["bandwidth_gb_per_s"] = known["bandwidth_bytes_per_s"] / 1e9
    out["weight_bits"] = known["weight_bits"]
    out["parameters_b"] = known["parameters"] / 1e9
    out["year"] = pd.to_numeric(rows["measured_on"].fillna(rows["published_on"]).str[:4], errors="coerce")
    for name in SET:
        if name not in out:
            out[name] = rows[name]
    out["model"] = out["model"].fillna(out["checkpoint_raw"])
    out["accelerator_family"] = lookup.device(rows).fillna(rows["accelerator_raw"])
    return out.reset_index(drop=True)


def packed(frame: pd.DataFrame) -> str:
    """`frame` as the text of a script: `observatoryData = {…}`, every column compressed by itself."""
    texts = [name for name in ["row_id", *TEXTS]]
    numbers = [name for name in frame if name not in texts]
    columns = {}
    for name in texts:
        codes, values = pd.factorize(frame[name], sort=False)
        kind = "<u2" if len(values) < 65_535 else "<u4"
        # 0 is unknown.
        columns[name] = {"codes": _block((codes + 1).astype(kind).tobytes()), "bytes": int(kind[-1])}
        columns[name]["values"] = _block(json.dumps([str(v) for v in values], ensure_ascii=False).encode())
    for name in numbers:
        columns[name] = {"numbers": _block(frame[name].astype("<f4").to_numpy().tobytes())}
    whole = {
        "rows": len(frame),
        "version": build.VERSION,
        "columns": columns,
        "metrics": {name: [m.title, m.unit, DIRECTIONS[m.better], m.factor] for name, m in METRICS.items()},
        "filters": FILTERS,
        "texts": texts,
        "numbers": numbers,
        "set": SET,
        "no_condition": NO_CONDITION,
        "sources": {name: [about.citation, about.repository] for name, about in sources.listed().items()},
        "trademarks": TRADEMARK,
    }
    return "globalThis.observatoryData=" + json.dumps(whole, separators=(",", ":")) + ";\n"


TRADEMARK = (
    "Results of MLPerf® Inference are shown alone, as MLCommons asks: verified results from mlcommons.org, "
    "with submitter, division, category and id. The MLPerf name and logo are registered and unregistered "
    "trademarks of the MLCommons Association. All rights reserved."
)


def _block(content: bytes) -> str:
    return base64.b64encode(gzip.compress(content, mtime=0)).decode()


def write(rows: pd.DataFrame, folder: Path | None = None) -> int:
    """Write the script of all `rows` into `folder` (default: paths.DOWNLOADS); returns its bytes."""
    folder = Path(folder or paths.DOWNLOADS)
    folder.mkdir(parents=True, exist_ok=True)
    write_whole(folder / NAME, packed(table(rows)))
    return (folder / NAME).stat().st_size


def block(rows: pd.DataFrame) -> str:
    """The view as HTML: its controls, and the scripts that it loads; writes the data's script."""
    size = write(rows)
    return TEMPLATE.render(
        name=NAME, rows=f"{len(rows):,}", size=f"{html.number(size / 1e6)} MB", filters=FILTERS
    )


TEMPLATE = jinja2.Environment(autoescape=True, trim_blocks=True, lstrip_blocks=True).from_string("""\
<link rel="stylesheet" href="assets/observatory.css">
<div id="observatory" hidden>
<form id="observatory-controls" aria-label="Which published rows are shown">
<div class="axes">
{% for axis, word in (("x", "X axis"), ("y", "Y axis")) %}
<label>{{ word }} <select name="{{ axis }}"></select></label>
<label>{{ axis | upper }} scale
<select name="{{ axis }}scale"><option>log</option><option>linear</option></select></label>
{% endfor %}
<label>Colour <select name="colour">
{% for name, title in filters.items() %}
<option value="{{ name }}">{{ title }}</option>
{% endfor %}
</select></label>
<label>Which <select name="which"><option value="others">all but MLPerf</option>
<option value="mlperf">MLPerf alone</option></select></label>
</div>
<div class="filters" role="group" aria-label="Filters of the published rows"></div>
</form>
<p id="observatory-count" role="status"></p>
<p id="observatory-rules" class="small" hidden></p>
<div class="picture"><canvas id="observatory-chart" role="application" tabindex="0"
aria-label="The published rows as points" aria-describedby="observatory-keys"></canvas>
<div id="observatory-key" class="small"></div></div>
<p id="observatory-marked" class="small" role="status"></p>
<p id="observatory-keys" class="small">Point at a dot to see what it is; click two to compare them. With the
keyboard: Tab to the chart, arrow keys from dot to dot, A or B to take one as the first or second.</p>
<h3 id="observatory-two">Two published rows compared</h3>
<div id="observatory-compared" role="status"></div>
<h3 id="observatory-rows">Published rows of this view</h3>
<p class="actions"><button type="button" id="observatory-csv">Download CSV of this view</button>
<button type="button" id="observatory-clear">Clear filters</button></p>
<div class="table-scroll" role="region" tabindex="0" aria-label="Published rows of this view">
<table id="observatory-table" class="sortable" data-quarto-disable-processing="true">
<thead></thead><tbody></tbody></table>
</div>
</div>
<noscript><p>This view needs JavaScript; the table itself is <code>make observatory</code>.</p></noscript>
<script src="downloads/{{ name }}" defer></script>
<script src="assets/observatory.js" defer></script>
""")
