"""What the study asks of an engine, as types, and what can be checked of an adapter without measuring
anything.

An adapter is a module, `bench/backends/<name>.py`: `Adapter` is what every one has, `InProcess` or
`IsServer` (or both) how its engine is reached, `Converts` what some have besides. What `load` returns is an
`Engine`; some `Reserves`, `Keeps`, `Scores` or `Answers`. No adapter imports a clock: the times are taken in
`bench/instrument/in_process.py`, in the callback.

**The checkpoint** that an adapter gets (`bench/backends/common/checkpoints.py`) offers

    name, path, weights            `path` is a folder in the Hugging Face layout; `weights` is "real" or
                                   "synthetic"
    config                         config.json as a dict
    tokenizer                      its fast tokenizer (`tokenizers.Tokenizer`); encode(text) and decode(ids)
                                   use it
    end_token_ids                  sorted ids that end a sequence, all to be suppressed
    gguf                           the GGUF file that the checkpoint came from, or None
    kv_values_per_token            numbers that one token adds to the KV cache

Any other name is refused with a sentence that lists these.

**The model that the engine reads.** What an engine tells of it (rotary base, number format, vocabulary,
ends of a sequence) goes through `effective.checked` into its settings: a difference refuses the run. An
engine on transformers 4, which finds neither the rotary base nor the tokenizer of a checkpoint that
transformers 5 wrote, gets `copies.for_transformers_4(checkpoint)`; the checkpoint's own folder is never
written to.

**Counting weight_bytes.** Embedding rows that are only looked up are not read; a head that is tied to them
is, once.

    checkpoints.linear_bytes(checkpoint, 2)    every matrix at so many bytes per number: an estimate without
                                               block scales, for engines that do not show their tensors
    gguf_files.step_bytes(path)                what a GGUF file holds; `per_value` if the engine unpacks its
                                               matrices
    torch_models.step_bytes(model)             the tensors of a PyTorch model, with bitsandbytes' and GPTQ's
                                               scales
"""

import ast
import inspect
import itertools
import json
import math
from collections.abc import Callable, Collection, Iterable, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any, ClassVar, Protocol

from bench.backends.common.checkpoints import Checkpoint
from bench.backends.common.servers import RunningServer, ServerCommand, ServerSpec
from bench.paths import ROOT

WHERE = "What an adapter must have stands in bench/backends/common/contract.py."


class Adapter(Protocol):
    """What every adapter has. Its docstring says what the engine is, under `Install`, `Documentation` and
    `Licence` how to get it."""

    OPTIONS: dict[str, dict[str, Any]]
    """What can be chosen, the default first. Each option has a dict in which the adapter may keep whatever it
    needs; these keys mean something to others:

    "devices": ("cpu",)        the option exists on these of DEVICES only
    "environment": "gptq"      it needs another environment than ENVIRONMENT
    "batches": False           it takes one prompt at a time, and `generate` raises a ValueError for more
    "draft_tokens": 10         it drafts so many tokens, which the model then checks
    "draft_model": True        a smaller model drafts them (bench/backends/common/drafts.py)
    "on_request": ("cpu",)     a study measures it on these devices only if its name is in ENGINES, because it
                               is slow there or reads checkpoints of its own kind
    """
    DEVICES: tuple[str, ...]
    """Some of "cuda", "cpu"."""

    ENVIRONMENT: ClassVar[str | None] = None
    """The engine has an environment of its own: `vllm` is environments/vllm.txt, installed in .venvs/vllm;
    environments/vllm-cuda.txt beside it, or alone, is for that device only."""
    PARALLEL: ClassVar[dict[str, tuple[str, ...]]] = {}
    """How `load` and `serve` can use several devices at once, such as {"serve": ("tensor", "data")}.
    "tensor": devices share the model, and `load` takes a fifth argument, tensor_parallel=1; "data": replicas
    of the model behind one address. Anything else is refused."""
    NOT_JUDGED: ClassVar[str] = ""
    """The tokens are not the model's, as those of an engine that is made up: one sentence. Of every other
    engine `bench/experiments/judge.py` compares an answer with the reference's before it is measured."""
    PREFIX_CACHE: ClassVar[bool] = False
    """`serve` starts a prefix cache of `request.cache_tokens` tokens where they are above 0, and says in
    `ServerCommand.cache` what it is."""
    ON_REQUEST: ClassVar[str] = ""
    """A study never measures this engine by itself: one sentence that says how it is done."""

    def version(self) -> str: ...

    def available(self) -> str | None:
        """None if the engine can run here, else one sentence: why not, and how to install it."""


Prompts = Sequence[Sequence[int]]  # token ids of each prompt of a batch
OnToken = Callable[[int, int], object]  # told the prompt's place in its batch and a token's id


