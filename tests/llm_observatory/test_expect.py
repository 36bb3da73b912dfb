"""What to expect: the bound, predictions, what is refused, the proof, and the command."""

import numpy as np
import pandas as pd
import pytest

from llm_observatory import derived, expect, expect_command, expect_proof

ROWS = [
    ("RTX 4090 24GB", "llama 7B mostly Q4_0", "", "llama.cpp"),
    ("A100-SXM4-80GB", "meta-llama/Llama-2-7b-hf", "fp16", "vLLM"),
    ("Apple M2 Ultra 76c", "LLaMA 7B", "Q4_0", "llama.cpp"),
]


@pytest.fixture(scope="module")
def questions():
    return pd.DataFrame(ROWS, columns=expect.ASKED)


@pytest.fixture(scope="module")
def fitted():
    return expect.committed()


def test_the_bound_is_bandwidth_over_the_weights_that_a_token_reads(questions):
    table = expect.setups(questions)
    # 32000 × 4096 embeddings are looked up, not read.
    read = (6.738e9 - 32000 * 4096) * 16 / 8
    assert table["bound"][1] == pytest.approx(2039e9 / read, rel=1e-3)
    two = expect.setups(questions.assign(accelerators="2"))
    assert two["bound"].to_list() == pytest.approx((2 * table["bound"]).to_list())


@pytest.mark.check
def test_a_prediction_lies_in_its_interval_below_the_bound(questions, fitted):
    made = expect.predictions(questions, fitted)
    low, middle, high = (made[expect.PREDICTED + end] for end in ("_low", "", "_high"))
    assert (made["refused"] == "").all()
    assert (low < middle).all() and (middle <= high).all()
    assert (high <= made["bound_output_tokens_per_s"]).all()


def test_an_answer_in_the_table_changes_nothing(questions, fitted):
    told = questions.assign(output_tokens_per_s=[1.0, 2e6, np.nan], rate="x", audit="ok")
    pd.testing.assert_frame_equal(expect.predictions(told, fitted), expect.predictions(questions, fitted))


@pytest.mark.parametrize(
    "changed, word",
    [
        ({"accelerator": "a toaster"}, "accelerator"),
        ({"accelerator": ""}, "names no accelerator"),
        ({"model": "Thing-large"}, "states no size"),
        ({"weights_format": "purple"}, "number format"),
        ({"accelerators": "half"}, "whole number"),
        ({"accelerators": "-1"}, "whole number"),
        ({"accelerators": "nan"}, ""),
        ({"concurrency": "64"}, "planner"),
        ({"model": "Llama-2-70b", "weights_format": "fp16"}, "offloaded"),
    ],
)
def test_what_cannot_be_predicted_says_why_and_is_empty(questions, fitted, changed, word):
    made = expect.predictions(questions.iloc[1:2].assign(**({"accelerators": "1"} | changed)), fitted)
    if not word:
        assert made["refused"].iloc[0] == "" and made[expect.PREDICTED].notna().all()
        return
    assert word in made["refused"].iloc[0] and made["refused"].iloc[0].endswith(".")
    assert made[[expect.PREDICTED + end for end in ("", "_low", "_high")]].isna().all(axis=None)


def test_what_was_guessed_is_called_estimated(fitted):
    rows = [("RTX 4090", "llama-2-7b", "Q4_0", "llama.cpp"), ("H100", "llama-2-7b", "fp16", "vllm")]
    rows += [("RTX 4090", "Thing-9B", "Q4_0", "llama.cpp"), ("RTX 4090", "llama-2-7b", "Q4_0", "my own")]
    made = expect.predictions(pd.DataFrame(rows, columns=expect.ASKED), fitted)
    assert made["estimated"].to_list() == [False, True, True, True]
    width = np.log(made[expect.PREDICTED] / made[f"{expect.PREDICTED}_low"])
    assert width[3] > width[0]  # of an engine that nobody measured less is known


@pytest.fixture(scope="module")
def made_up():
    """Cases of twelve sources whose share of the bound is known: 60 % with one engine, 30 % with another, each
    source off by a tenth, each case by a twentieth."""
    rng = np.random.default_rng(1)
    asked = pd.DataFrame(
        [
            (card, model, form, engine)
            for card in ("rtx-4090", "rtx-3090", "a100-sxm-80gb", "m2-ultra-76c", "rx-7900-xtx")
            for model in ("llama-2-7b", "llama-2-13b")
            for form in ("Q4_0", "Q8_0")
            for engine in ("llama.cpp", "transformers")
        ],
        columns=expect.ASKED,
    )
    one = expect.setups(asked)
    parts = []
    for source in range(12):
        part = one.assign(source=f"s{source}", rows=1)
        share = part["engine"].map({"llama.cpp": 0.6, "transformers": 0.3})
        part["share"] = share * np.exp(rng.normal(0, 0.1) + rng.normal(0, 0.05, len(part)))
        parts.append(part.assign(rate=part["share"] * part["bound"]))
    return pd.concat(parts, ignore_index=True)


