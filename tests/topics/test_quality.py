"""Quality: the arithmetic on hand-made ids, the scoring against a second computation, the notebook, the rows of
the file."""

import math
import re
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from builders import MATRICES, answer_ids, make_sidecar, write_quality, write_run

from bench import backends, inputs
from bench.backends.common import checkpoints
from bench.experiments import quality as quality_experiment
from bench.instrument import in_process
from bench.observations import store
from bench.topics import quality as quality_analysis
from bench.topics import tables

INT8, Q4 = {"backend": "ctranslate2", "option": "int8"}, {"backend": "llamacpp", "option": "Q4_0"}
SAME = [[1, 2, 3, 4], [5, 6, 7, 8]]
LATER = {"run": 2, "sidecar": {"started": "2026-02-01T00:00:00+00:00"}}


@pytest.fixture
def folder(tmp_path):
    """The reference at 30 tokens/s, a bfloat16 that gives the same, an int8 that departs, and a Q4_0
    without log-probabilities."""
    rates = {
        ("transformers", "float32"): 30.0,
        ("transformers", "bfloat16"): 60.0,
        ("ctranslate2", "int8"): 90.0,
        ("llamacpp", "Q4_0"): 200.0,
    }
    for (backend, option), rate in rates.items():
        for each, off in enumerate((-0.5, 0.5, 0), start=1):
            columns = {"backend": backend, "option": option, "rate": rate + off, "run": each}
            write_run(tmp_path, make_sidecar(**MATRICES), **columns)
    write_quality(tmp_path, SAME, [0.4, 0.6], [2.0, 3.0], backend="transformers", option="float32")
    write_quality(tmp_path, SAME, [0.4, 0.6], [2.0, 3.1], backend="transformers", option="bfloat16")
    write_quality(tmp_path, [[1, 2, 9, 4], [5, 6, 7, 8]], [0.5, 0.6], [2.5, 3.5], **INT8)
    write_quality(tmp_path, [[9, 2, 9, 4], [5, 9, 9, 9]], [0.2, 0.4], **Q4)
    return tmp_path


def row_of(requests, option):
    table = quality_analysis.summary(requests)
    return table[table["option"] == option].iloc[0]


@pytest.mark.parametrize(
    ("ids", "reference", "place", "share"),
    [
        ([1, 2, 3], [1, 2, 3], math.nan, 1.0),
        ([9, 2, 3], [1, 2, 3], 0, 2 / 3),
        ([1, 2, 9, 4], [1, 2, 3, 4], 2, 0.75),
        ([4, 5], [5, 4], 0, 0.0),
    ],
)
def test_where_an_answer_departs_and_how_much_agrees(ids, reference, place, share):
    assert quality_analysis.departs_at(ids, reference) == pytest.approx(place, nan_ok=True)
    assert quality_analysis.agreement(ids, reference) == pytest.approx(share)


class Uniform:
    """An engine that finds every token of a vocabulary of `size` equally likely."""

    def __init__(self, size=50):
        self.size = size

    def log_probabilities(self, ids):
        return [-math.log(self.size)] * (len(ids) - 1)


def test_the_nll_is_that_of_the_scored_tokens_alone():
    # The k-th token after the first: -k.
    graded = SimpleNamespace(log_probabilities=lambda ids: [-float(k) for k in range(1, len(ids))])
    assert quality_experiment.nll_nats(graded, [5, 5, 5], [6, 7]) == pytest.approx((3 + 4) / 2)
    assert quality_experiment.nll_nats(Uniform(), [5], [6, 7, 8]) == pytest.approx(math.log(50))


@pytest.mark.parametrize(
    ("log_probabilities", "words"),
    [
        ([-1.0], "gave 1 log-probabilities for 3 tokens"),
        ([-1.0, math.nan], "not finite"),
        ([-1.0, 0.5], "above 0"),
        ([-1.0, -math.inf], "not finite"),
    ],
)
def test_what_cannot_be_log_probabilities_is_an_error_of_its_row_alone(log_probabilities, words):
    engine = SimpleNamespace(log_probabilities=lambda ids: log_probabilities)
    with pytest.raises(ValueError, match=words):
        quality_experiment.nll_nats(engine, [1], [2, 3])
    row = quality_experiment.score(in_process.Stopwatch(), "own_nll_nats", engine, [1], [2, 3])
    assert words in row["error"] and "own_nll_nats" not in row


def test_a_request_that_failed_has_nothing_to_score():
    row = quality_experiment.score(
        in_process.Stopwatch(), "reference_nll_nats", Uniform(), [1], [], "MemoryError: no room"
    )
    assert "no answer: MemoryError: no room" in row["error"]


