"""What to expect: what is read of a question, the physics of a step, the fit, and the command."""

import itertools
import json
import time

import jsonschema
import numpy as np
import pandas as pd
import pytest

from llm_measured.predict import (
    answer,
    backwards,
    cases,
    columns,
    command,
    fit,
    nearest,
    prices,
    proof,
    question,
    step,
)
from llm_measured.published import build, lookup

RTX = {"accelerator": "RTX 4090", "model": "Llama-3.1-8B", "weights_format": "Q4_K_M", "engine": "llama.cpp"}


def asked(**changes):
    return question.read(pd.DataFrame([RTX | changes], dtype=object)).iloc[0]


def predicted(**changes):
    return columns.predictions(pd.DataFrame([RTX | changes], dtype=object)).iloc[0]


def valid(capsys):
    """The JSON that was printed, which the one schema allows."""
    shown = json.loads(capsys.readouterr().out)
    schema = json.loads((fit.FOLDER / "schema.json").read_text(encoding="utf-8"))
    jsonschema.validate(shown, schema)
    return shown


# --- nonsense and what is refused -----------------------------------------------------------------------

NONSENSE = [
    ({"accelerator": "a toaster"}, "No accelerator is called"),
    ({"accelerator": "RTX 4091"}, "RTX"),
    ({"accelerator": ""}, "names no accelerator"),
    ({"accelerator": "", "bandwidth_gb_per_s": "-5"}, "bandwidth_gb_per_s"),
    ({"accelerator": "", "bandwidth_gb_per_s": "fast"}, "no number"),
    ({"accelerator": "RTX 4090 + RTX 3060"}, "several kinds"),
    ({"accelerators": "0"}, "whole number"),
    ({"accelerators": "-1"}, "whole number"),
    ({"accelerators": "1.5"}, "whole number"),
    ({"accelerators": "half"}, "whole number"),
    ({"concurrency": "300"}, "--how-many"),
    ({"concurrency": "2.5"}, "whole number"),
    ({"prompt_tokens": "0"}, "prompt_tokens"),
    ({"answer_tokens": "long"}, "no number"),
    ({"concurrency": "100", "context": "100000"}, "1 would fit"),
    ({"model": ""}, "names no model"),
    ({"model": "Thing-large"}, "states no size"),
    ({"model": "mine", "parameters_b": "-8"}, "parameters_b"),
    ({"model": "mine", "parameters_b": "8", "active_b": "9"}, "more than there is"),
    ({"weights_format": "purple"}, "number format"),
    ({"bits": "64"}, "bits"),
    ({"context": "-1"}, "context"),
    ({"context": "1000000"}, "131,072 tokens"),
    ({"engine": "mlx"}, "mlx on an accelerator of NVIDIA"),
    ({"engine": "llama.cpp rocm"}, "rocm on an accelerator of NVIDIA"),
    ({"accelerator": "RX 7900 XTX", "engine": "llama.cpp cuda"}, "cuda on an accelerator of AMD"),
    ({"split": "diagonal"}, "tensor or layers"),
    ({"host_share": "0.5", "concurrency": "2"}, "of one user"),
    ({"engine": "vllm", "weights_format": "fp16", "model": "Llama-2-70b"}, "does not fit; if it did"),
]


@pytest.mark.parametrize("changes, word", NONSENSE, ids=lambda value: str(value)[:40])
def test_nonsense_is_refused_in_one_sentence_and_answers_nothing(changes, word):
    made = predicted(**changes)
    assert word in made["refused"] and made["refused"].endswith(".")
    assert made.drop(["refused", "estimated"]).isna().all()


# --- names that were misread (reviews: predictions) -----------------------------------------------------


@pytest.mark.parametrize(
    "changes, field, value",
    [
        ({"model": "qwen3:30b", "engine": "ollama"}, "active", 3.346e9),
        ({"model": "gemma4:26b", "engine": "ollama"}, "active", 3.8e9),
        ({"weights_format": "GPTQ-Int8", "engine": "vllm"}, "bits", 8),
        ({"weights_format": "int4", "engine": "torchao"}, "engine_family", "gpt-fast"),
        ({"accelerator": "A10G 24GB", "engine": "vllm"}, "machine", "a10g"),
        ({"weights_format": "", "engine": "ollama"}, "bits", 4.8944),
        ({"model": "DeepSeek-R1", "weights_format": "", "engine": "ollama"}, "bits", 4.8944),
        ({"accelerator": "RTX 4090 48GB"}, "memory_bytes", 48 * 2**30),
    ],
)
def test_names_mean_what_people_mean_by_them(changes, field, value):
    found = asked(**changes)
    assert found["refused"] == ""
    assert found[field] == (value if isinstance(value, str) else pytest.approx(value, rel=1e-3))


