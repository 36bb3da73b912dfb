"""Generated code is contained: every payload here is harmless by itself, and no test relies on the sandbox.

Six sleeps, one connection to a port of this test, one file in a folder of this test, memory that is never
touched: what a limit lets through is an assertion that fails, and nothing else.
"""

import os
import shutil
import subprocess
import sys
import tempfile
import time

import psutil
import pytest

from bench.experiments import sandbox


@pytest.fixture(scope="module")
def contained():
    """Skips where this machine cannot contain a program at all, with the sentence that says why."""
    if sys.platform != "linux":
        pytest.skip("namespaces are Linux's")
    try:
        sandbox.run("pass", 20)
    except sandbox.Uncontained as why:
        pytest.skip(str(why))


def test_the_self_test_finds_that_every_limit_holds(contained):
    checks = sandbox.self_test()
    assert [str(check) for check in checks if not check.holds] == []
    assert {check.limit for check in checks} >= {
        "processes",
        "network",
        "memory",
        "deadline",
        "files outside its home",
        "open files",
        "core dumps",
        "shared memory",
    }


def test_a_program_ends_well_badly_or_before_its_last_line(contained):
    assert sandbox.run("assert 1 + 1 == 2", 20).passed
    why = {
        "assert 1 + 1 == 3, 'no'": "AssertionError: no",
        "def f(:": "SyntaxError: invalid syntax (program.py, line 1)",
        "import sys; sys.exit(0)": "SystemExit: 0",
        "import os; os._exit(0)": "it ended with exit code 0 before its last line",
        "import os; os.abort()": "it ended by signal 6 before its last line",
    }
    for program, words in why.items():
        outcome = sandbox.run(program, 20)
        assert (outcome.passed, outcome.why) == (False, words)


def test_what_a_program_prints_holds_nobody_up(contained):
    assert sandbox.run("print('x' * 10**6)", 20).passed


def test_numpy_is_there_as_humaneval_s_own_environment_has_it(contained):
    outcome = sandbox.run("import numpy\nassert numpy.arange(3).sum() == 3", 20)
    assert outcome.passed, outcome.why