def setup_of(folder, names, parameters):
    """A session of the experiment quality, as far as `stored` reads it."""
    parameters = {"answers": "latency"} | parameters
    identity = {"experiment": "quality", "model": "smollm2-135m", "gpu": "test-cpu", "host": "abc123"} | names
    return SimpleNamespace(
        identity=identity, option=names["option"], device="cpu", folder=folder, parameters=parameters
    )


def test_the_newest_latency_run_of_that_length_is_scored(tmp_path):
    digests = {"prompts_sha256": inputs.digest("prompts"), "model_sha256": "this one"}
    for number, tokens in ((9, 10), (10, 10), (11, 5)):
        write_run(tmp_path, make_sidecar(**MATRICES, **digests), run=number, tokens=tokens, **INT8)
    setup = setup_of(tmp_path, INT8, {"max_new_tokens": 10})
    setup.checkpoint = SimpleNamespace(same_model=lambda sha256: sha256 == "this one")
    setup.prompts = lambda which: {k: [100 + k] for k in range(1, 10)}
    found = quality_experiment.stored(setup)
    assert found.run_id.endswith("-10")
    assert found.requests[1] == quality_experiment.Request(
        2, [102], [int(token) for token in answer_ids(2, 10).split()], ""
    )
    setup.checkpoint = SimpleNamespace(same_model=lambda sha256: False)
    with pytest.raises(ValueError, match="The model of ctranslate2/latency-.*-10 .* is not what is here"):
        quality_experiment.stored(setup)
    setup.parameters = {"answers": "latency", "max_new_tokens": 200}
    with pytest.raises(FileNotFoundError, match="-p max_new_tokens 200"):
        quality_experiment.stored(setup)


def test_an_engine_without_log_probabilities_is_not_loaded():
    """Its description then comes from its latency run; one that has them is loaded after the reference
    has gone."""
    gone = []
    setup = SimpleNamespace(
        device="cpu",
        backend=backends.Backend("one", SimpleNamespace(Engine=object)),
        load=lambda: "loaded",
        use=lambda engine: engine,
    )
    answers = quality_experiment.Answers(
        "x", {"weight_bytes": 5, "kv_value_bytes": 2, "settings": {"threads": 2}}, []
    )
    stand_in = quality_experiment.engine(setup, SimpleNamespace(close=lambda: gone.append(1)), answers)
    assert (stand_in.weight_bytes, stand_in.kv_value_bytes, stand_in.settings) == (5, 2, {"threads": 2})
    assert gone == [1]
    setup.backend.module.Engine = Uniform
    assert (
        quality_experiment.engine(setup, SimpleNamespace(close=lambda: gone.append(2)), answers) == "loaded"
    )
    assert gone == [1, 2]


def test_a_text_is_cut_into_pieces_that_can_be_scored():
    assert quality_experiment.chunks(Uniform(), list(range(9)), 4) == [[0, 1, 2, 3], [4, 5, 6, 7]]
    assert quality_experiment.chunks(Uniform(), list(range(10)), 4)[-1] == [8, 9]
    assert quality_experiment.chunks(object(), list(range(10)), 4) == []


@pytest.mark.check
def test_the_reference_scores_as_a_second_computation_does(tmp_path):
    """A random two-layer Llama: the adapter's log-probabilities against logits written out by hand, token
    by token."""
    torch = pytest.importorskip("torch")
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(0)
    shape = {
        "hidden_size": 32,
        "intermediate_size": 64,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "vocab_size": 40,
    }
    model = LlamaForCausalLM(LlamaConfig(**shape, eos_token_id=2)).eval()
    model.save_pretrained(tmp_path)
    engine = backends.get("transformers").load(
        checkpoints.Checkpoint("tiny", tmp_path, "real"), "float32", "cpu", 1
    )
    context, ids, nats = [3, 4, 5], [6, 7, 8, 9], []
    for k, token in enumerate(ids):
        with torch.no_grad():
            logits = model(torch.tensor([context + ids[:k]])).logits[0, -1].double().numpy()
        nats.append(np.log(np.exp(logits - logits.max()).sum()) + logits.max() - logits[token])
    assert quality_experiment.nll_nats(engine, context, ids) == pytest.approx(np.mean(nats), rel=1e-5)
    engine.close()