class Engine(Protocol):
    """An engine in this process."""

    weight_bytes: float
    """Bytes of weights that one decode step reads."""
    kv_value_bytes: float
    """Bytes of one number in the KV cache."""
    settings: dict[str, Any]
    """For the sidecar: what the engine runs with (threads, spinning, caches)."""

    streams: ClassVar[bool] = True
    """False: it cannot tell when a token is there, and its TTFT stays empty."""
    arithmetic: ClassVar[str] = "float32"
    """Number format in which it multiplies matrices, one of ARITHMETIC: its MFU refers to it."""
    speculation: ClassVar[dict[str, int]] = {}
    """drafted_tokens and accepted_tokens of the last `generate`, if tokens are drafted; cached_tokens where
    the engine counts what it took from a kept prefix."""

    def generate(
        self, prompts: list[list[int]], max_new_tokens: int, on_token: Callable[[int, int], None] | None
    ) -> list[list[int]]:
        """Greedy decoding of exactly `max_new_tokens` for each prompt (token ids; those of one call are as
        long as each other), with the tokens of `checkpoint.end_token_ids` suppressed; one list of token ids
        per prompt.

        Calls `on_token(request, token_id)`, `request` being the prompt's index, as each token becomes
        available to a caller. With None it runs the engine's own loop without callbacks: the difference is
        what measuring costs.
        """

    def close(self) -> None:
        """Frees memory and ends threads and processes."""


class Reserves(Protocol):
    """An engine that learns how much it will hold, before a batch is timed."""

    def reserve(self, requests: int, tokens: int) -> None:
        """Make room for `requests` of `tokens` each, prompt and answer."""


AFTER_PREFIX = 16  # tokens for which there is room after a prefix that is kept


class Keeps(Protocol):
    """An engine that can keep the keys and values of a prefix from one call to the next."""

    def keep_prefix(self, ids: list[int]) -> None:
        """Compute `ids` and keep them: from now on `generate` gets one prompt that begins with them, up to
        AFTER_PREFIX tokens longer with its answer, and computes the rest of it alone, in one pass."""


class Scores(Protocol):
    """An engine that knows how likely it finds a text."""

    def log_probabilities(self, ids: list[int]) -> list[float]:
        """Natural logarithms of the probabilities of ids[1:], each after all ids before it."""


class Answers(Protocol):
    """An engine whose answers may end by themselves: for what is judged by its content, never by its time."""

    answers_together: ClassVar[bool] = True
    """False: `answer` takes one prompt at a time. An option with `"batches": False` does so anyway."""

    def answer(self, prompts: list[list[int]], max_new_tokens: int) -> list[list[int]]:
        """Greedy decoding of each prompt (token ids, of any lengths) up to a token of
        `checkpoint.end_token_ids`, without it (`until_end`). An answer of `max_new_tokens` tokens was cut."""


def until_end(ids: Iterable[int], end: Collection[int]) -> list[int]:
    """The token ids before the first one that is in `end`; all of them where none is."""
    return list(itertools.takewhile(lambda token: token not in end, ids))


class InProcess(Protocol):
    """An adapter whose engine runs in this process."""

    def load(self, checkpoint: Checkpoint, option: str, device: str, threads: int) -> Engine: ...


class IsServer(Protocol):
    """An adapter whose engine is a server: nothing is started, only stated. Where a command is all, `serve`
    is the method of a `servers.Declaration`."""

    def serve(
        self, checkpoint: Checkpoint, option: str, device: str, request: ServerSpec
    ) -> ServerCommand | RunningServer: ...


class Converts(Protocol):
    """An adapter that makes a format of its own of the model."""

    def prepare(self, checkpoint: Checkpoint, option: str, device: str) -> Path:
        """Path of that format. Called in a process of its own, once for each version of the engine:
        `checkpoints.conversion` names the path, `files.made` makes it whole or not at all."""


DOCUMENTED = "Install:", "Documentation:", "Licence:", "Options:", "Traps:"
ARITHMETIC = "float32", "bfloat16", "float16", "int8", "fp8"
CLOCKS = {"time", "timeit", "datetime", "perf_counter", "monotonic", "in_process"}


def arguments(part: Callable) -> tuple[str, ...]:
    """Names of the arguments that the `part` of a type above takes, without self."""
    return tuple(inspect.signature(part).parameters)[1:]


def engine_faults(engine: Engine) -> list[str]:
    """One sentence for each part of the contract that `engine` lacks, or has in another shape; none if it
    keeps it."""
    faults = [
        *_callable(engine, Engine.generate),
        *_number(engine, "weight_bytes", "bytes of weights that one decode step reads"),
        *_number(engine, "kv_value_bytes", "bytes of one number in the KV cache"),
        *_settings(engine),
        *_callable(engine, Engine.close),
    ]
    for part in (Reserves.reserve, Keeps.keep_prefix, Scores.log_probabilities, Answers.answer):
        faults += _callable(engine, part) if hasattr(engine, part.__name__) else []
    if getattr(engine, "arithmetic", Engine.arithmetic) not in ARITHMETIC:
        faults.append(f"Its arithmetic is {engine.arithmetic!r}, which is none of {', '.join(ARITHMETIC)}.")
    if not isinstance(getattr(engine, "streams", Engine.streams), bool):
        faults.append("Its attribute streams is neither True nor False.")
    return faults


