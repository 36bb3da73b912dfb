"""What the pages of the site show: figures, tables and computed sentences, each with its command.

The pages are prose; they call these functions, and these call `plots`, `tables` and `findings`, so pages and
notebooks cannot disagree.
"""

import html
import inspect
import io
import re
import urllib.parse

from IPython.display import Markdown, display

from bench import inputs, naming
from bench.analysis import commands, machines
from bench.analysis import latency as latency_analysis
from bench.analysis import quality as quality_analysis
from bench.observations import schema, store
from bench.report import figures, findings, kept, links, marks, recounting, style, tables
from bench.report import html as html_report
from bench.report.findings import client_accuracy as client_accuracy_findings
from bench.report.findings import quality as quality_findings
from bench.report.findings import serving as serving_findings

UNMEASURED = f"*{html_report.EMPTY.capitalize()}*"


def requests():
    """All requests of all runs, as every page reads them; from then on pages share what they compute."""
    kept.begin()
    return kept.requests()


def show_figure(name, rows):
    """Show figure `name` and its command; the docstring of its function is the alternative text, and each
    mark says on hover what it is (`marks.layer`)."""
    alt = _description(name)
    parts = figures.parts(name, rows)
    shown = [_picture(alt, label, figure, place > 0) for place, (label, figure) in enumerate(parts)]
    _show_plot(name, "".join(shown))


def show_file(name):
    """Show figure `name` as its committed file, without marks: for a page whose own picture is another."""
    _show_plot(name, f'<img alt="{html.escape(_description(name))}" src="figures/{name}.svg">')


def _description(name):
    """The first paragraph of a figure's docstring: its alternative text."""
    function = figures.DRAWN[naming.choose("figure", name, figures.names())]
    return " ".join(inspect.getdoc(function).split("\n\n")[0].split())


def _show_plot(name, picture):
    command = commands.papermill("figure", {"figure": name}, out="figure.ipynb")
    caption = (
        f'<figcaption class="command">Redraw: <code>{command}</code>{links.under_figure(name)}</figcaption>'
    )
    show_html(f'<figure class="plot">{picture}{caption}</figure>')


def _picture(alt, label, figure, folded=False):
    """The image of one machine's part of a figure under the layer of its marks; a label is empty where there
    is one machine only. Of several machines each part can be folded, and all but the first are."""
    alt = f"{alt} On {label}." if label else alt
    image = f'<img alt="{html.escape(alt)}" src="{svg_address(figure)}">'
    picture = f'<div class="named-marks">{image}{marks.layer(figure)}</div>'
    if not label:
        return picture
    start = f'<details class="device" data-device="{html.escape(label)}"{"" if folded else " open"}>'
    return f"{start}<summary>{html.escape(label)}</summary>{picture}</details>"


def show_html(text):
    """Show HTML as a raw block of Markdown.

    For an output of type text/html Quarto would load jQuery and RequireJS from a CDN.
    """
    fence = "`" * (1 + max(map(len, re.findall("`+", text)), default=0))
    fence = max(fence, "```", key=len)
    display(Markdown(f"{fence}{{=html}}\n{text.rstrip()}\n{fence}\n"))


def svg_address(figure):
    """A figure as a data: address of its SVG; as an image its ids cannot meet those of the page.

    Percent-encoded, with quotes that need no encoding: a sixth smaller than in base64.
    """
    drawn = io.BytesIO()
    figure.savefig(drawn, format="svg", metadata={"Date": None})
    text = style.slim(drawn.getvalue().decode()).replace("'", "&apos;").replace('"', "'")
    return "data:image/svg+xml," + urllib.parse.quote(text, safe=" !$'()*+,-./:;=?@_~")


def show_table(name, rows, caption):
    """Show table `name` of bench/report/tables/, sortable, with its caption and the command that prints
    it."""
    function = tables.TABLES[naming.choose("table", name, tables.names())]
    table = function(rows) if inspect.signature(function).parameters else function()
    show_html(html_report.html(table, caption, f".venv/bin/python -m bench.report.tables {name}"))


def say(sentence, numbers):
    """Show a sentence of Markdown with `numbers` in its braces; nothing where there are no numbers yet."""
    if numbers:
        display(Markdown(sentence.format(**numbers)))


def show_sentences(sentences, otherwise=""):
    """Show computed sentences as a list, or the Markdown `otherwise` where there are none."""
    display(Markdown("\n".join(f"- {sentence}" for sentence in sentences if sentence) or otherwise))


def show_findings(rows):
    """Show the findings, computed from the requests, as a list per machine."""
    _show_each(rows, findings.of_one)


def _show_each(rows, sentences):
    """Show the list `sentences`(requests of one machine) for every machine, the one in front first,
    the others folded.

    assets/sorter.html lets a reader put another one in front.
    """
    every = machines.labelled(rows)
    if len(every) < 2:
        return show_sentences(sentences(rows) if len(rows) else (), UNMEASURED)
    parts = []
    for label, own in every:
        found = findings.named(sentences(own), own, label)
        words = "\n".join(f"- {sentence}" for sentence in found) or f"- Not measured on `{label}`."
        head = (
            f"<details class=device data-device='{label}'{' open' * (not parts)}><summary>{label}</summary>"
        )
        parts.append(f"{head}\n\n{words}\n\n</details>")
    display(Markdown("<div class=devices>\n\n" + "\n\n".join(parts) + "\n\n</div>\n"))


def show_clients(rows):
    """Show how far load clients were off, computed, as a list."""
    command = commands.papermill("client-accuracy")
    show_sentences(
        client_accuracy_findings.client_findings(rows), f"*Nothing measured here yet: `{command}`.*"
    )


