"""**text-generation-webui** (TextGen): a web interface around several loaders; the published table has its
ExLlama loader, today's is ExLlamaV3.

- Install: `git clone https://github.com/oobabooga/text-generation-webui`, run `./start_linux.sh` in it once,
  and name the folder: `TEXT_GENERATION_WEBUI=/path/to/text-generation-webui make study
  ENGINES=text_generation_webui`. By hand: `./start_linux.sh --api --nowebui`.
- Documentation: <https://github.com/oobabooga/text-generation-webui/wiki/12-%E2%80%90-OpenAI-API>
- Licence: AGPL-3.0: whoever offers a changed version over a network must publish its source. Measuring it
  through its API changes nothing of it.
- Options: bits per weight of the EXL3 file that its loader reads, `4bpw` and `6bpw`, and `float16`
  unquantised. The published row was GPTQ with 4 bits in the first ExLlama, which it no longer has.
- Tokens become visible as events of `/v1/completions`, with the prompt as text: no template, no system prompt
  and no character stand around it. (Token ids are taken there as well, only to be made text first.) Several
  tokens may share an event.
- Traps: (read in version 4.7.3 with its ExLlamaV3 0.0.30, never run) its loop ends before it hands on the
  last token, so one more is requested than is measured, and as many arrive as are measured. It counts an
  answer by splitting its text again, and with a beginning-of-sequence token wherever the model has one, which
  is taken off; where the text does not split as it was generated, the row has `error`. A prompt gets no
  beginning-of-sequence token but the tokenizer's own (`add_bos_token` false), while its count has one in any
  case. Its converter has no command line before 1.6. Before 1.0 a model loads only where its sizes are
  multiples of 128. Its processes share one lock for some loaders: requests then wait for each other. A
  prompt's pages stay in ExLlamaV3's cache, which cannot be switched off from outside (no two prompts of a run
  share a prefix). It tells nothing of the model at an address, so nothing is read back.
"""

import json
import math
import os
import subprocess
from dataclasses import replace
from pathlib import Path

from bench.backends import exllamav3
from bench.backends.common import copies, servers
from bench.backends.common.checkpoints import Checkpoint
from llm_measured.core.definitions import Fields

OPTIONS: dict[str, Fields] = {"4bpw": {"bits": 4}, "6bpw": {"bits": 6}, "float16": {}}
DEVICES = ("cuda",)
PARALLEL = {"serve": ("tensor",)}
FOLDER = "TEXT_GENERATION_WEBUI"
LOADER = 'from importlib.metadata import version; print(version("exllamav3"))'


def version() -> str:
    """The commit that is checked out: the project's releases are tags of it. An unpacked archive has none."""
    if not (_home() / ".git" / "HEAD").exists():
        return "of no known commit"
    head = (_home() / ".git" / "HEAD").read_text().strip()
    ref = _home() / ".git" / head.removeprefix("ref: ")
    return (ref.read_text().strip() if head.startswith("ref: ") and ref.exists() else head)[:12]


def available() -> str | None:
    if (_home() / "server.py").exists():
        return None
    return (
        f"text_generation_webui needs the folder of its checkout in {FOLDER}: git clone "
        "https://github.com/oobabooga/text-generation-webui, then ./start_linux.sh"
    )


def _home() -> Path:
    return Path(os.environ.get(FOLDER) or "/nonexistent")


def _python() -> str:
    """The interpreter that its installer made, or that of a virtual environment in its folder."""
    places = [_home() / "installer_files" / "env" / "bin" / "python", _home() / "venv" / "bin" / "python"]
    return next((str(place) for place in places if place.exists()), "python3")


def _loader() -> str:
    """Version of the ExLlamaV3 that its interpreter has; 0.0.30, that of 4.7.3, where it does not say."""
    done = subprocess.run([_python(), "-c", LOADER], capture_output=True, text=True)
    return done.stdout.strip() or "0.0.30"


def prepare(checkpoint: Checkpoint, option: str, device: str) -> Path:
    """The checkpoint in ExLlamaV3's format; ValueError where its loader has no room for the model's sizes."""
    loader, config = _loader(), checkpoint.config
    sizes = [config[name] for name in ("hidden_size", "intermediate_size") if name in config]
    if loader.startswith("0.") and any(size % exllamav3.PADDED for size in sizes):
        raise ValueError(
            f"{checkpoint.name} has sizes of {' and '.join(map(str, sizes))}, and the ExLlamaV3 {loader} of "
            f"this text-generation-webui loads multiples of {exllamav3.PADDED} only: measure another model, "
            "or the backend exllamav3, which pads them."
        )
    source = copies.for_transformers_4(checkpoint)
    return exllamav3.converted(checkpoint, OPTIONS[option].get("bits"), _python(), loader, source)


SERVER = servers.Declaration(
    "text-generation-webui",
    OPTIONS,
    ["server.py", "--api", "--nowebui"],
    {
        "--api-port": "{port}",
        "--model-dir": "{parent}",
        "--model": "{name}",
        "--loader": "ExLlamav3",
        "--cache-type": "fp16",
    },
    body={  # greedy, never end early, the room that the server has
        "max_tokens": "{new_tokens}",
        "ban_eos_token": True,
        "add_bos_token": False,
        "do_sample": False,
        "truncation_length": 0,
    },
    model="{name}",
    health="/v1/internal/health",
    environment={"CUDA_VISIBLE_DEVICES": "{gpus}"},
    prepare=prepare,
)


def serve(
    checkpoint: Checkpoint, option: str, device: str, request: servers.ServerSpec
) -> servers.ServerCommand:
    command = SERVER.serve(checkpoint, option, device, request)
    flags = dict(command.flags)
    if request.requests:
        room = request.requests * servers.context(checkpoint, request)
        flags["--ctx-size"] = math.ceil(room / exllamav3.PAGE) * exllamav3.PAGE
    if request.tensor_parallel > 1:
        flags |= {"--enable-tp": True, "--tp-backend": "nccl"}
    return replace(
        command,
        command=["env", f"--chdir={_home()}", _python(), *command.command],
        flags=flags,
        body=lambda new_tokens: command.body(new_tokens + 1),  # its loop keeps the last one
        events="text-bos" if _counts_bos(checkpoint) else "text",
    )


def _counts_bos(checkpoint: Checkpoint) -> bool:
    """Whether its tokenizer knows a beginning-of-sequence token: it then counts one with every text."""
    file = checkpoint.path / "tokenizer_config.json"
    tokenizer = json.loads(file.read_text()) if file.exists() else {}
    return checkpoint.config.get("bos_token_id") is not None or bool(tokenizer.get("bos_token"))
