"""The calculator of the page What to expect: the browser's arithmetic against Python's on a grid of questions,
and the page in headless Chromium, without a server."""

import itertools
import json
import shutil
import subprocess

import numpy as np
import pandas as pd
import pictures
import pytest

from bench.paths import ROOT
from bench.report.published import expect_page
from llm_measured.predict import answer, nearest, prices, proof, question

GRID = itertools.product(
    ["rtx-4090", "rtx-3090", "h100-sxm", "mi300x", "m2-ultra-76c", "ryzen-ai-max-395", "dgx-spark",
     "snapdragon-8-elite", "epyc-7763", "rx-9070-xt", "inferentia2"],
    ["llama-3.1-8b", "llama-2-70b", "qwen3-30b-a3b", "gpt-oss-120b", "gemma-3-4b", "deepseek-v3"],
    [("bf16 or fp16", "transformers"), ("bf16 or fp16", "llama.cpp"), ("fp8 or int8", "vllm"), ("Q4_K_M", "llama.cpp"), ("Q8_0", "any"),
     ("int4: AWQ, GPTQ, MLX 4-bit", "mlx")],
    [(1, "", 512, 1), (1, "", 100_000, 1), (2, "", 0, 1), (8, "tensor", 4000, 1), (4, "layers", 512, 2),
     (1, "", 1000, 16), (4, "tensor", 3000, 200)],
)  # fmt: skip
ONE = {"accelerator": "rtx-4090", "model": "llama-3.1-8b", "format": "Q4_K_M", "engine": "llama.cpp"}


# What no table has: an accelerator from its bandwidth, a model from its size, a format from its bits.
BOARD = {"accelerator": "stated", "bandwidth_gb_per_s": 460.0}
CARDS = [
    BOARD,
    BOARD | {"memory_gb": 24.0},
    BOARD | {"bandwidth_gb_per_s": 3.7, "memory_gb": 8.5},
    {"accelerator": "h100-sxm"},
]
SIZES = [
    {"model": "stated", "parameters_b": size, "active_b": active}
    for size, active in [(8.0, None), (0.3, 0.3), (122.5, 10.25), (671.0, 37.0), (8.0, 9.0)]
]
BITS = [{"format": "stated", "bits": bits} for bits in (4.5, 8.0, 16.0)]
NAMED = [{"model": "llama-3.1-8b"}, {"model": "gpt-oss-20b"}]


def stated():
    """Questions that state something, from a grid of cards, models and formats."""
    engines = ["any", "llama.cpp", "vllm", "mlx"]
    return [
        ONE
        | {"engine": engine, "accelerators": count, "split": "", "context": 3000, "usd_per_gpu_hour": price}
        | card
        | model
        | form
        for engine, (count, price), card, model, form in itertools.product(
            engines,
            [(1, None), (4, 2.5)],
            CARDS,
            SIZES + NAMED,
            [*BITS, {"format": "bf16 or fp16"}, {"format": "Q4_K_M"}],
        )
    ]


def questions():
    offered = set(expect_page.accelerators()["machine"])
    return [
        ONE
        | {"accelerator": card, "model": model, "format": form, "engine": engine}
        | {"accelerators": count, "split": split, "context": context, "users": users}
        | {"prompt": 2000 if users == 200 else 1000, "answer": 300}
        for card, model, (form, engine), (count, split, context, users) in GRID
        if card in offered
    ]


def as_python(asked):
    """A question of the page, as Python reads it."""
    read = {name: "" if value in ("stated", None) else value for name, value in asked.items()}
    names = {"users": "concurrency", "prompt": "prompt_tokens", "answer": "answer_tokens"}
    read = {names.get(name, name): value for name, value in read.items()}
    read["weights_format"] = expect_page.FORMATS.get(read.pop("format"), "")
    return read


