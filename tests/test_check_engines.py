"""`make check-engines` finds what a new pin no longer takes: made-up packages that lack a flag, a field, a count."""

import argparse
import importlib
import json
import sys

import check_engines
import pydantic
import pytest
from contracts import checks, packages, stand_ins


class Body(pydantic.BaseModel):
    model: str
    prompt: list[int] | str
    max_tokens: int
    temperature: float
    echo: bool
    stream: bool
    stream_options: dict
    ignore_eos: bool = False
    top_k: int = 0
    repetition_penalty: float = 1.0


def parser(*left_out):
    """A parser of LMDeploy's flags but for some."""
    made = argparse.ArgumentParser(exit_on_error=False)
    made.add_argument("words", nargs="*")
    for flag in ("model-name", "server-name", "server-port", "backend", "dtype", "tp", "session-len"):
        if flag not in left_out:
            made.add_argument(f"--{flag}")
    for flag in ("max-batch-size", "model-format", "log-level"):
        made.add_argument(f"--{flag}")
    return lambda words: made.parse_args(words[1:]) and None


def stream(pieces, body, counted=4):
    events = [{"choices": [{"index": 0, "text": text}]} for text, _ in pieces]
    usage = {"prompt_tokens": 5, "completion_tokens": counted, "total_tokens": 9}
    return [json.dumps(event) for event in [*events, {"choices": [], "usage": usage}]]


def broken(parse, accept=lambda body: checks.lacking(Body, body), respond=stream):
    return {what: fault for what, fault in checks.served("lmdeploy", parse, accept, respond) if fault}


def test_an_engine_that_takes_what_the_adapter_sends_keeps_every_contract():
    assert broken(parser()) == {}


def test_a_flag_that_is_gone_is_named():
    found = broken(parser("session-len"))
    assert len(found) == 4 and all("--session-len" in fault for fault in found.values())


def test_a_field_that_is_gone_is_named():
    class Less(pydantic.BaseModel):
        model: str
        prompt: str

    found = broken(parser(), lambda body: checks.lacking(Less, body))
    assert all("Less has no" in fault and "ignore_eos" in fault for fault in found.values()) and found


def test_a_stream_that_would_be_miscounted_is_said():
    found = broken(parser(), respond=lambda pieces, body: stream(pieces, body, counted=5))
    assert len(found) == 8 and all("5 output tokens where 4" in fault for fault in found.values())


@pytest.mark.parametrize("name", sorted(check_engines.ELSEWHERE))
def test_what_is_on_no_index_is_checked_against_what_was_read(name):
    found = list(checks.recorded(name))
    assert len(found) >= 9 and [fault for _, fault in found if fault] == []


def test_what_was_read_fails_where_an_adapter_sends_something_else(monkeypatch):
    from bench.backends import tensorrt_llm

    monkeypatch.setattr(tensorrt_llm, "_body", lambda new_tokens: {"stop_token_ids": [2]})
    assert any("stop_token_ids ends an answer early" in fault for _, fault in checks.recorded("tensorrt_llm"))


def test_a_program_that_is_gone_is_named(tmp_path):
    package = packages.Package("engine==1", tmp_path, 0, 0, [], {})
    assert checks.no_program(package, "engine.serve") == "engine.serve is no program"
    (tmp_path / "engine").mkdir()
    (tmp_path / "engine" / "serve.py").write_text('if __name__ == "__main__":\n    pass\n')
    assert checks.no_program(package, "engine.serve") == ""


def test_every_pin_is_found():
    for _, environment, distribution in check_engines.PINNED.values():
        assert packages.pin(environment, distribution).startswith(f"{distribution}==")
    with pytest.raises(ValueError, match="vllm.txt does not pin nothing"):
        packages.pin("vllm", "nothing")


def test_stand_ins_replace_libraries_and_kernels_and_no_module_of_the_package(tmp_path, monkeypatch):
    package = tmp_path / "madeup_engine"
    package.mkdir()
    (package / "__init__.py").write_text(
        "import importlib.util\n"
        "import madeup_kernels.fast as fast\n"
        "from madeup_engine._C import add\n"
        "class Layer(fast.Layer): pass\n"
        "optional = importlib.util.find_spec('madeup_other') is not None\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    finder = stand_ins.installed("madeup_engine", ["madeup_engine._C"])
    try:
        engine = importlib.import_module("madeup_engine")
        assert engine.Layer() and not engine.optional, (
            "who asks whether something is there learns that it is not"
        )
        with pytest.raises(ModuleNotFoundError, match="madeup_engine.moved"):
            importlib.import_module("madeup_engine.moved")
        assert {"madeup_kernels", "madeup_kernels.fast", "madeup_engine._C"} == set(finder.made)
    finally:
        sys.meta_path.remove(finder)
        for name in [name for name in sys.modules if name.startswith("madeup_")]:
            del sys.modules[name]
