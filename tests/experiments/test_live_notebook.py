"""The notebooks in a real kernel, cell by cell and from notebooks/, as Jupyter runs them: wrong, corrected,
run again."""

import json
import os
import re
from pathlib import Path

import pytest
from filelock import FileLock
from jupyter_client.manager import start_new_kernel

from bench.observations import store
from bench.paths import ROOT

pytestmark = pytest.mark.early

BACKENDS = Path(__file__).parents[1] / "engines"
# Cells that somebody may have run before. The last ones spare what a busy machine would refuse or delay.
SCRATCH = [
    "1 + 1",
    "%pwd",
    "import math",
    "number = 3",
    "rows = []",  # of a run before: what is written must not be these
    "from bench.observations import checks\nchecks.BUSY_CORES, checks.check = 1e9, lambda *_: None",
    "checks.rejected = lambda *_: {}",
    "from bench.machine import bandwidth\nbandwidth.Bandwidth.probe = lambda self: self.probes.append(4e10)",
]
SHORT = {"backend": "fake", "max_new_tokens": 4}


class Kernel:
    """A kernel in which cells are run one by one; what a cell prints and its error are kept."""

    def __init__(self, folder):
        environment = os.environ | {
            "BENCH_BACKENDS": str(BACKENDS),
            "PYTHONPATH": str(ROOT),
            "FAKE_NEIGHBOURS": "minded by nobody",
            "TMPDIR": str(folder),  # a machine-wide lock of its own: other tests do not wait for this one
        }
        self.manager, self.client = start_new_kernel(cwd=str(ROOT / "notebooks"), env=environment)

    def run(self, code):
        """Run one cell; its text, and its error as (name, sentence, lines of the traceback) or None."""
        text, self.error = [], None

        def output(message):
            content = message["content"]
            if message["msg_type"] == "error":
                self.error = content["ename"], content["evalue"], content["traceback"]
            text.append(content.get("text", ""))

        self.client.execute_interactive(code, timeout=240, output_hook=output, allow_stdin=False)
        return "".join(text)

    def ends(self):
        """The sentence of the last cell's error; that there is nothing but this sentence."""
        assert self.error, "the cell did not fail"
        name, sentence, trace = self.error
        assert trace == [f"{name}: {sentence}"], "\n".join(trace)
        return sentence

    def close(self):
        self.client.stop_channels()
        self.manager.shutdown_kernel(now=True)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("live")


@pytest.fixture
def answered(kernel, folder):
    """A latency run of which the notebook quality scores the answers."""
    for cell in (parameters("latency", folder, **SHORT, option="int8"), *cells("latency")[1:-1]):
        kernel.run(cell)
        assert not kernel.error, kernel.error


@pytest.fixture(scope="module")
def kernel(folder):
    kernel = Kernel(folder)
    for cell in SCRATCH:
        kernel.run(cell)
        assert not kernel.error
    yield kernel
    kernel.close()


def cells(notebook):
    """Sources of the code cells of one notebook, its parameters first."""
    found = json.loads((ROOT / "notebooks" / f"{notebook}.ipynb").read_text())["cells"]
    return ["".join(cell["source"]) for cell in found if cell["cell_type"] == "code"]


def parameters(notebook, folder, **changes):
    """The notebook's parameters cell, edited by hand; `results` is a folder relative to the repository."""
    source = cells(notebook)[0]
    for name, value in ({"results": os.path.relpath(folder, ROOT)} | changes).items():
        if re.search(rf"^{name} = ", source, flags=re.M):
            source = re.sub(rf"^{name} = .*?  #", f"{name} = {value!r}  #", source, flags=re.M)
    return source


def free(folder):
    """Whether nobody holds the CPU."""
    lock = FileLock(folder / "llm-inference-cpu.lock")
    with lock.acquire(timeout=5):
        return True


@pytest.mark.check
def test_wrong_corrected_run_again_and_again(kernel, folder):
    _, setup, load, measure, write, plot = cells("latency")
    kernel.run(parameters("latency", folder, **SHORT, option="int9"))
    kernel.run(setup)
    assert "Did you mean 'int8'" in kernel.ends()
    kernel.run(load)
    assert kernel.error, "there is nothing to load"
    for _ in range(2):
        kernel.run(parameters("latency", folder, **SHORT, option="int8"))
        for cell in (setup, load, measure, write, plot):
            kernel.run(cell)
            assert not kernel.error, kernel.error
    assert [path.stem[-2:] for path in store.files(folder)] == ["-1", "-2"]
    assert free(folder)


