"""The four tables of published rows: what is compared with what, and that every number was measured."""

import numpy as np
import pandas as pd
import pytest

from llm_measured.published import __main__ as door
from llm_measured.published import checks, comparable, costs, lookup, tables, verdicts

ROW = {
    "source": "a", "device": "RTX 4090", "variant": "rtx-4090", "form": "", "memory_gb": 24.0,
    "power_limit_w": np.nan, "model": "llama-3.1-8b", "bits": 4.0, "format": "Q4_K_M", "kv": "",
    "engine": "llama.cpp", "kernels": "llama.cpp", "version": "", "release": "", "half_year": "2026 a",
    "path": "its vendor's own", "speculative": "", "context": "1k", "accelerators": 1.0, "tp": np.nan,
    "users": 1.0, "input_tokens": 512.0, "output_tokens": 128.0, "rate": 100.0, "bound": 0.005, "mbu": 0.6,
    "build": np.nan, "outside": False, "backend": "CUDA", "checkpoint": "Llama-3.1-8B", "joules": np.nan,
}  # fmt: skip


def rows(*changes):
    return pd.DataFrame([ROW | {"row_id": f"r{n}"} | change for n, change in enumerate(changes)])


def verdict(*changes, by="device", values=("RTX 4090", "RTX 5090")):
    return verdicts.of(rows(*changes), verdicts.Comparison(by, values))


def both(source, ratio, **shared):
    return [
        {"source": source, **shared},
        {"source": source, "device": "RTX 5090", "rate": 100.0 * ratio, "bound": 0.003, **shared},
    ]


MODELS = ("llama-3.1-8b", "qwen3-8b", "mistral-7b", "qwen3-4b", "phi-4")


@pytest.mark.parametrize(
    "ratios, grade, direction",
    [
        ({f"s{n}": [1.4] for n in range(6)}, "is", "faster"),
        ({f"s{n}": [0.7] for n in range(6)}, "is", "slower"),
        ({f"s{n}": [1.4 if n else 0.8] for n in range(6)}, "cannot be told", ""),  # 5 of 6: p = 0.22
        ({f"s{n}": [1.4] for n in range(5)}, "was", "faster"),
        ({"one": [1.4, 1.3, 1.2]}, "was", "faster"),
        ({"one": [1.4, 1.3]}, "cannot be told", ""),  # two settings
        ({"one": [1.4, 1.3, 1.2], "two": [0.9]}, "cannot be told", ""),  # they disagree
        ({"one": [1.4, 1.3, 0.9]}, "cannot be told", ""),  # it says both
        ({"one": [1.4, 1.3, 1.2], "localscore": [0.5]}, "was", "faster"),  # strangers' machines do not vote
        (
            {"one": [1.4], "localscore": [0.5, 0.5, 0.5]},
            "cannot be told",
            "",
        ),  # nor where another has one setting
        ({"one": [1.4, 1.3, 1.2, 1.1, 0.9]}, "was", "faster"),  # in 4 of 5, and that is said
        ({"localscore": [1.4, 1.3, 1.2]}, "was", "faster"),  # but where nobody else has measured
    ],
)
def test_a_verdict_counts_sources_and_has_three_grades(ratios, grade, direction):
    changes = [
        row
        for source, each in ratios.items()
        for model, ratio in zip(MODELS, each)
        for row in both(source, ratio, model=model)
    ]
    found = verdict(*changes)
    assert set(found["grade"]) == {grade} and set(found["direction"]) == {direction}
    assert found["by_bytes"].to_list() == pytest.approx([5 / 3] * len(found))
    if direction:
        voting = [each for source, each in ratios.items() if source != "localscore" or len(ratios) == 1]
        agree = sum((ratio > 1) == (direction == "faster") for each in voting for ratio in each)
        assert set(found["agreeing"]) == {agree}


def test_what_is_stated_of_one_side_only_is_compared_and_said():
    first, other = both("a", 1.5)
    assert verdict(first, other)["one_side"].to_list() == [""]
    one_side = verdict(first, other | {"kv": "F16", "release": "b5922"})
    assert one_side[["settings", "one_side"]].values.tolist() == [[1, "kv 1, release 1"]]
    # Where a setting has a partner that is stated alike, that one counts.
    both_said = verdict(first | {"kv": "F16"}, other | {"kv": "F16"}, other | {"rate": 300.0})
    assert both_said[["settings", "one_side", "ratio"]].values.tolist() == [[1, "", 1.5]]


def test_models_that_no_table_has_are_told_by_their_own_names():
    first, other = both("a", 1.5, model="", checkpoint="x-7b")
    assert verdict(first, other)["models"].to_list() == ["x-7b"]
    assert verdict(first, other | {"checkpoint": "y-7b"})["settings"].to_list() == [0]