def test_memory_is_counted_in_gib_and_files_in_their_own_bits():
    fp16 = {"accelerator": "RTX 4080 16GB", "model": "Llama-3-8B", "weights_format": "F16"}
    assert predicted(**fp16)["refused"] == ""  # 16.1 · 10⁹ bytes in 17.2 · 10⁹: measured at 40.29 tokens/s
    large = {"accelerator": "A100 40GB", "model": "Llama-3-70B", "weights_format": "Q4_K_M", "engine": "vllm"}
    assert "does not fit" in predicted(**large)["refused"]  # the file has 43.1 · 10⁹


# --- the physics ----------------------------------------------------------------------------------------


def test_accelerators_that_split_layers_read_one_after_the_other():
    one = asked(accelerator="RTX 3090", model="Llama-3-8B")
    two = asked(accelerator="RTX 3090", model="Llama-3-8B", accelerators="2")
    side = asked(accelerator="RTX 3090", model="Llama-3-8B", accelerators="2", split="tensor")
    table = pd.DataFrame([one, two, side])
    weights = np.exp(step.parts(table)[:, 0])
    assert two["split"] == "layers" and weights[1] == pytest.approx(weights[0])
    assert weights[2] == pytest.approx(weights[0] / 2)
    # And nobody passes one card's bandwidth that way.
    assert 1 / step.least(table)[1] == pytest.approx(1 / step.least(table)[0])


def test_a_step_of_many_users_touches_more_experts_but_never_more_than_there_are():
    setup = asked(model="qwen3-30b-a3b").to_frame().T.infer_objects()
    experts = [step.touched(setup.assign(users=float(n)))[1][0] for n in (1, 8, 10_000)]
    # Of 30.532 · 10⁹ parameters every token passes 1.53, and of the rest 1.816.
    assert experts[0] == pytest.approx(1.816e9, rel=1e-3) and experts[2] == pytest.approx(29.0e9, rel=1e-2)
    # Of 8 users each expert is missed by all with (1 − 1.816 ÷ 29.0)^8 = 0.596.
    assert experts[1] == pytest.approx((1 - 0.596) * 29.0e9, rel=1e-2)


def test_the_parts_of_a_batch_are_what_one_reckons_by_hand():
    asked_ = {"accelerator": "H100 SXM", "model": "Llama-3.1-8B", "weights_format": "bf16", "engine": "vllm"}
    stated = {"concurrency": "64", "prompt_tokens": "1000", "answer_tokens": "500"}
    setup = asked(**asked_, **stated)
    assert setup["context"] == 1250  # the prompt and half the answer
    # Operations per second as if prompts reached half of 989 · 10¹².
    table = setup.to_frame().T.infer_objects().assign(reached_flops=0.5 * setup["peak_flops"])
    seconds = dict(zip(step.PARTS, np.exp(step.parts(table)[0])))
    # 7.5 · 10⁹ parameters that are read, 2 bytes each, at 3.35 · 10¹² bytes/s.
    assert seconds["weights"] == pytest.approx(7.505e9 * 2 / 3.35e12, rel=0.01)
    # 2 · 32 layers · 8 heads · 128 values · 2 bytes for each of 64 · 1250 tokens.
    assert seconds["cache"] == pytest.approx(64 * 1250 * 131072 / 3.35e12, rel=0.01)
    assert seconds["arithmetic"] == pytest.approx(63 * 2 * 8.03e9 / 494.5e12, rel=0.02)
    assert seconds["sequences"] == pytest.approx(63 * 20e-6)
    # 63 others' prompts, each of 1000 tokens, while 500 tokens are generated; attention: 2 · 1000 · 32 · 4096.
    of_prompt = 1000 * (2 * 8.03e9 + 2 * 1000 * 32 * 4096)
    assert seconds["prompts"] == pytest.approx(63 * of_prompt / 500 / 494.5e12, rel=0.02)
    alone = dict(zip(step.PARTS, np.exp(step.parts(table.assign(users=1.0))[0])))
    assert max(alone[name] for name in ("links", "arithmetic", "sequences", "prompts")) < 1e-20


