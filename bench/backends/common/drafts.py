"""Draft models: a smaller model with the same tokenizer guesses tokens, which the model itself then checks in
one pass (speculative decoding; Leviathan et al., *Fast Inference from Transformers via Speculative Decoding*,
arXiv 2211.17192).
"""

from bench.backends.common import checkpoints
from bench.backends.common.checkpoints import Checkpoint

DRAFTS = {"qwen2.5-coder-1.5b": "qwen2.5-coder-0.5b"}  # model -> the one that drafts for it
TOKENS = 4  # drafted in a row before they are checked


def model_of(checkpoint: Checkpoint) -> Checkpoint:
    """The draft model of `checkpoint`, made or downloaded if it is not there; ValueError where none is known,
    or where its tokens are others."""
    if checkpoint.name not in DRAFTS:
        raise ValueError(
            f"No draft model is known for {checkpoint.name}: it takes a smaller one with the same tokenizer, "
            f"named in bench/backends/common/drafts.py. Those that have one: {', '.join(DRAFTS)}."
        )
    draft = checkpoints.checkpoint(DRAFTS[checkpoint.name])
    if draft.tokenizer.get_vocab() != checkpoint.tokenizer.get_vocab():
        raise ValueError(f"{draft.name} cannot draft for {checkpoint.name}: it has other tokens.")
    return draft


def settings(draft: Checkpoint, tokens: int = TOKENS) -> dict[str, str]:
    """What the sidecar says of the draft model."""
    return {"speculation": f"{draft.name}, drafts of {tokens}", "draft_sha256": draft.digest()}
