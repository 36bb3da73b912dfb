"""Draft models: who drafts for whom, and what is refused."""

from types import SimpleNamespace

import pytest

from bench.backends.common import checkpoints, drafts


def made_up(name, words=("a", "b")):
    tokenizer = SimpleNamespace(get_vocab=lambda: {word: number for number, word in enumerate(words)})
    return SimpleNamespace(name=name, tokenizer=tokenizer, digest=lambda: "0123")


def test_the_smaller_model_drafts_for_the_larger_one(monkeypatch):
    monkeypatch.setattr(checkpoints, "checkpoint", made_up)
    draft = drafts.model_of(made_up("qwen2.5-coder-1.5b"))
    assert draft.name == "qwen2.5-coder-0.5b"
    assert drafts.settings(draft) == {
        "speculation": "qwen2.5-coder-0.5b, drafts of 4",
        "draft_sha256": "0123",
    }


def test_a_model_without_a_draft_model_is_refused_with_those_that_have_one():
    with pytest.raises(ValueError, match="No draft model is known for mine: .*have one: qwen2.5-coder-1.5b"):
        drafts.model_of(made_up("mine"))


def test_a_draft_model_with_other_tokens_is_refused(monkeypatch):
    monkeypatch.setattr(checkpoints, "checkpoint", lambda name: made_up(name, ("b", "a")))
    with pytest.raises(ValueError, match="qwen2.5-coder-0.5b cannot draft for qwen2.5-coder-1.5b: it has"):
        drafts.model_of(made_up("qwen2.5-coder-1.5b"))