def test_the_longest_of_parts_at_the_same_time_hides_the_others():
    logs = np.log([[4.0, 1.0, 3.0], [1.0, 1.0, 1.0]])
    whole, shares = fit.total(logs, (0, 2))
    inner = (4**3 + 3**3) ** (1 / 3)
    assert np.exp(whole) == pytest.approx([inner + 1, 2 ** (1 / 3) + 1])
    assert shares.sum(axis=1) == pytest.approx(1)
    # A share is the slope of the logarithm of the whole: a hundredth more of the first part.
    more = fit.total(logs + np.array([[0.01, 0, 0]]), (0, 2))[0]
    assert (more - whole) / 0.01 == pytest.approx(shares[:, 0], rel=0.02)


@pytest.mark.parametrize(
    "changes",
    [
        {"accelerator": "H100 SXM", "weights_format": "bf16", "engine": "vllm"},
        {"accelerator": "H200 SXM", "model": "qwen3-30b-a3b", "weights_format": "fp8", "engine": "sglang"},
        {"accelerator": "RTX 3090", "model": "Llama-3.2-1B"},
        {"accelerator": "MI300X", "model": "Llama-3.1-70B", "weights_format": "bf16", "engine": "vllm"},
        {"accelerator": "M2 Ultra 76c", "model": "qwen3-30b-a3b"},
    ],
)
def test_more_users_get_less_each_and_more_together(changes):
    users = [1, 2, 3, 4, 8, 16, 32, 64, 128, 256]
    rows = pd.DataFrame(
        [RTX | changes | {"context": "1200", "concurrency": str(n)} for n in users], dtype=object
    )
    table = question.read(rows)
    rates = 1 / answer.interval(table)["seconds"].to_numpy()
    # One user and several are two fits, which may differ by a few per cent where they meet.
    assert (np.diff(rates[1:]) <= 1e-9).all() and rates[1] < 1.05 * rates[0] and rates[-1] < 0.7 * rates[0]
    # All together get more, until what each adds fills the machine; where the two fits meet they may part.
    together = rates * users
    assert (together >= 0.73 * np.maximum.accumulate(together)).all() and together[-1] > 1.4 * together[0]
    longer = table.assign(prompt=4 * table["prompt"])
    slower = 1 / answer.interval(longer)["seconds"].to_numpy()
    assert slower[0] == pytest.approx(rates[0]) and (slower <= rates * 1.02).all()
    assert slower[-1] < 0.8 * rates[-1]


