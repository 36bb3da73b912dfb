"""The judge of tokens: near ties pass and are noted, another model is refused with the place and the tokens."""

import json
import math
import shutil
from types import SimpleNamespace

import pytest

from bench import backends
from bench.backends.common import checkpoints
from bench.experiments import check_backend, judge, running
from bench.observations import checks, store

VOCABULARY = 50
PROMPT = [3, 4, 5]


class Checkpoint:
    """A model of fifty tokens that nobody reads."""

    name = "smollm2-135m"
    weights, end_token_ids, config, path = "real", [2], {"vocab_size": VOCABULARY}, None
    tokenizer = SimpleNamespace(decode=lambda ids, skip_special_tokens: f"<{ids[0]}>")

    def encode(self, text):
        return PROMPT


def found(margins, answer_nll=0.5, noise=8.0, rounding=0.2):
    """A Reading in which the reference finds token 9 likeliest everywhere, the answer's by `margins` less."""
    nll = [answer_nll + margin for margin in margins]
    return judge.Reading([9] * len(margins), list(margins), nll, rounding, noise, VOCABULARY, "made up")


@pytest.fixture
def verdict(monkeypatch):
    """The verdict on an answer that the reference reads with these margins."""

    def of(margins, rounded_as, **more):
        monkeypatch.setattr(judge, "reading", lambda *_: found(margins, **more))
        monkeypatch.setattr(judge.weights, "tensors", lambda path: [])
        answer = [7 if margin else 9 for margin in margins]
        return judge.of_answer(Checkpoint(), PROMPT, answer, rounded_as)

    return of


def test_an_options_name_and_arithmetic_say_how_it_is_judged():
    formats = {
        "float32": "float16",
        "F16": "float16",
        "float16-ngram": "float16",
        "q0f16": "float16",
        "bfloat16-compiled": "bfloat16",
        "BF16": "bfloat16",
        "Q8_0": None,
        "int4-float16": None,
        "nf4": None,
        "fp8": None,
        "completions": None,
    }
    assert {option: judge.number_format(option) for option in formats} == formats
    assert judge.number_format("float32", "int8") is None


def test_the_same_tokens_pass_without_a_note(verdict):
    entry = verdict([0.0, 0.0], "float16")
    assert (entry["verdict"], entry["why"], entry["differences"]) == ("same tokens", "", 0)


def test_a_near_tie_passes_and_is_noted_with_its_place(verdict):
    near = judge.near_nats(0.2, "bfloat16")
    entry = verdict([0.0, 0.9 * near, 0.0], "bfloat16")
    assert entry["verdict"] == "near ties" and entry["first"]["place"] == 2
    assert "7 ('<7>') where the reference has 9 ('<9>')" in entry["why"]


def test_the_first_clear_difference_is_refused_with_both_tokens(verdict):
    near = judge.near_nats(0.2, "bfloat16")
    entry = verdict([0.0, 0.9 * near, 1.1 * near, 3.0], "bfloat16")
    assert entry["verdict"] == "refused" and entry["clear"]["place"] == 3 and entry["first"]["place"] == 2
    assert (
        "At token 3 of its answer the engine has 7 ('<7>') where the reference has 9 ('<9>')" in entry["why"]
    )


def test_what_is_near_in_bfloat16_is_clear_in_float16(verdict):
    margins = [0.0, 0.9 * judge.near_nats(0.2, "bfloat16")]
    assert [verdict(margins, name)["verdict"] for name in ("bfloat16", "float16")] == ["near ties", "refused"]
    assert judge.near_nats(0.2, "bfloat16") == 8 * judge.near_nats(0.2, "float16") > 0.2


def test_fewer_bits_are_judged_by_how_likely_the_whole_answer_is(verdict):
    assert verdict([0.0, 1.5, 0.0], None)["verdict"] == "likely", "a token of one's own is no fault there"
    entry = verdict([3.3] * 3, None, answer_nll=3.2)
    assert entry["verdict"] == "refused" and "too unlikely: 6.50 nats" in entry["why"]


