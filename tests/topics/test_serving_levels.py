"""Servers under load: levels and goals against values computed by hand, and what `plots.curve` draws of them."""

import pytest
from builders import make_sidecar, serving_rows, write_serving
from pictures import svg

from bench import inputs, plots, style
from bench.observations import store
from bench.topics import drafting, tables
from bench.topics import serving as serving_analysis

pytestmark = pytest.mark.early

# TTFT and TPOT in s at each concurrency and each request rate.
CLOSED = {1: (0.05, 0.005), 4: (0.1, 0.008), 8: (0.2, 0.015)}
OPENED = {1: (0.05, 0.005), 8: (2.5, 0.016)}
N = 64  # requests per level: enough for ramp, drain and objectives


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    """Two engines, an option that drafts, failures, and one model on two devices: the folder, and what is
    read from it."""
    folder = tmp_path_factory.mktemp("loaded")
    write_serving(folder, CLOSED, OPENED, backend="llamacpp", option="Q8_0", n=N)
    write_serving(folder, {1: (0.05, 0.0025), 8: (0.2, 0.03)}, backend="llamacpp", option="Q8_0-ngram", n=N)
    one, two = {1: (0.04, 0.01), 8: (0.1, 0.012)}, {1: (0.04, 0.006), 8: (0.1, 0.008)}
    write_serving(folder, one, {2: (0.04, 0.01)}, backend="vllm", option="bfloat16", failed=16, n=N)
    write_serving(folder, two, backend="vllm", option="bfloat16", tensor_parallel=2, run=2, n=N)
    return folder, store.load(folder=folder)


@pytest.fixture
def requests(written):
    return written[1].copy()


def level(requests, backend="llamacpp", option="Q8_0", loop="closed", load=1, tensor_parallel=1):
    table = serving_analysis.levels(requests)
    keys = {"backend": backend, "option": option, "loop": loop, "load": load}
    keys |= {"tensor_parallel": tensor_parallel}
    keys["option"] += f" TP {tensor_parallel}" if tensor_parallel > 1 else ""
    (row,) = table[(table[list(keys)] == list(keys.values())).all(axis=1)].to_dict("records")
    return row


def test_a_level_by_hand(requests):
    # One place: 11 tokens every 50 + 10 x 5 ms. The load is held until the last request is taken up.
    row = level(requests)
    assert row["output_tokens_per_s"] == pytest.approx(11 / 0.1)
    assert row["tpot_p50_s"] == pytest.approx(0.005) and row["ttft_max_s"] == pytest.approx(0.05)
    assert (row["requests"], row["counted"], row["failed"], row["runs"], row["met"]) == (N, N, 0, 1, 1)
    assert row["ttft_p90_s"] == pytest.approx(0.05) and row["ttft_p99_s"] != row["ttft_p99_s"]
    # Eight places: the first and the last eight requests do not count, and rounds take 350 ms.
    row = level(requests, load=8)
    assert (row["counted"], row["state"]) == (N - 16, "steady")
    assert row["output_tokens_per_s"] == pytest.approx(8 * 11 / 0.35)
    # Eight a second for 8 s, each answered after 2.7 s: no three answer times, so nobody can tell.
    row = level(requests, loop="open", load=8)
    assert row["state"] == "too short" and row["backlog"] > 0.25


def test_failed_requests_met_nothing(requests):
    row = level(requests, "vllm", "bfloat16")
    assert (row["requests"], row["failed"]) == (N, 16) and row["met"] == pytest.approx(48 / 64)
    assert row["met_low"] != row["met_low"], "one run says nothing of how much runs differ"
    table = serving_analysis.levels(requests)
    assert table.loc[table["backend"] == "vllm", "failed"].tolist() == [16, 16, 16, 0, 0]


def test_the_tail_is_that_of_the_slow_request(tmp_path):
    write_serving(tmp_path, {1: (0.1, 0.01)}, n=101, slow=0.9)
    row = level(store.load(folder=tmp_path), "fake", "float32")
    assert row["ttft_p50_s"] == row["ttft_p90_s"] == pytest.approx(0.1)  # 1 of 101 is above them
    assert row["ttft_max_s"] == pytest.approx(0.9) and row["ttft_p99_s"] != row["ttft_p99_s"]


def test_runs_of_one_level_are_one_row(tmp_path):
    for n, tpot in ((1, 0.005), (2, 0.02), (3, 0.01)):
        write_serving(tmp_path, {2: (0.05, tpot)}, run=n, failed=1)
    table = serving_analysis.levels(store.load(folder=tmp_path))
    assert len(table) == 1 and table["tpot_p50_s"].iloc[0] == pytest.approx(0.01)
    assert table[["runs", "requests", "counted", "failed"]].iloc[0].tolist() == [3, 24, 12, 3]
    assert table["output_tokens_per_s_interval"].iloc[0] > 0


