"""Every check at the edge of what it allows, on several runs of which one falls."""

import numpy as np
import pandas as pd
import pytest
from builders import MATRICES, PEAKS, make_rows, make_sidecar

from bench.observations import checks, derived, schema
from bench.observations.checks import conditions, measurements


def runs(*pairs, published=()):
    """Runs of (rows, sidecar), as they are judged together."""
    pairs = [pair if isinstance(pair, tuple) else (pair, make_sidecar()) for pair in pairs]
    tables = [
        derived.derive(schema.numbers(schema.frame(rows).assign(**derived.context(sidecar)))).assign(
            file=place
        )
        for place, (rows, sidecar) in enumerate(pairs)
    ]
    names = [rows[0]["run_id"] for rows, _ in pairs]
    return checks.Runs(
        pd.concat(tables, ignore_index=True), [s for _, s in pairs], names, frozenset(published)
    )


def changed(*changes, n=3, **columns):
    """Rows of a plausible run, each with its changes."""
    return [row | change for row, change in zip(make_rows(n=n, **columns), [*changes, *[{}] * n])]


PLAUSIBLE = make_rows()
FAILED = {"error": "RuntimeError: no", "e2e_s": -1.0, "ttft_s": 9.0, "prompt_tokens": 0, "output_ids": ""}


# --- by the rows ------------------------------------------------------------------------------------------


def test_a_run_falls_where_every_request_failed():
    first = [row | {"error": f"Error {k}"} for k, row in enumerate(make_rows(run=2))]
    found = measurements.succeeded(runs(PLAUSIBLE, first, changed({"error": "one of three"}, run=3)))
    assert found == {1: "No request succeeded, so nothing was measured; the first error was: Error 0"}
    assert measurements.succeeded(runs(PLAUSIBLE)) == {}
    judged = runs(PLAUSIBLE, make_rows(experiment="quality"))
    assert {file: run.experiment for file, run in judged.each.items()} == {0: "latency", 1: "quality"}


@pytest.mark.parametrize("column", ["prompt_tokens", "max_new_tokens", "batch_size"])
def test_what_is_counted_is_above_zero(column):
    for value in (0, -1, None):
        found = measurements.counts(runs(PLAUSIBLE, changed({}, {column: value})))
        assert found == {1: f"{column} must be a positive number in every row."}
    few = {"max_new_tokens": 1, "output_tokens": 1, "output_ids": "5", "prompt_tokens": 1}
    assert measurements.counts(runs(changed(few, FAILED))) == {}


def test_ids_tokens_and_what_was_asked_for_agree():
    for change in ({"output_ids": "5 5"}, {"output_tokens": 9}, {"max_new_tokens": 11}):
        found = measurements.counts(runs(changed({}, change), PLAUSIBLE))
        assert list(found) == [0] and found[0].startswith("Token counts disagree: output_ids, output_tokens")
    assert measurements.counts(runs(changed({"output_ids": "", "chunks": 9}))) == {}, "over HTTP"
    assert list(measurements.counts(runs(changed({"output_ids": "5", "chunks": 9})))) == [0]
    assert list(measurements.counts(runs(changed({"output_ids": ""})))) == [0]


@pytest.mark.parametrize(
    "change, falls",
    [
        ({"e2e_s": 0.0, "ttft_s": None}, True),
        ({"e2e_s": None, "ttft_s": None}, True),
        ({"e2e_s": 0.04}, True),
        ({"ttft_s": 0.0}, True),
        ({"ttft_s": -0.1}, True),
        ({"e2e_s": 0.05}, False),
        ({"ttft_s": None}, False),
        (FAILED, False),
    ],
)
def test_times_that_contradict_each_other(change, falls):
    found = measurements.ordered_times(runs(PLAUSIBLE, changed({}, change)))
    sentence = "Times contradict each other: 0 < ttft_s <= e2e_s must hold in every row."
    assert found == ({1: sentence} if falls else {})


def served(gap_s, chunks=10, **columns):
    return [
        row | {"chunks": chunks, "e2e_s": row["ttft_s"] + (chunks - 1) * gap_s}
        for row in make_rows(**columns)
    ]


