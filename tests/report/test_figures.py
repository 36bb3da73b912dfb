"""Every figure and table draws, with data, without data, and with data that are strange; findings follow
the data."""

import dataclasses

import pandas as pd
import pytest
import session_rows
from builders import (
    two_engines,
    write_evaluation,
    write_quality,
    write_repeats,
    write_run,
    write_score,
    write_serving,
    write_sizes,
    write_sweep,
)
from matplotlib.figure import Figure

from bench import html, style
from bench.observations import store
from bench.report import bars, curves, figures, tables
from bench.report.figures import latency as latency_figures
from bench.report.tables import latency as latency_tables
from llm_measured.core import columns
from llm_measured.core.metrics import METRICS

pytestmark = pytest.mark.early


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    """Runs of every experiment, read once."""
    observations = two_engines(tmp_path_factory.mktemp("written"))
    for option in ("float32", "int8"):
        write_sweep(observations, option=option, gpu_energy_j=20.0)
        write_quality(observations, [[5, 5], [5, 6]], [0.5, 0.6], [2.0, 3.0], option=option)
    write_quality(
        observations, [[5, 5], [5, 5]], [0.4, 0.6], [1.9, 3.0], backend="transformers", option="float32"
    )
    answers = write_evaluation(observations, option="int8")
    scored = f"{answers.parent.name}/{answers.stem}"
    write_score(observations, [1] * 90 + [0] * 74, scored, option="int8")
    for option in ("Q8_0", "Q8_0-ngram"):
        write_serving(
            observations,
            {1: (0.05, 0.01), 8: (0.1, 0.02)},
            {2: (0.05, 0.01)},
            backend="llamacpp",
            option=option,
        )
    write_sweep(observations, backend="llamacpp", option="Q8_0")
    write_sizes(observations)
    short = {"experiment": "sizes", "model": "qwen2.5-coder-1.5b", "backend": "llamacpp"}
    for option, more in (
        ("as-shipped", {}),
        ("as-shipped-draft", {"drafted_tokens": 8, "accepted_tokens": 4}),
    ):
        write_repeats(observations, [90.0, 91.0, 92.0], option=option, **short, **more)
    write_run(observations, experiment="served", option="int8", rate=80.0)
    newer = {"option": "int8", "backend_version": "2.0", "first": 4, "later": "02-01"}
    write_repeats(observations, [150.0, 151.0, 152.0], **newer)
    # Two more machines, on which two options come in opposite orders.
    for host, rates in (("bbbbbb", (100.0, 300.0)), ("cccccc", (300.0, 100.0))):
        for option, rate in zip(("F16", "Q4_0"), rates):
            several = [rate, rate + 1, rate - 1]
            write_repeats(observations, several, option=option, gpu="other-2c", host=host)
    return pd.concat([store.load(folder=observations), conversations()], ignore_index=True)


def conversations():
    """Three runs of conversations, each with the cache off and on."""
    loads = [session_rows.load(cache, run) for run in (1, 2, 3) for cache in (0.0, 1000.0, 4000.0)]
    return session_rows.frame([row | {"backend": "llamacpp"} for rows in loads for row in rows])


@pytest.fixture
def requests(written):
    return written.copy()


@pytest.mark.parametrize("name", figures.names())
@pytest.mark.check
def test_every_figure_draws(name, requests, nothing, tmp_path):
    for frame in (requests, nothing):
        figure = figures.DRAWN[name](frame)
        assert figure.axes or frame is nothing, "with data there are axes"
        svg = figures.svg(figure, name, f"redraw {name}")
        assert "<text" in svg and f"redraw {name}" in svg
        assert figure.get_size_inches()[0] <= 7.5
        figure.draw_without_rendering()
        for axes in figure.axes:
            word = axes.yaxis.label.get_window_extent().height
            assert word <= axes.get_window_extent().height, f"{axes.get_ylabel()!r} is longer than its axis"
    # Exports are the same for the same data: a redrawn figure is no change.
    figures.export(figures.DRAWN[name](nothing), name, f"redraw {name}", tmp_path)
    assert (tmp_path / f"{name}.svg").read_text() == svg and (tmp_path / f"{name}.png").exists()


def test_a_mistyped_figure_is_answered_with_those_that_exist(nothing):
    with pytest.raises(ValueError, match="latency"):
        figures.parts("latencyy", nothing)


@pytest.mark.parametrize("name", tables.names())
@pytest.mark.check
def test_every_table_is_made(name, requests, nothing):
    made = tables.TABLES[name]
    assert len(made(requests))
    for table in map(made, (requests, nothing)):
        assert "<table" in html.html(table, "caption", "command") and html.text(table)


