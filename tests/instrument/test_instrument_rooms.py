"""The instrument's parts: what each may import, and that the examples of their docstrings run."""

import re
import subprocess
import sys
import textwrap
import urllib.request

import pytest

from bench import processes
from bench.instrument import reference_server
from bench.instrument.load import parallel, protocols, records, schedule
from bench.paths import ROOT


def imported(module):
    """Names of all modules that are there when `module` has been imported by itself."""
    code = f"import sys, {module}; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, check=True)
    return done.stdout.split()


@pytest.mark.parametrize(
    ("module", "unwanted"),
    [
        ("bench.instrument.reference_server.__main__", "bench.instrument.load"),
        ("bench.instrument.reference_server.__main__", "bench.backends"),
        ("bench.instrument.load.parallel", "bench.backends"),
        ("bench.instrument.load.parallel", "bench.instrument.reference_server"),
    ],
)
def test_the_judge_and_the_judged_share_nothing_and_need_no_engine(module, unwanted):
    names = imported(module)
    assert module in names and not [name for name in names if name.startswith(unwanted)]


def example(module):
    """The indented block of a module's docstring."""
    block = re.search(r"(?:^ {4}.*\n|^\n)+", module.__doc__.partition("\n\n")[2], re.MULTILINE)[0]
    return textwrap.dedent(block).strip()


def words(example, **changes):
    """The words of an example's command line, options changed."""
    command = example.split()[1:]
    for option, value in changes.items():
        command[command.index(f"--{option}") + 1] = str(value)
    return [sys.executable, *command]


def test_the_example_of_the_load_client_runs():
    command = words(example(reference_server), port=0)
    server = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)
    try:
        url = server.stdout.readline().strip()
        found = {"url": url, "model": reference_server.MODEL}
        found |= {"parallel": parallel, "protocols": protocols, "records": records, "schedule": schedule}
        loops = re.split(r"\n\n", example(parallel))
        assert len(loops) == 2
        for loop in loops:
            exec(loop, found)
            assert [row["error"] for row in found["rows"]] == [""] * 10
            assert found["report"]["processes"] == 1
    finally:
        server.kill()
        server.wait()
        server.stdout.close()


def test_the_example_of_a_server_runs(tmp_path):
    port = processes.free_port()
    command = words(example(reference_server), port=port)
    found = {"processes": processes, "command": command, "port": port, "log": tmp_path / "log"}
    exec(example(processes), found)
    assert found["ready"] is True, "it answered while the block ran"
    with pytest.raises(OSError):
        urllib.request.urlopen(found["url"], timeout=5)
