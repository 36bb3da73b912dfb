"""An engine in a process of its own: what kills it (memory runs out, a crash, a hang) costs one batch, not
the sweep.

`python -m bench.instrument.isolated` is the other end, with messages and answers on its standard streams.

The clock stays where the engine is: the child calls `in_process.generate`, and only finished measurements
come back.
"""

import contextlib
import os
import pickle
import select
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable
from time import sleep
from typing import TYPE_CHECKING, Any, BinaryIO

from bench import backends
from bench.backends.common import contract
from bench.instrument import in_process
from bench.machine import memory
from bench.paths import ROOT
from llm_measured.core.definitions import Fields

if TYPE_CHECKING:
    from bench.backends.common.checkpoints import Checkpoint
    from bench.backends.common.contract import Engine

CLOSE_S = 10  # for an engine to close by itself


class Worker:
    """The engine of `backend` behind a pipe: `generate` as `in_process.generate`, but a failed engine spares
    the caller.

    A process that failed is replaced before the next batch. `parallel` is how many devices share the model,
    where they are several; `patience_s` is the time that one
    batch may take. RuntimeError from the constructor if the engine cannot even be loaded.
    """

    def __init__(
        self,
        backend: str,
        checkpoint: "Checkpoint",
        option: str,
        device: str,
        threads: int,
        *parallel: int,
        patience_s: float = 1800,
    ) -> None:
        self.order = {
            "backend": backend,
            "load": (checkpoint, option, device, threads, *parallel),
            "device": device,
            "gpus": parallel[0] if parallel else 1,
        }
        self.patience_s = patience_s
        self.process: Any = None  # a Popen with pipes, while there is one
        facts, lost = self._start()
        if lost:
            raise RuntimeError(f"{backend} {option} could not be loaded: {lost}")
        # weight_bytes, kv_value_bytes, arithmetic, settings, load_s
        self.__dict__.update(facts)

    def generate(self, prompts: list[list[int]], max_new_tokens: int) -> list[Fields]:
        """One batch; one row per prompt: measured columns and peak_memory_bytes, `error` where it failed."""
        if self.process is None:
            _, lost = self._start()
            if lost:
                return in_process.failed(prompts, lost)
        return self._batch(prompts, max_new_tokens, True)

    def again(self, prompts: list[list[int]], max_new_tokens: int) -> list[Fields]:
        """A batch of the shape that `generate` has just carried out, without its memory."""
        if self.process is None:
            return in_process.failed(prompts, "The engine's process had ended.")
        return self._batch(prompts, max_new_tokens, False)

    def _batch(self, prompts: list[list[int]], max_new_tokens: int, prepare: bool) -> list[Fields]:
        rows, lost = self._exchange((prompts, max_new_tokens, prepare))
        if lost or any(row["error"] for row in rows):
            self.close()
        return in_process.failed(prompts, lost) if lost else rows

    def _start(self) -> tuple[Any, str | None]:
        self.log = tempfile.TemporaryFile()
        command = [sys.executable, "-m", "bench.instrument.isolated"]
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.log, cwd=ROOT
        )
        return self._exchange(self.order)

    def close(self) -> None:
        """End the process, if there is one, and all that it has started."""
        if self.process:
            with contextlib.suppress(OSError):
                # An engine that still listens closes, and ends what it has started.
                self.process.stdin.close()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.process.wait(CLOSE_S)
            _kill_group(self.process)
            self.process.stdout.close()
            self.process = None

    def _exchange(self, message: object) -> tuple[Any, str | None]:
        """(answer, None), or (None, why there is none); in the second case the process is gone."""
        try:
            pickle.dump(message, self.process.stdin)
            self.process.stdin.flush()
            if not select.select([self.process.stdout], [], [], self.patience_s)[0]:
                self.close()
                why = f"the engine gave no answer within {self.patience_s} s and was stopped."
                return None, f"TimeoutError: {why}"
            return pickle.load(self.process.stdout)
        except (EOFError, BrokenPipeError, pickle.UnpicklingError):
            return None, self._ended()

    def _ended(self) -> str:
        """What the death of the process says: its signal or exit code, and its last words."""
        code = self.process.wait()
        self.log.seek(0)
        lines = [line for line in self.log.read().decode(errors="replace").splitlines() if line.strip()]
        self.close()
        how = f"signal {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"
        hint = " (the system does this when memory runs out)" if code == -signal.SIGKILL else ""
        last = lines[-1] if lines else "none"
        return f"The engine's process ended with {how}{hint}. Its last words: {last}"


def _load(order: Fields) -> tuple[Any, Fields]:
    """Load the engine that `order` describes; returns it and what the parent needs to know of it."""
    engine, load_s = in_process.timed(backends.get(order["backend"]).load, *order["load"])
    contract.check_engine(engine)
    facts = {name: getattr(engine, name) for name in ("weight_bytes", "kv_value_bytes", "settings")}
    return engine, facts | {
        "arithmetic": backends.arithmetic(engine),
        "load_s": load_s,
    }


def _batch(
    engine: "Engine", order: Fields, prompts: list[list[int]], max_new_tokens: int, prepare: bool
) -> list[Fields]:
    """Make room and measure; the peak is that of this batch alone. Without `prepare` it is measured at
    once."""
    if not prepare:
        return in_process.generate(engine, prompts, max_new_tokens, collect=False)
    on = order["device"], order["gpus"]
    if hasattr(engine, "reserve"):
        engine.reserve(len(prompts), max(map(len, prompts)) + max_new_tokens)
    memory.forget_peak(*on)
    rows = in_process.generate(engine, prompts, max_new_tokens)
    peak = memory.peak_memory_bytes(*on)
    return [row | {"peak_memory_bytes": peak} for row in rows]


def _kill_group(process: subprocess.Popen) -> None:
    """End `process` and all that it has started: vLLM's EngineCore would keep the GPU's memory."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    process.kill()  # one that has not begun yet has no group of its own
    process.wait()


def _end_with(parent: int) -> None:
    """End the group of this process when `parent` has ended, kill -9 included."""
    while os.getppid() == parent:
        sleep(0.5)
    os.killpg(0, signal.SIGKILL)


def _answered(call: Callable, *arguments: Any) -> tuple[Any, str | None]:
    try:
        return call(*arguments), None
    except Exception as failure:
        return None, f"{type(failure).__name__}: {failure}"


def serve() -> None:
    """Answer messages until standard input closes; whatever an engine prints goes to standard error."""
    out = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    engine = None
    threading.Thread(target=_end_with, args=(os.getppid(),), daemon=True).start()
    try:
        order = pickle.load(sys.stdin.buffer)
        loaded, lost = _answered(_load, order)
        engine, facts = loaded or (None, None)
        _reply(out, facts, lost)
        while engine:
            _reply(out, *_answered(_batch, engine, order, *pickle.load(sys.stdin.buffer)))
    except EOFError:
        if engine:
            engine.close()


def _reply(out: BinaryIO, answer: object, lost: str | None) -> None:
    pickle.dump((answer, lost), out)
    out.flush()


if __name__ == "__main__":
    os.setsid()  # a group of its own, with all that the engine starts
    serve()
