"""The conformance report: a good adapter passes every check, each fault of one gets its own sentence."""

import os
import subprocess
import sys
import types

import pytest

from bench import backends
from bench.backends.common import contract
from bench.experiments import check_backend, conformance, judge

TOKENS = conformance.TOKENS
VOCABULARY = 1000

ADAPTER = '''"""**replay**: Install: nothing. Documentation: none. Licence: none. Options: one. Traps: none."""
{imports}
OPTIONS = {{"float32": {{}}}}
DEVICES = ("cpu",)

def version():
    return "1"

def available():
    return None

def load(checkpoint, option, device, threads):
    return None
'''


class Checkpoint:
    """A model whose weights are a thousand numbers."""

    name, end_token_ids, config, path = "rule", [2], {"vocab_size": VOCABULARY}, None
    tokenizer = types.SimpleNamespace(decode=lambda ids, skip_special_tokens: f"<{ids[0]}>")


def answer(ids, tokens=TOKENS):
    """The reference's tokens after `ids`: any rule will do, if it depends on the prompt."""
    return [(7 * sum(ids) + 13 * k) % 500 + 10 for k in range(tokens)]


def reading(checkpoint, prompt, ids):
    """What a reference finds that is sure of `answer`: every other token is 5 nats less likely."""
    best = answer(prompt, len(ids))
    margins = [0.0 if token == its else 5.0 for token, its in zip(ids, best)]
    return judge.Reading(best, margins, [0.1 + margin for margin in margins], 0.1, 12.0, VOCABULARY, "rule")


class Engine:
    """Gives the reference's tokens, slowly enough to see them come one by one."""

    weight_bytes, kv_value_bytes, settings, closed = 4000, 2, {"threads": 1}, False

    def generate(self, prompts, max_new_tokens, on_token):
        answers = [self.tokens(ids, max_new_tokens)[: self.count(max_new_tokens)] for ids in prompts]
        for k in range(len(answers[0]) if on_token else 0):
            self.work()
            for request, ids in enumerate(answers):
                self.call(on_token, request, ids[k])
        return answers

    def tokens(self, ids, count):
        return answer(ids, count)

    def count(self, max_new_tokens):
        return max_new_tokens

    def work(self):
        sum(range(20000))

    def call(self, on_token, request, token):
        on_token(request, token)

    def close(self):
        self.closed = True


@pytest.fixture
def case(monkeypatch):
    sizes = {4: 4000, 0.1875: 200, 2: 2000, 1: 1000}
    monkeypatch.setattr(
        check_backend.checkpoints,
        "linear_bytes",
        lambda checkpoint, size, norms=4, head_bytes=None: sizes[size],
    )
    prompts = [list(range(5, 5 + conformance.PROMPT_TOKENS)), list(range(9, 9 + conformance.PROMPT_TOKENS))]
    monkeypatch.setattr(judge, "reading", reading)
    monkeypatch.setattr(judge.weights, "tensors", lambda path: [])
    return conformance.Case(Checkpoint(), prompts, list(range(7, 40)), "float32", True)


def report(engine, case):
    """Check -> finding of every check of `engine`."""
    module = types.SimpleNamespace(load=lambda checkpoint, option, device, threads: engine)
    return {found.check: found for found in check_backend.loaded(module, "float32", "cpu", 1, case)}


def faults(engine, case):
    return [found.fault for found in report(engine, case).values() if found.fault]


def changed(**attributes):
    """An engine that differs from the good one in these attributes alone."""
    return type("Changed", (Engine,), attributes)()


def test_a_good_engine_has_no_fault_and_is_closed(case):
    engine = Engine()
    found = report(engine, case)
    assert not [each for each in found.values() if each.fault] and engine.closed and len(found) == 11
    assert [check for check, each in found.items() if each.untried] == [
        "log-probabilities",
        "answers that end by themselves",
    ]
    assert any(check.endswith("transformers float32: same tokens") for check in found)


def late(self, prompts, max_new_tokens, on_token):
    """All tokens at the end."""
    for _ in range(500):
        self.work()
    answers = [answer(ids, max_new_tokens) for ids in prompts]
    for k in range(max_new_tokens if on_token else 0):
        for request, ids in enumerate(answers):
            on_token(request, ids[k])
    return answers


def one_by_one(self, prompts, max_new_tokens, on_token):
    answers = [answer(ids, max_new_tokens) for ids in prompts]
    for request, ids in enumerate(answers if on_token else []):
        for token in ids:
            self.work()
            on_token(request, token)
    return answers