def test_a_lump_is_a_median_gap_that_no_engine_has():
    edge = measurements.EVENT_GAP_S
    found = measurements.streamed(
        runs(served(edge * 0.99), served(edge * 1.01), served(edge / 2, 9), served(0.0, 8))
    )
    assert list(found) == [0, 2]
    assert found[2].startswith(
        "The answers came in one lump: 9 events within 0.2 ms, after 0.05 s of silence. A proxy"
    )
    exact = {"ttft_s": 16 * edge, "e2e_s": 32 * edge, "chunks": 17}
    assert measurements.streamed(runs([row | exact for row in served(edge)])) == {}, "as fast as allowed"
    one = served(0.01)
    one[0] |= {"e2e_s": one[0]["ttft_s"]}
    failed = [row | {"error": "no"} for row in served(0.0)]
    assert measurements.streamed(runs(one, failed)) == {} == measurements.streamed(runs(PLAUSIBLE))


def test_the_first_request_may_take_twice_the_slowest_of_the_others():
    edge = 2 * 0.5 + measurements.WARM_SLACK_S
    for n, first, falls in (
        (3, edge + 1e-6, True),
        (3, edge - 1e-6, False),
        (2, 99.0, False),
        (4, 99.0, True),
    ):
        rows = changed({"e2e_s": first}, {"e2e_s": 0.5}, n=n)
        assert list(measurements.quick_start(runs(PLAUSIBLE, rows))) == ([1] if falls else [])
    found = measurements.quick_start(runs(changed({"e2e_s": 1.5}, {"e2e_s": 0.25}, {"e2e_s": 0.5})))
    assert found == {
        0: "The warm-up had not settled: the first counted request took 1.5 s, the slowest of the others 0.5 s."
    }
    silent = changed({"e2e_s": 9.0, "ttft_s": None})
    assert measurements.quick_start(runs(silent, changed({"e2e_s": 9.0, "error": "no"}))) == {}


def level(rate, *late, **columns):
    rows = make_rows(n=len(late), **columns)
    return [row | {"request_rate": rate, "late_s": each} for row, each in zip(rows, late)]


def test_a_level_counts_where_the_client_was_punctual():
    assert measurements.too_late(10.0, 0.001) == "" == measurements.too_late(10.0, np.nan)
    assert measurements.too_late(10.0, 0.0012).startswith(
        "The load client was late: at 10 requests/s it took up requests 1.2 ms behind schedule (99th "
        "percentile), and 1% of the gap between them is 1 ms."
    )
    found = measurements.punctual(
        runs(level(10, 0.0, 0.0009), [*level(10, 0, 0), *level(4, 0.0, 0.0027)], PLAUSIBLE)
    )
    assert list(found) == [1] and "at 4 requests/s" in found[1] and "2.7 ms" in found[1]
    failed = [row | {"error": "no"} for row in level(10, 9.0, 9.0)]
    assert (
        measurements.punctual(runs([*level(10, 0.0), *failed]))
        == {}
        == measurements.punctual(runs(PLAUSIBLE))
    )
    rows = pd.DataFrame({"request_rate": [2.0] * 100, "late_s": [*[0.0] * 99, 1.0]})
    assert "at 2 requests/s it took up requests 10 ms behind" in checks.late(rows)
    assert checks.late(rows.assign(late_s=0.001)) == ""
    assert checks.late(rows[:1]) == "", "a level of one request"
    close = measurements.too_late(5.132, 0.001949)
    assert "requests 1.9 ms behind" in close and "the gap between them is 1.9 ms. Give" in close


def test_one_late_level_of_sessions_refuses_a_run_whatever_the_next_one_says():
    each = {"arrivals": "poisson", "cache_capacity_tokens": 0.0, "turn": 1}
    levels = [
        row | each | {"session_rate": rate, "late_s": late}
        for rate, late in ((1, 9.0), (2, 0.0))
        for row in PLAUSIBLE
    ]
    assert "The load client was late" in measurements.punctual(runs(levels))[0]


def test_a_hit_of_a_cache_is_one_too_many():
    hits = changed({"cached_tokens": 0}, {"cached_tokens": 3}, {"cached_tokens": 7})
    found = measurements.uncached(runs(PLAUSIBLE, hits, changed({"cached_tokens": 0})))
    assert list(found) == [1]
    assert found[1].startswith(
        "The server answered 2 requests from its prefix cache (7 of 8 prompt tokens). Start it without prefix "
        "caching, or have requests switch it off"
    )


