"""**ExLlamaV3**: inference of EXL3 files (trellis quantisation, any number of bits per weight) on NVIDIA
GPUs, in this process.

- Install: `make study ENGINES=exllamav3` on a machine with an NVIDIA GPU makes an environment of its own,
  `.venvs/exllamav3`, from `environments/exllamav3.txt`. The wheel has no compiled kernels: the CUDA toolkit
  and a C++ compiler build them at the first import. By hand: `pip install exllamav3`, or a compiled wheel
  from <https://github.com/turboderp-org/exllamav3/releases>.
- Documentation: <https://github.com/turboderp-org/exllamav3>
- Licence: MIT.
- Options: bits per weight, `4bpw` and `6bpw`, of every matrix but the head (6 bits) and the embedding (16),
  and `float16` unquantised. Files are made once with its own `convert_model`, which needs the GPU and minutes
  to hours. `4bpw-ngram` is speculative decoding without a second model: what followed the last two tokens
  when they stood in the text before, up to ten tokens, is drafted and checked in one pass. The KV cache is
  float16.
- Tokens become visible as the `streaming` results of `Generator.iterate()`, with their ids. Without a
  callback it is the same loop: it has no other.
- Traps: finished prompts stay in its page table and answer the next one that begins alike, so the table is
  emptied after every call. Tokens that end inside a UTF-8 character are held back and come together. The end
  of sequence is suppressed by `min_new_tokens`. The cache is made with the model: more or longer requests
  than before load it again. Matrices must be divisible by 128 to be quantised.
"""

import math
import subprocess
import sys
from importlib.metadata import version as _installed
from importlib.util import find_spec

from bench import files
from bench.backends.common import checkpoints, weights

OPTIONS = {
    "4bpw": {"bits": 4},
    "6bpw": {"bits": 6},
    "float16": {},
    "4bpw-ngram": {"bits": 4, "ngram_tokens": 2, "draft_tokens": 10, "batches": False},
}
DEVICES = ("cuda",)
ENVIRONMENT = "exllamav3"
CONTEXT = 2048  # tokens of the cache at the start
PAGE = 256  # tokens


def version():
    return f"{_installed('exllamav3')}, torch {_installed('torch')}"


def available():
    return (
        None
        if find_spec("exllamav3")
        else "exllamav3 is not installed. Install and measure it with: make study ENGINES=exllamav3"
    )


def prepare(checkpoint, option, device):
    return converted(checkpoint, OPTIONS[option].get("bits"), sys.executable, _installed("exllamav3"))


def converted(checkpoint, bits, python, version):
    """Folder of `checkpoint` with so many bits per weight, the checkpoint's own if `bits` is None.

    Made once for each `version` of the converter, the exllamav3 of the interpreter `python`.
    """
    if bits is None:
        return checkpoint.path

    def make(to):
        work = to.with_name("work")
        work.mkdir()
        command = [python, "-m", "exllamav3.conversion.convert_model"]
        command += ["-i", checkpoint.path, "-o", to, "-w", work, "-b", bits]
        done = subprocess.run(list(map(str, command)), capture_output=True, text=True)
        if done.returncode or not (to / "config.json").exists():
            raise RuntimeError(
                f"exllamav3 could not convert {checkpoint.name} to {bits} bits per weight:\n"
                f"{(done.stdout + done.stderr)[-2000:]}"
            )

    return files.made(checkpoints.conversion(checkpoint, "exl3", version, f"{bits}bpw"), make)


def load(checkpoint, option, device, threads):
    return Engine(checkpoint, prepare(checkpoint, option, device), OPTIONS[option])


class Engine:
    kv_value_bytes = 2
    arithmetic = "float16"

    def __init__(self, checkpoint, path, details):
        import exllamav3

        self.library, self.details, self.end = exllamav3, details, checkpoint.end_token_ids
        self.config = exllamav3.Config.from_directory(str(path))
        self.tokenizer = exllamav3.Tokenizer.from_config(self.config)
        self.weight_bytes = (
            _step_bytes(path) if "bits" in details else checkpoints.linear_bytes(checkpoint, 2, 2)
        )
        self.settings = {"kv_cache": "fp16", "prefix_cache": False} | {
            name: value for name, value in details.items() if name != "batches"
        }
        self.model, self.room = None, 0
        self.reserve(1, CONTEXT)

    def reserve(self, requests, tokens):
        """Load the model with a cache for exactly so many requests of so many tokens, in pages, if it has not
        that much room already."""
        extra = self.details.get("draft_tokens", 0) + 1
        room = requests * math.ceil((tokens + extra) / PAGE) * PAGE
        if room <= self.room:
            return
        self.close()
        self.model = self.library.Model.from_config(self.config)
        cache = self.library.Cache(self.model, max_num_tokens=room)
        self.model.load(device="cuda:0")
        drafting = (
            {
                "ngram_match_min": self.details["ngram_tokens"],
                "num_draft_tokens": self.details["draft_tokens"],
            }
            if "draft_tokens" in self.details
            else {}
        )
        self.generator = self.library.Generator(self.model, cache, self.tokenizer, **drafting)
        self.room = room

    def generate(self, prompts, max_new_tokens, on_token):
        import torch

        if "draft_tokens" in self.details and len(prompts) > 1:
            raise ValueError("This adapter counts the drafts of one prompt at a time; use 4bpw for batches.")
        self.reserve(len(prompts), max_new_tokens + max(map(len, prompts)))
        settings = {
            "max_new_tokens": max_new_tokens,
            "min_new_tokens": max_new_tokens,
            "stop_conditions": self.end,
            "sampler": self.library.ArgmaxSampler(),
        }
        self.generator.enqueue(
            [
                self.library.Job(input_ids=torch.tensor([list(ids)]), identifier=k, **settings)
                for k, ids in enumerate(prompts)
            ]
        )
        found = [[] for _ in prompts]
        try:
            while self.generator.num_remaining_jobs():
                for result in self.generator.iterate():
                    self._take(result, found, on_token)
        finally:
            self.generator.clear_queue()  # nothing is left unless something went wrong
            self.generator.pagetable.reset_page_table()
        return found

    def _take(self, result, found, on_token):
        """Hand on what one result brought."""
        request = result.get("identifier")
        for token in result["token_ids"].flatten().tolist() if "token_ids" in result else []:
            if on_token:
                on_token(request, token)
            found[request].append(token)
        if "accepted_draft_tokens" in result:
            accepted = result["accepted_draft_tokens"]
            self.speculation = {
                "drafted_tokens": accepted + result["rejected_draft_tokens"],
                "accepted_tokens": accepted,
            }

    def close(self):
        if self.model:
            self.generator.close()
            self.model.unload()
        self.model = self.generator = None
        self.room = 0


def _step_bytes(path):
    """Bytes of weights that a decode step reads of a quantised model: all but the embedding rows, which are
    only looked up."""
    return sum(tensor.stored_bytes for tensor in weights.tensors(path) if "embed_tokens" not in tensor.name)
