"""A serving run that does not end: what is on disk afterwards, and the command that is said."""

import os
import re
import shlex
import signal
import subprocess
import sys
import time

import pytest
from commands import BIN, run

from bench.experiments import running
from bench.instrument import reference_server
from bench.instrument.load import prefix_cache
from bench.observations import checks, partial, store
from bench.paths import ROOT

QUICK = {"backend": "http", "option": "chat", "gpu": "h100", "request_rates": "none", "requests": 4}
QUICK |= {"lengths": "alpaca", "scale": 0.1, "concurrency": "1 2 3 4", "served_model": "ground-truth"}


@pytest.fixture
def server(tmp_path, monkeypatch):
    # On a busy machine a prompt that is sent twice may well be faster by chance.
    monkeypatch.setattr(prefix_cache, "why_not", lambda trial, off: "")
    with reference_server.running(tmp_path / "server.txt", "--ttft-s", 0.01, "--itl-s", 0.001) as url:
        yield url


def levels_of(folder):
    """The concurrency of each level that waits in `folder`."""
    files = list(folder.glob(f"*/*{store.PARTIAL}"))
    return [table["concurrency"].iloc[0] for file in files for table, _ in partial.levels(file)]


def failing_at(number, failure, monkeypatch):
    """The load of every level but number `number`, from 1, whose client raises `failure`."""
    drive, counted = running.drive, []

    def until(served, checkpoint, level, prompts, first, timeout_s, *more, **options):
        if first > 1 or counted:  # what does not count begins at 1
            counted.append(level)
        if len(counted) == number - 1:
            raise failure
        return drive(served, checkpoint, level, prompts, first, timeout_s, *more, **options)

    monkeypatch.setattr(running, "drive", until)


@pytest.mark.parametrize(
    "failure", [RuntimeError("A process of the load client was lost: killed"), KeyboardInterrupt()]
)
def test_a_client_that_is_lost_at_the_last_level_leaves_those_before(
    cells, server, tmp_path, monkeypatch, capsys, failure
):
    failing_at(4, failure, monkeypatch)
    with pytest.raises(type(failure)):
        cells("serving", url=server, **QUICK)
    assert levels_of(tmp_path) == [1, 2, 3] and not store.files(tmp_path)
    (command,) = set(re.findall(r"bench\.observations\.partial (\S+)", capsys.readouterr().out))
    assert partial.main([command]) == 0
    assert sorted(store.load(folder=tmp_path)["concurrency"].unique()) == [1, 2, 3]


def test_a_check_that_fails_at_the_end_names_the_command(cells, server, tmp_path, monkeypatch):
    def refused(*_):
        raise checks.Rejected("The server's counters disagree.")

    monkeypatch.setattr(store, "write", refused)
    with pytest.raises(
        checks.Rejected, match=r"disagree\. To make a run .* -m bench\.observations\.partial /"
    ):
        cells("serving", url=server, **QUICK)
    assert levels_of(tmp_path) == [1, 2, 3, 4]


def test_no_attempt_sends_a_prompt_that_an_earlier_one_sent(cells, server, tmp_path, monkeypatch):
    """An attempt that left no file has the same number as the next one, and a server keeps what it read."""
    sent = []
    for _ in range(2):
        with monkeypatch.context() as broken:
            failing_at(4, RuntimeError("lost"), broken)
            with pytest.raises(RuntimeError, match="lost"):
                cells("serving", url=server, **QUICK)
        for file in tmp_path.glob(f"*/*{store.PARTIAL}"):
            file.unlink()
        sent.append({row["digest"] for row in reference_server.truth(server)})
    first, second = sent
    assert len(first) > 20 and not first & second, "warm-up, trial of the cache and levels"


def test_a_run_that_ended_leaves_nothing_beside_it(cells, server, tmp_path):
    cells("serving", url=server, **QUICK)
    assert len(store.files(tmp_path)) == 1 and not list(tmp_path.glob(f"*/*{store.PARTIAL}"))


@pytest.mark.check
@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGKILL])
def test_levels_survive_a_signal(server, tmp_path, how):
    """The command as a reader runs it, interrupted in the fourth of four levels."""
    slow = QUICK | {"concurrency": "1 2 3 4", "requests": 12, "scale": 1, "url": server, "results": tmp_path}
    words = [word for name, value in slow.items() for word in ("-p", name, str(value))]
    command = [BIN / "papermill", "notebooks/serving.ipynb", tmp_path / "out.ipynb", *words]
    process = subprocess.Popen(
        list(map(str, command)),
        cwd=ROOT,
        env={name: value for name, value in os.environ.items() if name != "PYTEST_CURRENT_TEST"},
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    ends = time.monotonic() + 240
    while len(levels_of(tmp_path)) < 2 and process.poll() is None and time.monotonic() < ends:
        time.sleep(0.02)
    assert process.poll() is None, process.stderr.read()
    os.killpg(process.pid, how)
    said = process.communicate(timeout=120)[1]
    assert len(levels_of(tmp_path)) >= 2 and not store.files(tmp_path)
    (rescue,) = set(re.findall(r"\.venv/bin/python (-m bench\.observations\.partial \S+)", said))
    done = run(sys.executable, *shlex.split(rescue))
    assert len(store.files(tmp_path)) == 1, done.stdout + done.stderr
