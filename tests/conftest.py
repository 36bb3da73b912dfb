"""What all tests share: where they keep files, a machine of which nothing is measured, folders of runs.

Builders of made-up runs are in builders.py; commands and notebooks are started by commands.py.
"""

import os
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

TESTS = Path(__file__).parent
WORKER = os.environ.get("PYTEST_XDIST_WORKER", "")
# A job in the background is started deaf to Ctrl-C, and so would be everything that it starts.
signal.signal(signal.SIGINT, signal.default_int_handler)
os.environ["BENCH_BACKENDS"] = str(TESTS / "engines")
os.environ["BENCH_ANSWERS"] = str(TESTS / "server_faults.py")
if WORKER:
    # Tests beside each other measure nothing: they wait for nobody's device and mind no neighbours
    # (backends/fake.py).
    scratch = Path(tempfile.gettempdir()) / f"llm-inference-tests-{os.getppid()}-{WORKER}"
    scratch.mkdir(exist_ok=True)
    tempfile.tempdir = os.environ["TMPDIR"] = str(scratch)
    os.environ["FAKE_NEIGHBOURS"] = "minded by nobody"
    # Two teams of threads on the same cores wait for each other most of the time.
    os.environ["OMP_NUM_THREADS"] = "1"

import pytest  # noqa: E402
from builders import two_engines  # noqa: E402
from commands import run_cells  # noqa: E402
from idle import Alone, Probe  # noqa: E402

from bench import backends
from bench.experiments import device
from bench.machine import bandwidth, gemm, identity, neighbours
from bench.observations import peaks, store
from bench.observations.checks import measurements

MODEL = """
from bench.backends.common import checkpoints
checkpoints.checkpoint("smollm2-135m")
"""


def pytest_sessionstart(session):
    """What several workers need is made once: the checkout's id before they begin, the model beside the first
    tests. Who needs it waits for it."""
    if not WORKER and not session.config.option.collectonly:
        identity.host()
        if session.config.getoption("numprocesses", None):
            environment = os.environ | {"PYTHONPATH": str(TESTS.parent)}
            subprocess.Popen([sys.executable, "-c", MODEL], env=environment)


def pytest_collection_modifyitems(items):
    items.sort(key=lambda item: item.get_closest_marker("early") is None)


def pytest_sessionfinish(session):
    if WORKER:
        shutil.rmtree(os.environ["TMPDIR"], ignore_errors=True)


@pytest.fixture
def observations(tmp_path):
    """A folder with runs of two engines on two machines, one of them with repeats."""
    return two_engines(tmp_path)


@pytest.fixture
def nothing(tmp_path):
    """What is read where nobody has measured."""
    return store.load(folder=tmp_path / "nothing")


@pytest.fixture
def watchdog():
    """A test that hangs is a test that fails."""

    def bark(*_):
        raise TimeoutError("the test hangs")

    before = signal.signal(signal.SIGALRM, bark)
    signal.alarm(60)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


class NoLock:
    def release(self):
        pass


@pytest.fixture
def idle_machine(monkeypatch):
    """A machine that nobody else uses and of which nothing is measured: no run has to wait for it.

    The one below is shared, and wakes a load client a millisecond late now and then: it may be so by half a gap.
    """
    monkeypatch.setattr(bandwidth, "Bandwidth", Probe)
    monkeypatch.setattr(neighbours, "Neighbours", Alone)
    monkeypatch.setattr(neighbours, "take", lambda device="cpu", wait_s=0: NoLock())
    monkeypatch.setattr(device, "LOOK_S", 0.01)
    monkeypatch.setattr(measurements, "LATE_SHARE", 0.5)
    monkeypatch.setattr(gemm, "gemm_peaks", lambda device, threads: {"float32": 4e14})
    before = dict(os.environ)
    yield
    os.environ.clear()
    os.environ.update(before)


@pytest.fixture
def cells(idle_machine, monkeypatch, tmp_path):
    """A function that executes a notebook's cells here (see `commands.run_cells`) on an idle machine.

    Results go to this test's folder; every option that the fake engine knows is there to be chosen.
    """
    fake = backends.get("fake").module
    monkeypatch.setattr(fake, "OPTIONS", fake.EVERY)
    # A fake engine is faster than this machine can be: the committed runs of this checkout would say so.
    known = peaks.of_device
    monkeypatch.setattr(peaks, "of_device", lambda gpu, host, folder: known(gpu, host, tmp_path))

    def execute(notebook, **parameters):
        names = run_cells(notebook, {"results": str(tmp_path)} | parameters)
        return names | {"observed": store.load(folder=tmp_path)}

    return execute
