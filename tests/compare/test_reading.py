import json
import shutil

import pytest
from compare.results import serve, write

from bench.paths import ROOT
from llm_measured.compare import reading


def test_percentiles_are_shown_where_the_sample_bounds_them():
    assert reading.bounded("p90", 29) and not reading.bounded("p90", 28)
    assert reading.bounded("mean", None) and reading.bounded("p50", None) and not reading.bounded("p99", None)


def test_figures_are_computed_from_the_requests_where_the_file_has_them(tmp_path):
    document = serve()
    document["mean_ttft_ms"] = 1.0  # a summary that says something else
    (level,), *_ = reading.side([write(tmp_path / "a", [document])])
    assert level.values["ttft", "mean"] == pytest.approx(sum(document["ttfts"]) / 200)
    assert level.values["output_tokens_per_s", ""] == pytest.approx(document["output_throughput"], rel=1e-6)
    assert level.requests == 200


def test_a_summary_alone_is_read_too(tmp_path):
    short = {k: v for k, v in serve().items() if not isinstance(v, list)}
    (level,), *_ = reading.side([write(tmp_path / "a", [short])])
    assert level.values["ttft", "mean"] == pytest.approx(short["mean_ttft_ms"] / 1e3)
    assert not level.samples and reading.log_sd(level, ("ttft", "mean")) is None


def test_blocks_of_requests_in_flight_together_are_wider_than_single_ones(tmp_path):
    (level,), *_ = reading.side([write(tmp_path / "a", [serve(requests=400)])])
    # A slow spell: requests 100 to 199 wait three times as long.
    level.samples["ttft"] = level.samples["ttft"].copy()
    level.samples["ttft"][100:200] *= 3
    sd, blocks = reading.log_sd(level, ("ttft", "mean"))
    alone = level.samples["ttft"].std() / 400**0.5 / level.samples["ttft"].mean()
    assert sd > 1.5 * alone and blocks == 24


def test_a_copy_is_no_repeat(tmp_path):
    levels, notes, _ = reading.side([write(tmp_path / "a", [serve(1), serve(1), serve(2)])])
    assert len(levels) == 2 and "copy" in notes[0]


def test_a_folder_without_a_result_and_a_missing_file_say_so(tmp_path):
    with pytest.raises(ValueError, match="No benchmark result"):
        reading.side([tmp_path])
    with pytest.raises(ValueError, match="does not exist"):
        reading.side([tmp_path / "nothing.json"])


def test_a_result_beside_its_sidecar_is_one_run(tmp_path):
    folder = write(tmp_path / "a", [serve()])
    (tmp_path / "a" / "0.csv").write_text("this is,no\nresult,at all\n", encoding="utf-8")
    levels, notes, _ = reading.side([folder])
    assert len(levels) == 1 and not notes


def test_a_run_of_this_study_is_one_level_beside_its_sidecar(tmp_path):
    run = "latency-smollm2-135m-F16-epyc-zen5-2c-096e72-1"
    for suffix in (".csv", ".json", ".ipynb"):
        shutil.copy(ROOT / "_llama-inference" / "llamacpp" / f"{run}{suffix}", tmp_path)
    levels, _, _ = reading.side([str(tmp_path)])
    assert [level.file for level in levels] == [f"{run}.csv"]


def test_failed_requests_and_a_run_that_was_not_streamed_are_conditions(tmp_path):
    document = serve()
    document["errors"][:20] = ["timeout"] * 20
    document["ttfts"][20:] = [ttft + 99 * gaps[0] for ttft, gaps in zip(document["ttfts"], document["itls"])][
        20:
    ]
    document["itls"] = [[] for _ in document["itls"]]
    document["latencies"] = document["ttfts"]
    path = tmp_path / "one.json"
    path.write_text(json.dumps(document), encoding="utf-8")
    (level,) = reading.read(path)
    assert level.conditions["failed_share"] == pytest.approx(0.1)
    assert level.conditions["streamed"] is False
