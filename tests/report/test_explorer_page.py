"""The explorer in headless Chromium: addresses, filters, CSV, comparison, fronts, keyboard, weight, speed."""

import io

import numpy as np
import pandas as pd
import pytest
from builders import write_repeats, write_serving, write_sweep
from commands import run

from bench import style
from bench.observations import store
from bench.paths import ROOT
from bench.report import explorer as report
from bench.topics import estimates, explorer, latency, quality

pytestmark = pytest.mark.check
READY = "#explorer"
PAGE = """from pathlib import Path
import shutil, sys
from bench.report import prerender, preview
out = Path(sys.argv[1])
for folder in ("assets", "figures"):
    shutil.copytree(preview.ROOT / folder, out / folder, dirs_exist_ok=True)
preview.write("pages/explore.qmd", prerender.settings(), out)
"""


def rendered(folder):
    """The page Explorer of the runs in `folder`/r, alone in `folder`/site: its file."""
    (folder / "site").mkdir()
    (folder / "page.py").write_text(PAGE)
    where = {
        "BENCH_RESULTS": folder / "r",
        "BENCH_DOWNLOADS": folder / "site" / "downloads",
        "PYTHONPATH": ROOT,
    }
    run("python", folder / "page.py", folder / "site", **where)
    return folder / "site" / "pages" / "explore.html"


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    folder = tmp_path_factory.mktemp("explorer")
    runs = folder / "r"
    for backend, option, rates in (
        ("llamacpp", "Q4_0", [88.0, 90.0, 92.0]),
        ("llamacpp", "Q8_0", [86.0, 91.0, 95.0]),
        ("openvino", "F16", [40.0, 41.5, 42.0]),
        ("transformers", "float32", [20.0]),
    ):
        write_repeats(runs, rates, backend=backend, option=option)
        write_sweep(runs, backend=backend, option=option, overhead=0.1 / rates[0])
    write_repeats(runs, [33.0, 34.0], backend="llamacpp", option="Q4_0", host="def456", gpu="other-cpu")
    write_serving(
        runs, {1: (0.05, 0.02), 8: (0.1, 0.04)}, {2: (0.05, 0.03)}, backend="llamacpp", option="Q4_0"
    )
    return rendered(folder)


@pytest.fixture(scope="module")
def requests(site):
    return store.load(folder=next(parent for parent in site.parents if (parent / "r").is_dir()) / "r")


def changed(page, act):
    """Do something that changes the state, and wait until the page shows it."""
    before = page.locator("#explorer").get_attribute("data-ready")
    act()
    page.wait_for_function(
        "before => document.getElementById('explorer').dataset.ready !== before", arg=before
    )


def downloaded(page):
    with page.expect_download() as found:
        page.locator("#explorer-csv").click()
    return open(found.value.path(), "rb").read()


def frame(requests, name):
    return explorer.frame(explorer.points(requests, name))


VIEWS = {
    "": ("latency", {}),
    "?experiment=latency&backend=llamacpp&option=Q4_0": (
        "latency",
        {"backend": ["llamacpp"], "option": ["Q4_0"]},
    ),
    "?experiment=latency&host=def456&host=abc123&bits=16&bits=4": (
        "latency",
        {"host": ["def456", "abc123"], "bits": [16, 4]},
    ),
    "?experiment=batching&batch_size=8&x=mbu&y=mfu_decode&xscale=log": ("batching", {"batch_size": [8]}),
    "?experiment=serving&loop=closed&tensor_parallel=1": (
        "serving",
        {"loop": ["closed"], "tensor_parallel": [1]},
    ),
}


@pytest.mark.parametrize("query", VIEWS)
def test_the_csv_of_a_view_is_the_frame_s_rows_byte_for_byte(opened, requests, query):
    name, filters = VIEWS[query]
    rows = frame(requests, name)
    for column, values in filters.items():
        rows = rows[rows[column].isin(values)]
    page = opened(query)
    assert downloaded(page) == rows.to_csv(index=False, lineterminator="\n").encode()
    assert page.locator("#explorer-table tbody tr").count() == len(rows) > 0
    pd.testing.assert_frame_equal(
        pd.read_csv(io.BytesIO(downloaded(page)))[["runs"]],
        rows[["runs"]].reset_index(drop=True),
        check_dtype=False,
    )


def state(page):
    """What the controls hold, and which rows and comparison are shown."""
    return page.evaluate("""() => ({
      controls: [...document.querySelectorAll('#explorer [name]')].map(e => [e.name, e.type === 'checkbox' ? e.value + e.checked : e.value]),
      rows: [...document.querySelectorAll('#explorer-table tbody tr')].map(row => row.innerText),
      compared: document.getElementById('explorer-compared').innerText})""")