@pytest.mark.check
def test_no_cell_goes_on_with_the_engine_of_before(kernel, folder):
    _, setup, load, measure, write, _ = cells("latency")
    for cell in (parameters("latency", folder, **SHORT), setup, load):
        kernel.run(cell)
        assert not kernel.error, kernel.error
    kernel.run(parameters("latency", folder, backend="fake", max_new_tokens=0))
    kernel.run(setup)
    assert kernel.ends() == "max_new_tokens must be 1 or more, not 0."
    before = len(store.files(folder))
    for cell in (measure, write):
        kernel.run(cell)
        assert "was left for another run: run the notebook again from its parameters on" in kernel.ends()
    assert free(folder) and len(store.files(folder)) == before


def test_a_cell_that_fails_ends_the_run(kernel, folder):
    _, setup, load, measure, write, _ = cells("latency")
    for cell in (parameters("latency", folder, **SHORT), setup, load):
        kernel.run(cell)
    kernel.run("1 / 0")
    assert kernel.error[0] == "ZeroDivisionError" and len("\n".join(kernel.error[2]).splitlines()) > 3
    kernel.run("setup.generate([[1, 2]], 2)")
    assert not kernel.error, "a cell that has nothing to do with the run has ended it"
    kernel.run("setup.generate([[1, 2]], 2)\n1 / 0")
    assert free(folder)
    for cell in (measure, write):
        kernel.run(cell)
        assert "has ended with a cell that failed (ZeroDivisionError)" in kernel.ends()


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (("backend = ", "bakend = "), "Unknown parameter 'bakend'. Did you mean 'backend'?"),
        pytest.param(
            ("threads = 0", "threads = 0\nthread = 1"),
            "Unknown parameter 'thread'. Did you mean 'threads'?",
            marks=pytest.mark.check,
        ),
        pytest.param(
            ("threads = 0", "threads = 'many'"),
            "Parameter threads must be a int such as 0, not 'many'",
            marks=pytest.mark.check,
        ),
        pytest.param(("url = ", "extra = 3\nurl = "), None, marks=pytest.mark.check),
    ],
)
def test_a_parameter_mistyped_by_hand_is_named(kernel, folder, change, sentence):
    setup = cells("latency")[1]
    kernel.run(parameters("latency", folder, **SHORT).replace(*change))
    kernel.run(setup)
    if sentence is None:
        assert not kernel.error, "a parameter of one's own is no mistake"
    else:
        assert sentence in kernel.ends()
    kernel.run(parameters("latency", folder, **SHORT))
    kernel.run(setup)
    assert not kernel.error, kernel.error
    kernel.run("setup.close()")


def test_what_papermill_puts_in_is_checked_too(kernel, folder):
    setup = cells("latency")[1]
    kernel.run(parameters("latency", folder, **SHORT))
    kernel.run('# Parameters\nbakend = "fake"')
    kernel.run(setup)
    assert "Unknown parameter 'bakend'" in kernel.ends()
    kernel.run('# Parameters\noption = "int8"')
    assert "-int8-" in kernel.run(setup) and not kernel.error
    kernel.run("setup.close()")


WRONG = {
    "batching": ({"backend": "fake", "batch_sizes": "1 two"}, {"batch_sizes": "1"}, "batch_sizes must be"),
    "quality": (
        {**SHORT, "option": "int8", "model": "shape:llama-2-7b"},
        {"model": "smollm2-135m"},
        "random weights",
    ),
    "serving": ({"backend": "fake", "concurrency": "two"}, {"concurrency": "2"}, "concurrency must be"),
    "hardware": ({"gpu": "h1000"}, {"gpu": "auto"}, "not 'h1000'"),
    "client-accuracy": ({"clients": "our"}, {"clients": "ours"}, "Did you mean 'ours'"),
    "figure": ({"figure": "latncy"}, {"figure": "latency"}, "Did you mean 'latency'"),
}


@pytest.mark.check
@pytest.mark.parametrize("notebook", WRONG)
def test_each_notebook_can_be_corrected_in_its_kernel(kernel, folder, request, notebook):
    if notebook == "quality":
        request.getfixturevalue("answered")
    wrong, correction, sentence = WRONG[notebook]
    setup = cells(notebook)[2 if notebook == "figure" else 1]  # there the first one fetches the repository
    kernel.run(parameters(notebook, folder, **wrong))
    kernel.run(setup)
    assert sentence in kernel.ends()
    kernel.run(parameters(notebook, folder, **wrong | correction))
    kernel.run(setup)
    assert not kernel.error, kernel.error
    kernel.run("if 'setup' in globals(): setup.close()")
    assert free(folder)