def test_a_token_less_likely_than_one_drawn_blindly_is_refused_in_a_likely_answer(verdict):
    less = math.log(VOCABULARY)
    entry = verdict([0.0] * 40 + [less + 0.1], None, answer_nll=0.1)
    assert entry["verdict"] == "refused" and entry["clear"]["place"] == 41
    assert verdict([0.0] * 40 + [less - 0.2], None, answer_nll=0.1)["verdict"] == "likely"


def test_the_limit_lies_between_what_was_kept_and_noise():
    assert judge.most_nll_nats([0.5, 1.0], 9.0) == 1.5
    assert judge.most_nll_nats([4.0], 8.0) < 5.7, "nearer than the geometric mean is to noise"
    assert judge.most_nll_nats([], 9.0) == 3.0
    with pytest.raises(ValueError, match="parts nothing"):
        judge.most_nll_nats([9.0], 8.0)


def test_answers_of_committed_runs_to_the_same_prompt_lie_far_below_noise():
    checkpoint = checkpoints.checkpoint("smollm2-135m")
    kept = judge.kept_nll_nats("smollm2-135m", judge.prompt(checkpoint))
    blind = math.log(checkpoint.config["vocab_size"])
    assert len(kept) > 20 and judge.most_nll_nats(kept, blind) < 0.2 * blind
    assert judge.kept_nll_nats("smollm2-135m", PROMPT) == [], "answers to another prompt say nothing"


def test_a_token_outside_the_vocabulary_is_refused_unread(verdict):
    entry = judge.of_answer(Checkpoint(), PROMPT, [9, VOCABULARY], "float16")
    assert entry["verdict"] == "refused" and f"token {VOCABULARY}" in entry["why"]


def test_a_reference_that_has_no_room_leaves_the_run_unjudged(monkeypatch):
    monkeypatch.setattr(judge.weights, "tensors", lambda path: [SimpleNamespace(values=10**15)])
    entry = judge.of_answer(Checkpoint(), PROMPT, [9], "float16")
    assert entry["verdict"] == "not judged" and "GB of memory" in entry["why"]


def test_a_reference_that_cannot_read_leaves_the_run_unjudged(monkeypatch):
    def fails(*_):
        raise RuntimeError("Traceback\nValueError: unknown architecture")

    monkeypatch.setattr(judge.weights, "tensors", lambda path: [])
    monkeypatch.setattr(judge, "reading", fails)
    entry = judge.of_answer(Checkpoint(), PROMPT, [9], "float16")
    assert entry["verdict"] == "not judged" and "unknown architecture" in entry["why"]


def entry_of(error="", ids=(9, 9), dialect="", checkpoint=Checkpoint(), url=""):
    """The sidecar's entry of a run whose engine gives these ids, or this error."""
    row = {"error": error, "output_ids": list(ids)}
    made = SimpleNamespace(
        backend=SimpleNamespace(not_judged=""),
        checkpoint=checkpoint,
        option="float32",
        target=SimpleNamespace(url=url),
        engine=SimpleNamespace(dialect=dialect),
        checked_tokens=None,
        _answers=lambda prompts, tokens: [row],
    )
    running.Running.check_tokens(made)
    return made.checked_tokens


def test_what_has_no_right_answer_is_not_judged_and_says_why():
    class Synthetic(Checkpoint):
        weights = "synthetic"

    entries = [
        entry_of(checkpoint=Synthetic()),
        entry_of(dialect="chat"),
        entry_of(error="HTTP 500", url="http://somewhere"),
        entry_of(ids=()),
    ]
    assert {entry["verdict"] for entry in entries} == {"not judged"}
    words = ("synthetic", "template", "HTTP 500", "no token ids")
    assert all(word in entry["why"] for word, entry in zip(words, entries))


def test_an_engine_that_gives_no_answer_is_refused():
    with pytest.raises(checks.Rejected, match="does not answer the prompt of the judge: no kernel"):
        entry_of(error="no kernel")