def own(page):
    """The controls of the study's own runs: the observatory has the same names on the same page."""
    return page.locator("#explorer")


def test_an_axis_begins_logarithmic_where_a_linear_one_would_press_the_points_together(tmp_path, opened):
    for option, rate in (("Q4_0", 200.0), ("F16", 1.0)):
        write_repeats(tmp_path / "r", [rate], backend="llamacpp", option=option)
    wide = rendered(tmp_path)
    page = opened(file=wide)
    assert own(page).get_by_label("Y scale").input_value() == "log" and "yscale" not in page.url
    changed(page, lambda: own(page).get_by_label("Y scale").select_option("linear"))
    again = opened("?" + page.url.partition("?")[2], file=wide)
    assert own(again).get_by_label("Y scale").input_value() == "linear"
    assert own(opened()).get_by_label("Y scale").input_value() == "linear", "a few times are no reason"


def test_every_state_is_in_the_address_and_comes_back(opened):
    page = opened()
    changed(page, lambda: own(page).get_by_label("Experiment").select_option("batching"))
    changed(page, lambda: own(page).locator("select[name=x]").select_option("ttft_s"))
    changed(page, lambda: own(page).locator("select[name=y]").select_option("peak_memory_bytes"))
    changed(page, lambda: own(page).get_by_label("X scale").select_option("log"))
    changed(page, lambda: own(page).get_by_label("Y scale").select_option("log"))
    changed(page, lambda: own(page).get_by_label("Pareto front").uncheck())
    changed(page, lambda: own(page).get_by_label("95 % intervals").uncheck())
    for column, value in (("backend", "llamacpp"), ("backend", "openvino"), ("batch_size", "8")):
        box = own(page).locator(f'details[data-name="{column}"]')
        box.evaluate("each => each.open = true")
        changed(page, lambda: box.locator(f'input[value="{value}"]').check())
    changed(page, lambda: own(page).locator("[data-pick=a]").first.click())
    changed(page, lambda: own(page).locator("select[name=b]").select_option(index=3))
    seen = state(page)
    assert len(seen["rows"]) == 3 and estimates.ONE_EACH in seen["compared"]
    again = opened(page.url[page.url.index("?") :])
    assert state(again) == seen and again.url == page.url
    assert state(opened()) != seen


def test_an_address_with_nonsense_shows_what_is_there(opened):
    page = opened("?experiment=nothing&x=magic&yscale=cube&backend=nobody&a=1~2")
    assert page.locator("#explorer-table tbody tr").count() == 5
    assert page.get_by_label("Experiment").input_value() == "latency"


def test_two_configurations_are_compared_as_python_does_it(opened, requests):
    every = requests[requests["experiment"] == "latency"]  # one model for all machines
    rows = every[every["host"] == "abc123"]
    of = lambda option: tuple(rows[rows["option"] == option].iloc[0][latency.VERSIONED])
    page = opened()
    changed(
        page,
        lambda: own(page).locator("select[name=a]").select_option(label="llamacpp Q4_0 on test-cpu (abc123)"),
    )
    for other, verdict in (
        ("llamacpp Q8_0", estimates.EQUAL),
        ("openvino F16", "better"),
        ("transformers float32", "better"),  # one run borrows the others' scatter
    ):
        changed(
            page,
            lambda: own(page).locator("select[name=b]").select_option(label=f"{other} on test-cpu (abc123)"),
        )
        for metric in ("output_tokens_per_s", "tpot_s"):
            row = page.locator(f'#explorer-compared tr[data-metric="{metric}"]')
            model = latency.compared(every, metric)
            expected = model.compare(of("Q4_0"), of(other.split()[1]), metric != "tpot_s")
            for name in ("ratio", "low", "high"):
                assert float(row.get_attribute(f"data-{name}")) == pytest.approx(expected[name], rel=2e-4)
            assert row.locator("td").last.inner_text() == verdict
            words = {estimates.FASTER: "better", estimates.SLOWER: "worse"}
            assert words.get(expected["verdict"], expected["verdict"]) == verdict
        assert page.locator("#explorer-compared .mixed").count() == 0


def compared(page):
    return page.locator("#explorer-compared tbody tr").count()


