"""The device of a run: who is refused, warned of, waited for, and that it is let go whatever happens."""

import multiprocessing
import time

import pytest
from filelock import FileLock

from bench.experiments import device
from bench.machine import neighbours
from bench.observations import checks
from bench.paths import COMMITTED

BUSY = neighbours.Look(1.3, (neighbours.Process("indexer", 4711, 1.1), neighbours.Process("editor", 12, 0.2)))
IDLE = neighbours.Look(0.01, ())


class Looks:
    """In place of `neighbours.Watch`: what is seen, one look after the other, the last one again and again."""

    def __init__(self, *seen):
        self.seen = list(seen)

    def __call__(self):
        return self

    def seconds(self):
        return device.INTERVAL_S

    def look(self):
        return self.seen.pop(0) if len(self.seen) > 1 else self.seen[0]


@pytest.fixture
def around(monkeypatch, tmp_path):
    """A function that sets what is seen of the neighbours, and their mean over the run."""
    monkeypatch.setattr(device, "LOOK_S", 0)
    monkeypatch.delenv("BENCH_WAIT", raising=False)
    monkeypatch.delenv("BENCH_STRICT", raising=False)
    monkeypatch.setattr(neighbours, "FILE", tmp_path / "waiting.txt")
    monkeypatch.setattr(neighbours, "alone", lambda kind="cpu": FileLock(tmp_path / "lock"))

    def show(*seen, mean=0.0):
        monkeypatch.setattr(neighbours, "Watch", Looks(*seen))
        monkeypatch.setattr(neighbours.Neighbours, "cores", lambda self: {"others": mean, "steal": 0.0})

    return show


def is_free(tmp_path):
    lock = FileLock(tmp_path / "lock")
    with lock.acquire(timeout=0):
        return True


def test_a_run_to_be_published_is_refused_before_it_begins(around, tmp_path):
    around(BUSY)
    with pytest.raises(
        checks.Rejected, match=r"1.3 cores busy \(indexer \[4711\] 1.1, editor \[12\] 0.2\)"
    ) as refused:
        device.Alone("cpu", COMMITTED).__enter__()
    assert all(word in str(refused.value) for word in ("stop them", "BENCH_WAIT=1", "-p results scratch"))
    assert is_free(tmp_path)


def test_a_moment_of_work_is_no_neighbour(around, tmp_path, capsys):
    around(BUSY, BUSY, IDLE)
    with device.Alone("cpu", COMMITTED):
        assert not capsys.readouterr().out
    assert is_free(tmp_path)


def test_a_folder_of_ones_own_is_warned_once(around, tmp_path, capsys):
    around(BUSY, mean=1.3)
    with device.Alone("cpu", tmp_path) as alone:
        for _ in range(5):
            alone.look()
        alone.refuse_if_busy()
    assert capsys.readouterr().out.count("Warning: other processes keep 1.3 cores busy") == 1


def test_it_waits_where_that_is_set(around, monkeypatch, capsys):
    around(*[BUSY] * 2 * device.LOOKS, IDLE)
    monkeypatch.setenv("BENCH_WAIT", "1")
    with device.Alone("cpu", COMMITTED):
        assert capsys.readouterr().out.count("Waiting for an idle machine") == 1
    assert not neighbours.told()[1], "it waits no more"


def test_a_run_that_can_be_marked_is_measured_beside_neighbours(around, capsys, monkeypatch):
    around(BUSY, mean=1.3)
    with device.Alone("cpu", COMMITTED, marked=True) as alone:
        for _ in range(5):
            alone.look()
        alone.refuse_if_busy()
    (warning,) = capsys.readouterr().out.splitlines()
    assert "indexer" in warning and "kept apart, marked" in warning and "WAIT=1 after make study" in warning
    assert neighbours.told()[1] == warning, "the study shows it as well"
    monkeypatch.setenv("BENCH_STRICT", "1")
    with pytest.raises(checks.Rejected, match="indexer"):
        device.Alone("cpu", COMMITTED, marked=True).__enter__()


def test_what_would_mark_a_run_is_warned_of_before_it_begins(around, capsys, monkeypatch):
    """A browser with a tenth of a core: nothing to refuse, but no run beside it counts."""
    around(neighbours.Look(0.1, (neighbours.Process("browser", 7, 0.1),)), IDLE)
    monkeypatch.setattr(device.identity, "cores", lambda: 2)
    with device.Alone("cpu", COMMITTED):
        assert not capsys.readouterr().out
    around(neighbours.Look(0.1, (neighbours.Process("browser", 7, 0.1),)))
    with device.Alone("cpu", COMMITTED, marked=True):
        assert "browser [7] 0.1" in capsys.readouterr().out


def test_who_waits_for_the_lock_says_so(around, tmp_path, capsys):
    around(IDLE)
    with FileLock(tmp_path / "lock"):
        with pytest.raises(TimeoutError, match="runs never overlap"):
            neighbours.take("cpu", wait_s=0.3)
    said = capsys.readouterr().out
    # The file without its folder: no machine path stands in an executed notebook.
    assert "Waiting for another measurement on this machine" in said and "(lock)" in said
    assert not neighbours.told()[1]
    neighbours.take("cpu").release()
    assert not capsys.readouterr().out, "nobody has waited"


def test_what_is_waited_for_lies_in_a_file_meanwhile(around, capsys):
    with neighbours.Waiting() as shown:
        shown.say("for rain")
        shown.say("for snow")
        assert neighbours.told()[1] == "Waiting for rain."
    assert not neighbours.told()[1] and capsys.readouterr().out.splitlines() == [
        "Waiting for rain.",
        "Waited 0 s.",
    ]


def test_who_comes_later_and_stays_is_refused_at_once(around, tmp_path, capsys):
    around(IDLE, BUSY, mean=1.3)
    with pytest.raises(checks.Rejected, match="indexer"), device.Alone("cpu", COMMITTED) as alone:
        alone.look()  # a warning first
        assert "indexer" in capsys.readouterr().out
        alone.look()
    assert is_free(tmp_path)


def test_who_comes_and_goes_is_not(around):
    around(IDLE, BUSY, IDLE, BUSY, IDLE, mean=1.3)
    with device.Alone("cpu", COMMITTED) as alone:
        for _ in range(4):
            alone.look()


def test_roofs_beside_a_neighbour_are_refused(around):
    around(IDLE, mean=1.0)
    with pytest.raises(checks.Rejected), device.Alone("cpu", COMMITTED) as alone:
        alone.refuse_if_busy()


def _burn(stop):
    while not stop.is_set():
        pass


def test_own_children_are_no_neighbours():
    context = multiprocessing.get_context("spawn")
    stop = context.Event()
    child = context.Process(target=_burn, args=(stop,))
    child.start()
    try:
        watch = neighbours.Watch()
        time.sleep(1)
        assert child.pid not in {one.pid for one in watch.look().processes}
    finally:
        stop.set()
        child.join()


def test_a_look_counts_since_the_look_before(monkeypatch):
    spent = iter([{(7, 1.0): ("job", 10.0)}, {(7, 1.0): ("job", 12.0), (8, 2.0): ("new", 0.5)}, {}])
    monkeypatch.setattr(neighbours, "_others_cpu_s", lambda: next(spent))
    monkeypatch.setattr(neighbours.time, "monotonic", iter([0.0, 4.0, 4.0]).__next__)
    look = neighbours.Watch().look()
    assert [(one.name, one.cores) for one in look.processes] == [("job", 0.5), ("new", 0.125)]
