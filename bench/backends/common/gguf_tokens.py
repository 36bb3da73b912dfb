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
    """Write the vocabulary of tokenizer.json into the GGUF file."""
    description, size = tokenizer(checkpoint), checkpoint.config["vocab_size"]
    if numbered(checkpoint):
        # Bytes that are no UTF-8 would be held back, and shown as something else: every token is shown as its
        # number. Those that llama.cpp hides are never generated; OpenVINO does not read a file without any.
        tokens, kind, more = [f"<{i}>" for i in range(size)], "gpt2", ["< >"]
        types = [_type("CONTROL" if i in checkpoint.end_token_ids else "NORMAL") for i in range(size)]
    else:
        tokens, types = words(description, size)
        kind, more = "llama", []
        if over_bytes(description):
            kind, more = "gpt2", [_pair(merge) for merge in description["model"]["merges"]]
    writer.add_tokenizer_model(kind)
    writer.add_token_list(tokens)
    writer.add_token_types(types)
    if kind == "gpt2":
        writer.add_tokenizer_pre(split_name(description))
        writer.add_token_merges(more)
    else:
        # SentencePiece numbers its pieces from the likeliest on.
        writer.add_token_scores([-float(i) for i in range(size)])
    _add_special(writer, checkpoint)


def _type(name: str) -> int:
    import gguf

    return int(gguf.TokenType[name])


def words(description: Fields, size: int) -> tuple[list[str], list[int]]:
    """Texts and types of `size` tokens; numbers that no token has become unused ones."""
    model = description["model"]
    tokens = {i: (word, "NORMAL") for word, i in model["vocab"].items()}
    if not over_bytes(description):
        tokens |= {
            i: (word, "BYTE") for word, i in model["vocab"].items() if re.fullmatch("<0x[0-9A-F]{2}>", word)
        }
    tokens |= {
        added["id"]: (added["content"], "CONTROL" if added["special"] else "USER_DEFINED")
        for added in description["added_tokens"]
    }
    if not over_bytes(description) and model.get("unk_token") in model["vocab"]:
        tokens[model["vocab"][model["unk_token"]]] = model["unk_token"], "UNKNOWN"
    all_of_them = [tokens.get(i, (f"[PAD{i}]", "UNUSED")) for i in range(size)]
    return [word for word, _ in all_of_them], [_type(kind) for _, kind in all_of_them]


def _pair(merge: str | list[str]) -> str:
    """One merge as GGUF spells it; tokenizer.json has pairs, or in older files the same spelling."""
    return merge if isinstance(merge, str) else " ".join(merge)


def split_name(description: Fields) -> str:
    """llama.cpp's name for the way in which this tokenizer.json splits a text."""
    splits = json.dumps(description["pre_tokenizer"])
    return next((name for pattern, name in SPLITS.items() if pattern in splits), "gpt-2")


def _add_special(writer: "gguf.GGUFWriter", checkpoint: Checkpoint) -> None:
    """Which tokens begin and end a sequence. llama.cpp has guesses of its own where it has none, and
    bans what it takes for an end."""
    begins, ends = checkpoint.config.get("bos_token_id"), checkpoint.config.get("eos_token_id")
    ends = ends[0] if isinstance(ends, list) else ends
    if begins is not None:
        writer.add_bos_token_id(begins)
    if ends is not None:
        writer.add_eos_token_id(ends)
    writer.add_add_bos_token(checkpoint.encode("")[:1] == [begins])