def backwards(self, prompts, max_new_tokens, on_token):
    answers = [answer(ids, max_new_tokens) for ids in prompts]
    for k in reversed(range(max_new_tokens if on_token else 0)):
        self.work()
        for request, ids in enumerate(answers):
            on_token(request, ids[k])
    return answers


def without_callback_other(self, prompts, max_new_tokens, on_token):
    answers = Engine.generate(self, prompts, max_new_tokens, on_token)
    return answers if on_token else [ids[::-1] for ids in answers]


def fails(self, *arguments):
    raise MemoryError("no room")


FAULTS = {
    "swapped": (
        {"call": lambda self, on_token, request, token: on_token(token, request)},
        "swapped arguments",
    ),
    "three arguments": ({"call": lambda self, on_token, r, t: on_token(r, t, None)}, "two whole numbers"),
    "another request": ({"call": lambda self, on_token, r, t: on_token(r + 900, t)}, "for request 900"),
    "never called": ({"call": lambda self, on_token, r, t: None}, "never called"),
    "other tokens": ({"call": lambda self, on_token, r, t: on_token(r, t + 1)}, "other tokens than those"),
    "order": ({"generate": backwards}, "another order"),
    "too few": ({"count": lambda self, n: n - 1}, f"{TOKENS - 1} tokens for prompt 0"),
    "not greedy": (
        {"tokens": lambda self, ids, n: answer(ids, 9) + answer(ids, n - 9)},
        "At token 10 of its answer",
    ),
    "an end": ({"tokens": lambda self, ids, n: [2, *answer(ids, n)[1:]]}, "end-of-sequence tokens [2]"),
    "another loop": ({"generate": without_callback_other}, "other tokens with on_token=None"),
    "late": ({"generate": late}, "not as they were made"),
    "one by one": ({"generate": one_by_one}, "answered after the first"),
    "bytes": ({"weight_bytes": 40}, "weight_bytes is 40"),
    "float32 weights": ({"arithmetic": "bfloat16"}, "in bfloat16 reads between 200 and 2.25e+03"),
    "cache bytes": ({"kv_value_bytes": 16}, "kv_value_bytes is 16"),
    "raises": ({"generate": fails}, "MemoryError: no room"),
    "does not close": ({"close": fails}, "MemoryError: no room"),
    "log": ({"log_probabilities": lambda self, ids: [-1.0] * len(ids)}, "of which the first has none"),
    "above 0": ({"log_probabilities": lambda self, ids: [1.0] * (len(ids) - 1)}, "above 0"),
    "no cache bytes": ({"kv_value_bytes": None}, "kv_value_bytes is None"),
    "settings": ({"settings": {"path": object()}}, "cannot be written as JSON"),
    "arithmetic": ({"arithmetic": "fp16"}, "'fp16'"),
    "generate": ({"generate": lambda self, prompts: prompts}, "prompts, max_new_tokens, on_token"),
}


@pytest.mark.parametrize(("attributes", "sentence"), FAULTS.values(), ids=FAULTS)
def test_each_fault_gets_its_sentence(attributes, sentence, case):
    found = faults(changed(**attributes), case)
    assert any(sentence in fault for fault in found), found
    assert all(fault.endswith((".", "no room")) and "\n" not in fault for fault in found)


def test_a_quantised_option_that_keeps_wider_weights_is_found(case):
    """Its name says eight or four bits, and each weight takes four bytes."""
    for option, most in (("int8", "2.25e+03"), ("Q4_0", "1.12e+03")):
        (fault,) = conformance.byte_faults(changed(), Checkpoint(), option)
        assert f"as {option} in float32 reads between 200 and {most}" in fault
    assert conformance.byte_faults(changed(), Checkpoint(), "F16") == []


def test_a_process_that_stays_is_found(case, monkeypatch):
    monkeypatch.setattr(check_backend, "PATIENCE_S", 0.2)
    left = []

    class Leaks(Engine):
        def generate(self, *arguments):
            left.append(subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"]))
            return super().generate(*arguments)

    try:
        assert any("still running" in fault for fault in faults(Leaks(), case))
    finally:
        for child in left:
            child.kill()
            child.wait()


def test_a_process_that_has_ended_unasked_is_no_fault(case):
    child = subprocess.Popen([sys.executable, "-c", ""])
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)  # it has ended; it stays until somebody asks how
    try:
        assert child.pid not in {each.pid for each in check_backend.children()}
        assert not faults(Engine(), case)
    finally:
        child.wait()


