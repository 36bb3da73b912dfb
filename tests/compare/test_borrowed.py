import pandas as pd
import pytest

from llm_measured.compare import borrowed, scatter


def test_a_kind_is_what_the_table_of_accelerators_says_or_a_host_of_this_study():
    assert borrowed.kind("NVIDIA H100 PCIe", "vllm bench", False) == "GPU cards, servers"
    assert (
        borrowed.kind("epyc-zen5-2c", "this study", True)
        == "2-core virtual machines, engines without a server"
    )
    assert borrowed.kind("no such thing", "vllm bench", False) is None
    assert borrowed.kind(None, "vllm bench", False) is None


def test_fewer_than_three_sources_or_ten_reruns_are_a_floor():
    for (kind, metric, part), one in borrowed.table().items():
        found = borrowed.scatter(kind, metric, "p90" if part == "tail" else "mean")
        few = len(one["sources"].split()) < 3 or int(one["reruns"]) < 10
        assert found.source.startswith(
            "assumed" if few and metric not in ("tpot", "itl") else ("borrowed", "assumed")
        )
        assert found.freedom > 0 and found.scatter > 0
    assert borrowed.scatter("toasters", "tpot", "mean").scatter == borrowed.FLOOR


def test_scatter_is_the_pooled_standard_deviation_of_reruns():
    figures = pd.DataFrame(
        {
            "kind": "k",
            "metric": "ttft",
            "statistic": "mean",
            "part": "centre",
            "setting": ["one"] * 3 + ["two"] * 2 + ["alone"],
            "level": ["1", "1", "1", "2", "2", "3"],
            "run": ["a", "b", "c", "d", "e", "f"],
            "log": [0.0, 0.1, 0.2, 1.0, 1.1, 5.0],
            "of": None,
            "source": "own:here",
        }
    )
    (row,) = scatter.table(figures).to_dict("records")
    assert row["scatter"] == pytest.approx(((0.02 + 0.005) / 3) ** 0.5, abs=1e-4)
    assert (row["reruns"], row["settings"], row["own_reruns"]) == (3, 2, 3)
