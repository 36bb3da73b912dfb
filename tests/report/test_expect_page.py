"""The calculator of the page What to expect, in headless Chromium: the same numbers as Python's, without a server."""

import base64

import numpy as np
import pandas as pd
import pictures
import pytest

from llm_observatory import expect, expect_page

pytestmark = pytest.mark.check
ASKED = [
    ("rtx-4090", "llama-3.1-8b", "Q4_K_M", "llama.cpp", 1),
    ("rtx-3090", "llama-2-70b", "int4: AWQ, GPTQ, MLX 4-bit", "exllama", 2),
    ("h100-sxm", "mixtral-8x7b", "bf16 or fp16", "vllm", 4),
    ("m2-ultra-76c", "qwen3-30b-a3b", "int4: AWQ, GPTQ, MLX 4-bit", "mlx", 1),
    ("b200-sxm", "llama-3.1-405b", "fp8 or int8", "any", 8),
    ("rx-9070-xt", "qwen3-0.6b", "Q8_0", "llama.cpp vulkan", 1),
]


@pytest.fixture(scope="module")
def page(tmp_path_factory, browser):
    folder = tmp_path_factory.mktemp("expect")
    from llm_planner import calculator

    block = expect_page.calculator(expect_page.joined(expect_page.device, calculator.data()))
    file = pictures.page(folder, "expect.html", block)
    page = browser.new_page(viewport={"width": 1280, "height": 900})
    page.troubles = []
    page.on("pageerror", lambda error: page.troubles.append(str(error)))
    page.goto(f"file://{file}")
    page.wait_for_selector("#expect[data-ready]")
    yield page
    assert page.troubles == []


@pytest.mark.parametrize("asked", ASKED, ids=lambda asked: "-".join(map(str, asked)))
def test_the_page_expects_what_python_expects(page, asked):
    accelerator, model, form, engine, count = asked
    found = page.evaluate(
        "q => { const s = expectation.setup(expectation.data, q); return {...expectation.predict(expectation.data, s)}; }",
        {"accelerator": accelerator, "model": model, "format": form, "engine": engine, "accelerators": count},
    )
    # A name that the page offers is one that Python reads; formats have labels of their own.
    row = pd.DataFrame(
        [(accelerator, model, expect_page.FORMATS.get(form, form), engine)], columns=expect.ASKED
    )
    made = expect.predictions(row.assign(accelerators=count)).iloc[0]
    assert found["bound"] == pytest.approx(made["bound_output_tokens_per_s"], rel=1e-3)
    for end, name in (("", "rate"), ("_low", "low"), ("_high", "high")):
        assert found[name] == pytest.approx(made[expect.PREDICTED + end], rel=5e-3)


def test_the_nearest_points_are_of_the_same_accelerator_first(page):
    page.locator("#expect-accelerator").select_option("rtx-4090")
    page.locator("#expect-model").select_option("llama-2-7b")
    first = page.locator("#expect-nearest tbody th").all_inner_texts()
    assert len(first) == 8 and first[0] == "rtx-4090"
    assert page.locator("#expect-nearest tbody a").first.get_attribute("href").startswith("https://")


def test_a_claim_above_the_bound_is_called_impossible(page):
    page.locator("#expect-claim").fill("100000")
    assert "impossible" in page.locator("#expect-said").inner_text()
    page.locator("#expect-claim").fill("")


def test_many_users_are_the_planner_s_where_it_has_coefficients(page):
    choose = {"accelerator": "h100-sxm", "model": "llama-3.1-8b", "format": "bf16 or fp16", "engine": "vllm"}
    for name, value in choose.items():
        page.locator(f"#expect-{name}").select_option(value)
    page.locator("#expect-users").fill("16")
    assert "the planner says: TPOT" in page.locator("#expect-said").inner_text()
    page.locator("#expect-accelerator").select_option("rtx-3090")
    assert "the planner says nothing" in page.locator("#expect-said").inner_text()
    page.locator("#expect-users").fill("1")


def test_what_does_not_fit_is_refused_and_what_is_no_number_named(page):
    page.locator("#expect-accelerator").select_option("rtx-3090")
    page.locator("#expect-model").select_option("llama-3.1-405b")
    assert "offloaded is not predicted" in page.locator("#expect-said").inner_text()
    page.locator("#expect-accelerators").fill("0")
    assert "How many of them" in page.locator("#expect-said").inner_text()
    page.locator("#expect-accelerators").fill("1")


def test_the_covariance_survives_its_packing():
    found = expect.committed()
    packed = expect_page.fitted(found)
    count = len(packed["keys"])
    assert len(packed["effects"]) == count
    assert len(np.frombuffer(base64.b64decode(packed["covariance"]), "<f4")) == count * (count + 1) // 2