def test_the_chat_template_of_a_server_elsewhere_may_come_from_its_cache():
    chat = make_sidecar(settings={"prefix_cache_trial": {"reported": True, "template_tokens": 3}})
    behind = (changed(*[{"cached_tokens": 3}] * 3), chat)
    beyond = (changed({"cached_tokens": 3}, {"cached_tokens": 4}, {"cached_tokens": 3}), chat)
    found = measurements.uncached(runs(behind, beyond))
    assert list(found) == [1] and "answered 1 requests from its prefix cache (4 of 8" in found[1]


def test_more_bytes_than_memory_gives_are_refused():
    # 100 MB and 13 tokens' cache in a step of 10 ms are 10 GB/s; of 10 GB/s that is a little above 1.
    slow = make_sidecar(bandwidth_probes_bytes_per_s=[5e9, 10e9])
    rows = changed(*[{"e2e_s": 0.05 + 9 * 0.008}] * 3)
    found = measurements.possible_bandwidth(runs(PLAUSIBLE, (rows, slow)))
    assert list(found) == [1]
    assert "MBU is 1.25, above 1: 0.100 GB of weights in 8.00 ms is more than the 10.0 GB/s" in found[1]
    roof = (1e8 + 13 * 4000) / 0.01
    for share, falls in ((1.001, False), (0.999, True)):
        exact = make_sidecar(bandwidth_probes_bytes_per_s=[roof * share])
        assert bool(measurements.possible_bandwidth(runs((PLAUSIBLE, exact)))) == falls
    whole = [row | {"ttft_s": 0.0625, "e2e_s": 0.0625 + 9 / 128} for row in PLAUSIBLE]
    most = make_sidecar(bandwidth_probes_bytes_per_s=[128e8], kv_values_per_token=0)
    assert measurements.possible_bandwidth(runs((whole, most))) == {}, "exactly 1"
    two = [row | {"tensor_parallel": 2, "gpu": "test-gpu"} for row in rows]
    assert (
        "the 14.0 GB/s"
        in measurements.possible_bandwidth(
            runs((two, make_sidecar(bandwidth_probes_bytes_per_s=[7e9], weight_bytes=2e8)))
        )[0]
    )


def test_one_request_may_have_run_where_memory_was_faster():
    """Faster than beside every probe of its run: the median is what counts."""
    probes = {"bandwidth_probes_bytes_per_s": [12e9]}
    quick = changed({"e2e_s": 0.05 + 9 * 0.007})  # MBU 1.19; of the others 0.83
    seen = make_rows(run=2), make_sidecar(bandwidth_probes_bytes_per_s=[13.1e9])
    assert measurements.possible_bandwidth(runs((quick, make_sidecar(**probes)), seen)) == {}
    assert list(measurements.possible_bandwidth(runs((quick, make_sidecar(**probes))))) == [0], (
        "none was so fast"
    )
    other = [row | {"host": "def456"} for row in seen[0]], seen[1]
    assert list(measurements.possible_bandwidth(runs((quick, make_sidecar(**probes)), other))) == [0]
    known = pd.DataFrame({"gpu": ["test-cpu"], "host": ["abc123"], "memory": [13.1e9]})
    alone = runs((quick, make_sidecar(**probes)))
    of_device = checks.Runs(alone.rows, alone.sidecars, alone.identifiers, known=known)
    assert measurements.possible_bandwidth(of_device) == {}, "by what another run of the device has found"


def test_more_operations_than_the_peak_are_refused():
    sidecar = make_sidecar(**MATRICES, **PEAKS)
    # A step of (2 x 2.5e7 + 4 x 2e4 x 13) operations in 0.1 ms: 510 GFLOP/s of 400; one of 10 ms: 5.
    quick = changed({"itl_p50_s": 1e-4, "sent_s": 0.0}, n=1)
    found = measurements.possible_arithmetic(runs(PLAUSIBLE, (quick, sidecar), (make_rows(run=2), sidecar)))
    assert list(found) == [1]
    assert found[1].startswith(
        "MFU of the decode is 1.28 at batch 1, above 1: more than the float32 peak of 400 GFLOP/s"
    )
    # Eight prompt tokens in half a millisecond: 8 x (2 x 2e7 + …) operations are 650 GFLOP/s and more.
    both = changed({"itl_p50_s": 1e-4, "ttft_s": 5e-4, "sent_s": 0.0}, n=1)
    assert "MFU of the prefill is " in measurements.possible_arithmetic(runs((both, sidecar)))[0]
    assert measurements.possible_arithmetic(runs(PLAUSIBLE)) == {}
    judged = runs((changed({"itl_p50_s": 1 / 128, "sent_s": 0.0, "ttft_s": 1.0, "e2e_s": 2.0}, n=1), sidecar))
    peak = derived.batches(judged.rows)["decode_flops_per_s"].iloc[0]
    judged.rows["peak_flops_per_s"] = peak
    assert derived.batches(judged.rows)["mfu_decode"].iloc[0] == 1
    assert measurements.possible_arithmetic(judged) == {}, "exactly 1"
    worse = changed({"itl_p50_s": 1e-4, "sent_s": 0.0}, {"itl_p50_s": 5e-5, "sent_s": 9.0}, n=2)
    assert "is 2.55" in measurements.possible_arithmetic(runs((worse, sidecar)))[0], "the highest is named"


