"""Figures and tables draw with strange data; what readers see of a metric has one declaration."""

import dataclasses

import pandas as pd
import pytest
from builders import write_run
from matplotlib.figure import Figure
from pictures import shown, words

from bench import cells, html, paths, plots, site, style
from bench.observations import store
from llm_measured.core import columns
from llm_measured.core.metrics import METRICS

pytestmark = pytest.mark.early


def test_a_figure_is_the_same_bytes_each_time_and_says_how_it_is_redrawn(observations, tmp_path):
    requests, written = store.load(folder=observations), []
    for name in ("a", "b"):
        drawn = shown("fig-latency", requests, tmp_path / name / "tables")
        written.append(cells.export(drawn, "latency", tmp_path / name).read_text())
    assert written[0] == written[1] and "-p figure latency" in written[0] and "<text" in written[0]


def test_committed_figures_are_what_their_cells_draw_byte_for_byte(tmp_path):
    """`make figures` after a table has changed: nothing else would tell."""
    with site.reading(paths.TABLES):
        for name in cells.figures():
            cells.export(cells.draw(name), name, tmp_path)
    drawn = {file.name: file.read_bytes() for file in tmp_path.glob("*.svg")}
    committed = {file.name: file.read_bytes() for file in paths.FIGURES.glob("*.svg")}
    assert len(drawn) > 20 and drawn.keys() == committed.keys()
    assert [name for name in drawn if drawn[name] != committed[name]] == []


def test_title_unit_and_factor_of_a_metric_have_one_declaration(observations, tmp_path, monkeypatch):
    requests = store.load(folder=observations)
    before = shown("tbl-latency", requests, tmp_path / "a" / "tables")
    changed = dataclasses.replace(METRICS["ttft_s"], title="wait", unit="µs", factor=1e6)
    monkeypatch.setitem(METRICS, "ttft_s", changed)
    after = shown("tbl-latency", requests, tmp_path / "a" / "tables")
    assert "wait (µs)" not in before and "TTFT (ms)" not in after
    assert after["wait (µs)"].tolist() == pytest.approx((before["TTFT (ms)"] * 1e3).tolist())
    assert columns.column("ttft_s").axis == "wait, µs"


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


def test_text_of_a_model_is_never_markup():
    assert "<script>" not in html.html(pd.DataFrame({"answer": ["<script>"]}), "answers")


def test_synthetic_weights_are_labelled(tmp_path):
    write_run(tmp_path, model="shape:llama-2-7b", weights="synthetic")
    drawn = shown("fig-latency", store.load(folder=tmp_path), tmp_path / "a" / "tables")
    assert "synthetic" in words(drawn)


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
        return cells.export(figure, "moved", tmp_path / name).read_text()

    assert drawn(0, "a") == drawn(1e-12, "b") == drawn(1e-9, "d") != drawn(1e-2, "c")
    assert "1.2345678 seconds" in drawn(0, "a"), "what is read keeps its digits"


def test_a_log_axis_has_few_plain_numbers_and_one_without_a_value_above_zero_stays_linear():
    axes = Figure().subplots()
    axes.plot([55, 7000], [0, 0])
    for _ in range(2):
        for letter in "xy":
            style.log_axis(axes, letter)
    ticks = axes.xaxis.get_majorticklocs()
    words = [axes.xaxis.get_major_formatter()(value, 0) for value in ticks]
    assert words == ["100", "300", "1,000", "3,000"]
    assert axes.get_xscale() == "log" and axes.get_yscale() == "linear"


def test_labels_and_numbers_of_ranges_do_not_overlap():
    """Long labels and many rows: no label stands on a number, nothing beyond the figure."""
    rows = pd.DataFrame({"label": [f"a source with a long name {k}" for k in range(14)], "x": [1.0] * 14})
    drawn = plots.ranges(rows.assign(least=0.3, most=9.0), "x", "least", "most", title="t", axis="a", line=1)
    drawn.draw_without_rendering()
    boxes = [text.get_window_extent() for text in drawn.axes[0].texts]
    whole = drawn.bbox
    assert all(box.x0 >= 0 and box.x1 <= whole.x1 for box in boxes) and len(boxes) == 28
    assert [a for k, a in enumerate(boxes) for b in boxes[:k] if a.overlaps(b)] == []


def test_words_stand_above_a_mark_where_a_line_passes_below_it():
    rows = pd.DataFrame(
        {"ttft_s": [1, 2, 1, 3], "output_tokens_per_s": [1, 10, 9, 9], "of": list("aabb")}
        | {"words": ["", "here", "", ""]}
    )
    for part, side in ((rows, "bottom"), (rows[:2], "top")):
        drawn = plots.curve(part, "ttft_s", "output_tokens_per_s", "t", by="of", words="words", log=True)
        assert [text.get_va() for text in drawn.axes[0].texts] == [side]


def test_one_space_that_does_not_break_stands_before_a_percent_sign(monkeypatch):
    shown = []
    monkeypatch.setattr(site, "display", shown.append)
    site.say("{text}, {share:.0%}", text="92 % at 8/s", share=0.5)
    assert shown[0].data == "92\u00a0% at 8/s, 50\u00a0%"


def test_a_range_of_ratios_has_two_digits_and_three_where_two_would_make_it_even():
    assert html.ratio_range(pd.Series([3.0, 40.0, 12.0])) == "3 to 40 times"
    assert html.ratio_range(pd.Series([0.8, 0.996])) == "0.8 to 0.996 times"
