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
from bench.backends.common import copies, servers
from bench.backends.common.checkpoints import Checkpoint
from llm_measured.core.definitions import Fields

IMAGE = "ghcr.io/huggingface/text-generation-inference:3.3.7"
OPTIONS: dict[str, Fields] = {  # it takes no --dtype beside --quantize
    "float16": {"dtype": "float16"},
    "bfloat16": {"dtype": "bfloat16"},
    "bnb-int8": {"quantize": "bitsandbytes"},
    "nf4": {"quantize": "bitsandbytes-nf4"},
    "eetq-int8": {"quantize": "eetq"},
    "gptq-int4": {"quantize": "gptq", "on_request": ("cuda",)},
    "float16-ngram": {"dtype": "float16", "flags": {"--speculate": 10}, "batches": False},
}
DEVICES = ("cuda",)
PARALLEL = {"serve": ("tensor",)}


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
    """Make a copy of `checkpoint` as its transformers reads it, that names no end of sequence."""
    return copies.for_transformers_4(checkpoint, endless=True).resolve()


SERVER = servers.Declaration(
    "TGI",
    OPTIONS,
    [
        *("docker", "run", "--rm", "--name", "bench-tgi-{port}"),
        # `--gpus all` would hand over GPUs that CUDA_VISIBLE_DEVICES hides: another one would be described
        # here. Docker reads the value as CSV, so the list is one quoted field of it.
        *("--gpus", '"device={gpus}"', "--shm-size", "1g"),
        *("--publish", "127.0.0.1:{port}:80", "--volume", "{path}:/model:ro"),
        *("--env", f"CUDA_DEVICE_ORDER={environment.ORDER}"),
        *("--env", "PREFIX_CACHING=0", "--env", "USE_PREFIX_CACHING=0", IMAGE),
    ],
    {
        "--model-id": "/model",
        "--num-shard": "{tensor_parallel}",
        "--max-total-tokens": "{context}",
        "--max-input-tokens": "{prompt_tokens}",
        "--max-concurrent-requests": 1024,  # it keeps so many waiting before it refuses more
        "--usage-stats": "off",
        "--dtype": "{dtype}",
        "--quantize": "{quantize}",
    },
    dialect="tgi",
    settings={"image": IMAGE, "prefix_caching": False},
    tells_dtype=("/info", "model_dtype"),
    after=["docker", "stop", "bench-tgi-{port}"],  # the container belongs to Docker's own process
    prepare=prepare,
)
serve = SERVER.serve
