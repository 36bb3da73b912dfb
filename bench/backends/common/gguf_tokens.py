"""The vocabulary of a GGUF file, out of a checkpoint's tokenizer.json; what cannot be written is refused."""

import json
import re
from typing import TYPE_CHECKING

from bench.backends.common.checkpoints import Checkpoint
from llm_measured.core.definitions import Fields

if TYPE_CHECKING:
    import gguf

# What the pattern of a tokenizer for splitting text contains -> llama.cpp's name for it; only texts are split
# by it, and prompts come as token ids.
SPLITS = {r"\\p{N}{1,3}": "llama-bpe", '"Digits"': "smollm", r"\\p{N}": "qwen2"}


def refusal(checkpoint: Checkpoint, why: str) -> ValueError:
    """The ValueError for a checkpoint that cannot be written as GGUF here."""
    return ValueError(
        f"{checkpoint.name} {why}: it has no GGUF file, and one cannot be written of it here. Name one, "
        "gguf:<file>, or choose a model that comes as GGUF, such as smollm2-135m."
    )


def tokenizer(checkpoint: Checkpoint) -> Fields:
    """tokenizer.json; ValueError where it is of no kind that GGUF knows."""
    description = json.loads((checkpoint.path / "tokenizer.json").read_text())
    if description["model"]["type"] != "BPE" or not (
        over_bytes(description) or description["model"].get("byte_fallback")
    ):
        kinds = "byte-pair encoding over bytes or SentencePiece's"
        raise refusal(checkpoint, f"has a tokenizer of another kind than {kinds}")
    return description


def over_bytes(description: Fields) -> bool:
    """Whether the tokens of this tokenizer.json are made of bytes, not of SentencePiece's pieces."""
    return '"ByteLevel"' in json.dumps(description["pre_tokenizer"])


def numbered(checkpoint: Checkpoint) -> bool:
    """Whether the tokens stand for nothing but their numbers: those of synthetic weights, of which no text is
    made."""
    return not checkpoint.gguf and not tokenizer(checkpoint)["model"]["merges"]


def add_tokens(writer: "gguf.GGUFWriter", checkpoint: Checkpoint) -> None:
    """Write the vocabulary of tokenizer.json into the GGUF file: of random weights the tokens' numbers
    (`numbered`), of a model its words.

    The library's own vocabularies know neither numbered tokens nor the types of tokens that were added.
    """
    import gguf

    description, size = tokenizer(checkpoint), checkpoint.config["vocab_size"]
    if numbered(checkpoint):
        # Bytes that are no UTF-8 would be held back, and shown as something else: every token is shown as its
        # number. Control tokens, which llama.cpp hides, are never generated; without one OpenVINO does not
        # read the file.
        tokens, kind, merges = [f"<{i}>" for i in range(size)], "gpt2", ["< >"]
        types = ["CONTROL" if i in checkpoint.end_token_ids else "NORMAL" for i in range(size)]
    else:
        tokens, types = _words(description, size)
        kind, merges = "llama", []
        if over_bytes(description):
            kind = "gpt2"
            merges = gguf.SpecialVocab(checkpoint.path, load_merges=True, special_token_types=()).merges
    writer.add_tokenizer_model(kind)
    writer.add_token_list(tokens)
    writer.add_token_types([int(gguf.TokenType[name]) for name in types])
    if kind == "gpt2":
        writer.add_tokenizer_pre(split_name(description))
        writer.add_token_merges(merges)
    else:
        # SentencePiece numbers its pieces from the likeliest on.
        writer.add_token_scores([-float(i) for i in range(size)])
    # llama.cpp has guesses of its own where it is not told what begins and ends a sequence, and bans what it
    # takes for an end.
    begins, ends = checkpoint.config.get("bos_token_id"), checkpoint.config.get("eos_token_id")
    ends = ends[0] if isinstance(ends, list) else ends
    if begins is not None:
        writer.add_bos_token_id(begins)
    if ends is not None:
        writer.add_eos_token_id(ends)
    writer.add_add_bos_token(checkpoint.encode("")[:1] == [begins])


def _words(description: Fields, size: int) -> tuple[list[str], list[str]]:
    """Texts and names of the types of `size` tokens; numbers that no token has become unused ones."""
    model, pieces = description["model"], not over_bytes(description)
    texts, types = [f"[PAD{i}]" for i in range(size)], ["UNUSED"] * size
    named = [(i, word, "NORMAL") for word, i in model["vocab"].items()]
    for added in description["added_tokens"]:
        kind = "CONTROL" if added["special"] else "USER_DEFINED"
        named.append((added["id"], added["content"], kind))
    for i, word, kind in named:
        if i >= size:  # the model has no row for it
            continue
        texts[i], types[i] = word, kind
        if pieces and kind == "NORMAL" and re.fullmatch("<0x[0-9A-F]{2}>", word):
            types[i] = "BYTE"
        if pieces and word == model.get("unk_token"):
            types[i] = "UNKNOWN"
    return texts, types


def split_name(description: Fields) -> str:
    """llama.cpp's name for the way in which this tokenizer.json splits a text."""
    splits = json.dumps(description["pre_tokenizer"])
    return next((name for pattern, name in SPLITS.items() if pattern in splits), "gpt-2")