ASK = """
const zlib = require("zlib");
const fs = require("fs");
eval(fs.readFileSync("assets/expect.js", "utf8").split("\\n(async () => {")[0]);
const { packed, asked } = JSON.parse(fs.readFileSync(0));
const data = globalThis.expectation.ready(JSON.parse(zlib.gunzipSync(Buffer.from(packed, "base64"))));
const made = asked.map((q) => {
  const s = globalThis.expectation.setup(data, q);
  if (s.refused) return { refused: s.refused };
  const p = globalThis.expectation.predict(data, s);
  const price = globalThis.expectation.price(data, s, q.usd_per_gpu_hour);
  return { refused: "", outside: s.outside, users_fit: Math.min(s.users_fit, 1e9), guessed: s.guessed, format: s.format, ...p, price, cost: globalThis.expectation.cost(s, p, price),
    first: globalThis.expectation.firstToken(data, s, s.prompt),
    near: globalThis.expectation.nearest(data, s, 5).map((p) => [p.source, p.rate]),
    exact: globalThis.expectation.exact(data, s).map((p) => p.rate) };
});
console.log(JSON.stringify(made));
"""


@pytest.mark.skipif(shutil.which("node") is None, reason="needs node (apt install nodejs)")
@pytest.mark.parametrize("grid", [questions, stated], ids=["named", "stated"])
def test_the_browser_s_arithmetic_is_python_s_on_a_grid_of_questions(grid):
    asked = grid()
    text = json.dumps(
        {"packed": expect_page.packed(expect_page.payload() | expect_page.points()), "asked": asked}
    )
    told = subprocess.run(
        ["node", "-e", ASK], input=text, capture_output=True, text=True, cwd=ROOT, check=True
    )
    found = pd.DataFrame(json.loads(told.stdout))
    table = question.read(pd.DataFrame(map(as_python, asked), dtype=object))
    assert found["refused"].to_list() == table["refused"].to_list()
    open_ = table["refused"] == ""
    part, made = table[open_], found[open_]
    assert len(part) > 500 and (~open_).sum() > 50
    assert made["format"].to_list() == part["format"].to_list()
    assert made["guessed"].map(tuple).to_list() == part["guessed"].to_list()
    outside = answer.fits(part)
    assert made["outside"].to_numpy(dtype=float) == pytest.approx(outside)
    fitting = np.minimum(answer.step.most_users(part, question.ROOM), 1e9)
    assert made["users_fit"].to_numpy(dtype=float) == pytest.approx(fitting, abs=1)
    alone = (
        (part["accelerators"] == 1)
        & (part["users"] == 1)
        & part["engine_family"].isin(question.machines.OFFLOADING)
    )
    away = np.where(alone, outside, 0)
    assert (away > 0).sum() > 20 and ((outside > 0) & (away == 0)).sum() > 20
    expected = answer.interval(part, away)
    for name, column in (("rate", "seconds"), ("low", "high"), ("high", "low")):
        assert made[name].to_numpy(dtype=float) == pytest.approx(1 / expected[column].to_numpy(), rel=1e-9)
    assert made["bound"].to_numpy(dtype=float) == pytest.approx(1 / answer.step.least(part, away), rel=1e-9)
    assert np.stack(made["shares"]) == pytest.approx(expected[list(answer.step.PARTS)].to_numpy(), abs=1e-9)
    rates = pd.DataFrame({name: made[name].astype(float) for name in ("rate", "low", "high")})
    runs = pd.Series((outside == 0) | (away > 0), index=rates.index)
    rates = rates.where(runs)  # what does not run has no cost
    costs = prices.costs(part, rates)
    assert made["cost"].notna().to_list() == costs[prices.PER_MILLION].notna().to_list()
    paid = made[made["cost"].notna()]
    assert len(paid) > 20 and paid["price"].map(lambda p: p["usd_per_gpu_hour"]).to_list() == pytest.approx(
        costs.loc[paid.index, "price_usd_per_gpu_hour"].to_list()
    )
    for name, end in (("usd", ""), ("low", "_low"), ("high", "_high")):
        assert paid["cost"].map(lambda c: c[name]).to_list() == pytest.approx(
            costs.loc[paid.index, prices.PER_MILLION + end].to_list(), rel=1e-9
        )
    for row in part.index[::23]:
        first = answer.first_token(part.loc[[row]])
        assert list(found.at[row, "first"].values()) == pytest.approx(first, rel=1e-9)
        near = nearest.of(part.loc[row], 5)
        assert [rate for _, rate in found.at[row, "near"]] == near["rate"].to_list()
        assert found.at[row, "exact"] == nearest.exact(part.loc[row])["rate"].to_list()