# --- by the sidecar ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "warmup, settled",
    [
        ([], False),
        ([{"e2e_s": 1.0}], False),
        ([{"e2e_s": 9.0}, {"e2e_s": 1.0}, {"e2e_s": 1.03}], True),
        ([{"e2e_s": 1.0}, {"e2e_s": 1.04}], False),
        ([{"e2e_s": 1.04}, {"e2e_s": 1.0}], False),
        ([{"e2e_s": 1.0}, {"e2e_s": 0.9701}], True),
        ([{"e2e_s": 100.0}, {"e2e_s": 97.0}], True),
        ([{"e2e_s": 1.0, "clocks.sm": 1000}, {"e2e_s": 1.0, "clocks.sm": 1050}], False),
        ([{"e2e_s": 1.0, "clocks.sm": None}, {"e2e_s": 1.0, "clocks.sm": 1050}], True),
        ([{"e2e_s": 1.0, "clocks.sm": 100}, {"e2e_s": 1.0, "clocks.sm": 98}], True),
    ],
)
def test_two_requests_alike_are_settled(warmup, settled):
    assert checks.settled(warmup) == settled
    for count, falls in ((20, not settled), (19, False)):
        whole = make_sidecar(warmup=[{"e2e_s": 7.0}] * (count - len(warmup)) + warmup)
        if len(warmup) > 1:
            found = conditions.warm(runs(PLAUSIBLE, (make_rows(run=2), whole)))
            assert list(found) == ([1] if falls else [])
            assert not falls or ("after 20 requests" in found[1] and str(warmup[-2:]) in found[1])


@pytest.mark.parametrize(
    "check, name, most, words",
    [
        (
            conditions.alone,
            "others",
            conditions.BUSY_SHARE,
            "kept 0.04 cores busy during this run (allowed: 3% of its 1)",
        ),
        (conditions.not_stolen, "steal", conditions.STEAL_CORES, "gave 0.11 of this machine's cores"),
        (conditions.unthrottled, "throttled", conditions.THROTTLED_SHARE, "back for 2% of its time"),
    ],
)
def test_contention_at_the_edge(check, name, most, words):
    def said(**busy):
        return check(runs(PLAUSIBLE, (make_rows(run=2), make_sidecar(busy_cores=busy, threads=1))))

    assert said() == said(**{name: None}) == said(**{name: most}) == {}
    assert words in said(**{name: most + 0.01})[1]
    busy = make_sidecar(busy_cores={name: 0.9})
    elsewhere = busy | {"parameters": {"url": "http://there"}}
    quality = make_rows(experiment="quality")
    of_each = runs((quality, busy), (make_rows(run=2), busy), (make_rows(run=3), elsewhere), make_rows(run=4))
    assert list(check(of_each)) == [1], "scores are no times, and a server elsewhere is one of the others"
    unsaid = {name: value for name, value in busy.items() if name != "busy_cores"}
    assert check(runs((make_rows(), unsaid))) == {}, "what it does not hold rejects nothing"