def test_the_summary_is_what_one_computes_by_hand(folder):
    requests = store.load(folder=folder)
    table = quality_analysis.summary(requests)
    assert list(table["option"]) == ["Q4_0", "int8", "bfloat16", "float32"]
    assert table["output_tokens_per_s"].is_monotonic_decreasing
    int8, q4, own = row_of(requests, "int8"), row_of(requests, "Q4_0"), row_of(requests, "float32")
    assert (int8["agreement"], int8["same_answers"], int8["answers"], int8["departs_first"]) == (
        7 / 8,
        1,
        2,
        2,
    )
    assert math.isnan(int8["departs_median"]) and q4["departs_median"] == 0.5 and q4["departs_first"] == 0
    assert q4["agreement"] == pytest.approx((2 / 4 + 1 / 4) / 2)
    assert own["perplexity"] == pytest.approx(math.exp((20 * 2 + 12 * 3) / 32))
    assert own["agreement"] == 1
    assert own["perplexity_ratio"] == 1
    assert int8["perplexity_ratio"] == pytest.approx(math.exp(0.5)) and math.isnan(q4["perplexity"])
    assert int8["weight_bytes"] == 1e8


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        ("we can multiply 9 by 8, which is 72.", "72"),
        ("The answer is 11. The answer is 11.", "11"),
        ("9 multiplied by 8 equals 64.", "64"),
        ("We need the product of 9 and 8.", "none"),
        ("Steps:\n\n1. Identify the numbers: 9 and 8.\n2. Multiply: 9 × 8.\n\n9 × 8 = 72\n", "72"),
        (r"1. Write \[9 \times 8 = (10 - 1) \times 8 = 10 \times 8 - 8 = 80 - 8 = 72.\]", "72"),
        (
            r"- First: \(9 \times 8 = 72\).\n- Next: \(9 \times 1 = 9\).\n- Add: \(72 + 9 = 81\). So, the",
            "81",
        ),
        (r"\[9 \times 8 = 9 \times (10 - 2) = (9 \times 10) - (9 \times 2)\]", "none"),
        ("num1 = 9\nnum2 = 8\nprint(num1 * num2)\n```\n```output\n72\n```", "72"),
    ],
)
def test_the_product_is_the_first_result_that_an_answer_states(answer, said):
    assert quality_analysis.product(answer) == said


def test_a_wrong_product_or_a_worse_text_is_a_loss_and_rounding_is_none(tmp_path):
    def write(option, answer, *nll, backend="fake"):
        write_run(tmp_path, make_sidecar(**MATRICES), backend=backend, option=option, n=9, answer=answer)
        write_quality(tmp_path, SAME, [0.4, 0.6], list(nll), backend=backend, option=option)

    write("float32", "It is 72.", 2.0, 3.0, backend="transformers")
    write("bfloat16", "It is 72.", 2.001, 3.001)
    write("int8", "It is 72.", 2.3, 3.3)
    write("int4", "The answer is 11.", 2.0, 3.0)
    table = quality_analysis.costs(store.load(folder=tmp_path)).set_index("option")
    assert table["worse"].to_dict() == {"float32": False, "bfloat16": False, "int8": True, "int4": True}
    said = {option: quality_analysis.verdict(row) for option, row in table.iterrows()}
    assert said["int4"] == "9 × 8 = 11" and said["int8"] == "perplexity +35 %"
    assert said["float32"] == said["bfloat16"] == "as the reference"


def test_the_newest_run_counts_and_speed_comes_from_latency_runs_alone(folder):
    write_quality(folder, SAME, [0.4, 0.6], [2.0, 3.0], **INT8, **LATER)
    requests = store.load(folder=folder)
    assert row_of(requests, "int8")["agreement"] == 1
    latency = requests[requests["experiment"] == "latency"]
    rates = latency[latency["option"] == "int8"]["output_tokens_per_s"]
    assert row_of(requests, "int8")["output_tokens_per_s"] == pytest.approx(rates.mean(), rel=1e-4)


def test_without_a_scored_reference_nothing_is_compared(tmp_path):
    write_run(tmp_path, make_sidecar(**MATRICES), **INT8)
    write_quality(tmp_path, [[1, 2], [3, 4]], [0.4, 0.6], [2.0, 3.0], **INT8)
    requests = store.load(folder=tmp_path)
    row = row_of(requests, "int8")
    assert row["perplexity"] > 0
    assert row[["agreement", "same_answers", "perplexity_ratio"]].isna().all()


def test_another_text_and_a_text_with_a_gap_have_no_ratio(folder):
    other = {"pieces": ([7] * 20, [9] * 12)}
    write_quality(folder, [[1, 2, 3, 4]], [0.4], [2.0, 3.0], backend="openvino", option="F16", **other)
    write_quality(folder, [[1, 2, 3, 4]], [0.4], [2.0, None], backend="onnxruntime", option="int4")
    requests = store.load(folder=folder)
    assert row_of(requests, "F16")["perplexity"] > 0
    assert math.isnan(row_of(requests, "F16")["perplexity_ratio"])
    assert math.isnan(row_of(requests, "int4")["perplexity"])