@pytest.mark.parametrize(
    "column, value",
    [
        *(("kv", "FP8"), ("format", "Q4_0"), ("release", "b5922"), ("half_year", "2025 a"), ("form", "PCIE")),
        *(
            ("path", "Vulkan"),
            ("engine", "vLLM"),
            ("context", "16k"),
            ("source", "b"),
            ("speculative", "MTP"),
        ),
    ],
)
def test_only_like_is_compared_with_like(column, value):
    first, other = both("a", 1.5, kv="F16", release="b6000", form="SXM")
    assert verdict(first, other)["settings"].to_list() == [1]
    assert verdict(first, other | {column: value})["settings"].to_list() == [0]


def test_half_in_host_memory_is_outside():
    slow = {"rate": 15.0, "mbu": 0.1, "model": "qwen2.5-14b"}
    found = comparable.in_host_memory(rows({}, {"model": "qwen3-8b"}, slow, slow | {"bound": 0.001}))
    assert found.to_list() == [False, False, True, False]  # of a small model the host sets the pace


def test_weights_of_which_a_source_says_that_they_lie_in_the_hosts_memory_are_not_on_the_card():
    stated = pd.DataFrame({"offload": [None, "ncmoe 26", None, None]})
    stated["host_weights_bytes"] = [np.nan, np.nan, 195e9, 0.5e9]  # the last: those of the tokens
    assert comparable.host_memory_stated(stated).to_list() == [False, True, True, False]


def test_a_name_means_the_variant_that_most_sources_have_whatever_the_load():
    usual = comparable.commonest_variants()
    assert usual[["H100", "A100"]].to_list() == ["h100-sxm", "a100-sxm-80gb"]
    assert not usual.isin(comparable.NO_VARIANT).any()
    told, found = number({"device": "H100", "variant": "h100-pcie"})
    assert told == [("a", 100.0)] and found["reference"].to_list() == ["no"]
    assert number({"device": "H100", "variant": "variant unknown"})[1]["reference"].to_list() == ["yes"]


def test_the_processor_of_a_phone_is_part_of_it_and_that_beside_a_card_is_not():
    rows = comparable.one_user()
    of_processor = rows[rows["backend"] == "CPU"]
    kinds = of_processor["device"].map(comparable.families()["kind"])
    assert set(kinds.dropna()) == {"phone"} and {"Dimensity 8400", "Google Tensor"} <= set(rows["device"])


def number(*changes):
    found = lookup.table(rows(*changes))
    told = found["number"].fillna(found["number_in_another_setup"])
    return list(zip(found["source"][told.notna()], told.dropna())), found


def test_the_number_is_the_middle_row_of_the_source_with_most_rows():
    told, found = number(
        *({"rate": rate} for rate in (90.0, 100.0, 120.0, 130.0)), {"source": "b", "rate": 140.0}
    )
    assert told == [("a", 100.0)] and found["median"].to_list() == [110.0, 140.0]


def test_sources_that_lie_apart_are_a_range_with_both_names():
    assert number({"rate": 100.0}, {"source": "b", "rate": 160.0})[0] == [("a", 100.0), ("b", 160.0)]
    assert len(number({"rate": 100.0}, {"source": "b", "rate": 149.0})[0]) == 1


def test_strangers_may_part_sources_and_are_no_end_of_their_range():
    """The RTX 4090 with an 8B: 94, 119 and 163 tokens/s; a row more makes no source the right one."""
    three = {"source": "localscore", "rate": 94.0}, {"source": "b", "rate": 119.0}, {"rate": 163.0}
    assert number(*three, {"rate": 163.0})[0] == [("a", 163.0), ("b", 119.0)]
    assert number(*three[1:])[0] == [("b", 119.0)]


def test_strangers_set_a_number_only_where_nobody_else_measured():
    crowd = {"source": "localscore", "rate": 46.0}
    assert number({"rate": 251.0}, *[crowd] * 5)[0] == [("a", 251.0)]
    told, found = number({"rate": 251.0, "engine": "vLLM", "kernels": "vllm"}, crowd)
    assert told == [("a", 251.0)] and found["number"].isna().all() and found["reference"].iloc[0] == "no"
    assert number(crowd)[0] == [("localscore", 46.0)]
    assert lookup.bias(found) == (pytest.approx(46 / 251), 1)


@pytest.mark.parametrize(
    "change",
    [
        *({"variant": "other"}, {"format": "Q4_0"}, {"kv": "Q8_0"}, {"engine": "Ollama"}),
        *({"power_limit_w": 200.0}, {"outside": True}, {"engine": "ik_llama.cpp"}),
    ],
)
def test_another_setup_gives_no_number_where_the_reference_was_measured(change):
    full = {"power_limit_w": 450.0} if "power_limit_w" in change else {}
    assert number(*[full] * 3, *[{"rate": 50.0} | change] * 2)[0] == [("a", 100.0)]


