"""Children: a server that runs as long as a block, a function in a process of its own, a child that ends with
its parent.

    with processes.started(command, port, log, patience_s=60) as url:
        ready = processes.answers(f"{url}/health")

Between this process and a server stands a small one (`python -m bench.processes`) that ends the server's
whole process group when this process has ended, even by kill -9: no server is left to take the machine from
the next run.
"""

import contextlib
import os
import pickle
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from bench.paths import ROOT

LOOK_S = 0.2  # between two looks whether a server answers
PARENT_LOOK_S = 0.5  # between two looks whether the parent is there
END_S = 15  # how long a server may take to stop by itself
CALL = "import pickle, sys; function, arguments = pickle.load(sys.stdin.buffer); function(*arguments)"


def die_with(parent: int) -> None:
    """End this process when `parent` has ended, kill -9 included: no orphan measures beside the next run."""
    while os.getppid() == parent:
        time.sleep(PARENT_LOOK_S)
    os._exit(1)  # the kernel watches this process in the same way


def free_port() -> int:
    """A port of the loopback that nobody listens on."""
    with socket.create_server(("127.0.0.1", 0)) as sock:
        return sock.getsockname()[1]


@contextlib.contextmanager
def started(
    command: Sequence[object],
    port: int,
    log: str | Path,
    patience_s: float = 600,
    health: str = "/health",
    environment: dict[str, str] | None = None,
) -> Iterator[str]:
    """Run `command` until the block ends; yields http://127.0.0.1:<port> once `health`
    answers 200.

    What it prints goes to `log`. RuntimeError with its last words if it ends before, TimeoutError if it does
    not answer within `patience_s` seconds.
    """
    log = Path(log)
    log.parent.mkdir(parents=True, exist_ok=True)
    with open(log, "wb") as output:
        process = subprocess.Popen(
            [sys.executable, "-m", "bench.processes", *map(str, command)],
            stdin=subprocess.PIPE,
            stdout=output,
            stderr=output,
            cwd=ROOT,
            env=os.environ | (environment or {}),
            start_new_session=True,  # a signal to this process's group spares the supervisor
        )
    try:
        url = f"http://127.0.0.1:{port}"
        _wait(process, url + health, log, patience_s)
        yield url
    finally:
        assert process.stdin is not None
        process.stdin.close()  # the supervisor ends the server when this end is gone
        process.wait()


def _wait(process: subprocess.Popen, address: str, log: Path, patience_s: float) -> None:
    end = time.monotonic() + patience_s
    while not answers(address):
        if process.poll() is not None:
            raise RuntimeError(
                f"The server ended with exit code {process.returncode} before it answered. {_log(log)}"
            )
        if time.monotonic() > end:
            raise TimeoutError(f"The server did not answer within {patience_s:g} s. {_log(log)}")
        time.sleep(LOOK_S)


def _log(log: Path) -> str:
    return f"Its last words: {last_words(log)}. All of them: {log}"


def answers(address: str, token: str = "") -> bool:
    """Whether a GET of `address` is answered with success now."""
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    try:
        request = urllib.request.Request(address, headers=headers)
        with urllib.request.urlopen(request, timeout=5) as answer:
            return 200 <= answer.status < 300
    except (OSError, ValueError):
        return False


def last_words(log: str | Path) -> str:
    """The last line of a log that is not empty, at most 300 characters; `none` without one."""
    lines = [line.strip() for line in Path(log).read_text(errors="replace").splitlines() if line.strip()]
    return lines[-1][-300:] if lines else "none"


def _supervise(command: Sequence[str]) -> int:
    """Run `command` in a process group of its own until it ends or standard input closes; returns its exit
    code.

    Nothing of the group is left then.
    """
    child = subprocess.Popen(command, stdin=subprocess.DEVNULL, start_new_session=True)

    def follow() -> None:
        # Not through sys.stdin, whose lock this thread would still hold when the interpreter ends.
        while os.read(0, 1):
            pass
        _kill(child, signal.SIGTERM)
        with contextlib.suppress(subprocess.TimeoutExpired):
            child.wait(END_S)
        _kill(child, signal.SIGKILL)

    threading.Thread(target=follow, daemon=True).start()
    code = child.wait()
    _kill(child, signal.SIGKILL)
    return code if code >= 0 else 128 - code


def _kill(child: subprocess.Popen, how: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(child.pid, how)


def maker() -> str:
    """The interpreter that makes checkpoints: the default environment's, on whose pins they depend.

    An engine's own environment may lack what it takes.
    """
    default = ROOT / ".venv" / "bin" / "python"
    return str(default) if default.exists() else sys.executable


def in_child(function: Callable, *arguments: object, python: str = sys.executable) -> None:
    """Call an importable `function` in a fresh process: its memory and threads are gone before anything is
    measured.

    RuntimeError with what it printed if it fails.
    """
    message = pickle.dumps((function, arguments))
    done = subprocess.run([python, "-c", CALL], input=message, capture_output=True, cwd=ROOT)
    if done.returncode:
        name = f"{function.__module__}.{function.__name__}"
        raise RuntimeError(f"{name} failed:\n{done.stderr.decode(errors='replace')[-4000:]}")


if __name__ == "__main__":
    signal.signal(
        signal.SIGINT, signal.SIG_IGN
    )  # Ctrl-C reaches the whole terminal; the caller closes our input
    sys.exit(_supervise(sys.argv[1:]))