def test_the_table_is_a_row_per_level_in_stored_units(requests, nothing):
    table = tables.tables(requests)["serving"]
    row = table.query("backend == 'llamacpp' and option == 'Q8_0' and concurrency == 4").iloc[0]
    assert row["ttft_max_s"] == pytest.approx(0.1) and row["e2e_max_s"] == pytest.approx(0.18)
    assert [row["tpot_max_s"], row["itl_max_p50_s"]] == pytest.approx([0.008, 0.008])
    # Four requests every 180 ms.
    assert row["goodput_per_s"] == pytest.approx(4 / 0.18)
    assert (row["met"], row["counted"], row["loop"], row["load"]) == (1, N - 8, "closed", 4)
    assert row["met_low"] != row["met_low"], "of one run nobody knows"
    # Fewer than 64 requests of this level count.
    assert row["ttft_p90_s"] != row["ttft_p90_s"] and table["ttft_p99_s"].isna().all()
    assert table.query("loop == 'open'")["late_max_s"].tolist() == pytest.approx([1e-5] * 3)
    assert set(table["machine"]) == set(table["gpu"]) and table["own"].all()
    assert tables.of_each_machine(nothing, tables.TABLES["serving"]).empty


def test_a_run_that_shared_its_machine_is_in_no_level(requests):
    shared = requests.assign(shared_by=requests["backend"].map({"vllm": "others"}).fillna(""))
    assert set(tables.tables(shared)["serving"]["backend"]) == {"llamacpp"}


def largest(requests, goal, **which):
    table = serving_analysis.goal(requests).query(f"goal.str.startswith({goal!r})", engine="python")
    (row,) = table[(table[list(which)] == list(which.values())).all(axis=1)].to_dict("records")
    return tuple(row[name] for name in serving_analysis.GOAL)


@pytest.fixture(scope="module")
def repeated(tmp_path_factory):
    """The servers of `written` without drafts, six runs each: enough to know whether a level holds."""
    folder = tmp_path_factory.mktemp("repeated")
    one, two = {1: (0.04, 0.01), 8: (0.1, 0.012)}, {1: (0.04, 0.006), 8: (0.1, 0.008)}
    opened = {1: (0.05, 0.005), 8: (1.2, 0.016)}
    for repeat in range(1, 7):
        write_serving(folder, CLOSED, opened, backend="llamacpp", option="Q8_0", n=N, run=repeat)
        write_serving(
            folder, one, {2: (0.04, 0.01)}, backend="vllm", option="bfloat16", failed=32, n=N, run=repeat
        )
        more = {"backend": "vllm", "option": "bfloat16", "tensor_parallel": 2, "run": repeat + 6}
        write_serving(folder, two, n=N, **more)
    return store.load(folder=folder)


def test_the_largest_load_that_holds_a_goal(repeated):
    requests = repeated
    # 15 ms a token at 8 at once are too slow for 100 tokens/s; at 8 requests/s the first token takes 1.2
    # s, and the limit is 1 s.
    assert inputs.study()["slo"] == {"ttft_s": 1.0, "tpot_s": 0.1}
    assert largest(requests, "100 output", backend="llamacpp", option="Q8_0") == (4, 8, 8, 1, 8, 8)
    held = largest(requests, "TTFT at most 1000", backend="llamacpp", option="Q8_0")
    assert held[0] == 8 == held[2] and held[1] != held[1] and held[3:] == (1, 8, 8), "none fails"
    # Half of the requests failed: the objectives are not held, whatever the pace of the others.
    assert largest(requests, "TTFT at most 1000", backend="vllm", tensor_parallel=1)[:2] == (0, 1)
    one_loop = largest(requests, "TTFT at most 1000", backend="vllm", tensor_parallel=2)
    assert one_loop[0] == 8 and one_loop[3] != one_loop[3], "no open loop was run, so nothing is known of it"


def test_too_few_runs_hold_and_fail_nothing(tmp_path):
    holds = serving_analysis.goals()[0][1]
    for repeat in range(1, 7):
        write_serving(tmp_path, {1: (0.05, 0.005)}, n=N, run=repeat)
        requests = store.load(folder=tmp_path)
        known = holds(serving_analysis.levels(requests)).tolist()
        if repeat < 3:
            assert known != [1]
    assert known == [1]


def test_a_level_beyond_one_that_does_not_hold_does_not_count(tmp_path):
    for repeat in range(1, 7):
        write_serving(tmp_path, {1: (0.05, 0.005), 2: (0.05, 0.011), 4: (0.05, 0.009)}, n=N, run=repeat)
    assert largest(store.load(folder=tmp_path), "100 output", backend="fake")[:3] == (1, 2, 4)


