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
- Traps: it counts an answer by splitting its text again, and with a beginning-of-sequence token where the
  tokenizer adds one: such rows disagree with the number that was requested and have `error`. Its processes
  share one lock for some loaders: requests then wait for each other. A prompt's pages stay in ExLlamaV3's
  cache, which cannot be switched off from outside (no two prompts of a run share a prefix).
"""

import contextlib
import os
from pathlib import Path

from bench import environment, processes
from bench.backends import exllamav3
from bench.backends.common import launch

OPTIONS = {"4bpw": {"bits": 4}, "6bpw": {"bits": 6}, "float16": {}}
DEVICES = ("cuda",)
PARALLEL = {"serve": ("tensor",)}
FOLDER = "TEXT_GENERATION_WEBUI"


def version():
    """The commit that is checked out: the project's releases are tags of it. An unpacked archive has none."""
    if not (_home() / ".git" / "HEAD").exists():
        return "of no known commit"
    head = (_home() / ".git" / "HEAD").read_text().strip()
    ref = _home() / ".git" / head.removeprefix("ref: ")
    return (ref.read_text().strip() if head.startswith("ref: ") and ref.exists() else head)[:12]


def available():
    if (_home() / "server.py").exists():
        return None
    return (
        f"text_generation_webui needs the folder of its checkout in {FOLDER}: git clone "
        "https://github.com/oobabooga/text-generation-webui, then ./start_linux.sh"
    )


def _home():
    return Path(os.environ.get(FOLDER) or "/nonexistent")


def _python():
    """The interpreter that its installer made, or that of a virtual environment in its folder."""
    places = [_home() / "installer_files" / "env" / "bin" / "python", _home() / "venv" / "bin" / "python"]
    return next((str(place) for place in places if place.exists()), "python3")


def prepare(checkpoint, option, device):
    return exllamav3.converted(checkpoint, OPTIONS[option].get("bits"), _python(), version())


@contextlib.contextmanager
def serve(checkpoint, option, device, request):
    path, port = prepare(checkpoint, option, device), processes.free_port()
    words = ["env", f"--chdir={_home()}", _python(), "server.py", "--api", "--nowebui"]
    room = -(-request.requests * launch.context(checkpoint, request) // 256) * 256  # pages of 256 tokens
    flags = {
        "--api-port": port,
        "--model-dir": path.parent,
        "--model": path.name,
        "--loader": "ExLlamav3",
        **({"--ctx-size": room} if room else {}),
        "--cache-type": "fp16",
    }
    flags |= {"--enable-tp": True, "--tp-backend": "nccl"} if request.tensor_parallel > 1 else {}
    chosen = environment.visible_gpus() or [str(gpu) for gpu in range(request.tensor_parallel)]
    visible = {"CUDA_VISIBLE_DEVICES": ",".join(chosen[: request.tensor_parallel])}
    with launch.run(
        words, flags, port, request, "text", path.name, _body, "/v1/internal/health", environment=visible
    ) as served:
        yield served


def _body(new_tokens):
    """Fields of every request: greedy, never end early, and the room that the server has."""
    return {"ban_eos_token": True, "do_sample": False, "truncation_length": 0}