def test_a_program_does_not_see_a_decoy_home(contained, tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("DECOY_TOKEN", "a secret that is none")
    (tmp_path / "secret").write_text("a secret that is none")
    tmp_path.chmod(0o777)
    program = f"""
import os, pathlib
assert "DECOY_TOKEN" not in os.environ
assert not pathlib.Path({str(tmp_path)!r}).exists(), "it sees the home"
assert pathlib.Path.home() != pathlib.Path({str(tmp_path)!r})
pathlib.Path.home().joinpath("own").write_text("in its own it may write")
"""
    outcome = sandbox.run(program, 20)
    assert outcome.passed, outcome.why
    assert [file.name for file in tmp_path.iterdir()] == ["secret"]


SCORER = """
import sys
from bench.experiments import sandbox
print("begun", flush=True)
sandbox.run("import time; time.sleep(60)", 60)
"""


def test_a_program_ends_with_a_scorer_that_is_killed(contained):
    """Root's child becomes another user, with which the kernel forgets that it should end with its parent."""
    scorer = subprocess.Popen([sys.executable, "-c", SCORER], stdout=subprocess.PIPE, start_new_session=True)
    scorer.stdout.readline()
    children = wait_for(lambda: psutil.Process(scorer.pid).children(recursive=True), count=3)
    scorer.kill()
    scorer.wait()
    gone, alive = psutil.wait_procs(children, timeout=20)
    for process in alive:
        process.kill()
    assert not alive and len(gone) >= 3


def wait_for(processes, count):
    """The `processes` as soon as there are so many of them."""
    for _ in range(200):
        if len(found := processes()) >= count:
            return found
        time.sleep(0.05)
    return pytest.fail(f"{len(found)} processes, not {count}")


MISSING = {
    "network": "one limit does not hold. network: a connection to this machine was made",
    # Whichever comes first: it has a number of the machine's, or its sleep lives on for half a minute.
    "PID": "processes outside: its number is|A process of a program lives on",
    "IPC": "shared memory: it sees shared memory of this machine",
}


@pytest.mark.parametrize("namespace", MISSING)
def test_a_missing_namespace_is_found_and_refused_by_name(contained, monkeypatch, namespace):
    left = {name: flag for name, flag in sandbox.NAMESPACES.items() if name != namespace}
    monkeypatch.setattr(sandbox, "NAMESPACES", left)
    with pytest.raises(sandbox.Uncontained, match=MISSING[namespace]):
        sandbox.demand()


@pytest.mark.parametrize(
    ("limit", "words"),
    [
        ("RLIMIT_AS", "memory: more memory was given"),
        ("RLIMIT_FSIZE", "size of a file: a larger file was written"),
        ("RLIMIT_NOFILE", "open files: 64 files were opened"),
        ("RLIMIT_CORE", "core dumps: a core dump may have 1024 bytes"),
    ],
)
def test_a_missing_limit_is_found_and_refused_by_name(contained, monkeypatch, limit, words):
    """Memory is reserved and not touched; the file goes into the tmpfs, whose size still bounds it."""
    enough = {"RLIMIT_AS": 8 * 2**30, "RLIMIT_FSIZE": 2**30, "RLIMIT_NOFILE": 128, "RLIMIT_CORE": 1024}
    bounds = sandbox._limits()
    monkeypatch.setattr(
        sandbox, "_limits", lambda: bounds | {"limits": sandbox.LIMITS | {limit: enough[limit]}}
    )
    with pytest.raises(sandbox.Uncontained, match=words):
        sandbox.demand()


def test_a_missing_limit_on_processes_is_found(contained, monkeypatch):
    """One more sleep than the program may start: six at most, where fifty are allowed."""
    bounds = sandbox._limits() | {"processes": 50}
    monkeypatch.setattr(sandbox, "_limits", lambda: bounds)
    with pytest.raises(sandbox.Uncontained, match="processes: 6 started of 6 where 5 are allowed"):
        sandbox.demand()


def test_without_the_right_to_namespaces_the_sentence_says_so(contained, monkeypatch):
    """Namespaces that the kernel does not know cannot be opened, by root either."""
    monkeypatch.setattr(sandbox, "NAMESPACES", {"unknown": 1})
    with pytest.raises(sandbox.Uncontained, match="may not open .*namespaces? .*user.max_user_namespaces"):
        sandbox.demand()


def test_elsewhere_than_on_linux_nothing_runs(monkeypatch):
    monkeypatch.setattr(sandbox.sys, "platform", "darwin")
    with pytest.raises(sandbox.Uncontained, match="only on Linux"):
        sandbox.demand()


AS_ANOTHER = """
import importlib.util, sys
spec = importlib.util.spec_from_file_location("sandbox", sys.argv[1])
sandbox = importlib.util.module_from_spec(spec)
sys.modules["sandbox"] = sandbox
spec.loader.exec_module(sandbox)
try:
    print(*sandbox.self_test(), sep="\\n")
except sandbox.Uncontained as why:
    print("skip", why)
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can start a process as somebody else")
def test_limits_hold_for_a_user_who_is_not_root():
    """Through a user namespace, with an interpreter that everybody may read."""
    python = shutil.which("python3", path="/usr/bin:/usr/local/bin")
    if not python:
        pytest.skip("there is no system interpreter that another user may read")
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        os.chmod(folder, 0o755)
        shutil.copy(sandbox.__file__, folder)
        done = subprocess.run(
            [python, "-c", AS_ANOTHER, f"{folder}/sandbox.py"],
            capture_output=True,
            text=True,
            cwd="/",
            user=61358,
            group=61358,
            extra_groups=[],
            env={"PATH": os.defpath, "HOME": folder},
        )
    if done.stdout.startswith("skip"):
        pytest.skip(done.stdout)
    assert done.returncode == 0, done.stderr
    assert len(done.stdout.splitlines()) > 10
    assert [line for line in done.stdout.splitlines() if not line.startswith("ok ")] == []
