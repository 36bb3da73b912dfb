"""Rounds are shuffled and interleaved: the plan of each way of calling `make study` is read as it would be measured."""

import itertools
import json
from collections import Counter

import pytest
from builders import make_rows, make_sidecar, write_run
from commands import run as command

from bench import paths
from bench.machine import identity
from bench.observations import checks, provenance, store
from bench.workflow import plan
from bench.workflow import runs as runs_workflow

FAKES = "fake/float32 fake/int8 fake/mute fake/short"
# Every way in which a study is asked for, and combinations.
WAYS = {
    "plain": {},
    "BUDGET": {"budget": 20},
    "REPEATS=n": {"repeats": 4},
    "ALL=1": {"all": True},
    "ALL=1 REPEATS=n": {"all": True, "repeats": 3},
    "EXPERIMENTS": {"experiments": "latency quality batching", "repeats": 3},
    "EXPERIMENTS, one that reads another": {"experiments": "quality", "repeats": 2},
    "ENGINES": {"engines": FAKES, "repeats": 5},
    "ENGINES EXPERIMENTS REPEATS=n": {"engines": FAKES, "experiments": "latency", "repeats": 20},
}


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    """A checkout in which nothing has been measured, with an engine that has measured elsewhere."""
    monkeypatch.setattr(store, "RESULTS", tmp_path)
    monkeypatch.setattr(paths, "LOGS", tmp_path / "logs")
    monkeypatch.setattr(runs_workflow, "ENDED", str(tmp_path / "ended"))
    return tmp_path


def planned(way, generous=True, **more):
    return plan.plan(plan.load({"engines": FAKES} | way | more), generous)


def in_a_row(runs):
    """Pairs of runs of one configuration that follow each other while another configuration still waits."""
    return [
        (before.id, after.id)
        for k, (before, after) in enumerate(itertools.pairwise(runs))
        if before.configuration == after.configuration
        and any(later.configuration != after.configuration for later in runs[k + 1 :])
    ]


@pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)
@pytest.mark.check
def test_no_configuration_is_measured_twice_in_a_row_while_another_waits(way):
    for seed in range(1, 7):
        runs = planned(way, seed=seed)
        assert len(runs) > 1 and not in_a_row(runs)
        assert len({run.id for run in runs}) == len(runs)
        places = {run: k for k, run in enumerate(runs)}
        readers = [run for run in runs if run.after]
        assert all(places[run.predecessor] < places[run] for run in readers), (
            "answers come before their scores"
        )


@pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)
def test_rounds_are_whole_and_each_has_an_order_of_its_own(way):
    runs = planned(way)
    assert [run.round for run in runs] == sorted(run.round for run in runs)
    rounds = {
        n: [run.configuration for run in own] for n, own in itertools.groupby(runs, lambda run: run.round)
    }
    assert all(len(set(own)) == len(own) for own in rounds.values())
    same = [own for own in rounds.values() if set(own) == set(rounds[max(rounds)])]
    assert len(same) < 3 or len(set(map(tuple, same))) > 1, "three rounds in one and the same order"


def test_the_order_is_the_seed_s(monkeypatch):
    way = {"repeats": 4}
    assert planned(way, seed=3) == planned(way, seed=3) != planned(way, seed=4)
    monkeypatch.setattr(identity, "host", lambda: "aaaaaa")
    here = [run.option for run in planned(way)]
    monkeypatch.setattr(identity, "host", lambda: "bbbbbb")
    assert here != [run.option for run in planned(way)], "another checkout draws another order"
    with pytest.raises(ValueError, match="seed must be a whole number above 0 or auto"):
        planned(way, seed="none")


def test_every_order_of_a_round_is_as_likely_as_any_other():
    runs = planned({"repeats": 1})
    drawn = Counter(tuple(run.option for run in plan.shuffled(runs, seed, 1, None)) for seed in range(2400))
    assert len(drawn) == 24 and min(drawn.values()) > 60 and max(drawn.values()) < 140
    last = runs[0].configuration
    begun = Counter(plan.shuffled(runs, seed, 2, last)[0].option for seed in range(600))
    assert runs[0].option not in begun and min(begun.values()) > 150


def test_what_fails_or_is_added_leaves_the_order_of_the_others():
    runs = planned({"repeats": 1})
    for left in runs:
        rest = [run for run in runs if run != left]
        assert plan.shuffled(rest, 5, 1, None) == [r for r in plan.shuffled(runs, 5, 1, None) if r != left]


def measure(run, folder, minute):
    """The CSV of one planned run, which ended at this minute."""
    rows = make_rows(9, option=run.option, gpu=run.gpu, host=identity.host(), run=run.n)
    ended = f"2026-01-01T{minute // 60:02d}:{minute % 60:02d}:00+00:00"
    store.write(rows, make_sidecar(started=ended, ended=ended), run.id, folder)