def test_the_memory_holds_the_weights_and_the_caches_of_so_many_users():
    found = answer.one(H100 | {"concurrency": "64", "context": "4000"})
    # 85.9 · 10⁹ bytes less 16.06 · 1.02, over 4000 tokens of 131072 bytes.
    assert found.users_fit == pytest.approx((80 * 2**30 - 16.06e9 * 1.02) // (4000 * 131072), abs=1)
    assert found.cache_gb == pytest.approx(64 * 4000 * 131072 / 1e9)
    assert not found.outside and answer.one(H100 | {"concurrency": "200", "context": "4000"}).outside


def test_a_long_context_is_slower_and_what_is_offloaded_slower_still():
    short, long = predicted(context="512"), predicted(context="100000")
    assert long[answer.PREDICTED] < 0.7 * short[answer.PREDICTED]
    away = predicted(accelerator="RTX 3090", model="Llama-3-70B")
    # 24 GiB of a file of 43 GB are held: the rest comes at half of 60 GB/s, so below 30 ÷ 17.
    assert away[answer.PREDICTED] < 1.8 and away["estimated"]
    faster = predicted(accelerator="RTX 3090", model="Llama-3-70B", host_bandwidth_gb_per_s="400")
    assert faster[answer.PREDICTED] > 2 * away[answer.PREDICTED]


def test_of_a_mixture_only_experts_leave_the_card_and_a_guessed_host_bounds_nothing():
    asked_ = RTX | {"model": "DeepSeek-R1"}
    found = answer.one(asked_ | {"accelerators": ""})
    # Some 400 GB outside are on a host of eight channels or more: measured 12 to 18 tokens/s by many.
    assert 7 < found.rate < 20 and found.bound is None and found.host_gb_per_s == pytest.approx(0.75 * 280)
    stated = answer.one(asked_ | {"host_bandwidth_gb_per_s": "100"})
    assert stated.rate < found.rate / 1.7 and stated.rate < stated.bound
    # The first token reads what is outside with every 512 tokens of the prompt: some ten seconds were measured.
    assert 5 < found.first_token_s[0] < 30
    # Every step reads 17 · 10⁹ parameters and 20.6 · 10⁹ of the experts, of which 61 of 100 stay outside.
    table = question.read(pd.DataFrame([asked_], dtype=object))
    away = step.away_bytes(table, np.array([0.6]))[0]
    assert away == pytest.approx(20.6e9 * 0.6 / (1 - 17 / 671) * 4.8944 / 8, rel=0.01)


def test_what_is_said_of_the_host_decides():
    asked_ = RTX | {"accelerator": "RTX 4070 Ti SUPER", "model": "qwen3.6-35b-a3b"}
    plain, host = answer.one(asked_), {"host": "Ryzen 7 7800X3D"}
    known, every = answer.one(asked_ | host), answer.one(asked_ | host | {"host_share": "0.94"})
    # Two channels of DDR5-5200; with all experts there 52 to 56 tokens/s were measured.
    assert known.host_gb_per_s == pytest.approx(0.75 * 83.2) and known.rate > plain.rate
    assert every.away == 0.94 and 45 < every.rate < 70
    assert answer.one(asked_ | {"host": "a toaster"}).rate == plain.rate


def test_bandwidth_and_size_may_be_stated_where_no_table_has_them():
    made = predicted(
        accelerator="my board", bandwidth_gb_per_s="460", memory_gb="64", model="mine", parameters_b="8", bits="4.5",
        weights_format="", engine="any",
    )  # fmt: skip
    assert made["refused"] == "" and made["estimated"]
    # A token looks its embedding up: about 7 % of the weights are not read.
    assert 460 / (4.5 * 0.92) > made["bound_output_tokens_per_s"] > made[answer.PREDICTED] > 20
    known = predicted()
    assert made[answer.PREDICTED] / made[answer.PREDICTED + "_low"] > 1.1 * (
        known[answer.PREDICTED] / known[answer.PREDICTED + "_low"]
    )


def test_processors_and_phones_are_answered():
    for name in ("EPYC 7763", "Raspberry Pi 5", "Snapdragon 8 Gen 3"):
        made = predicted(accelerator=name, model="Llama-3.2-1B")
        assert made["refused"] == "" and made[answer.PREDICTED] > 1


def test_no_answer_passes_its_bound():
    cards = ["RTX 4090", "L4", "H100 SXM", "M2 Ultra 76c", "RX 7900 XTX", "DGX Spark", "Ryzen 9 5950X"]
    models = ["Llama-3.2-1B", "Llama-3.1-8B", "qwen3-30b-a3b"]
    rows = pd.DataFrame(
        [(c, m, "Q4_K_M", "llama.cpp") for c in cards for m in models], columns=question.ASKED
    )
    made = columns.predictions(rows)
    assert (made["refused"] == "").all()
    ends = made[[answer.PREDICTED + end for end in ("_low", "", "_high")]].to_numpy()
    assert (np.diff(ends, axis=1) >= 0).all()
    assert (ends[:, 2] <= made["bound_output_tokens_per_s"] * (1 + 1e-9)).all()


def test_a_whole_table_is_answered_as_each_question_alone_and_10000_rows_in_ten_seconds():
    grid = itertools.product(
        ["RTX 4090", "h100-sxm", "M4 Max 40c", "a toaster", "Ryzen 9 5950X"],
        [1, 4],
        ["llama-3.1-8b", "qwen3-30b-a3b", "llama-3.3-70b"],
        ["Q4_K_M", "fp8"],
        ["llama.cpp", "vllm"],
        [1, 8, 200],
        range(1000, 29_000, 1000),
    )
    table = pd.DataFrame(grid, columns=list(columns.NAMED))[:10_000]
    started = time.process_time()  # of this process: others share the machine
    found = columns.expect(table)
    assert time.process_time() - started < 10
    for at in table.sample(40, random_state=1).index:
        said, asked_ = found.loc[at], {new: table.at[at, old] for old, new in columns.NAMED.items()}
        try:
            alone = answer.one(asked_)
        except question.Refused as refused:
            assert said["reason"] == str(refused) and said.drop("reason").isna().all()
            continue
        rates = [alone.rate, alone.low, alone.high] if alone.answered else [np.nan] * 3
        assert said[["tokens_per_s_user", "low", "high"]].to_list() == pytest.approx(rates, nan_ok=True)
        known = np.isfinite(alone.held_gb)
        assert said["fits"] == (not alone.outside if known else None)
        assert bool(said["reason"]) == (not known or alone.outside > 0)
        if known and at % 3 == 0:
            assert said["users_at_10"] == backwards.most_users(asked_ | {"concurrency": ""}, 10).expected


# --- the fit --------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def made_up():
    """Cases of twelve sources whose share of the bandwidth is known: 60 % with one engine, 30 % with another,
    each source off by a tenth, each case by a twentieth."""
    rng = np.random.default_rng(1)
    rows = pd.DataFrame(
        [
            (card, model, form, engine)
            for card in ("rtx-4090", "rtx-3090", "a100-sxm-80gb", "rx-7900-xtx")
            for model in ("llama-2-7b", "llama-2-13b")
            for form in ("Q4_0", "Q8_0")
            for engine in ("llama.cpp", "transformers")
        ],
        columns=question.ASKED,
    )
    one = question.read(rows)
    bound = np.exp(step.parts(one)[:, 0])
    share = one["engine"].map({"llama.cpp": 0.6, "transformers": 0.3})
    parts = []
    for source in range(12):
        off = np.exp(rng.normal(0, 0.1) + rng.normal(0, 0.05, len(one)))
        parts.append(one.assign(source=f"s{source}", seconds=bound / share * off))
    return pd.concat(parts, ignore_index=True)


def test_a_fit_finds_the_share_that_was_put_in(made_up):
    found = fit.fit(made_up)
    rows = [("rtx-4090", "llama-2-7b", "Q4_0", engine) for engine in ("llama.cpp", "transformers")]
    table = question.read(pd.DataFrame(rows, columns=question.ASKED))
    mean, _ = found.seconds(table)
    assert np.exp(step.parts(table)[:, 0] - mean) == pytest.approx([0.6, 0.3], rel=0.12)


def test_what_is_shipped_is_what_was_fitted(made_up, tmp_path, monkeypatch):
    found = fit.fit(made_up)
    fit.write(found, tmp_path)
    monkeypatch.setattr(fit, "FOLDER", tmp_path)
    shipped = fit.committed.__wrapped__(found.model)
    table = made_up.iloc[:8]
    for own, other in zip(found.seconds(table), shipped.seconds(table)):
        assert own == pytest.approx(other, rel=2e-2)


# --- what others measured, the proof -----------------------------------------------------------


def test_who_measured_exactly_this_comes_first_and_the_nearest_next():
    found = answer.one(RTX | {"accelerator": "2x RTX 3090", "model": "Llama-3-70B"})
    assert (found.exact["machine"] == "rtx-3090").all() and (found.exact["accelerators"] == 2).all()
    assert len(found.exact) and found.exact["source_url"].str.startswith("https://").all()
    assert found.near.iloc[0]["machine"] == "rtx-3090"
    # 16.3 tokens/s were measured, and 23.3 predicted while layers were taken to be read side by side.
    assert 13 < found.rate < 20
    text = command.told(found)
    assert text.index("engine family:") < text.index("Expected:")


@pytest.mark.parametrize(
    "device, model, weights", [("RTX 4090", "llama-3.1-8b", "Q4_K_M"), ("RTX 3060", "llama-3.1-8b", "Q4_K_M"),
                               ("H100", "llama-3.1-8b", "Q4_K_M"), ("Apple M2 Ultra", "llama-3-70b", "Q4_K_M")]
)  # fmt: skip
def test_one_question_has_the_number_that_the_look_up_has(device, model, weights):
    """Of one user; the number, or both ends where sources lie apart, and whose they are."""
    rows = lookup.table().query("device == @device and model == @model and bits == 4")
    rows = rows.assign(rate=rows["number"].fillna(rows["number_in_another_setup"])).dropna(subset=["rate"])
    text = command.told(answer.one({"accelerator": device, "model": model, "weights_format": weights}))
    (line,) = [line for line in text.split("\n") if line.startswith("Measured by others: ")]
    assert [f"{rate:,.0f}" for rate in sorted(rows["rate"])] == line.split(" tokens/s")[0][20:].split(" to ")
    assert all(source in line for source in rows["source"])
    assert ("another setup" in line) == (rows["reference"] == "no").any()
    assert ("on h100-pcie" in line) == (device == "H100")  # whose usual variant is the other
    many = answer.one({"accelerator": device, "model": model, "weights_format": weights, "concurrency": "8"})
    assert "Measured by others: " not in command.told(many)


def test_many_users_are_compared_with_many_users():
    asked_ = H100 | {"concurrency": "64", "context": "1000"}
    found = answer.one(asked_)
    assert (found.near["users"] > 1).all() and found.near["users"].between(8, 512).any()
    assert (found.exact["users"] > 64 / 1.5).all() and (found.exact["users"] < 64 * 1.5).all()
    assert (answer.one(H100).near["users"] == 1).all() and (answer.one(H100).exact["users"] == 1).all()


def test_a_batch_that_takes_turns_in_a_pipeline_or_waits_is_no_case():
    rows = build.table()
    rows = rows[(rows["source"] == "argonne-llm-inference-bench") & (rows["accelerators"] == 4)]
    pipelines = rows[rows["pp"] == 4]
    assert (pipelines["batch"] > 1).sum() == 7 and set(cases.cases(pipelines)["users"]) == {1}
    assert cases.cases(rows[rows["tp"] == 4])["users"].max() == 64


def test_every_source_is_in_the_proof_with_both_naive_answers():
    table = proof.proved()
    assert set(table["source"]) >= set(nearest.published()["source"])
    assert (table["users"] > 1).sum() > 2000 and table["users"].max() <= question.MOST_USERS
    assert table[["predicted", "low", "high", "naive_division", "naive_nearest"]].gt(0).all(axis=None)
    # Cases that are faster than the bandwidth allows are in no interval, and count as missed.
    counted = proof.summary(table.assign(load=table["users"] == 1), "load")
    assert (counted["inside"] > 0.85).all() and (counted["median"] < counted["division median"]).all()
    alone = counted.loc[True]
    assert (alone["median"] < alone[["nearest median", "llmfit median", "whichllm median"]]).all()
    shown = pd.read_csv(proof.TABLES).set_index(["by", "group"])
    # Where a curve's other points are known, the point between is nearer than from other families alone.
    several = shown.loc[("all", "several users")]
    assert several["own_curve median"] < 0.5 * several["median"]
    assert shown.loc[("weights", "partly on the host"), "cases"] > 50
    assert {"all", "hardware", "kind of model", "users", "tokens in the cache"} <= set(
        shown.index.get_level_values("by")
    )
    assert len(pd.read_csv(proof.WORST)) == 40


# --- the command ----------------------------------------------------------------------------------------

MADE = [f"predicted_output_tokens_per_s{end}" for end in ("", "_low", "_high")]
MADE += ["bound_output_tokens_per_s", "estimated", "refused", *prices.COLUMNS]


def test_the_command_keeps_the_rows_and_writes_the_columns_it_always_wrote(tmp_path, capsys):
    data, out, again = tmp_path / "rows.csv", tmp_path / "out.csv", tmp_path / "again.csv"
    rows = pd.DataFrame([RTX | {"id": "=1+1", "note": "é"}, RTX | {"accelerator": "a toaster", "id": "<b>"}])
    rows.to_csv(data, index=False)
    assert command.main(["predict", str(data), str(out)]) == 0
    assert capsys.readouterr().out.startswith("1 of 2 rows predicted, 1 refused")
    made = pd.read_csv(out, keep_default_na=False)
    assert list(made) == [*rows, *MADE]
    assert made["id"].to_list() == ["=1+1", "<b>"] and made["note"].to_list() == ["é", ""]
    # What it wrote may be given to it again.
    assert command.main(["predict", str(out), str(again)]) == 0
    assert again.read_bytes() == out.read_bytes()


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
    assert command.main(["predict", str(data), str(tmp_path / "out.csv")]) == 1
    said = capsys.readouterr().err
    assert word in said and len(said.splitlines()) == 1
    assert not (tmp_path / "out.csv").exists()


# --- what tokens cost -----------------------------------------------------------------------------------

H100 = {"accelerator": "H100 SXM", "model": "Llama-3.1-8B", "weights_format": "bf16", "engine": "vllm"}


def test_a_million_tokens_cost_the_hours_of_all_accelerators_that_they_take():
    table = prices.table()
    assert table["date"].str.fullmatch(r"\d{4}-\d\d-\d\d").all() and table["accelerator"].notna().all()
    assert all(question.machines.machine(card).name == card for card in table["accelerator"])
    found = answer.one(H100 | {"accelerators": "2"})
    listed = table[table["accelerator"] == "h100-sxm"]
    assert found.price.usd_per_gpu_hour == listed["usd_per_gpu_hour"].min()
    middle, low, high = found.usd_per_million
    assert middle == pytest.approx(2 * found.price.usd_per_gpu_hour / 3600 / found.rate * 1e6)
    assert low < middle < high and high == pytest.approx(middle * found.rate / found.low)
    # Many users share the hour, as far as each still gets its rate.
    many = found.setup.copy()
    many["users"] = 8.0
    assert prices.per_million(found.price.usd_per_gpu_hour, many, found.rate) == pytest.approx(middle / 8)


def test_a_stated_price_goes_before_the_list_and_without_either_there_is_no_cost():
    assert answer.one(RTX).price is None and answer.one(RTX).usd_per_million is None
    stated = answer.one(H100 | {"usd_per_gpu_hour": "1.5"})
    assert stated.price == prices.Price(1.5, prices.STATED)
    # A name that may mean several accelerators is the commonest of them, which is said, with its price.
    several = answer.one(H100 | {"accelerator": "H100"})
    assert several.price == answer.one(H100).price and "most have measured" in several.setup["guessed"][0]
    assert [one.setup["machine"] for one in several.variants] == ["h100-pcie", "h100-nvl"]
    assert several.rate == answer.one(H100).rate and several.held_gb == pytest.approx(80 * 1.0737, rel=1e-3)
    with pytest.raises(question.Refused, match="usd_per_gpu_hour"):
        answer.one(H100 | {"usd_per_gpu_hour": "free"})
    # What does not run costs nothing.
    assert answer.one(H100 | {"model": "Llama-3.1-405B"}).usd_per_million is None


def test_a_table_of_questions_gets_prices_where_somebody_states_them(tmp_path):
    data, out = tmp_path / "rows.csv", tmp_path / "out.csv"
    rows = [H100, RTX, RTX | {"usd_per_gpu_hour": 0.5}, H100 | {"accelerator": "a toaster"}]
    pd.DataFrame(rows).to_csv(data, index=False)
    command.predict(str(data), str(out))
    made = pd.read_csv(out)
    assert made[prices.PER_MILLION].notna().to_list() == [True, False, True, False]
    assert made["price_source"].str.contains("2026-|stated", na=False).to_list() == [True, False, True, False]
    assert made.loc[0, "price_usd_per_gpu_hour"] == answer.one(H100).price.usd_per_gpu_hour


def test_the_command_says_the_cost_and_gives_the_same_as_json(capsys):
    asked = list(H100.values())
    assert command.main(asked) == 0
    said = capsys.readouterr().out
    assert "per million output tokens for one user" in said and "2026-" in said
    assert command.main([*asked, "--json"]) == 0
    shown = valid(capsys)
    assert f"Cost: ${shown[prices.PER_MILLION]:.3g} " in said and shown["price_source"] in said
    assert shown["fits"] and shown["nearest"][0]["source_url"].startswith("https://")
    assert command.main([*RTX.values(), "--context", "4000"]) == 0
    said = capsys.readouterr().out
    said_too = ("no price is listed", "First token", "nearest", "Fits: weights 4.91 GB")
    assert all(words in said for words in said_too)
    assert command.main(["RTX 4090", "Thing-large"]) == 1
    assert "states no size" in capsys.readouterr().err


# --- backwards ------------------------------------------------------------------------------------------


def test_the_accelerators_that_reach_a_rate_hold_the_model_and_are_expected_to():
    asked = {"model": "Llama-3-70B", "weights_format": "Q4_K_M", "engine": "llama.cpp"}
    found = backwards.reaching(asked, 25)
    assert len(found) > 3 and (found["rate"] >= 25).all() and found["rate"].is_monotonic_increasing
    assert "rtx-4090" not in set(found["machine"])  # 24 GiB hold no file of 43 GB
    assert ((found["sure"] == "yes") == (found["low"] >= 25)).all() and set(found["sure"]) > {"yes"}
    row = found.iloc[0]
    assert row["rate"] == pytest.approx(answer.one(asked | {"accelerator": row["machine"]}).rate)
    faster = set(backwards.reaching(asked, 60)["machine"])
    assert faster < set(found["machine"])
    with pytest.raises(question.Refused, match="names no model"):
        backwards.reaching({"model": ""}, 30)


def test_the_largest_models_fit_and_the_next_larger_does_not():
    asked = {"accelerator": "RTX 4090", "weights_format": "Q4_K_M", "engine": "llama.cpp"}
    found = backwards.largest(asked)
    assert found["parameters"].is_monotonic_decreasing and found["weights_gb"].max() < 24 * 1.0737
    largest = found.iloc[0]["parameters"]
    assert 30e9 < largest < 45e9
    fast = backwards.largest(asked, 100)
    assert set(fast["model"]) < set(found["model"]) and (fast["rate"] >= 100).all()
    with pytest.raises(question.Refused, match="names no accelerator"):
        backwards.largest(asked | {"accelerator": ""})


SERVED = H100 | {"context": "1500", "prompt_tokens": "1000", "answer_tokens": "500"}


def test_the_most_users_reach_the_rate_and_one_more_does_not():
    found = backwards.most_users(SERVED, 20)
    assert 1 <= found.sure <= found.low < found.expected < found.high

    def rates(users):
        one = answer.one(SERVED | {"concurrency": str(users)})
        return one.rate, one.low

    assert rates(found.expected)[0] >= 20 > rates(found.expected + 1)[0]
    assert rates(found.sure)[1] >= 20 > rates(found.sure + 1)[1]
    assert backwards.most_users(SERVED, 10_000).expected == 0
    # What the memory holds bounds it too, and what does not fit at all serves nobody.
    long = backwards.most_users(SERVED | {"context": "100000"}, 1)
    assert long.expected == long.fit == 5
    assert backwards.most_users(SERVED | {"model": "Llama-3.1-405B"}, 1).expected == 0
    with pytest.raises(question.Refused, match="names no model"):
        backwards.most_users(SERVED | {"model": ""}, 30)


def test_many_users_are_divided_among_copies():
    found = backwards.how_many(SERVED, 1000, 20)
    alone = found[found["group"] == 1].iloc[0]
    most = backwards.most_users(SERVED, 20)
    assert alone["users"] == most.expected
    assert alone["copies"] == alone["accelerators"] == -(-1000 // most.expected)
    assert found["accelerators"].is_monotonic_increasing
    assert (alone["fewest"], alone["most"]) == (-(-1000 // most.high), -(-1000 // most.low))
    with pytest.raises(question.Refused, match="memory_gb"):
        backwards.most_users(SERVED | {"accelerator": "EPYC 7763", "engine": "any"}, 20)
    # A model that one accelerator doesn't hold begins with a group that does.
    large = backwards.how_many(SERVED | {"model": "Llama-3.1-70B"}, 100, 15)
    assert large["group"].min() >= 2 and (large["accelerators"] == large["group"] * large["copies"]).all()


def test_questions_of_many_users_on_the_command_line(capsys):
    words = [*H100.values(), "--prompt-tokens", "1000"]
    assert command.main([*words, "--users", "100"]) == 0
    said = capsys.readouterr().out
    assert "tokens/s of each user" in said and "All 100 users together" in said
    assert "users would fit" in said and "for all 100 users" in said and "not answered" in said
    assert command.main([*words, "--concurrency", "100", "--json"]) == 0
    shown = valid(capsys)
    assert shown["users"] == 100 and shown["users_that_fit"] > 100
    assert shown[f"{answer.PREDICTED}_all"] == pytest.approx(100 * shown[answer.PREDICTED])
    assert {row["users"] for row in shown["nearest"]} - {1.0}
    assert command.main([*words, "--most-users", "--at-least", "30"]) == 0
    assert "users at once are expected to get 30 tokens/s each" in capsys.readouterr().out
    assert command.main([*words, "--most-users", "--at-least", "30", "--json"]) == 0
    assert valid(capsys)["most_users"] > 10
    assert command.main([*words, "--how-many", "--users", "1000", "--at-least", "30", "--json"]) == 0
    assert valid(capsys)["answers"][0]["from"] <= 1000
    assert command.main([*words, "--how-many", "--users", "1000", "--at-least", "30"]) == 0
    assert capsys.readouterr().out.startswith("For 1,000 users at once with 30 tokens/s each (")
    for wrong, word in (
        (["--most-users"], "--at-least"),
        (["--how-many", "--at-least", "30"], "--users"),
        (["--users", "1000"], "--how-many"),
    ):
        assert command.main([*words, *wrong]) == 1
        assert word in capsys.readouterr().err


def test_backward_questions_on_the_command_line_are_tables(capsys):
    assert command.main(["--at-least", "30", "--model", "Llama-3.1-8B", "--weights-format", "Q4_K_M"]) == 0
    said = capsys.readouterr().out
    assert "are expected to reach 30 tokens/s" in said and "more (--json has all)" in said
    assert command.main(["--largest", "RTX 4090", "--weights-format", "Q4_K_M", "--json"]) == 0
    assert len(valid(capsys)["answers"]) > 50
    assert command.main(["RTX 4090", "--at-least", "30"]) == 1
    assert "name none" in capsys.readouterr().err
