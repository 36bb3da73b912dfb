"""The calculator of the planner in headless Chromium: its numbers are Python's, and everybody can use it."""

import shutil

import pytest

from bench.paths import ROOT
from llm_planner import calculator, candidates, check, engines, shapes, steady

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
PAGE = """<!DOCTYPE html><html lang="en"><head><meta charset="utf-8"><title>t</title>
<meta name="viewport" content="width=device-width, initial-scale=1">
<link rel="stylesheet" href="assets/preview.css"><link rel="stylesheet" href="assets/styles.css"></head>
<body><main>{}</main></body></html>"""
START = {"prompt_tokens": 1000, "answer_tokens": 1000, "rate": 20, "ttft_ms": 1000, "tpot_ms": 30}
# Every engine, precision, kind of device (fitted, estimated, without 8 bits) and shape of load once.
CASES = [
    {"model": "llama-3.1-8b", "weights": "bf16", "engine": "vllm", "gpu": "h100_sxm"},
    {"model": "llama-3.1-70b", "weights": "fp8", "engine": "trtllm", "gpu": "h200_sxm", "tpot_ms": 60},
    {"model": "qwen3-32b", "weights": "nvfp4", "engine": "trtllm", "gpu": "b200_sxm", "rate": 300},
    {"model": "qwen3-32b", "weights": "bf16", "engine": "sglang", "gpu": "h100_sxm", "prompt_tokens": 20_000},
    {"model": "smollm2-135m", "weights": "fp8", "engine": "vllm", "gpu": "a10", "answer_tokens": 3},
    {"model": "llama-2-70b", "weights": "bf16", "engine": "sglang", "gpu": "a100_40gb", "ttft_ms": 4000},
]


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    if not CHROMIUM:
        pytest.skip("no Chromium on this machine; install it to test the calculator in a browser")
    from playwright.sync_api import sync_playwright

    folder = tmp_path_factory.mktemp("page")
    shutil.copytree(ROOT / "assets", folder / "assets")
    (folder / "plan.html").write_text(PAGE.format(calculator.html()))
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox", "--disable-gpu"])
        opened = browser.new_page(viewport={"width": 390, "height": 900})
        opened.troubles = []
        opened.on("pageerror", lambda error: opened.troubles.append(str(error)))
        opened.on("request", lambda r: r.url.startswith("file:") or opened.troubles.append(r.url))
        opened.goto((folder / "plan.html").as_uri())
        yield opened
        browser.close()


def chosen(page, **values):
    """Set the form's fields; numbers are typed, and the price is set last, because a GPU brings its own."""
    for name, value in (START | values | {"usd_per_gpu_hour": 2.5}).items():
        field = page.locator(f"#planner-{name}")
        if name in ("model", "weights", "engine", "gpu"):
            field.select_option(value)
        else:
            field.fill(str(value))


def by_hand(tensor_parallel, values):
    """What `steady.answer` says to the same question; None where the model does not fit."""
    q = START | values
    lengths = q["prompt_tokens"], q["answer_tokens"]
    load = tensor_parallel, engines.SLOTS, *lengths, "plan"
    case = engines.Case(q["model"], q["gpu"], q["engine"], q["weights"], *load)
    try:
        one = steady.replica(case, check.Fits().of(q["engine"], q["gpu"], q["model"])[0])
    except ValueError:
        return None
    goal = {"ttft_s": q["ttft_ms"] / 1e3, "tpot_s": q["tpot_ms"] / 1e3, "usd_per_gpu_hour": 2.5}
    return steady.answer(one, tensor_parallel, q | goal)


NAMES = "replicas gpus batch ttft_s tpot_s requests_per_s usd_per_hour usd_per_million_output".split()


