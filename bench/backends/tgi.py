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
- Several devices: `tensor_parallel` shares the model among GPUs (`--num-shard`). Untried on several. The
  container sees the GPUs of `CUDA_VISIBLE_DEVICES`, in nvidia-smi's order, and no others.
- Traps: no request can switch off the end of sequence, so the server gets a copy of the checkpoint whose
  generation_config.json names none. The image has transformers 4.51: of a checkpoint that transformers 5
  wrote it reads neither the tokenizer nor the rotary base (10,000 instead of the model's own), so the copy
  has both where it looks. `/info` tells the number format, which is read back, and no other setting of the
  model. `eetq-int8` gets its kernel from the hub, unless the image has it. Prompts are text: what the server
  makes of them is its own count. The prefix cache is on by default since version 3; `PREFIX_CACHING=0`
  switches it off, with `USE_PREFIX_CACHING=0` for 2.3. Without `--num-shard` it takes every GPU that it sees.
  More requests than `--max-concurrent-requests` are refused, not queued. The end of a run stops the
  container; `docker ps` shows it as `bench-tgi-…`.
"""

import shutil
from pathlib import Path

from bench import environment
from bench.backends.common import copies, effective, servers
from bench.backends.common.checkpoints import Checkpoint
from llm_measured.core.definitions import Fields

IMAGE = "ghcr.io/huggingface/text-generation-inference:3.3.7"
OPTIONS: dict[str, Fields] = {
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


def version() -> str:
    return IMAGE.rpartition(":")[2]


def available() -> str | None:
    if shutil.which("docker"):
        return None
    return (
        "tgi needs docker, which is not on the PATH. Install Docker and the NVIDIA Container Toolkit, then: "
        "make study ENGINES=tgi"
    )


def prepare(checkpoint: Checkpoint, option: str, device: str) -> Path:
    """A copy of `checkpoint` as its transformers reads it, that names no end of sequence."""
    return copies.for_transformers_4(checkpoint, endless=True)


def serve(
    checkpoint: Checkpoint, option: str, device: str, request: servers.ServerSpec
) -> servers.ServerCommand:
    path, tokens = prepare(checkpoint, option, device), servers.context(checkpoint, request)
    name = f"bench-tgi-{request.port}"
    # `--gpus all` would hand over GPUs that CUDA_VISIBLE_DEVICES hides: another one would be described here.
    # Docker reads the value as CSV, so the list is one quoted field of it.
    gpus = f'"device={",".join(environment.used_gpus(request.tensor_parallel))}"'
    command = ["docker", "run", "--rm", "--name", name, "--gpus", gpus, "--shm-size", "1g"]
    command += ["--publish", f"127.0.0.1:{request.port}:80", "--volume", f"{path.resolve()}:/model:ro"]
    command += ["--env", f"CUDA_DEVICE_ORDER={environment.ORDER}"]
    command += ["--env", "PREFIX_CACHING=0", "--env", "USE_PREFIX_CACHING=0", IMAGE]
    flags = {
        "--model-id": "/model",
        "--num-shard": request.tensor_parallel,
        "--max-total-tokens": tokens,
        "--max-input-tokens": tokens - 1,
        "--max-concurrent-requests": QUEUE,
        "--usage-stats": "off",
    } | {flag: value for flag, value in OPTIONS[option].items() if flag.startswith("--")}

    def reported(url: str) -> Fields:
        found = {"dtype": effective.fetched(f"{url}/info").get("model_dtype")}
        return effective.checked("TGI", checkpoint, found, OPTIONS[option].get("--dtype"))

    return servers.ServerCommand(
        command,
        flags,
        events="tgi",
        settings={"image": IMAGE, "prefix_caching": False},
        reported=reported,
        after=["docker", "stop", name],  # the container belongs to Docker's own process
    )
