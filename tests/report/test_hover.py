"""The layer over a figure: each mark says which configuration it is, and its values."""

import re

import pytest
from builders import write_repeats, write_serving, write_sweep
from pictures import drawn

from bench.observations import store
from bench.report import hover


@pytest.fixture
def requests(tmp_path):
    for option, rate in (("Q4_0", 90.0), ("Q8_0", 40.0)):
        write_repeats(tmp_path, [rate, rate + 2], option=option, backend="llamacpp")
        write_sweep(tmp_path, option=option, backend="llamacpp", overhead=1 / rate)
        write_serving(tmp_path, {1: (0.05, 2 / rate), 8: (0.1, 4 / rate)}, option=option, backend="llamacpp")
    return store.load(folder=tmp_path)


def test_bars_and_dots_carry_the_name_of_their_row(requests):
    words = hover.titles(drawn("latency", requests))
    assert sum(w.startswith("llamacpp Q4_0\n") for w in words) >= 3  # the bar and a dot per run
    assert sum(w.startswith("llamacpp Q8_0\n") for w in words) >= 3 and all("tokens/s: " in w for w in words)


@pytest.mark.parametrize("name", ["frontier", "serving_frontier", "step_time"])
def test_marks_of_curves_of_one_engine_are_told_apart(requests, name):
    ours = [w for w in hover.titles(drawn(name, requests)) if w.startswith("llamacpp")]
    names = [w.split("\n")[0] for w in ours]
    assert set(names) == {"llamacpp Q4_0", "llamacpp Q8_0"} and names.count("llamacpp Q4_0") == len(names) / 2
    assert all(len(w.split("\n")) == 3 for w in ours)


def test_a_mark_s_place_is_that_of_the_picture(requests):
    figure = drawn("serving_frontier", requests)
    axes = figure.axes[0]
    line = next(line for line in axes.lines if "Q4_0" in line.get_label())
    x, y = axes.transData.transform(line.get_xydata()[0]) * 72 / figure.dpi
    _, height = figure.get_size_inches() * 72
    circles = re.findall(
        r'<circle cx="([\d.]+)" cy="([\d.]+)"[^>]*><title>llamacpp Q4_0', hover.layer(figure)
    )
    assert any(abs(float(a) - x) < 0.6 and abs(float(b) - (height - y)) < 0.6 for a, b in circles)


def test_words_are_escaped_and_an_empty_figure_has_no_layer(requests):
    assert hover.layer(drawn("latency", requests[:0])) == ""
    axes = (figure := drawn("latency", requests)).axes[0]
    axes.texts[0].set_text("<b>&")
    assert "<b>" not in hover.layer(figure) and "&lt;b&gt;&amp;" in hover.layer(figure)