@pytest.mark.parametrize("done", range(1, 12))
def test_a_study_that_was_interrupted_goes_on_in_its_order(folder, done):
    way = {"engines": FAKES, "experiments": "latency", "repeats": 3, "seed": 8}
    whole = planned(way)
    for minute, run in enumerate(whole[:done]):
        measure(run, folder, minute)
    after = planned(way)
    assert after == whole and [(r.round, r.place) for r in after] == [(r.round, r.place) for r in whole]


def test_runs_that_are_there_already_do_not_bring_two_of_one_configuration_together(folder):
    """Two rounds of two options are there, as of a study that asked for these only: four more rounds of four."""
    way = {"engines": FAKES, "experiments": "latency", "repeats": 6}
    for seed in range(1, 9):
        for file in store.files(folder):
            file.unlink()
        some = planned(way | {"repeats": 2, "engines": "fake/float32 fake/int8"}, seed=seed)
        for minute, run in enumerate(some):
            measure(run, folder, minute)
        rest = [run for run in planned(way, seed=seed) if not run.measured]
        assert not in_a_row([some[-1], *rest]), "not either across the end of what is there"
        assert Counter(run.option for run in rest) == {"float32": 4, "int8": 4, "mute": 6, "short": 6}


def test_a_run_states_its_seed_and_place(monkeypatch):
    run = planned({"repeats": 2}, seed=7)[-1]
    name, _, words = run.order.partition("=")
    monkeypatch.setenv(name, words)
    assert provenance.order() == {"by": "study", "seed": 7, "round": 2, "place": 4}
    monkeypatch.delenv(name)
    assert provenance.order() == {"by": "hand", "seed": None, "round": None, "place": None}
    monkeypatch.setenv(name, "")
    with pytest.raises(ValueError, match="seed=…,round=…,place=…"):
        provenance.order()


ORDER = {"by": "study", "seed": 7, "round": 2, "place": 4}
FORGED = {
    "no order": {"layout": 7},
    "no seed": {"layout": 7, "order": {name: value for name, value in ORDER.items() if name != "seed"}},
    "an empty seed": {"layout": 7, "order": ORDER | {"seed": None}},
    "a seed in words": {"layout": 7, "order": ORDER | {"seed": "7"}},
    "no place": {"layout": 7, "order": ORDER | {"place": None}},
    "a place before the first": {"layout": 7, "order": ORDER | {"place": 0}},
    "an order that is none": {"layout": 7, "order": "shuffled"},
    "by hand, with a seed": {"layout": 7, "order": ORDER | {"by": "hand"}},
    "no layout, half an order": {"order": ORDER | {"seed": None}},
    "a layout that is none": {"layout": "7", "order": ORDER},
    "a layout to come": {"layout": 99, "order": ORDER},
}


@pytest.mark.parametrize("forged", FORGED.values(), ids=FORGED)
def test_a_run_that_claims_the_layout_and_lacks_its_order_is_refused(folder, forged):
    with pytest.raises(checks.Rejected, match="layout") as refused:
        write_run(folder, make_sidecar(**forged))
    assert str(refused.value).count("\n") == 0
    # One that was changed after it had been written enters no table either.
    path = write_run(folder, make_sidecar(layout=7, order=ORDER))
    changed = {name: value for name, value in json.loads(path.with_suffix(".json").read_text()).items()}
    changed = {name: value for name, value in changed.items() if name not in ("layout", "order")} | forged
    path.with_suffix(".json").write_text(json.dumps(changed))
    assert store.load(folder=folder).empty
    assert store.judged(folder=folder)[1]["check"].tolist() == ["the place in the study's order is stated"]


def test_runs_by_hand_and_of_older_layouts_are_read(folder):
    by_hand = {"by": "hand", "seed": None, "round": None, "place": None}
    write_run(folder, make_sidecar(layout=7, order=by_hand), run=1)
    write_run(folder, make_sidecar(layout=7, order=ORDER), run=2)
    write_run(folder, make_sidecar(), run=3)
    assert store.load(folder=folder)["run_id"].nunique() == 3
    counts = store.judged(folder=folder)[0].set_index("check").loc["the place in the study's order is stated"]
    assert counts.tolist() == [2, 1, 0], "checked, not checked, refused"


def test_the_plan_can_be_read(folder):
    words = ["engines=fake/float32 fake/int8", "experiments=latency", "repeats=2", "seed=7"]
    shown = command("python", "-m", "bench.workflow.plan", "show", *words, BENCH_RESULTS=folder).stdout
    lines = shown.splitlines()
    assert lines[0] == "seed 7; runs: 4, of them measured: 0"
    runs = planned({"engines": words[0].partition("=")[2], "experiments": "latency", "repeats": 2}, seed=7)
    assert [line.split()[-1] for line in lines[1:]] == [run.id for run in runs]