@pytest.mark.parametrize("values", CASES, ids=lambda v: f"{v['engine']}-{v['gpu']}")
def test_the_browser_computes_what_python_computes(page, values):
    chosen(page, **values)
    table = page.evaluate(
        """() => [...document.querySelectorAll("#planner-answers tbody tr")].map(
             row => [...row.querySelectorAll("td")].map(cell => [cell.dataset.sort, cell.textContent]))"""
    )
    assert len(table) == len(steady.TENSOR_PARALLEL) and page.troubles == []
    for tensor_parallel, cells in zip(steady.TENSOR_PARALLEL, table):
        expected = by_hand(tensor_parallel, values)
        if expected is None or expected["batch"] == 0:
            reason = "does not fit" if expected is None else "does not hold the goal"
            assert [text for _, text in cells] == [reason, *[""] * 7]
            continue
        found = [float(value) for value, _ in cells]
        assert found == pytest.approx([float(expected[name]) for name in NAMES], rel=1e-9)


def test_every_kind_of_answer_was_compared():
    kinds = set()
    for values in CASES:
        for tensor_parallel in steady.TENSOR_PARALLEL:
            answer = by_hand(tensor_parallel, values)
            kinds.add("unfit" if answer is None else "slow" if answer["batch"] == 0 else "holds")
    assert kinds == {"unfit", "slow", "holds"}


def test_fields_have_labels_and_fit_a_phone(page):
    fields = page.locator("#planner :is(input, select)")
    assert fields.count() == 10
    for field in fields.all():
        assert field.evaluate("f => f.labels.length === 1 && f.labels[0].textContent.trim().length > 2")
        assert field.bounding_box()["height"] >= 24
    assert page.evaluate("document.documentElement.scrollWidth") <= 390


def test_the_keyboard_alone_is_enough(page):
    chosen(page, **CASES[0])
    page.locator("#planner-model").focus()
    seen = []
    for _ in range(10):
        seen.append(page.evaluate("document.activeElement.name"))
        page.keyboard.press("Tab")
    assert seen == ["model", "weights", "engine", "gpu", *(name for name, *_ in calculator.NUMBERS)]
    page.locator("#planner-rate").focus()
    before = page.locator("#planner-status").inner_text()
    page.keyboard.press("Control+A")
    page.keyboard.type("200")
    assert page.locator("#planner-status").inner_text() != before


@pytest.mark.parametrize(
    "values, sentence",
    [
        ({"rate": "0"}, "“Requests per second” must be a number above zero."),
        ({"tpot_ms": ""}, "“TPOT at most (ms)” must be a number above zero."),
        ({"tpot_ms": "0.01"}, "No configuration holds this goal"),
    ],
)
def test_bad_input_gets_one_sentence(page, values, sentence):
    chosen(page, **CASES[0] | values)
    assert sentence in page.locator("#planner-status").inner_text()


def test_an_estimate_says_so_and_a_gpu_brings_its_price(page):
    chosen(page, **CASES[0] | {"gpu": "a100_80gb"})
    assert "estimated" in page.locator("#planner-status").inner_text()
    page.locator("#planner-gpu").select_option("h200_sxm")
    assert float(page.locator("#planner-usd_per_gpu_hour").input_value()) == candidates.price("h200_sxm")[0]
    page.locator("#planner-model").select_option("llama-3.1-70b")
    page.locator("#planner-tpot_ms").fill("100")
    assert "estimated" not in page.locator("#planner-status").inner_text()


def test_a_gpu_without_a_listed_price_does_not_keep_that_of_the_gpu_before(page):
    known = calculator.data()
    without = next(name for name in known["devices"] if name not in known["prices"])
    chosen(page, **CASES[0] | {"gpu": "h200_sxm"})
    page.locator("#planner-gpu").select_option(without)
    assert page.locator("#planner-usd_per_gpu_hour").input_value() == ""
    assert "“Dollars per GPU hour” must be a number" in page.locator("#planner-status").inner_text()


def test_the_data_of_the_page_are_the_tables(page):
    data = calculator.data()
    assert set(data["devices"]) == set(shapes.devices())
    assert data["models"]["llama-3.1-8b"]["block"] == shapes.shape("llama-3.1-8b").block