def test_two_configurations_are_compared_with_two_clicks(opened):
    page = opened()
    page.locator("#explorer-table thead th").nth(2).click()  # sorted, and it stays so
    page.wait_for_timeout(200)
    order = page.locator("#explorer-table tbody th").all_inner_texts()
    changed(page, lambda: page.locator("[data-pick=a]").nth(1).click())
    assert not compared(page)
    changed(page, lambda: page.locator("[data-pick=b]").nth(3).click())
    assert compared(page) > 1
    assert page.locator("#explorer-table tbody th").all_inner_texts() == order
    pressed = page.locator('#explorer-table [aria-pressed="true"]')
    assert [each.get_attribute("data-pick") for each in pressed.all()] == ["a", "b"]
    assert page.locator("#explorer-table tr.chosen th").all_inner_texts() == [order[1], order[3]]


def test_two_points_are_compared_with_the_keyboard_alone(opened):
    page = opened()
    own(page).get_by_label("Y scale").focus()
    for _ in range(40):
        page.keyboard.press("Tab")
        if page.evaluate("document.activeElement.id") == "explorer-chart":
            break
    chart, words = page.locator("#explorer-chart"), page.locator("#explorer-marked")
    assert chart.evaluate("each => each.matches(':focus-visible')")
    assert chart.evaluate("each => getComputedStyle(each).outlineStyle") == "solid"
    page.keyboard.press("ArrowRight")
    assert words.inner_text().startswith("1 of 5: ") and "output tokens/s" in words.inner_text()
    changed(page, lambda: page.keyboard.press("Enter"))
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowRight")
    assert words.inner_text().startswith("3 of 5: ")
    changed(page, lambda: page.keyboard.press("Enter"))
    assert compared(page) > 1 and "a=" in page.url and "b=" in page.url
    page.keyboard.press("End")
    assert words.inner_text().startswith("5 of 5: ")
    page.keyboard.press("Home")
    assert words.inner_text().startswith("1 of 5: ")


def test_a_button_of_the_table_keeps_its_focus_and_its_row_rings_its_point(opened):
    page = opened("?backend=openvino&backend=transformers")
    button = page.locator("[data-pick=a]").first
    bare = page.locator("#explorer-chart canvas").screenshot()
    button.focus()
    page.wait_for_timeout(200)
    assert page.locator("#explorer-chart canvas").screenshot() != bare
    changed(page, lambda: page.keyboard.press("Enter"))
    assert button.evaluate("each => each === document.activeElement && each.ariaPressed") == "true"


def test_a_comparison_of_two_machines_says_so(opened):
    page = opened()
    assert "2 machines" in page.locator("#explorer-mixed").inner_text()
    changed(
        page,
        lambda: own(page).locator("select[name=a]").select_option(label="llamacpp Q4_0 on test-cpu (abc123)"),
    )
    changed(
        page,
        lambda: (
            own(page).locator("select[name=b]").select_option(label="llamacpp Q4_0 on other-cpu (def456)")
        ),
    )
    assert "different machines" in page.locator("#explorer-compared .mixed").inner_text()
    row = page.locator('#explorer-compared tr[data-metric="output_tokens_per_s"]')
    assert row.locator("td").last.inner_text() == report.VERDICTS["elsewhere"]
    assert row.get_attribute("data-ratio") == "NaN"
    page = opened("?host=abc123")
    assert page.locator("#explorer-mixed").is_hidden()


CASES = [
    # (runs of both, half width, alike, direction) and the verdict on 2.0 against 1.0.
    ((3, 3), 0.5, True, 1, "better"),
    ((3, 1), 0.5, True, -1, "worse"),
    ((3, 3), 0.5, True, 0, "more"),
    ((3, 3), 0.7, True, 1, "equal"),  # log 2 is 0.693
    ((3, 3), None, True, 1, "not_connected"),
    ((3, 2), "unknown", True, 1, "no_scatter"),
    ((1, 1), "unknown", True, 1, "one_each"),
    ((3, 3), False, True, 1, "zero"),
    ((3, 0), 0.5, True, 1, "none"),
    ((3, 3), 0.5, False, 1, "elsewhere"),
]


def test_the_verdict_of_the_page_is_that_of_its_interval(opened):
    page = opened()
    for runs, half, alike, direction, verdict in CASES:
        given = [*({"mean": mean, "runs": n} for mean, n in zip((2.0, 1.0), runs)), half, alike, direction]
        found = page.evaluate(
            "([a, b, half, alike, way, words]) => "
            "explorer.ratio(a, b, half === 'unknown' ? undefined : half, alike, words, way)",
            [*given, report.VERDICTS],
        )
        assert found["verdict"] == report.VERDICTS[verdict]
        if isinstance(half, float) and alike and runs[1]:
            assert [found[end] for end in ("low", "high")] == pytest.approx(
                [2 * np.exp(-half), 2 * np.exp(half)]
            )