def test_what_the_page_offers_python_reads_as_itself():
    data = expect_page.payload()
    assert len(data["accelerators"]["rows"]) > 250 and len(data["models"]["rows"]) > 150
    for part, name in (("accelerators", "accelerator"), ("models", "model"), ("engines", "engine")):
        values = {row[0] for row in data[part]["rows"]}
        assert {asked[name] for asked in questions()} <= values, part
    assert [row[-1] for row in data["formats"]["rows"]] == list(expect_page.FORMATS)


def test_two_sources_of_one_setting_bound_the_best_answer():
    cases = pd.DataFrame({"source": ["a", "b", "c", "a"], "left_out": ["a", "bc", "bc", "a"]}).assign(
        machine="rtx-4090", accelerators=1.0, split="one", model=["m", "m", "m", "other"], format="f",
        engine_family="e", context=512.0, rate=[100.0, 144.0, 110.0, 7.0],
    )  # fmt: skip
    # b and c are one family: their median stands against a.
    found = proof.disagreements(cases)
    assert len(found) == 1 and found["ratio"].iloc[0] == pytest.approx(1.27)
    assert proof.floor(found) == pytest.approx(1.27**0.5 - 1)


def test_the_tables_count_every_case_and_every_reason():
    table, one = pd.read_csv(proof.PROOF), proof.one_user()
    assert expect_page.errors()["cases"].sum() == expect_page.proved()["cases"].iloc[0] == len(one)
    many = expect_page.proved_of_many()["cases"]
    assert many.iloc[0] == many.iloc[1:].sum() == len(table) - len(one)
    refused = expect_page.refusals()
    assert refused["rows"].gt(0).all() and refused["reason"].str.endswith(".").all()


def test_the_figure_of_errors_needs_nobody_s_runs():
    from bench import registry
    from bench.report.published import expect_figures  # noqa: F401 - it lists its figures

    drawn = registry.FIGURES["expect_errors"](pd.DataFrame())
    labels = {label.get_text() for label in drawn.axes[0].get_yticklabels()}
    assert labels == set(proof.one_user()["source"])


@pytest.fixture(scope="module")
def page(tmp_path_factory, browser):
    folder = tmp_path_factory.mktemp("expect")
    block = expect_page.calculator()
    file = pictures.page(folder, "expect.html", block)
    page = browser.new_page(viewport={"width": 1280, "height": 900})
    page.troubles = []
    page.on("pageerror", lambda error: page.troubles.append(str(error)))
    page.goto(f"file://{file}")
    page.wait_for_selector("#expect[data-ready]")
    yield page
    assert page.troubles == []


def choose(page, **values):
    for name, value in values.items():
        page.locator(f"#expect-{name}").select_option(value)


def said(page):
    return page.locator("#expect-said").inner_text()


@pytest.mark.check
def test_who_measured_exactly_this_comes_first_and_the_nearest_points_are_of_the_accelerator(page):
    choose(page, accelerator="rtx-4090", model="llama-3-8b", format="Q4_K_M", engine="llama.cpp")
    assert said(page).startswith("Measured by others, exactly this:")
    rate = answer.one(as_python(ONE | {"model": "llama-3-8b"})).rate
    assert f"{rate:.3g} tokens/s for one user is to be expected" in said(page)
    first = page.locator("#expect-nearest tbody th").all_inner_texts()
    assert len(first) == 8 and first[0] == "rtx-4090"
    assert page.locator("#expect-nearest tbody a").first.get_attribute("href").startswith("https://")


@pytest.mark.check
def test_a_claim_above_the_bound_is_called_impossible(page):
    page.locator("#expect-claim").fill("100000")
    assert "impossible" in said(page)
    page.locator("#expect-claim").fill("")


