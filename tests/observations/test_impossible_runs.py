"""What cannot be true is refused: copies of committed runs, each with one thing in them changed."""

import re

import pytest

from bench.observations import checks, schema, store
from bench.observations.checks import measurements
from bench.paths import ROOT

FOLDER = ROOT / "_llama-inference"
LATENCY = "llamacpp/latency-smollm2-135m-Q4_0-epyc-zen5-2c-096e72-1"
COUNTED = {"others": 0.01, "steal": 0.0}


def refusal(name, change_row=None, rows=slice(None), **changes):
    """The sentence with which the validity checks reject a copy of the committed run `name`, its fields changed by
    `changes` and the dicts of `rows` by `change_row`; empty where it passes."""
    own, sidecar = store.read(FOLDER / f"{name}.csv")
    own = schema.numbers(schema.frame(own)).to_dict("records")
    for row in own[rows] if change_row else []:
        row |= change_row(row)
    changes = {key: value(sidecar) if callable(value) else value for key, value in changes.items()}
    try:
        checks.check(schema.frame(own), sidecar | changes, name)
        return ""
    except checks.Rejected as refused:
        return str(refused)


def gaps(**seconds):
    return lambda row: {f"itl_{name}_s": value for name, value in seconds.items()}


def times(factor, *also):
    return lambda row: {name: row[name] * factor for name in ("ttft_s", "e2e_s", *also)}