def test_the_half_width_of_two_rows_is_found_in_the_triangle_of_their_classes(opened):
    classes = {"rows": [4, 7, 9], "classes": [1, 0, 1], "halves": {"ttft_s": [None, 0.2, 0.3], "mbu": []}}
    half = lambda *asked: page.evaluate(
        "([all, ...asked]) => { const h = explorer.half(all, ...asked); return h === undefined ? 'unknown' : h; }",
        [[classes], *asked],
    )
    page = opened()
    assert half("ttft_s", 4, 9) == half("ttft_s", 9, 4) == 0.3
    assert half("ttft_s", 4, 7) == half("ttft_s", 7, 9) == 0.2
    assert half("mbu", 4, 7) == "unknown" and half("ttft_s", 4, 5) is False and half("tpot_s", 4, 7) is False
    assert half("ttft_s", 7, 7) == 0


def test_the_front_of_the_page_is_that_of_python(opened):
    page = opened()
    for k in range(20):
        draw = np.random.default_rng(k)
        table = pd.DataFrame(
            draw.integers(0, 8, (30, 2)).astype(float), columns=["output_tokens_per_s", "loss"]
        )
        points = [{"x": x, "y": y, "k": i} for i, (x, y) in enumerate(table.values.tolist())]
        found = page.evaluate("points => explorer.front(points, 1, -1).map(p => p.k)", points)
        assert sorted(found) == np.flatnonzero(quality.frontier(table, "loss")).tolist()


def test_a_point_says_on_hover_what_it_is_and_a_click_chooses_it(opened, requests):
    page = opened("?host=abc123&backend=openvino&backend=transformers&x=tpot_s")
    page.locator("#explorer-chart").scroll_into_view_if_needed()
    box = page.locator("#explorer-chart canvas").bounding_box()
    red, green, blue = (round(255 * part) for part in style.looks(requests)["openvino"][0])
    hit = page.evaluate(HIT, [red, green, blue])
    assert hit, "no point was found in the picture"
    page.mouse.move(box["x"] + hit[0], box["y"] + hit[1])
    page.wait_for_selector("#vg-tooltip-element.visible")
    words = page.locator("#vg-tooltip-element").inner_text()
    row = frame(requests, "latency").query("backend == 'openvino'").iloc[0]
    for each in ("openvino F16", row["backend_version"], row["run_ids"], row["command"], "±", "(95 %)"):
        assert each in words
    changed(page, lambda: page.mouse.click(box["x"] + hit[0], box["y"] + hit[1]))
    assert "a=openvino" in page.url


# The middle of the pixels left of the legend that have nearly this colour: where the point lies.
HIT = """(wanted) => {
  const c = document.querySelector('#explorer-chart canvas'), scale = c.width / c.getBoundingClientRect().width;
  const wide = Math.round(c.width * 0.7), p = c.getContext('2d').getImageData(0, 0, wide, c.height).data, found = [];
  for (let k = 0; k < p.length; k += 4)
    if (p[k + 3] > 230 && wanted.every((part, j) => Math.abs(p[k + j] - part) < 6)) found.push([(k / 4) % wide, Math.floor(k / 4 / wide)]);
  return found.length ? found[found.length >> 1].map((each) => each / scale) : null;
}"""


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1280, 390])
def test_the_page_fits_and_every_control_has_a_label_and_a_key(opened, width, scheme):
    page = opened("?experiment=serving", viewport={"width": width, "height": 900}, color_scheme=scheme)
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    nameless = page.evaluate("""() => [...document.querySelectorAll('#explorer :is(select, input, button)')]
      .filter(e => !(e.labels?.length || e.ariaLabel || e.innerText)).map(e => e.outerHTML)""")
    assert nameless == []
    page.get_by_label("Experiment").focus()
    reached = []
    for _ in range(30):
        page.keyboard.press("Tab")
        reached.append(
            page.evaluate(
                "document.activeElement.name || document.activeElement.id || document.activeElement.localName"
            )
        )
    assert ["x", "xscale", "y", "yscale", "front", "bars"] == reached[:6]
    assert {"summary", "a", "b", "explorer-csv"} <= set(reached)


def test_without_scripts_the_figure_and_the_table_stay(site, browser):
    page = browser.new_page(java_script_enabled=False)
    page.goto(f"file://{site}")
    assert page.locator("#explorer-static figure img").first.is_visible()
    assert page.locator("#explorer-static tbody tr").count() == 5
    assert not page.locator("#explorer").is_visible()
    page.close()


def test_the_library_is_the_pinned_wheel_s():
    vl_convert = pytest.importorskip("vl_convert")
    assert (ROOT / "assets" / "vega.min.js").read_text() == vl_convert.javascript_bundle()