@pytest.mark.check
def test_many_users_get_a_rate_each_and_one_together(page):
    choose(page, accelerator="h100-sxm", model="llama-3.1-8b", format="bf16 or fp16", engine="vllm")
    page.locator("#expect-users").fill("16")
    asked = {"accelerator": "h100-sxm", "model": "llama-3.1-8b", "weights_format": "bf16", "engine": "vllm"}
    asked |= {"context": "512", "concurrency": "16", "prompt_tokens": "1000", "answer_tokens": "500"}
    rate = answer.one(asked).rate
    assert f"{rate:.3g} tokens/s for each of 16 users" in said(page) and "NaN" not in said(page)
    assert "All 16 together" in said(page) and "users would fit" in said(page)
    page.locator("#expect-users").fill("1000")
    assert "Users at once" in said(page)
    page.locator("#expect-users").fill("1")
    assert "for one user" in said(page)


@pytest.mark.check
def test_what_does_not_fit_or_nobody_runs_says_so_and_what_is_no_number_is_named(page):
    choose(page, accelerator="rtx-3090", model="llama-3.1-405b", format="Q4_K_M", engine="llama.cpp")
    assert "Does not fit" in said(page) and "host's memory" in said(page)
    page.locator("#expect-accelerators").fill("2")
    assert "what it would be if it did" in said(page)
    choose(page, engine="mlx")
    assert "No published row has mlx on an accelerator of NVIDIA" in said(page)
    page.locator("#expect-accelerators").fill("0")
    assert "How many of them" in said(page)
    page.locator("#expect-accelerators").fill("1")


@pytest.mark.check
def test_what_no_list_has_may_be_stated_and_stays_in_the_address(page):
    choose(page, accelerator="rtx-4090", model="llama-3.1-8b", format="Q4_K_M", engine="any")
    assert not page.get_by_label("Its bandwidth (GB/s)").is_visible()
    choose(page, accelerator="stated", model="stated", format="stated")
    for label, value in (("Its bandwidth (GB/s)", "273"), ("Its memory", "128"), ("Its parameters", "120")):
        page.get_by_label(label).fill(value)
    page.get_by_label("Of these a token passes").fill("5.1")
    page.get_by_label("Bits per weight").fill("4.25")
    asked = {"bandwidth_gb_per_s": 273, "memory_gb": 128, "parameters_b": 120, "active_b": 5.1, "bits": 4.25}
    expected = answer.one(asked | {"accelerator": "", "model": "", "weights_format": "", "engine": "any"})
    assert f"{expected.rate:.3g} tokens/s for one user" in said(page)
    before = said(page)
    page.reload()
    page.wait_for_selector("#expect[data-ready]")
    assert said(page) == before and page.get_by_label("Bits per weight").input_value() == "4.25"
    # Every field that is shown is reached by the keyboard, in the order in which it stands.
    page.locator("#expect-accelerator").focus()
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.name") == "bandwidth_gb_per_s"
    page.get_by_label("Its bandwidth (GB/s)").fill("")
    assert "“Its bandwidth (GB/s)”" in said(page)
    choose(page, accelerator="rtx-4090", model="llama-3.1-8b", format="Q4_K_M")
    assert "bandwidth_gb_per_s" not in page.url and "tokens/s for one user" in said(page)


@pytest.mark.check
def test_an_accelerator_chosen_anew_never_keeps_the_price_of_the_one_before(page):
    choose(page, accelerator="h100-sxm", model="llama-3.1-8b", format="bf16 or fp16", engine="vllm")
    listed = prices.listed("h100-sxm")
    assert f"at ${listed.usd_per_gpu_hour:.2f} an hour" in said(page) and listed.source in said(page)
    page.get_by_label("Dollars per hour").fill("1.5")
    assert "at $1.50 an hour" in said(page) and "stated here" in said(page)
    page.locator("#expect-users").fill("16")
    assert "per million output tokens for all 16 users" in said(page)
    page.locator("#expect-users").fill("1")
    choose(page, accelerator="rtx-4090")
    assert page.get_by_label("Dollars per hour").input_value() == ""
    assert "Nobody states a price of this accelerator" in said(page) and "usd_per_gpu_hour" not in page.url
    choose(page, accelerator="h200-sxm")
    assert f"at ${prices.listed('h200-sxm').usd_per_gpu_hour:.2f} an hour" in said(page)