def test_a_run_is_refused_before_anything_is_measured(cells, monkeypatch):
    fake, calls = backends.get("fake").module, []
    monkeypatch.delattr(fake, "NOT_JUDGED")
    monkeypatch.setattr(judge, "reading", lambda *_: found([6.0] * judge.TOKENS))
    generate = fake.Engine.generate

    def counted(self, prompts, *more):
        calls.append(prompts)
        return generate(self, prompts, *more)

    monkeypatch.setattr(fake.Engine, "generate", counted)
    with pytest.raises(checks.Rejected, match="At token 1 of its answer"):
        cells("latency", backend="fake", max_new_tokens=4)
    assert calls == [[judge.prompt(checkpoints.checkpoint("smollm2-135m"))]]


@pytest.mark.check
def test_a_run_keeps_the_verdict(cells, monkeypatch, tmp_path):
    monkeypatch.delattr(backends.get("fake").module, "NOT_JUDGED")
    monkeypatch.setattr(judge, "reading", lambda *_: found([0.0] * judge.TOKENS))
    cells("latency", backend="fake", max_new_tokens=4)
    (file,) = tmp_path.glob("*/latency-*.json")
    entry = json.loads(file.read_text())["judge"]
    assert entry["verdict"] == "same tokens" and entry["reference"] == "made up"


@pytest.mark.check
def test_a_run_of_the_layout_without_a_verdict_is_refused(cells, tmp_path):
    cells("latency", backend="fake", max_new_tokens=4)
    (file,) = tmp_path.glob("*/latency-*.json")
    sidecar = json.loads(file.read_text())
    assert sidecar["judge"] == {"verdict": "not judged", "why": "Its answers are made up."}
    for entry in (None, {}, {"verdict": "fine", "why": ""}, {"verdict": "not judged"}, "likely"):
        file.write_text(json.dumps(sidecar | {"judge": entry}))
        (reason,) = store.judged(folder=tmp_path)[1]["reason"]
        assert "what the judge found" in reason, entry
    older = {name: value for name, value in sidecar.items() if name not in ("judge", "layout", "order")}
    file.write_text(json.dumps(older))
    assert store.judged(folder=tmp_path)[1].empty, "what was written before stays"


@pytest.mark.check
def test_a_refused_run_is_refused_when_it_is_read(cells, tmp_path):
    cells("latency", backend="fake", max_new_tokens=4)
    (file,) = tmp_path.glob("*/latency-*.json")
    refused = {"verdict": "refused", "why": "At token 3 it has another."}
    file.write_text(json.dumps(json.loads(file.read_text()) | {"judge": refused}))
    assert list(store.judged(folder=tmp_path)[1]["check"]) == ["the engine's tokens are the model's"]


# With real weights.


def real():
    return checkpoints.checkpoint("smollm2-135m")


def of_engine(checkpoint, engine, option, prompt=None):
    """The judge's verdict on what `engine` answers to its prompt (or to `prompt`, which reaches it instead)."""
    ids = judge.prompt(checkpoint)
    (answer,) = engine.generate([prompt or ids], judge.TOKENS, None)
    engine.close()
    return judge.of_answer(checkpoint, ids, answer, judge.number_format(option, backends.arithmetic(engine)))


@pytest.mark.check
def test_a_real_server_is_judged_by_its_own_stream():
    backend = backends.get("llamacpp")
    backend.prepare("smollm2-135m", "F16", "cpu")
    found = list(check_backend.served(backend, "F16", "cpu", 2, check_backend._case(backend, "F16")))
    assert not [str(each) for each in found if each.fault or each.untried]
    assert sum("same tokens" in each.check or "near ties" in each.check for each in found) == 1


def rotary(folder, tensors, config):
    config["rope_parameters"]["rope_theta"] = 10000.0


def vocabulary(folder, tensors, config):
    """Every id means the token of the id before."""
    tensors["model.embed_tokens.weight"] = tensors["model.embed_tokens.weight"].roll(1, 0).contiguous()


