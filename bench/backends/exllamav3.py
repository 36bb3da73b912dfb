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
  of sequence is suppressed by a sampler that bans it on the device: `min_new_tokens` would make a mask of the
  vocabulary's size on the host for every token, and read drafts back one by one. The cache is made with the
  model: more or longer requests than before load it again. Matrices are padded to multiples of 128, and a
  step reads the padding as well. Rotary base, vocabulary and ends of its `Config` are read back.
"""

import math
import subprocess
import sys
from importlib.metadata import version as _installed
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from bench.backends import common
from bench.backends.common import checkpoints, cuda, effective, weights
from bench.backends.common.checkpoints import Checkpoint
from bench.backends.common.contract import OnToken, Prompts
from llm_measured.core import files
from llm_measured.core.definitions import Fields

OPTIONS: dict[str, Fields] = {
    "4bpw": {"bits": 4},
    "6bpw": {"bits": 6},
    "float16": {},
    "4bpw-ngram": {"bits": 4, "ngram_tokens": 2, "draft_tokens": 10, "batches": False},
}
DEVICES = ("cuda",)
ENVIRONMENT = "exllamav3"
CONTEXT = 2048  # tokens of the cache at the start
PAGE = 256  # tokens
PADDED = 128  # rows and columns of a matrix are multiples of it
# `python -m` does nothing before 1.6, which has no command line of its own there, and says that all is well.
CONVERT = """
import sys
from exllamav3.conversion import convert_model
arguments, state, ready, why = convert_model.prepare(convert_model.parser.parse_args())
if not ready:
    sys.exit(why)
convert_model.main(arguments, state)
"""


def version() -> str:
    return f"{_installed('exllamav3')}, torch {_installed('torch')}"


def available() -> str | None:
    if absent := common.absent("exllamav3", study="exllamav3"):
        return absent
    compiled = find_spec("exllamav3_ext") is not None  # a wheel of its releases has the kernels
    if compiled or not (lacking := cuda.without_toolkit()):
        return None
    return f"exllamav3 is installed without its kernels, but {lacking}, or install a compiled wheel"


def prepare(checkpoint: Checkpoint, option: str, device: str) -> Path:
    return converted(checkpoint, OPTIONS[option].get("bits"), sys.executable, _installed("exllamav3"))


def converted(
    checkpoint: checkpoints.Checkpoint,
    bits: int | None,
    python: str,
    version: str,
    source: Path | None = None,
) -> Path:
    """Folder of `checkpoint`, read in `source` or its own, with so many bits per weight; that one if None.

    Made once for each `version` of the converter, the exllamav3 of the interpreter `python`.
    """
    source = source or checkpoint.path
    if bits is None:
        return source

    def make(to: Path) -> None:
        work = to.with_name("work")
        work.mkdir()
        command = [python, "-c", CONVERT, "-i", source, "-o", to, "-w", work, "-b", bits]
        done = subprocess.run(list(map(str, command)), capture_output=True, text=True)
        if done.returncode or not (to / "config.json").exists():
            raise RuntimeError(
                f"exllamav3 could not convert {checkpoint.name} to {bits} bits per weight:\n"
                f"{(done.stdout + done.stderr)[-2000:]}"
            )

    return files.made(checkpoints.conversion(checkpoint, "exl3", version, f"{bits}bpw"), make)


def load(checkpoint: Checkpoint, option: str, device: str, threads: int) -> "Engine":
    return Engine(checkpoint, prepare(checkpoint, option, device), OPTIONS[option])


class Engine:
    kv_value_bytes = 2
    arithmetic = "float16"

    def __init__(self, checkpoint: Checkpoint, path: Path, details: Fields) -> None:
        import exllamav3

        self.library, self.details, self.end = exllamav3, details, checkpoint.end_token_ids
        self.config = exllamav3.Config.from_directory(str(path))
        self.tokenizer = exllamav3.Tokenizer.from_config(self.config)
        self.weight_bytes = (
            _step_bytes(path)
            if "bits" in details
            else checkpoints.linear_bytes(checkpoint, 2, 2, multiple_of=PADDED)
        )
        self.settings = {"kv_cache": "fp16", "prefix_cache": False} | {
            name: value for name, value in details.items() if name != "batches"
        }
        self.settings |= effective.checked("ExLlamaV3", checkpoint, _reported(self.config))
        self.model: Any = None  # the library's, while one is loaded
        self.room = 0
        self.reserve(1, CONTEXT)

    def reserve(self, requests: int, tokens: int) -> None:
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
        drafting = {"ngram_match_min": "ngram_tokens", "num_draft_tokens": "draft_tokens"}
        drafting = {name: self.details[own] for name, own in drafting.items() if own in self.details}
        self.generator = self.library.Generator(self.model, cache, self.tokenizer, **drafting)
        self.room = room

    def generate(self, prompts: Prompts, max_new_tokens: int, on_token: OnToken | None) -> list[list[int]]:
        import torch

        if "draft_tokens" in self.details and len(prompts) > 1:
            raise ValueError("This adapter counts the drafts of one prompt at a time; use 4bpw for batches.")
        self.reserve(len(prompts), max_new_tokens + max(map(len, prompts)))
        library = self.library
        greedy = [library.SS_BanTokens(self.end), library.SS_Argmax()] if self.end else [library.SS_Argmax()]
        settings = {"max_new_tokens": max_new_tokens, "sampler": library.CustomSampler(greedy)}
        inputs = enumerate(torch.tensor([list(ids)]) for ids in prompts)
        self.generator.enqueue([library.Job(input_ids=ids, identifier=k, **settings) for k, ids in inputs])
        found: list[list[int]] = [[] for _ in prompts]
        try:
            while self.generator.num_remaining_jobs():
                for result in self.generator.iterate():
                    self._take(result, found, on_token)
        finally:
            self.generator.clear_queue()  # nothing is left unless something went wrong
            self.generator.pagetable.reset_page_table()
        return found

    def _take(self, result: Fields, found: list[list[int]], on_token: OnToken | None) -> None:
        """Hand on what one result brought; the engine's own exception where it could not go on with a job."""
        if result.get("stage") == "error":  # such a result has no identifier
            raise result["error"]
        for token in result["token_ids"].flatten().tolist() if "token_ids" in result else []:
            if on_token:
                on_token(result["identifier"], token)
            found[result["identifier"]].append(token)
        if "accepted_draft_tokens" in result:
            accepted = result["accepted_draft_tokens"]
            self.speculation = {
                "drafted_tokens": accepted + result["rejected_draft_tokens"],
                "accepted_tokens": accepted,
            }

    def close(self) -> None:
        if self.model:
            self.generator.close()
            self.model.unload()
        self.model = self.generator = None
        self.room = 0


def _reported(config: object) -> Fields:
    """What the library's `Config` says of the model."""
    return {
        "rope_theta": getattr(getattr(config, "rope_settings", None), "rope_theta", None),
        "vocab_size": getattr(config, "vocab_size", None),
        "end_token_ids": getattr(config, "eos_token_id_list", None),
    }


def _step_bytes(path: Path) -> int:
    """Bytes of weights that a decode step reads of a quantised model: all but the embedding rows, which are
    only looked up."""
    return sum(tensor.stored_bytes for tensor in weights.tensors(path) if "embed_tokens" not in tensor.name)
