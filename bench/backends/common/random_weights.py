"""Checkpoints with random weights in the shape of a published model."""

import json
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

import pandas as pd

from bench import processes
from llm_measured.core.definitions import Fields

if TYPE_CHECKING:
    from tokenizers import Tokenizer
    from transformers import LlamaConfig


def random(row: pd.Series, to: Path) -> None:
    """A Llama checkpoint of `row`'s shape with random weights in bfloat16 (float32 would need twice the
    disk), drawn on the GPU where there is one: a CPU takes a minute for what a GPU draws in a second."""
    if row["architecture"] != "llama":
        raise ValueError(
            f"Random weights are made in the shape of a Llama only; {row.name} is of the kind "
            f"{row['architecture']}."
        )
    processes.in_child(_write_random, to, row.to_dict(), python=processes.maker())


def _write_random(to: Path, row: Fields) -> None:
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(
        hidden_size=row["hidden_size"],
        intermediate_size=row["intermediate_size"],
        num_hidden_layers=row["layers"],
        num_attention_heads=row["attention_heads"],
        num_key_value_heads=row["kv_heads"],
        head_dim=row["head_dim"],
        vocab_size=row["vocab_size"],
        max_position_embeddings=row["context_tokens"],
        rope_theta=float(row["rope_theta"]),
        tie_word_embeddings=bool(row["tied_embeddings"]),
        bos_token_id=1,
        eos_token_id=2,
    )
    torch.manual_seed(0)
    torch.set_default_dtype(torch.bfloat16)
    with torch.device(_roomy(torch, config)):
        model = LlamaForCausalLM(config)
    model.save_pretrained(to)
    _numbered_tokenizer(row["vocab_size"]).save(str(to / "tokenizer.json"))
    tokenizer_config = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": "<s>",
        "eos_token": "</s>",
        "unk_token": "<unk>",
    }
    (to / "tokenizer_config.json").write_text(json.dumps(tokenizer_config))


def _roomy(torch: ModuleType, config: "LlamaConfig") -> str:
    """The GPU if the weights in bfloat16 take at most four fifths of what is free there, else the CPU."""
    if not torch.cuda.is_available():
        return "cpu"
    from transformers import LlamaForCausalLM

    with torch.device("meta"):
        size = 2 * sum(one.numel() for one in LlamaForCausalLM(config).parameters())
    free, _ = torch.cuda.mem_get_info()
    return "cuda" if size < 0.8 * free else "cpu"


def _numbered_tokenizer(size: int) -> "Tokenizer":
    """A byte-level tokenizer without merges for synthetic weights: prompts get a length and differ, nothing
    more is needed."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers

    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    words = ["<unk>", "<s>", "</s>", *alphabet]
    words += [f"<{i}>" for i in range(len(words), size)]
    tokenizer = Tokenizer(
        models.BPE(vocab={word: i for i, word in enumerate(words)}, merges=[], unk_token="<unk>")
    )
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    return tokenizer