def test_a_fit_finds_the_share_that_was_put_in(made_up):
    found = expect.fit(made_up)
    asked = pd.DataFrame(
        [("rtx-4090", "llama-2-7b", "Q4_0", e) for e in ("llama.cpp", "transformers")], columns=expect.ASKED
    )
    mean, spread = found.share(expect.setups(asked))
    assert np.exp(mean) == pytest.approx([0.6, 0.3], rel=0.08)
    # A new source is off by a tenth, and a case of it by a twentieth; what was believed before widens that.
    assert 0.1 < spread[0] < 0.3


def test_a_source_that_scatters_weighs_less(made_up):
    wild = made_up["source"] == "s0"
    rng = np.random.default_rng(2)
    noisy = made_up.copy()
    noisy.loc[wild, "share"] *= np.exp(rng.normal(-1.5, 1, wild.sum()))
    asked = expect.setups(
        pd.DataFrame([("rtx-4090", "llama-2-7b", "Q4_0", "llama.cpp")], columns=expect.ASKED)
    )
    assert np.exp(expect.fit(noisy).share(asked)[0]) == pytest.approx(0.6, rel=0.16)


def test_eligible_never_looks_at_the_rate():
    rows = expect.observatory().groupby("source").head(40)
    other = rows.copy()
    other["throughput_raw"] = rows["throughput_raw"] * np.random.default_rng(3).uniform(0.01, 100, len(rows))
    pd.testing.assert_series_equal(expect.eligible(rows), expect.eligible(other))


def test_rows_of_mlperf_never_enter():
    rows = expect.observatory()
    assert rows["comparable_within"].notna().any()
    assert not (expect.eligible(rows) & rows["comparable_within"].notna()).any()
    assert "mlperf" not in set(expect.cases(rows)["source"])


def test_families_are_left_out_together():
    of = expect_proof.families(expect.observatory())
    assert of["aiconfigurator"] == of["inferencex"]
    assert of["mlenergy-v2"] == of["mlenergy-v3"]
    assert len({of[name] for name in of if name.startswith("strix-halo")}) == 1
    assert expect_proof.family("another", "contributors to llama.cpp's scoreboards") == of["willitrun"]


def test_the_committed_proof_has_every_source_that_can_be_predicted():
    table = expect_proof.by_source()
    told = table[table["cases"] > 0]
    assert set(told["source"]) == set(expect.cases(expect.observatory())["source"])
    assert told["error"].notna().all() and told["coverage"].between(0, 1).all()
    assert table["refused"].between(0, 1).all()


def test_a_stretch_makes_intervals_hold_what_they_promise():
    rng = np.random.default_rng(4)
    table = pd.DataFrame(
        {"source": np.repeat([f"s{k}" for k in range(50)], 40), "log_share": 0.0, "spread": 0.1}
    )
    table["share"] = np.exp(rng.normal(0, 0.3, len(table)))
    assert expect_proof.stretch(table) == pytest.approx(3, rel=0.1)
    table["share"] = np.exp(rng.normal(0, 0.01, len(table)))
    assert expect_proof.stretch(table) == 1


def test_the_log_keeps_what_was_predicted(tmp_path, monkeypatch):
    monkeypatch.setattr(expect_proof, "LOG", tmp_path / "log.csv")
    expect_proof.append("2026-11-23")
    first = pd.read_csv(tmp_path / "log.csv")
    assert len(first) and first[expect.PREDICTED].notna().all() and set(first["date"]) == {"2026-11-23"}
    assert expect_proof.append("2027-01-01").startswith("0 predictions added")
    pd.testing.assert_frame_equal(pd.read_csv(tmp_path / "log.csv"), first)


def test_a_prediction_that_was_measured_since_has_its_rate_beside(tmp_path, monkeypatch):
    monkeypatch.setattr(expect_proof, "LOG", tmp_path / "log.csv")
    expect_proof.append("2026-11-23")
    case = expect.cases(expect.observatory()).iloc[0]
    setup = expect.setups(pd.read_csv(tmp_path / "log.csv")).iloc[0]
    same = {name: setup[name] for name in expect_proof.LIKE}
    later = expect.cases(expect.observatory()).iloc[:1].assign(**same, rate=77.0, source="later")
    assert case["rate"] != 77
    monkeypatch.setattr(expect, "cases", lambda rows: later)
    table = expect_proof.awaited()
    assert table["measured"].iloc[0] == 77 and table["sources"].iloc[0] == "later"
    assert table["measured"].iloc[1:].isna().all()