def show_quality(rows):
    """Show what the scored answers have shown, computed, as a list."""
    _show_each(rows, quality_findings.quality_findings)


def scoring(rows):
    """What the quality runs scored, as numbers for quality.qmd; empty without data."""
    rows = quality_analysis.scored(rows)
    answers, texts = rows[rows["prompt"] > 0], rows[rows["prompt"] == 0]
    if answers.empty or texts.empty:
        return {}
    return {
        "prompts": html_report.number(answers["prompt"].nunique()),
        "output": _either(answers["output_tokens"]),
        "tokens": _either(texts.groupby("run_id")["output_tokens"].sum()),
        "pieces": _either(texts.groupby("run_id").size()),
        "piece": inputs.CHUNK_TOKENS,
        "silent": _silent(answers, texts),
    }


def _either(values):
    return " or ".join(html_report.number(v) for v in sorted(set(values)))


def _silent(answers, texts):
    """Which engines have given no log-probabilities, in one sentence."""
    names = ", ".join(f"`{name}`" for name in sorted(set(answers["backend"]) - set(texts["backend"])))
    return (
        f"No log-probabilities were had from {names}: no perplexity there."
        if names
        else "Every engine that was scored gave log-probabilities."
    )


def show_recounted(rows):
    """Show `recounted`."""
    show_html(html_report.html(recounting.recounted(rows), "Our tokens per second, counted in four ways."))


def protocol(rows):
    """What the latency runs were asked for, as numbers for method.qmd; empty without data."""
    rows = machines.here(rows, "latency")
    if rows.empty:
        return {}
    count = {
        "output": rows["max_new_tokens"],
        "prompts": rows.groupby("run_id")["prompt"].nunique(),
        "threads": rows["threads"],
        "shortest": [rows["prompt_tokens"].min()],
        "longest": [rows["prompt_tokens"].max()],
    }
    return {
        name: " or ".join(html_report.number(v) for v in sorted(set(value))) for name, value in count.items()
    }


def probes(rows):
    """The bandwidth probes of the latency runs as numbers for method.qmd; empty without data."""
    found = latency_analysis.probe_scatter(rows)
    if found.empty:
        return {}
    roofs = found["bandwidth_bytes_per_s"] / 1e9
    several = found.groupby(latency_analysis.VERSIONED).filter(lambda runs: len(runs) > 2)
    scatter = {
        column: several.groupby(latency_analysis.VERSIONED)[column].agg(lambda v: v.std() / v.mean())
        for column in ("mbu", "output_tokens_per_s", "mbu_unjudged")
    }
    return {
        "slowest": html_report.number(roofs.min()),
        "fastest": html_report.number(roofs.max()),
        "without": int(found["mbu"].isna().sum()),
        "simple": latency_analysis.probed_one_way(found),
        "runs": len(found),
        "mbu": f"{scatter['mbu'].median():.1%}",
        "rate": f"{scatter['output_tokens_per_s'].median():.1%}",
        "before": f"{scatter['mbu_unjudged'].max():.0%}",
    }


def show_serving(rows):
    """Show what servers under load have shown, computed, as a list."""
    _show_each(rows, serving_findings.serving_findings)


def workload(rows):
    """What the servers of the machine in front were asked for, in words; empty without data."""
    rows = machines.here(rows, "serving")
    if rows.empty:
        return {}
    workloads = [store.read(store.path(run))[1]["parameters"] for run in rows["run_id"].unique()]
    which = sorted({str(parameters["lengths"]) for parameters in workloads})
    closed, opened = rows.dropna(subset="concurrency"), rows.dropna(subset="request_rate")
    each = rows.groupby([*schema.CONFIGURATION, "concurrency", "request_rate"], dropna=False).size()
    return {
        "lengths": " or ".join(map(_lengths, which)),
        "scaled": _scaled(rows, which),
        "prompt": html_report.number(rows["prompt_tokens"].mean()),
        "output": html_report.number(rows["max_new_tokens"].mean()),
        "longest": html_report.number((rows["prompt_tokens"] + rows["max_new_tokens"]).max()),
        "arrivals": " or ".join(sorted({parameters["arrivals"] for parameters in workloads})),
        "concurrency": _listing(closed["concurrency"]),
        "rates": _listing(opened["request_rate"]),
        "each": " to ".join(html_report.number(n) for n in sorted({each.min(), each.max()})),
        "failed": html_report.number((rows["error"] != "").sum()),
        "requests": html_report.number(len(rows)),
    }


def _lengths(name):
    """A distribution of lengths with what data/lengths.csv says of it; of a reader's own CSV its name."""
    known = inputs.table("lengths").set_index("lengths")
    if name not in known.index:
        return f"`{name.rpartition('/')[2]}`"
    row = known.loc[name]
    before, after = html_report.number(row["prompt_tokens"]), html_report.number(row["new_tokens"])
    return f"`{name}` of `data/lengths.csv` (on average {before} tokens in and {after} out)"


def _scaled(rows, which):
    """How the mean length of a request compares with that of a known distribution; empty for others."""
    known = inputs.table("lengths").set_index("lengths")[["prompt_tokens", "new_tokens"]].sum(axis=1)
    if len(which) > 1 or which[0] not in known.index:
        return ""
    ratio = (rows["prompt_tokens"] + rows["max_new_tokens"]).mean() / known[which[0]]
    return f", {html_report.number(float(f'{ratio:.2g}'))} times as much together"


def _listing(values):
    return ", ".join(html_report.number(v) for v in sorted(set(values))) or "none"
