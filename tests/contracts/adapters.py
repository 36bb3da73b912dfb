"""What an adapter would send: its command, its environment and its body."""

import contextlib
import json
import os
import tempfile
from pathlib import Path
from unittest import mock

from bench import backends, processes
from bench.backends.common import checkpoints, gguf_files, servers, vllm_server
from bench.instrument.load import protocols
from llm_measured.core import files

PROMPT = protocols.Prompt((11, 12, 13, 14, 15), "one two three four five", 4)
CONFIG = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 128,
    "intermediate_size": 256,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 32,
    "vocab_size": 512,
    "max_position_embeddings": 2048,
    "rms_norm_eps": 1e-5,
    "hidden_act": "silu",
    "tie_word_embeddings": True,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "dtype": "float32",
    "rope_parameters": {"rope_theta": 100000.0, "rope_type": "default"},
}


def checkpoint(folder: Path) -> checkpoints.Checkpoint:
    """A checkpoint of two layers as transformers 5 writes one, with a tokenizer; its weights are a byte."""
    from bench.backends.common.random_weights import _numbered_tokenizer

    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(CONFIG))
    (folder / "generation_config.json").write_text(json.dumps({"eos_token_id": 2, "bos_token_id": 1}))
    _numbered_tokenizer(CONFIG["vocab_size"]).save(str(folder / "tokenizer.json"))
    words = {"tokenizer_class": "TokenizersBackend", "bos_token": "<s>", "eos_token": "</s>"}
    (folder / "tokenizer_config.json").write_text(json.dumps(words))
    (folder / "model.safetensors").write_bytes(b"\x02\0\0\0\0\0\0\0{}")
    return checkpoints.Checkpoint("shape:tiny", folder, "synthetic")


@contextlib.contextmanager
def launched(name: str, option: str, folder: Path, device: str = "cuda", **wanted):
    """(its command as words, its environment, the `RunningServer`) of a server that is not started; `wanted` is
    asked of it besides."""
    seen = {}

    @contextlib.contextmanager
    def started(command, port, log, patience_s=600, health="/health", environment=None):
        seen.update(command=list(map(str, command)), environment=environment or {}, health=health)
        yield f"http://127.0.0.1:{port}"

    usual = {"requests": 8, "tokens": 512, "threads": 2, "tensor_parallel": 2}
    request = servers.ServerSpec(**usual | wanted, log=folder / "server.txt")
    with (
        mock.patch.object(processes, "started", started),
        mock.patch.object(files, "made", lambda path, make: path),
        mock.patch.object(vllm_server, "cache", lambda *request: None),  # it would be asked for
        mock.patch.object(gguf_files, "read_back", lambda *model: {}),  # the file is not made
        mock.patch.object(checkpoints, "MODELS", folder / "models"),
        mock.patch.dict(os.environ, {"TEXT_GENERATION_WEBUI": str(folder)}),
        backends.get(name).serve(checkpoint(folder / "checkpoint"), option, device, request) as served,
    ):
        served.health = seen["health"]
        yield seen["command"], seen["environment"], served


def body(served: servers.RunningServer) -> dict:
    """The body of one request to `served`."""
    return protocols.EVERY[served.dialect][1](PROMPT, served.model, served.body(PROMPT.new_tokens))


def scratch() -> tempfile.TemporaryDirectory:
    return tempfile.TemporaryDirectory(prefix="contracts-")