def test_the_command_keeps_the_rows_and_adds_the_predictions(tmp_path, questions, capsys):
    data, out = tmp_path / "rows.csv", tmp_path / "out.csv"
    rows = pd.concat([questions, pd.DataFrame([("a toaster", "x", "y", "z")], columns=expect.ASKED)])
    rows.insert(0, "id", ["=1+1", "é", "<b>", ""])
    rows.to_csv(data, index=False)
    assert expect_command.main(["predict", str(data), str(out)]) == 0
    assert capsys.readouterr().out.startswith("3 of 4 rows predicted, 1 refused")
    made = pd.read_csv(out, keep_default_na=False)
    assert made["id"].to_list() == ["=1+1", "é", "<b>", ""]
    assert (made[expect.PREDICTED] != "").to_list() == [True, True, True, False]
    assert made["refused"].iloc[3].endswith(".")


@pytest.mark.parametrize(
    "content, word",
    [
        (b"accelerator,model,engine\na,b,c\n", "weights_format"),
        (b"", "CSV"),
        (b"\xff\xfe\x00", "UTF-8"),
        (b'accelerator,model,weights_format,engine\n"a,b', "CSV"),
        (None, "no file"),
    ],
)
def test_a_file_that_is_no_table_is_one_sentence(tmp_path, capsys, content, word):
    data = tmp_path / "rows.csv"
    if content is not None:
        data.write_bytes(content)
    assert expect_command.main(["predict", str(data), str(tmp_path / "out.csv")]) == 1
    said = capsys.readouterr().err
    assert word in said and len(said.splitlines()) == 1
    assert not (tmp_path / "out.csv").exists()


def test_cases_are_medians_of_rows_that_a_question_cannot_tell_apart():
    rows = expect.observatory()
    rows = rows[rows["source"] == "strix-halo-lhl"]
    found = expect.cases(rows)
    one = found[
        (found["model"] == "llama-2-7b")
        & (found["engine"] == "llama.cpp vulkan")
        & (found["format"] == "legacy quants 4.5")
    ].iloc[0]
    part = rows[expect.eligible(rows)]
    setups = expect.setups(expect.asked(part))
    same = (
        (setups["model"] == "llama-2-7b")
        & (setups["engine"] == "llama.cpp vulkan")
        & (setups["format"] == "legacy quants 4.5")
        & (setups["refused"] == "")
    )
    rates = derived.derived(part)["output_tokens_per_s_per_request"][same]
    assert one["rows"] == len(rates) > 10 and one["rate"] == pytest.approx(rates.median())


def test_small_models_lose_more_to_the_time_of_their_layers(fitted):
    asked = pd.DataFrame(
        [("rtx-4090", model, "Q4_0", "llama.cpp") for model in ("llama-3.2-1b", "llama-2-7b", "llama-2-13b")],
        columns=expect.ASKED,
    )
    table = expect.setups(asked)
    share, _ = fitted.share(table)
    assert list(share) == sorted(share)
    # Without that time all would reach the same share: what they differ by is the layers'.
    assert np.exp(share[-1] - share[0]) > 1.2


def test_a_shift_moves_every_prediction_by_the_same_factor(made_up):
    asked = expect.setups(pd.DataFrame(ROWS, columns=expect.ASKED))
    plain = expect.fit(made_up)
    variances = plain.variances
    found = [expect.fit(made_up, variances, 1.0, shift).share(asked)[0] for shift in (0.0, 0.1)]
    assert found[1] - found[0] == pytest.approx(0.1)


def test_predictions_are_shifted_by_what_the_median_source_is_off():
    table = pd.DataFrame({"source": ["a", "a", "b", "c"], "log_share": 0.0})
    table["share"] = np.exp([0.1, 0.3, 0.1, -0.4])
    assert expect_proof.shift(table) == pytest.approx(0.1)


def test_two_sources_of_one_setting_bound_the_best_answer():
    cases = pd.DataFrame(
        {
            "source": ["a", "b", "c", "a"],
            "family": "RTX 4090",
            "accelerators": 1.0,
            "model": ["m", "m", "m", "other"],
            "format": "f",
            "engine_family": "e",
            "rate": [100.0, 144.0, 110.0, 7.0],
        }
    )
    # b and c are one family: their median stands against a.
    found = expect_proof.disagreements(cases, {"a": "a", "b": "bc", "c": "bc"})
    assert len(found) == 1 and found["ratio"].iloc[0] == pytest.approx(1.27)
    assert expect_proof.floor(found) == pytest.approx(1.27**0.5 - 1)


def test_the_figure_of_errors_needs_nobody_s_runs():
    from bench import registry
    from llm_observatory import expect_figures  # noqa: F401 - it lists its figures

    drawn = registry.FIGURES["expect_errors"](pd.DataFrame())
    sources = expect_proof.by_source().dropna(subset=["error"])["source"]
    labels = [label.get_text() for label in drawn.axes[0].get_yticklabels()]
    assert set(labels) == set(sources)