def test_a_first_token_may_take_three_times_what_it_takes_without_load(tmp_path):
    for repeat in range(1, 7):
        write_serving(tmp_path, {1: (0.05, 0.005), 2: (0.14, 0.005), 4: (0.16, 0.005)}, n=N, run=repeat)
    requests = store.load(folder=tmp_path)
    assert largest(requests, "TTFT at most 3 times", backend="fake")[:3] == (2, 4, 4)
    levels = serving_analysis.levels(requests).set_index("concurrency")
    assert levels["near"].tolist() == [1, 1, 0] and levels["goodput_near_per_s"][4] == 0
    assert levels["goodput_near_per_s"][2] == levels["goodput_per_s"][2], "a second is more than either"
    alone = requests[requests["concurrency"] != 1]
    assert serving_analysis.levels(alone)["near"].isna().all(), "without load it was not measured"


def test_which_options_draft_is_their_adapters_to_say():
    assert drafting.drafts("llamacpp", "Q8_0-ngram") and drafting.drafts("vllm", "bfloat16-ngram")
    assert drafting.drafts("transformers", "float32-lookup") and drafting.drafts(
        "llamacpp", "as-shipped-draft"
    )
    assert not drafting.drafts("llamacpp", "Q8_0")
    assert not drafting.drafts("vllm", "bfloat16-compiled")
    assert not drafting.drafts("gone", "x")


def test_cores_that_share_a_model_are_one_device(tmp_path):
    write_serving(tmp_path, {1: (0.05, 0.005)}, tensor_parallel=2, gpu="epyc-zen5-2c")
    row = serving_analysis.levels(store.load(folder=tmp_path)).iloc[0]
    assert row["per_device"] == row["output_tokens_per_s"]


def test_an_overloaded_loop_is_compared_with_nothing(tmp_path):
    """The level of the test above with a wait that grows by a fifth of a second each second."""
    rows = serving_rows({1: (0.1, 0.01), 2: (0.1, 0.01)}, {7: (0.45, 0.02)}, n=100)
    for k, row in enumerate(row for row in rows if row.get("request_rate")):
        row |= {"ttft_s": row["ttft_s"] + 0.2 * k / 7, "e2e_s": row["e2e_s"] + 0.2 * k / 7}
    sidecar = make_sidecar(parameters={}, weight_bytes=1e7)
    requests = store.load([store.write(rows, sidecar, rows[0]["run_id"], tmp_path)])
    assert level(requests, "fake", "float32", "open", 7)["state"] == "overloaded"


def drawn(requests, **more):
    rows = serving_analysis.levels(requests)
    rows = rows.assign(**{"open loop": rows["loop"] == "open", "short": rows["state"] != "steady"})
    looks = {"hollow": "open loop", "cross": "short"} | more
    return plots.curve(rows, "per_device", "tpot_p50_s", title="Pace", log=True, **looks)


def test_a_closed_loop_is_filled_an_open_one_hollow_and_the_rest_crosses(requests):
    figure = drawn(requests)
    faces = {(str(line.get_marker()), line.get_markerfacecolor() == "white") for line in figure.axes[0].lines}
    assert {hollow for marker, hollow in faces if marker in style.MARKERS} == {False, True}
    assert "x" in {marker for marker, _ in faces}
    said = svg(figure)
    assert "llamacpp Q8_0-ngram" in said and "vllm bfloat16 TP 2" in said and "open loop" in said
    assert figure.get_size_inches()[0] == style.WIDTH
    assert "nothing measured yet" in svg(drawn(requests.iloc[:0]))


def test_the_marks_are_at_the_measured_values_beside_others_in_grey(requests):
    colour = style.look("vllm").colour
    others = inputs.table("published/mlc_h100_tpot").query("tensor_parallel == 1 and load == 'concurrency'")
    others = others.rename(columns={"engine": "label", "output_tokens_per_s_per_gpu": "per_device"})
    figure = drawn(requests, beside=others.assign(tpot_p50_s=others["tpot_ms"] / 1e3))
    lines = [line for line in figure.axes[0].lines if len(line.get_ydata())]
    (line,) = [one for one in lines if one.get_color() == colour and abs(one.get_ydata()[0] - 6) < 1e-6]
    assert line.get_ydata().tolist() == pytest.approx([6, 8])
    assert line.get_xdata()[0] == pytest.approx(11 / 0.1 / 2)
    assert "MLCEngine" in svg(figure) and 6.02 in [one.get_ydata()[0] for one in lines]


@pytest.mark.check
def test_settings_have_panels_of_their_own(requests, tmp_path):
    write_serving(tmp_path, CLOSED, OPENED, model="shape:llama-2-7b", weights="synthetic")
    both = store.load([*store.files(requests.attrs["folder"]), *store.files(tmp_path)])
    said = svg(drawn(both))
    assert "shape:llama-2-7b (synthetic weights)" in said and "smollm2-135m (real weights)" in said