def test_synthetic_weights_have_no_quality(folder):
    random = {"weights": "synthetic", "model": "shape:llama-2-7b"}
    write_quality(folder, SAME[:1], [0.4], backend="openvino", option="F16", **random)
    requests = store.load(folder=folder)
    assert "openvino" not in set(quality_analysis.summary(requests)["backend"])
    with pytest.raises(ValueError, match="random weights"):
        quality_experiment.demand_real("shape:llama-2-7b")
    quality_experiment.demand_real("smollm2-135m")


def test_the_frontier_is_what_nothing_beats():
    rates, lost = [10, 20, 20, 30, 40, np.nan, 50], [0.0, 0.0, 0.1, 0.5, 0.4, 0.0, np.nan]
    table = pd.DataFrame({"output_tokens_per_s": rates, "lost": lost})
    assert list(quality_analysis.frontier(table, "lost")) == [False, True, False, False, True, False, False]


def test_the_file_has_what_was_computed_of_each_machine(folder):
    write_run(folder, **INT8, gpu="other-cpu", host="def456")
    write_quality(folder, SAME, [0.4, 0.6], [2.0, 3.0], **INT8, gpu="other-cpu", host="def456")
    rows = tables.tables(store.load(folder=folder))["quality"].set_index(["machine", "option"])
    int8 = rows.loc[("test-cpu", "int8")]
    assert (int8["agreement"], int8["differing_tokens"], int8["same_answers"]) == (7 / 8, 1 / 8, 1)
    # The bfloat16 gives the reference's tokens and is faster.
    frontier = rows.loc["test-cpu", "on_frontier"].to_dict()
    assert frontier == {"Q4_0": True, "int8": True, "bfloat16": True, "float32": False}
    other = rows.loc[("other-cpu", "int8")]
    assert math.isnan(other["agreement"]) and not other["on_frontier"], "no reference on that machine"


@pytest.mark.parametrize(
    ("parameters", "words"),
    [
        (
            {},
            "papermill notebooks/latency.ipynb out.ipynb -p backend fake -p option float32 -p model smollm2-135m",
        ),
        ({"model": "shape:llama-2-7b"}, "what they answer is noise"),
    ],
)
def test_what_cannot_be_scored_is_said_before_anything_is_loaded(cells, tmp_path, parameters, words):
    with pytest.raises(Exception, match=re.escape(words)):
        cells("quality", backend="fake", **parameters)
    assert not list(tmp_path.rglob("*.csv"))


def test_a_latency_run_that_a_check_rejects_is_not_scored(tmp_path, monkeypatch):
    run = write_run(tmp_path, **Q4)
    setup = setup_of(tmp_path, Q4, {"max_new_tokens": 50, "results": ""})
    nothing = store.load([])
    monkeypatch.setattr(store, "load", lambda paths: nothing)
    with pytest.raises(
        FileNotFoundError, match=f"validity checks reject {run.stem}. Measure it with: .venv/bin/papermill"
    ):
        quality_experiment.stored(setup)


EVEN = """
import math
from bench.backends import fake
from bench.backends.fake import *

class Engine(fake.Engine):
    def log_probabilities(self, ids):
        return [-math.log(1000)] * (len(ids) - 1)

def load(checkpoint, option, device, threads):
    return Engine(checkpoint, OPTIONS[option])
"""


@pytest.mark.check
def test_the_notebook_scores_answers_and_text(cells, tmp_path, monkeypatch):
    """The fake engine's answers under the real reference; with log-probabilities of 1/1000 each, the
    text's perplexity is 1000."""
    (tmp_path / "even.py").write_text(EVEN)
    monkeypatch.setattr(backends, "__path__", [*backends.__path__, str(tmp_path)])
    for notebook in ("latency", "quality"):
        requests = cells(notebook, backend="even", max_new_tokens=6)["observed"]
    answered, scored = (
        requests[(requests["experiment"] == e) & (requests["prompt"] > 0)] for e in ("latency", "quality")
    )
    assert list(scored["output_ids"]) == list(answered["output_ids"])
    assert (scored["reference_nll_nats"] > 0).all()
    (table,) = quality_analysis.perplexities(requests).to_dict("records")
    assert table["perplexity"] == pytest.approx(1000) and table["text_tokens"] > 1000
    sidecar = store.read(store.path(scored["run_id"].iloc[0], folder=tmp_path))[1]
    assert sidecar["settings"]["scored_run"] == answered["run_id"].iloc[0]
