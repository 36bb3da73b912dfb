"""What the site shows of the observations, so that two states of them can be compared.

BENCH_RESULTS=folder python -m bench.report.snapshot      as JSON on the terminal
"""

import hashlib
import io
import json
import sys

import matplotlib.pyplot as plt
import pandas as pd

from bench import html
from bench.analysis import machines
from bench.definitions import Fields
from bench.report import figures, findings, pages, tables
from bench.report.findings import client_accuracy, latency, quality, serving


def snapshot(requests: pd.DataFrame) -> Fields:
    """The site of `requests`: findings (sentences), tables (name -> lines of text), figures (name ->
    SHA-256 of the SVG). What cannot be made says why instead."""
    sentences = [
        *_safely(findings.headlines, requests),
        *_safely(_fastest, requests),
        *_safely(quality.quality_findings, requests),
        *_safely(serving.serving_findings, requests),
        *_safely(client_accuracy.client_findings, requests),
    ]
    return {
        "findings": list(dict.fromkeys(sentence for sentence in sentences if sentence)),
        "tables": {name: _safely(_lines, table, requests) for name, table in tables.TABLES.items()},
        "figures": {name: _safely(_digest, draw, requests) for name, draw in figures.DRAWN.items()},
    }


def _fastest(requests):
    """Which option is fastest, or the only one, on each machine: most runs that come are not of the one in
    front."""
    return [
        sentence
        for label, own in machines.labelled(requests)
        for sentence in findings.named([latency.fastest(own) or latency.alone(own)], own, label)
    ]


def _safely(function, *arguments):
    """What `function` returns; a list of one sentence where it fails, which is then what is compared."""
    try:
        return function(*arguments)
    except Exception as error:  # whatever runs do to one figure, the others are compared
        return [f"{function.__module__}.{function.__name__} fails: {type(error).__name__}: {error}"]


def _lines(table, requests):
    return [" ".join(line.split()) for line in html.text(table(requests)).split("\n")[1:]]


def _digest(draw, requests):
    figure, drawn = draw(requests), io.BytesIO()
    figure.savefig(drawn, format="svg", metadata={"Date": None})
    plt.close(figure)
    return hashlib.sha256(drawn.getvalue()).hexdigest()


if __name__ == "__main__":
    json.dump(snapshot(pages.requests()), sys.stdout)