def test_title_unit_and_factor_of_a_metric_have_one_declaration(requests, monkeypatch):
    before = latency_tables.latency(requests)
    changed = dataclasses.replace(METRICS["ttft_s"], title="wait", unit="µs", factor=1e6)
    monkeypatch.setitem(METRICS, "ttft_s", changed)
    after = latency_tables.latency(requests)
    assert "wait (µs)" not in before and "TTFT (ms)" not in after
    assert after["wait (µs)"].tolist() == pytest.approx((before["TTFT (ms)"] * 1e3).tolist())
    panel = latency_figures.ttft_tpot(requests).axes[0]
    assert panel.get_xlabel() == "wait, µs"
    assert panel.patches[0].get_width() == pytest.approx(after["wait (µs)"].iloc[0])


def test_a_column_is_declared_or_refused():
    percentile = columns.column("ttft_p90_s")
    assert (percentile.head, percentile.factor) == ("TTFT p90 (ms)", 1e3)
    assert columns.column("ttft_s_inside") == columns.column("ttft_s")
    assert columns.of("option mbu", mbu="share")["mbu"].head == "share"
    assert columns.of("not_checked")["not_checked"].head == "not checked", (
        "its own words, where nobody has others"
    )
    with pytest.raises(KeyError, match="No column 'tttf_s' is declared: add it to METRICS"):
        columns.column("tttf_s")
    with pytest.raises(KeyError, match="tttf_s"):
        columns.shown(pd.DataFrame({"option": ["int8"]}), "option tttf_s")
    with pytest.raises(KeyError, match="The table has no column ttft_s: name it"):
        columns.of("option", ttft_s="TTFT in process")


def test_text_of_a_model_is_never_markup(requests):
    assert "<script>" not in html.html(latency_tables.answers(requests), "answers")


def test_synthetic_weights_are_labelled_everywhere(tmp_path):
    write_run(tmp_path, model="shape:llama-2-7b", weights="synthetic")
    requests = store.load(folder=tmp_path)
    figures.export(latency_figures.latency(requests), "latency", "x", tmp_path)
    assert "synthetic" in (tmp_path / "latency.svg").read_text()
    assert "synthetic" in html.text(latency_tables.latency(requests))


def test_bytes_of_accepted_drafts_are_read_once(tmp_path):
    write_run(tmp_path, option="float32-lookup", rate=100.0, drafted_tokens=8, accepted_tokens=4)
    # Four of nine tokens after the first came with a pass: five passes, each of which read everything.
    row = store.load(folder=tmp_path).iloc[0]
    assert row["mbu"] == pytest.approx((1e8 + 13 * 4000) / (9 * 0.01 / 5) / 39e9)  # 95 % of 20 and 40 GB/s


def test_the_last_digits_of_a_place_change_no_byte(tmp_path):
    @style.style()
    def drawn(shift, name):
        figure = Figure()
        axes = figure.add_axes([0.1 + shift, 0.1, 0.8, 0.8])
        axes.plot([1, 2], [1, 2], marker="o")
        axes.set_title("1.2345678 seconds")
        return figures.export(figure, "moved", "make figures", tmp_path / name)[0].read_text()

    assert drawn(0, "a") == drawn(1e-12, "b") == drawn(1e-9, "d") != drawn(1e-2, "c")
    assert "1.2345678 seconds" in drawn(0, "a"), "what is read keeps its digits"


def test_log_axes_have_plain_numbers_however_often_they_are_set():
    axes = Figure().subplots()
    axes.plot([55, 700], [3, 70])
    for setting in (curves.plain_logs, curves.fine_logs, curves.fine_logs):
        setting(axes)
        words = [
            axis.get_major_formatter()(value, 0) for axis in (axes.xaxis, axes.yaxis) for value in (60, 200)
        ]
        assert words == ["60", "200"] * 2 and axes.get_xscale() == axes.get_yscale() == "log"


def test_an_axis_without_a_value_above_zero_stays_linear():
    axes = Figure().subplots()
    axes.plot([1, 10], [0, 0])
    curves.fine_logs(axes)
    assert axes.get_xscale() == "log" and axes.get_yscale() == "linear"


def test_a_value_stands_behind_its_whisker_and_no_whisker_goes_on_past_the_largest_share():
    table = pd.DataFrame({"backend": "fake", "mbu": [0.8, 0.3]})
    drawn, panel = bars.canvas([len(table)])
    bars.draw(panel, table, "mbu", {"fake": ("gray", "")}, spread=pd.Series([0.4, 0.1]), most=1.0)
    bars.fraction(panel)
    drawn.draw_without_rendering()
    ends = [max(line.get_xdata()) for line in panel.lines if line.get_marker() == "|"]
    assert sorted(ends) == pytest.approx([0.2, 0.4, 0.4, 1.0])
    for note, end in zip(panel.texts, (1.0, 0.4)):
        assert note.get_window_extent().x0 > panel.transData.transform((end, 0))[0]
        assert note.get_window_extent().x1 < panel.get_window_extent().x1