def head(folder, tensors, config):
    """The head alone is shifted by a row."""
    tensors["lm_head.weight"] = tensors["model.embed_tokens.weight"].roll(1, 0).contiguous()
    config["tie_word_embeddings"] = False


def four_bits(folder, tensors, config):
    """Weights that had 4 bits, stored with more."""
    import gguf
    import torch

    kind = gguf.GGMLQuantizationType.Q4_0
    for name, tensor in tensors.items():
        if tensor.dim() == 2:
            rounded = gguf.quants.dequantize(gguf.quants.quantize(tensor.numpy(), kind), kind)
            tensors[name] = torch.from_numpy(rounded.copy())


def transposed(folder, tensors, config):
    """Four bits, and one square matrix transposed."""
    four_bits(folder, tensors, config)
    name = "model.layers.1.self_attn.o_proj.weight"
    tensors[name] = tensors[name].T.contiguous()


def broken(fault, to):
    """A copy of the default model with one `fault`, as an engine would have it under the same name."""
    from safetensors.torch import load_file, save_file

    shutil.copytree(real().path, to, ignore=shutil.ignore_patterns("*.gguf", "*.safetensors"))
    tensors = load_file(real().path / "model.safetensors")
    config = json.loads((to / "config.json").read_text())
    fault(to, tensors, config)
    save_file(tensors, to / "model.safetensors", metadata={"format": "pt"})
    (to / "config.json").write_text(json.dumps(config))
    return checkpoints.Checkpoint("path:broken", to, "real")


@pytest.mark.check
@pytest.mark.parametrize("fault", [rotary, vocabulary, head, four_bits])
def test_a_broken_model_is_refused(fault, tmp_path):
    copy = broken(fault, tmp_path / "copy")
    for option in ("float32", "bfloat16"):
        entry = of_engine(real(), backends.get("transformers").load(copy, option, "cpu", 2), option)
        assert entry["verdict"] == "refused" and entry["clear"]["margin_nats"] > entry["near_nats"], option


@pytest.mark.check
@pytest.mark.parametrize("fault, verdict", [(four_bits, "likely"), (transposed, "refused")])
def test_a_transposed_matrix_in_four_bits_is_refused(fault, verdict, tmp_path):
    engine = backends.get("transformers").load(broken(fault, tmp_path / "copy"), "float32", "cpu", 2)
    ids = judge.prompt(real())
    (answer,) = engine.generate([ids], judge.TOKENS, None)
    engine.close()
    entry = judge.of_answer(real(), ids, answer, judge.number_format("Q4_0"))
    assert entry["verdict"] == verdict, (entry["answer_nll_nats"], entry["most_nll_nats"])


@pytest.mark.check
def test_a_missing_first_token_is_refused(tmp_path, option="float32"):
    """A copy whose tokenizer begins every text with `<|endoftext|>`, as texts were parted when the model was
    trained, and an engine that leaves it out."""
    to = shutil.copytree(real().path, tmp_path / "copy", ignore=shutil.ignore_patterns("*.gguf"))
    words = json.loads((to / "tokenizer.json").read_text())
    begin = {"SpecialToken": {"id": "<|endoftext|>", "type_id": 0}}
    words["post_processor"] = {
        "type": "TemplateProcessing",
        "single": [begin, {"Sequence": {"id": "A", "type_id": 0}}],
        "pair": [begin, {"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 0}}],
        "special_tokens": {"<|endoftext|>": {"id": "<|endoftext|>", "ids": [0], "tokens": ["<|endoftext|>"]}},
    }
    (to / "tokenizer.json").write_text(json.dumps(words))
    checkpoint = checkpoints.Checkpoint("path:begins", to, "real")
    ids = judge.prompt(checkpoint)
    assert ids[0] == 0 != ids[1]
    load = backends.get("transformers").module.load
    entry = of_engine(checkpoint, load(checkpoint, option, "cpu", 2), option)
    assert entry["verdict"] in ("same tokens", "near ties")
    entry = of_engine(checkpoint, load(checkpoint, option, "cpu", 2), option, ids[1:])
    assert entry["verdict"] == "refused"
