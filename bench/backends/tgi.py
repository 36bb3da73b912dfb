"""**TGI**: Text Generation Inference, Hugging Face's own server; in maintenance since December 2025, archived
in March 2026, and part of the published table.

- Install: Docker and the NVIDIA Container Toolkit
  (<https://docs.nvidia.com/datacenter/cloud-native/container-toolkit/latest/install-guide.html>); the image
  comes with the first run. By hand: `docker run --gpus all --shm-size 1g -p 8080:80 -v $PWD/data:/data
  ghcr.io/huggingface/text-generation-inference:3.3.7 --model-id …`.
- Documentation: <https://huggingface.co/docs/text-generation-inference>
- Licence: Apache-2.0 up to version 0.9.4 and again since 2.0. Versions 1.0 to 1.4, those of the published
  table's time, are under HFOIL 1.0: any use but a paid service that offers TGI itself
  (<https://github.com/huggingface/text-generation-inference/issues/726>).
- Options: `float16` and `bfloat16` as they say; `bnb-int8` and `nf4` are bitsandbytes, quantised while
  loading; `eetq-int8` likewise with kernels that are meant for speed; `gptq-int4` reads a checkpoint that is
  quantised already, so it is measured only when chosen by name, with such a model. `float16-ngram` is
  speculative decoding without a second model (`--speculate`): what followed the last token when it first
  stood in the text.
- Tokens become visible as events of `/generate_stream`, one each, with their ids.
- Several devices: `tensor_parallel` shares the model among GPUs (`--num-shard`). Untried on several.
- Traps: no request can switch off the end of sequence, so the server gets a copy of the checkpoint whose
  generation_config.json names none. Prompts are text: what the server makes of them is its own count. The
  prefix cache is on by default since version 3; `PREFIX_CACHING=0` switches it off, with
  `USE_PREFIX_CACHING=0` for 2.3. Without `--num-shard` it takes every GPU that it sees. More requests than
  `--max-concurrent-requests` are refused, not queued. The end of a run stops the container; `docker ps` shows
  it as `bench-tgi-…`.
"""

import contextlib
import json
import os
import shutil
import subprocess

from bench import files, processes
from bench.backends.common import checkpoints, launch

IMAGE = "ghcr.io/huggingface/text-generation-inference:3.3.7"
OPTIONS = {
    "float16": {"--dtype": "float16"},
    "bfloat16": {"--dtype": "bfloat16"},
    "bnb-int8": {"--quantize": "bitsandbytes"},
    "nf4": {"--quantize": "bitsandbytes-nf4"},
    "eetq-int8": {"--quantize": "eetq"},
    "gptq-int4": {"--quantize": "gptq", "on_request": ("cuda",)},
    "float16-ngram": {"--dtype": "float16", "--speculate": 10, "batches": False},
}
DEVICES = ("cuda",)
PARALLEL = {"serve": ("tensor",)}
QUEUE = 1024  # requests that it keeps waiting before it refuses more


def version():
    return IMAGE.rpartition(":")[2]


def available():
    if shutil.which("docker"):
        return None
    return (
        "tgi needs docker, which is not on the PATH. Install Docker and the NVIDIA Container Toolkit, then: "
        "make study ENGINES=tgi"
    )


def prepare(checkpoint, option, device):
    """A copy of `checkpoint` (hard links, so no second set of weights) that names no end of sequence."""
    path = checkpoints.conversion(checkpoint, "tgi", version(), "endless")
    return files.made(path, lambda to: _endless(checkpoint.path, to))


def _endless(path, to):
    shutil.copytree(
        path, to, copy_function=_link, ignore=shutil.ignore_patterns("*.gguf", "generation_config.json")
    )
    file = path / "generation_config.json"
    # A list of ids is what TGI takes over from this file; no token has the id -1.
    (to / file.name).write_text(
        json.dumps((json.loads(file.read_text()) if file.exists() else {}) | {"eos_token_id": [-1]})
    )


def _link(source, to):
    """The hub's cache has links, which mean nothing inside a container; across file systems there are no hard
    ones."""
    source = os.path.realpath(source)
    try:
        os.link(source, to)
    except OSError:
        shutil.copy2(source, to)


@contextlib.contextmanager
def serve(checkpoint, option, device, request):
    path, port = prepare(checkpoint, option, device), processes.free_port()
    tokens, name = launch.context(checkpoint, request), f"bench-tgi-{port}"
    words = ["docker", "run", "--rm", "--name", name, "--gpus", "all", "--shm-size", "1g"]
    words += ["--publish", f"127.0.0.1:{port}:80", "--volume", f"{path.resolve()}:/model:ro"]
    words += ["--env", "PREFIX_CACHING=0", "--env", "USE_PREFIX_CACHING=0", IMAGE]
    flags = {
        "--model-id": "/model",
        "--num-shard": request.tensor_parallel,
        "--max-total-tokens": tokens,
        "--max-input-tokens": tokens - 1,
        "--max-concurrent-requests": QUEUE,
        "--usage-stats": "off",
    } | {flag: value for flag, value in OPTIONS[option].items() if flag.startswith("--")}
    settings = {"image": IMAGE, "prefix_caching": False}
    try:
        with launch.run(
            words, flags, port, request, "tgi", checkpoint.name, lambda new_tokens: {}, settings=settings
        ) as served:
            yield served
    finally:  # the command is gone; its container belongs to Docker's own process
        subprocess.run(["docker", "stop", name], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