def test_an_option_for_one_prompt_must_refuse_two(case):
    case.batches = False
    assert any('"batches": False' in fault for fault in faults(Engine(), case))

    class Refuses(Engine):
        def generate(self, prompts, *arguments):
            if len(prompts) > 1:
                raise ValueError("one at a time")
            return super().generate(prompts, *arguments)

    assert faults(Refuses(), case) == []


def test_an_engine_that_does_not_stream_may_say_so(case):
    found = report(changed(streams=False, call=None), case)
    assert not [each for each in found.values() if each.fault] and found["callback"].untried


def test_few_bits_may_choose_otherwise_where_the_answer_stays_likely(case):
    other = {"tokens": lambda self, ids, n: answer(ids, 9) + [11] + answer(ids, n)[10:]}
    assert faults(changed(weight_bytes=1000, arithmetic="int8", **other), case) == []
    noise = {"tokens": lambda self, ids, n: [11] * n}
    assert any("too unlikely" in fault for fault in faults(changed(arithmetic="int8", **noise), case))


def test_the_contract_is_checked_without_a_request():
    engine = Engine()
    assert contract.check_engine(engine) is engine
    lacking = types.SimpleNamespace(generate=engine.generate, weight_bytes=1, settings={}, close=engine.close)
    with pytest.raises(TypeError, match="no attribute kv_value_bytes.*bench/backends/common/contract.py"):
        contract.check_engine(lacking)


def adapter(tmp_path, imports="", **changes):
    """The module of an adapter's file with these imports and changed names."""
    file = tmp_path / "replay.py"
    file.write_text(ADAPTER.format(imports=imports))
    module = types.ModuleType("replay")
    exec(compile(file.read_text(), file, "exec"), module.__dict__)
    module.__file__ = str(file)
    for name, value in changes.items():
        module.__dict__.update({name: value}) if value is not None else module.__dict__.pop(name)
    return module


def test_a_good_module_has_no_fault(tmp_path):
    assert [str(found) for found in check_backend.adapter(adapter(tmp_path))] == [
        "ok     the module keeps the contract",
        "ok     the module imports no clock",
    ]


@pytest.mark.parametrize(
    "imports",
    ["import time", "from time import perf_counter as now", "import datetime", "from timeit import Timer"],
)
def test_a_clock_is_found(tmp_path, imports):
    assert (
        "the instrument takes the times" in list(check_backend.adapter(adapter(tmp_path, imports)))[1].fault
    )


MODULES = {
    "docstring": ({"__doc__": "An engine."}, "Install:, Documentation:, Licence:"),
    "options": ({"OPTIONS": ["float32"]}, "OPTIONS must be a dict"),
    "devices": ({"DEVICES": "cpu"}, "DEVICES must be"),
    "unknown device": ({"OPTIONS": {"a": {"devices": ("cuda",)}}}, "devices that DEVICES lacks: cuda"),
    "no version": ({"version": None}, "no function version()"),
    "neither": ({"load": None}, "neither load"),
    "arguments": ({"load": lambda checkpoint: None}, "load takes 1 arguments"),
    "environment": ({"ENVIRONMENT": "nowhere"}, "environments/nowhere.txt"),
}


@pytest.mark.parametrize(("changes", "sentence"), MODULES.values(), ids=MODULES)
def test_each_fault_of_a_module_gets_its_sentence(tmp_path, changes, sentence):
    assert any(sentence in fault for fault in contract.module_faults(adapter(tmp_path, **changes)))


@pytest.mark.parametrize("name", backends.names())
def test_every_adapter_of_this_repository_keeps_the_contract(name):
    module = backends.get(name).module
    if "backends.fake" in module.__name__:
        pytest.skip("the tests' own engine has a clock, and no licence")
    assert [found.fault for found in check_backend.adapter(module)] == ["", ""]


def test_a_prompt_that_comes_back_is_named_as_that():
    prompt, answer = [[7, 8, 9]], [list(range(20, 20 + conformance.TOKENS))]
    assert not conformance.count_faults(answer, prompt)
    assert "the prompt's 3 tokens" in conformance.count_faults([prompt[0] + answer[0]], prompt)[0]
    calls = conformance.Calls()
    for request, token in enumerate(prompt[0]):  # as a streamer passes a prompt on
        calls(request, token)
    assert "the prompt's 3 tokens first" in calls.faults(answer, prompt)[0]
