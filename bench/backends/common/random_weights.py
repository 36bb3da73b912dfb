"""Checkpoints with random weights in the shape of a published model."""

import json

from bench import processes


def random(row, to):
    """A Llama checkpoint of `row`'s shape with random weights in bfloat16 (float32 would need twice the
    disk)."""
    if row["architecture"] != "llama":
        raise ValueError(
            f"Random weights are made in the shape of a Llama only; {row.name} is of the kind "
            f"{row['architecture']}."
        )
    processes.in_child(_write_random, to, row.to_dict(), python=processes.maker())


def _write_random(to, row):
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
    LlamaForCausalLM(config).save_pretrained(to)
    _numbered_tokenizer(row["vocab_size"]).save(str(to / "tokenizer.json"))
    tokenizer_config = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": "<s>",
        "eos_token": "</s>",
        "unk_token": "<unk>",
    }
    (to / "tokenizer_config.json").write_text(json.dumps(tokenizer_config))


def _numbered_tokenizer(size):
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