def test_bits_and_costs_are_taken_inside_a_source():
    wide = {"bits": 16.0, "format": "F16", "rate": 50.0, "bound": 0.016}
    scored = rows(wide | {"quality": 7.0}, {"quality": 7.14}).assign(quality_metric="perplexity")
    found = costs.bits(rows(wide, {}, {"source": "b"}), scored).set_index("what")
    assert found.loc["tokens/s", ["ratio", "by_bytes", "settings"]].to_list() == [2.0, pytest.approx(3.2), 1]
    assert found.loc["perplexity", "ratio"] == pytest.approx(1.02)
    joules = costs.bits(rows(wide | {"joules": 8.0}, {"joules": 4.0}), scored[scored["bits"] == 4])
    told = joules.set_index("what")["ratio"].to_dict()
    assert told == {"tokens/s": 2.0, "J/token": 0.5}  # a score without one in 16 bits is told nowhere
    deep, small, drafts = {"context": "32k", "rate": 60.0}, {"kv": "Q8_0", "rate": 90.0}, {"rate": 130.0}
    found = costs.costs(
        rows({"kv": "F16"}, deep | {"kv": "F16"}, small, drafts | {"speculative": "MTP", "kv": "F16"}),
        rows({}, {"context": "32k", "rate": 80.0}),
    )
    kept = {(row.what, row.level): row.kept for row in found.itertuples()}
    assert kept == pytest.approx(
        {
            ("context", "32k"): 0.6,
            ("KV format", "Q8_0"): 0.9,
            ("drafts", "drafts"): 1.3,
            (costs.HOST, "32k"): 0.8,
        }
    )


def test_no_cell_shows_a_number_that_nobody_measured():
    """Of the committed look-up: each number is the rate of the row and the source that it names."""
    whole = pd.read_csv(tables.FOLDER / "published_lookup.csv")
    assert (whole["number"].notna() == (whole["reference"] == "yes")).all()
    whole["number"] = whole["number"].fillna(whole["number_in_another_setup"])
    shown = whole.dropna(subset=["number"])
    measured = comparable.one_user().set_index("row_id").loc[shown["row_id"]]
    assert len(shown) > 1200
    assert shown["number"].to_numpy() == pytest.approx(measured["rate"].to_numpy(), rel=1e-5)
    assert (shown["source"].to_numpy() == measured["source"].to_numpy()).all()
    two = shown.groupby(lookup.CELL)["source"].agg(["size", "nunique"])
    assert two["size"].max() == 2 and (two["size"] == two["nunique"]).all()
    whole = whole.groupby(lookup.CELL).agg(least=("least", "min"), most=("most", "max"))
    assert (whole["most"] / whole["least"])[two.index[two["size"] == 2]].min() >= 1.5
    alone = pd.read_csv(tables.FOLDER / "published_lookup.csv").groupby(lookup.CELL)["source"].nunique()
    crowd = shown[shown["source"] == lookup.CROWD].set_index(lookup.CELL).index
    assert (alone.loc[crowd] == 1).all()


def test_the_committed_tables_are_what_the_rows_give(capsys):
    assert door.main(["tables", "--check"]) == 0, capsys.readouterr().out
    assert "are what the committed rows give" in capsys.readouterr().out


def test_a_table_that_differs_is_named(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(tables, "TABLES", {"published_verdicts": lambda: verdict(*both("a", 1.5))})
    monkeypatch.setattr(tables, "FOLDER", tmp_path)
    monkeypatch.setattr(lookup, "bias", lambda found: (1.0, 0))
    assert door.main(["tables", "--check"]) == 1 and "is missing: make observatory" in capsys.readouterr().out
    (tmp_path / "published_lookup.csv").write_text("source\n")
    assert door.main(["tables"]) == 0 and door.main(["tables", "--check"]) == 0
    file = tmp_path / "published_verdicts.csv"
    file.write_text(file.read_text().replace("1.5", "1.6"))
    capsys.readouterr()
    assert door.main(["tables", "--check"]) == 1 and "column ratio differs" in capsys.readouterr().out


def test_the_proof_says_of_each_verdict_what_the_table_says():
    text = (tables.FOLDER.parent / "proof" / "published.md").read_text(encoding="utf-8")
    whole = pd.read_csv(tables.FOLDER / "published_verdicts.csv").drop_duplicates(["of", "first", "other"])
    assert len(whole) == 19 and whole["direction"].notna().sum() >= 10
    for row in whole.fillna("").itertuples():
        line = next(
            line for line in text.split("\n") if line.startswith(f"| {row.other} against {row.first} |")
        )
        told = f"{row.grade} {row.direction}".strip()
        assert f"| {told} | {row.sources}, {row.settings} |" in line


def test_each_check_that_flags_a_committed_row_was_read_by_hand():
    read = pd.read_csv(tables.FOLDER.parent / "proof" / "published_flags.csv")
    found = checks.committed()[1]
    assert set(found.loc[found["verdict"] != checks.NOTE, "check"]) <= set(read["check"])
    assert read["reason"].notna().all() and not read["row_id"].duplicated().any()
    text = (tables.FOLDER.parent / "proof" / "published.md").read_text(encoding="utf-8")
    for seed, part in read.groupby("seed"):
        right, wrong, unclear = ((part["reading"] == r).sum() for r in ("right", "wrong", "cannot be told"))
        assert f"| {seed} | {len(part)} | {right} | {wrong} | {unclear} |" in text
