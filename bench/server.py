"""A server as a child: started, waited for, logged, and stopped whatever happens.

    with server.started(command, log, patience_s) as url: …

Between this process and the server stands a small one (`python -m bench.server`) that ends the server's whole process group when this
process has ended, even by kill -9: no server is left to take the machine from the next run.
"""

import contextlib
import os
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from dataclasses import dataclass, field
from pathlib import Path

from bench import ROOT

LOOK_S = 0.2
END_S = 15  # what a server is given to stop by itself


@dataclass(frozen=True)
class Wanted:
    """What a study wants of a server: how many requests at once and how many tokens each (prompt and answer), CPU threads, how many devices
    share the model, where it logs; `url` where one runs already; how many replicas of the model stand behind its address."""

    requests: int
    tokens: int
    threads: int
    tensor_parallel: int = 1
    log: Path = Path("logs/server.txt")
    patience_s: float = 600
    url: str = ""
    data_parallel: int = 1


@dataclass
class Served:
    """A server that answers: where, in which of `bench.dialects`, under which model name, and what goes into the body of every request.

    `body` is a function of the number of new tokens, because some servers are told to go on that long. `token` is the access token, if it
    wants one. How many bytes a step reads is not said: how many requests a step serves is the server's own affair, so there is no MBU.
    """

    url: str
    dialect: str
    model: str
    settings: dict
    body: object = lambda new_tokens: {}
    token: str = field(default="", repr=False)
    weight_bytes: None = None
    kv_value_bytes: None = None

    def close(self):
        """Nothing: whoever started it stops it."""


def free_port():
    """A port of the loopback that nobody listens on."""
    with socket.create_server(("127.0.0.1", 0)) as sock:
        return sock.getsockname()[1]


@contextlib.contextmanager
def started(command, port, log, patience_s=600, health="/health", environment=None):
    """Run `command` (list of words) until the block ends; yields http://127.0.0.1:<port> as soon as `health` answers 200.

    What it prints goes to `log`. RuntimeError with its last words if it ends before, TimeoutError if it does not answer within `patience_s` seconds.
    """
    log = Path(log)
    log.parent.mkdir(parents=True, exist_ok=True)
    with open(log, "wb") as words:
        supervised = [sys.executable, "-m", "bench.server", *map(str, command)]
        about = {"cwd": ROOT, "env": os.environ | (environment or {}), "start_new_session": True}  # a signal to this process's group spares the supervisor
        process = subprocess.Popen(supervised, stdin=subprocess.PIPE, stdout=words, stderr=words, **about)
    try:
        url = f"http://127.0.0.1:{port}"
        _wait(process, url + health, log, patience_s)
        yield url
    finally:
        process.stdin.close()  # the supervisor ends the server when this end is gone
        process.wait()


def _wait(process, address, log, patience_s):
    end = time.monotonic() + patience_s
    while not answers(address):
        if process.poll() is not None:
            raise RuntimeError(f"The server ended with exit code {process.returncode} before it answered. Its last words: {last_words(log)}. All of them: {log}")
        if time.monotonic() > end:
            raise TimeoutError(f"The server did not answer within {patience_s:g} s. Its last words: {last_words(log)}. All of them: {log}")
        time.sleep(LOOK_S)


def answers(address, token=""):
    """Whether a GET of `address` is answered with success now."""
    try:
        asked = urllib.request.Request(address, headers={"Authorization": f"Bearer {token}"} if token else {})
        with urllib.request.urlopen(asked, timeout=5) as answer:
            return 200 <= answer.status < 300
    except (OSError, ValueError):
        return False


def last_words(log):
    """The last line of a log that says something, at most 300 characters."""
    lines = [line.strip() for line in Path(log).read_text(errors="replace").splitlines() if line.strip()]
    return lines[-1][-300:] if lines else "none"


def _supervise(command):
    """Run `command` in a process group of its own until it ends or standard input closes; then nothing of the group is left."""
    child = subprocess.Popen(command, stdin=subprocess.DEVNULL, start_new_session=True)

    def follow():
        while os.read(0, 1):  # not through sys.stdin, whose lock this thread would still hold when the interpreter ends
            pass
        _end(child)

    threading.Thread(target=follow, daemon=True).start()
    code = child.wait()
    _kill(child, signal.SIGKILL)
    return code if code >= 0 else 128 - code


def _end(child):
    _kill(child, signal.SIGTERM)
    try:
        child.wait(END_S)
    except subprocess.TimeoutExpired:
        pass
    _kill(child, signal.SIGKILL)


def _kill(child, how):
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(child.pid, how)


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the whole terminal; the caller closes our input
    sys.exit(_supervise(sys.argv[1:]))