GAPS = "itl_p50_s itl_p90_s itl_p99_s itl_max_s".split()
CASES = {
    "a median gap of 9.9 s": ({"change_row": gaps(p50=9.9), "rows": slice(1)}, "Gaps between tokens"),
    "a longest gap above the answer": (
        {"change_row": gaps(max=9.9), "rows": slice(1)},
        "Gaps between tokens",
    ),
    "percentiles out of order": (
        {"change_row": lambda row: {"itl_p90_s": row["itl_p50_s"] / 2}, "rows": slice(1)},
        "Gaps between tokens",
    ),
    "times halved beside their gaps": ({"change_row": times(0.45)}, "Gaps between tokens"),
    "a first token after 1 µs": (
        {"change_row": lambda row: {"ttft_s": 1e-6}},
        "first token came after 0.001 ms",
    ),
    "a first token before its prompt was computed": (
        {"change_row": lambda row: {"ttft_s": row["ttft_s"] / 20}, "rows": slice(1)},
        "first token came after",
    ),
    "one token repeated": (
        {"change_row": lambda row: {"output_ids": " ".join(["28"] * 200)}, "rows": slice(4, 5)},
        "is one token, 200 times",
    ),
    "nine equal answers": (
        {"change_row": lambda row: {"output_ids": " ".join(map(str, range(200)))}},
        "9 different prompts are one and the same",
    ),
    "no probes, and times a fifth": (
        {"change_row": times(0.2, *GAPS), "bandwidth_probes_bytes_per_s": [], "probe_cpu_shares": []},
        "MBU of a request|No probe",
    ),
    "no probes": ({"bandwidth_probes_bytes_per_s": [], "probe_cpu_shares": []}, "No probe of the memory"),
    "no bytes of weights": ({"weight_bytes": 0}, "said to read 0.000 GB"),
    "half of the bytes": ({"weight_bytes": lambda sidecar: sidecar["weight_bytes"] // 2}, "said to read 0.0"),
    "twelve times the bytes": (
        {"weight_bytes": lambda sidecar: 12 * sidecar["weight_bytes"]},
        "MBU|said to read",
    ),
    "nothing counted": ({"busy_cores": {}}, "no value of others and steal"),
    "counters without values": (
        {"busy_cores": {"others": None, "steal": None}},
        "no value of others and steal",
    ),
    "a counter in words": ({"busy_cores": COUNTED | {"steal": "few"}}, "no value of steal"),
    "0.49 cores of others": ({"busy_cores": COUNTED | {"others": 0.49}}, "kept 0.49 cores busy"),
    "0.07 cores of others, of two": ({"busy_cores": COUNTED | {"others": 0.07}}, "allowed: 3% of its 2"),
}


@pytest.mark.parametrize("changes, words", CASES.values(), ids=CASES)
def test_what_cannot_be_true_is_refused(changes, words):
    assert re.search(words, refusal(LATENCY, **changes))


def test_the_run_itself_passes():
    assert refusal(LATENCY) == ""
    assert refusal(LATENCY, busy_cores=COUNTED | {"others": 0.059}) == ""


def test_float32_weights_are_not_those_of_an_engine_that_multiplies_in_bfloat16():
    name = "openvino/latency-smollm2-135m-F16-epyc-zen5-2c-096e72-1"  # reads float32, and says so
    assert refusal(name) == ""
    assert "said to read 0.538 GB" in refusal(name, arithmetic="bfloat16")


def test_a_good_run_with_one_request_while_memory_was_faster_passes():
    """All ten probes found 49 to 51 GB/s, and other runs of that machine 80."""
    name = "openvino/latency-shape-tinyllama-1.1b-F16-epyc-zen5-2c-096e72-1"

    def quicker(factor):
        return lambda row: (
            {"e2e_s": row["ttft_s"] + (row["e2e_s"] - row["ttft_s"]) / factor}
            | {gap: row[gap] / factor for gap in GAPS}
        )

    assert refusal(name) == "" == refusal(name, change_row=quicker(1.2), rows=slice(3, 4))
    assert "MBU of a request" in refusal(name, change_row=quicker(2.2), rows=slice(3, 4))
    assert "MBU is 1.0" in refusal(name, change_row=quicker(1.2))


def test_short_answers_and_random_weights_say_nothing():
    """A token repeated is what a checkpoint of random weights may well answer, and a word what a few tokens are."""
    name = "openvino/latency-shape-tinyllama-1.1b-F16-epyc-zen5-2c-096e72-1"
    assert refusal(name, change_row=lambda row: {"output_ids": " ".join(["28"] * 200)}) == ""
    few = measurements.TELLING_TOKENS - 1

    def short(row):
        span = (row["e2e_s"] - row["ttft_s"]) / 199
        gaps_ = dict.fromkeys(GAPS, span)
        ids = {"output_ids": " ".join(["28"] * few), "output_tokens": few, "max_new_tokens": few}
        return ids | gaps_ | {"e2e_s": row["ttft_s"] + span * (few - 1)}

    assert refusal(LATENCY, change_row=short) == ""


# Committed runs that fell before MBU was taken against a measuring session's probes. None for its MBU.
REFUSED = [
    "llamacpp/latency-smollm2-135m-F16-intel-xeon-2c-8e4d97-1",
    "llamacpp/serving-smollm2-135m-Q4_0-epyc-zen5-2c-096e72-1",
    "onnxruntime/latency-smollm2-135m-int8-intel-xeon-2c-8e4d97-1",
    "transformers/latency-smollm2-135m-float32-epyc-zen4-2c-c54d46-3",
]


@pytest.mark.check
def test_no_committed_run_changes_its_verdict_on_bandwidth_by_the_session_it_is_read_with():
    together, alone = (store.read_all(store.files(FOLDER), alone=alone) for alone in (False, True))
    assert measurements.possible_bandwidth(together) == measurements.possible_bandwidth(alone) == {}
    quantile, highest = (
        together.rows.groupby("file")[name].first()
        for name in ("bandwidth_bytes_per_s", "fastest_probe_bytes_per_s")
    )
    assert (quantile.dropna() <= highest[quantile.notna()]).all() and (quantile < highest).any()


@pytest.mark.check
def test_runs_that_a_later_check_rejects_are_named_and_enter_no_table():
    every = store.read_all(store.files(FOLDER))
    refused_runs = {every.identifiers[file]: gate for file, (gate, _) in checks.rejected(every).items()}
    assert set(refused_runs.values()) <= {"no neighbours on the processor"}
    assert sorted(set(refused_runs) & set(REFUSED)) == REFUSED, "a run that was refused is accepted"
    assert len(refused_runs) < 0.02 * len(every.identifiers), "a check that rejects many runs is wrong itself"
    assert not set(store.load(folder=FOLDER)["run_id"]) & set(refused_runs)
