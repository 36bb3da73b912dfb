"""An engine in a process of its own is let go with every process that it has started."""

import os
import signal
import subprocess
import sys

import pytest
from commands import gone

from bench.paths import ROOT

ADAPTER = """
import os, subprocess, sys, time
from pathlib import Path
OPTIONS, DEVICES = {"float32": {}}, ("cpu",)
FOLDER = Path(os.environ["NOTES"])
version, available = str, lambda: None

def load(checkpoint, option, device, threads):
    return Engine()

class Engine:
    weight_bytes, kv_value_bytes, settings = 1, 1, {}
    def __init__(self):
        self.child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(300)"])
        (FOLDER / "child").write_text(str(self.child.pid))
    def generate(self, prompts, max_new_tokens, on_token):
        if max_new_tokens > 100:
            time.sleep(300)
        for request in range(len(prompts)):
            for _ in range(max_new_tokens):
                on_token(request, 5)
        return [[5] * max_new_tokens for _ in prompts]
    def close(self):
        (FOLDER / "closed").touch()
        self.child.kill()
        self.child.wait()
"""
PARENT = """
import sys, time
from bench.instrument import isolated
worker = isolated.Worker("leaky", None, "float32", "cpu", 1, patience_s=60)
if sys.argv[1] == "asks":
    worker.generate([[1, 2]], 8)
    worker.close()
elif sys.argv[1] == "hangs":
    worker.patience_s = isolated.CLOSE_S = 1
    assert "gave no answer" in worker.generate([[1, 2]], 800)[0]["error"]
else:
    print("loaded", flush=True)
    time.sleep(300)
"""


@pytest.fixture
def parent(tmp_path):
    """A function that starts the process which has the worker; it is gone afterwards."""
    (tmp_path / "leaky.py").write_text(ADAPTER)
    variables = {"BENCH_BACKENDS": str(tmp_path), "NOTES": str(tmp_path), "PYTHONPATH": str(ROOT)}
    started = []

    def start(way):
        command = [sys.executable, "-c", PARENT, way]
        started.append(
            subprocess.Popen(command, env=os.environ | variables, stdout=subprocess.PIPE, text=True)
        )
        return started[-1]

    yield start
    for process in started:
        process.kill()
        process.wait()


def left_nothing(tmp_path):
    """Whether the engine's child ends soon; it is killed if it does not."""
    number = int((tmp_path / "child").read_text())
    ended = gone([number])
    if not ended:
        os.kill(number, signal.SIGKILL)
    return ended


def test_an_engine_is_closed_first(parent, tmp_path):
    assert parent("asks").wait(60) == 0
    assert (tmp_path / "closed").exists() and left_nothing(tmp_path)


def test_an_engine_that_hangs_is_killed_with_its_children(parent, tmp_path):
    assert parent("hangs").wait(90) == 0
    assert not (tmp_path / "closed").exists() and left_nothing(tmp_path)


def test_nothing_is_left_when_the_caller_is_killed(parent, tmp_path):
    process = parent("waits")
    assert process.stdout.readline() == "loaded\n"
    process.kill()
    assert left_nothing(tmp_path)