def test_a_run_that_says_itself_that_it_was_shared_passes_in_a_folder_of_one_s_own():
    busy = make_sidecar(busy_cores={"others": 0.9})
    shared = busy | {"shared": "it was"}
    judged = runs((make_rows(), busy), (make_rows(run=2), shared), (make_rows(run=3), shared), published=[2])
    assert list(conditions.alone(judged)) == [0, 2]
    rows, name = schema.frame(make_rows()), make_rows()[0]["run_id"]
    for faults, words in (({"others": 0.9}, "Other processes kept 0.90"), ({"steal": 0.2}, "gave 0.20 of")):
        sidecar = make_sidecar(busy_cores=faults)
        with pytest.raises(checks.Rejected, match=words):
            checks.check(rows, sidecar, name)
        assert "shared" not in sidecar
        checks.check(rows, sidecar, name, scratch=True)
        assert words in sidecar["shared"]
        marked = make_sidecar(busy_cores={"others": 0.0, "steal": 0.0} | faults)
        checks.check(rows, marked, name, marked=True)
        assert marked["shared"] == sidecar["shared"]
    calm, scores = make_sidecar(), make_rows(experiment="quality")
    checks.check(rows, calm, name, scratch=True)
    checks.check(schema.frame(scores), busy, scores[0]["run_id"], scratch=True)
    assert "shared" not in calm and "shared" not in busy, "scores are no times"
    checks.check(rows[:1], shared | {"busy_cores": {"steal": 0.2}}, name, scratch=True)
    with pytest.raises(checks.Rejected, match="nobody knows"):
        checks.check(rows, make_sidecar(busy_cores={}), name, marked=True)


@pytest.mark.parametrize(
    "changes, words",
    [
        ({"busy_cores": {"others": 0.14, "steal": 0.0}}, "others used 7% of the CPU"),
        ({"busy_cores": {"others": 0.0, "steal": 0.5}}, "other virtual machines used 25% of the CPU"),
        (
            {"busy_cores": {"others": 0.0, "steal": 0.0, "throttled": 0.05}},
            "a quota held it back for 5% of the time",
        ),
        (
            {"warmup": [{"clocks.sm": 1000}], "machine": {"gpu_after": {"clocks.sm": 500}}},
            "the GPU's clock changed meanwhile",
        ),
    ],
)
def test_what_a_run_shared_its_machine_with_is_said_in_a_few_words(changes, words):
    sidecar = make_sidecar(threads=2, **changes)
    assert conditions.sharing(sidecar, "latency")["shared_by"] == words
    assert conditions.sharing(sidecar, "latency")["shared"].endswith(".")
    assert not conditions.sharing(make_sidecar(), "latency")
    assert not conditions.sharing(sidecar, "quality")


@pytest.mark.parametrize(
    "after, falls", [(1100, False), (1101, True), (900, False), (899, True), (None, False), (0, False)]
)
def test_a_clock_at_the_edge(after, falls):
    warmup = [{"clocks.sm": 500.0}, {"clocks.sm": 1000.0}, {"clocks.sm": None}, {}]
    sidecar = make_sidecar(warmup=warmup, machine={"gpu_after": {"clocks.sm": after}})
    assert conditions.clocks(sidecar) == (1000.0, after) and conditions.clocks({}) == (None, None)
    found = conditions.steady_clock(runs(PLAUSIBLE, (make_rows(run=2), sidecar)))
    assert list(found) == ([1] if falls else [])
    assert not falls or f"went from 1000 to {after} MHz during this run, more than 10%." in found[1]


# --- all of them ------------------------------------------------------------------------------------------


def test_what_is_not_whole_is_refused_with_what_it_lacks():
    table = schema.frame(make_rows())
    for lacking, sidecar, words in (
        (table.drop(columns=["ttft_s", "chunks"]), make_sidecar(), "The run lacks ttft_s, chunks: every row"),
        (table, {k: v for k, v in make_sidecar().items() if k != "git"}, "The run lacks git: every"),
        (table[:0], make_sidecar(), "The run lacks rows: every"),
    ):
        with pytest.raises(checks.Rejected, match=words):
            checks.check(lacking, sidecar, "fake/x")
    with pytest.raises(checks.Rejected, match="MBU is"):
        checks.check(table, make_sidecar(weight_bytes=1e12), make_rows()[0]["run_id"])
    with pytest.raises(checks.Rejected, match="the path says fake/another-1"):
        checks.check(table, make_sidecar(), "fake/another-1")
    checks.check(table, make_sidecar(), make_rows()[0]["run_id"])


def test_a_run_fails_by_its_first_check():
    both = make_sidecar(busy_cores={"others": 1.0, "steal": 1.0})
    judged = runs(PLAUSIBLE, (changed({"e2e_s": -1.0}, run=2), both), (make_rows(run=3), both))
    found = checks.rejected(judged)
    assert {file: name for file, (name, _) in found.items()} == {
        1: "times do not contradict each other",
        2: "no neighbours on the processor",
    }
    assert found[2][1].startswith("Other processes kept 1.00 cores")
    assert all(type(file) is int for file in found)