def check_engine(engine: Engine) -> Engine:
    """`engine`; TypeError naming everything that it lacks of the contract. Costs no request."""
    if faults := engine_faults(engine):
        raise TypeError(f"{' '.join(faults)} {WHERE}")
    return engine


def _callable(engine: Engine, part: Callable) -> list[str]:
    name, taken = part.__name__, arguments(part)
    method, shown = getattr(engine, name, None), ", ".join(taken)
    if not callable(method):
        return [f"The engine has no method {name}({shown})."]
    try:
        inspect.signature(method).bind(*taken)
    except TypeError:
        return [f"The engine's {name} does not take the arguments ({shown})."]
    except ValueError:
        pass  # a method in C that shows no signature
    return []


def _number(engine: Engine, name: str, meaning: str) -> list[str]:
    value: Any = getattr(engine, name, None)
    try:
        good = not isinstance(value, bool) and 0 <= value < math.inf
    except TypeError:
        good = False
    if good:
        return []
    found = f"Its {name} is {value!r}" if hasattr(engine, name) else f"The engine has no attribute {name}"
    return [f"{found}; it must be a number: {meaning}."]


def _settings(engine: Engine) -> list[str]:
    if not isinstance(getattr(engine, "settings", None), dict):
        return ["The engine has no dict settings (threads, caches, …: what the sidecar keeps of it)."]
    try:
        json.dumps(engine.settings)
    except (TypeError, ValueError) as error:
        return [f"Its settings cannot be written as JSON: {error}."]
    return []


def unusable(module: ModuleType) -> list[str]:
    """One sentence for each part without which nothing can use the adapter `module`."""
    options, devices = getattr(module, "OPTIONS", None), getattr(module, "DEVICES", ())
    faults = []
    if not isinstance(options, dict) or not options or not all(isinstance(o, dict) for o in options.values()):
        faults.append("OPTIONS must be a dict from each option's name to a dict, with the default first.")
    elif unknown := {d for o in options.values() for d in o.get("devices", devices)} - set(devices):
        faults.append(f"OPTIONS name devices that DEVICES lacks: {', '.join(sorted(unknown))}.")
    if not devices or isinstance(devices, str) or not set(devices) <= {"cpu", "cuda"}:
        faults.append('DEVICES must be a tuple of "cpu", "cuda" or both.')
    faults += [
        f"The module has no function {n}()." for n in ("version", "available") if not hasattr(module, n)
    ]
    if not hasattr(module, "load") and not hasattr(module, "serve"):
        faults.append(
            "The module has neither load(...), for an engine in this process, nor serve(...), for a server."
        )
    return faults


def module_faults(module: ModuleType) -> list[str]:
    """One sentence for each part of the contract that the adapter `module` lacks, or has in another shape."""
    lacking = [word for word in DOCUMENTED if word not in (module.__doc__ or "")]
    faults = [f"The module's docstring does not say: {', '.join(lacking)}."] if lacking else []
    faults += unusable(module)
    shared = "tensor" in getattr(module, "PARALLEL", {}).get("load", ())
    for part in (Adapter.version, Adapter.available, Converts.prepare, InProcess.load, IsServer.serve):
        if found := getattr(module, part.__name__, None):
            taken = arguments(part)
            taken += ("tensor_parallel",) if shared and part is InProcess.load else ()
            if (count := len(inspect.signature(found).parameters)) != len(taken):
                faults.append(f"{part.__name__} takes {count} arguments, not ({', '.join(taken)}).")
    options = getattr(module, "OPTIONS", None)
    own = [o for o in options.values() if isinstance(o, dict)] if isinstance(options, dict) else []
    named = {getattr(module, "ENVIRONMENT", None), *(o.get("environment") for o in own)}
    absent = [
        name for name in sorted(filter(None, named)) if not any((ROOT / "environments").glob(f"{name}*.txt"))
    ]
    return faults + [f"There is no environments/{name}.txt, which the module names." for name in absent]


def clocks(module: ModuleType) -> list[str]:
    """Names of the clocks that the file of `module` imports, sorted: there must be none."""
    imported = set()
    for node in ast.walk(ast.parse(Path(inspect.getfile(module)).read_text())):
        if isinstance(node, ast.Import):
            imported |= {part for alias in node.names for part in alias.name.split(".")}
        if isinstance(node, ast.ImportFrom):
            imported |= {*(node.module or "").split("."), *(alias.name for alias in node.names)}
    return sorted(imported & CLOCKS)
