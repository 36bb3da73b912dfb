"""The committed result of the mutation run holds for the modules as they are, and says what it holds for."""

import json

import pandas as pd
import pytest

from bench.analysis import mutation


def test_the_committed_mutation_run_counts_the_modules_that_it_broke():
    found = mutation.scores()
    record = set(json.loads(mutation.DIGESTS.read_text())) - set(mutation.changed())
    assert set(found["module"]) == {*record, "all"}
    assert found.iloc[-1]["killed_share"] >= mutation.PROMISE
    lacking = len(mutation.TESTS) - len(record)
    assert (f"{lacking} modules have changed since" in mutation.sentence()) == (lacking > 0)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    for name in ("SCORES", "SURVIVORS", "DIGESTS"):
        monkeypatch.setattr(mutation, name, tmp_path / getattr(mutation, name).name)


def outcomes(**counts):
    """Outcomes of mutants of one module, as many of each as `counts` says; {killed: 3, survived: 1}."""
    rows = [(n, "f", f"{kind} {n}", "b", kind, "") for kind, count in counts.items() for n in range(count)]
    return pd.DataFrame(rows, columns=mutation.MUTANT).replace({"outcome": {"invalid": mutation.INVALID}})


def test_a_run_is_kept_with_its_survivors_and_their_reasons(folder):
    first, second = list(mutation.TESTS)[:2]
    mutation.record(second, outcomes(killed=3, survived=1))
    assert second not in mutation.changed() and first in mutation.changed()
    mutation.record(first, outcomes(killed=10, timeout=2, survived=2, invalid=5))
    kept = mutation.survivors()
    assert list(kept["module"]) == [first, first, second]
    assert list(kept["before"])[:2] == ["survived 0", "survived 1"]
    kept.assign(reason=["it is the same", "", ""]).to_csv(mutation.SURVIVORS, index=False)
    mutation.record(first, outcomes(killed=12, survived=2))
    found = mutation.scores()
    assert list(found["module"]) == [first, second, "all"] and list(found["mutants"]) == [14, 4, 18]
    assert list(found["survived"]) == [2, 1, 3] and list(found["equivalent"]) == [1, 0, 1]
    assert list(found["killed_share"]) == pytest.approx([12 / 14, 3 / 4, 15 / 18])
    assert mutation.sentence().startswith(
        "15 of 18 mutants of the measuring code are killed (83.3%); of the 3"
    )
    mutation.record(first, outcomes(survived=1, killed=1), again=True)
    assert list(mutation.scores()["mutants"]) == [14, 4, 18], "those that had not survived are known"
    assert list(mutation.survivors()["reason"]) == ["it is the same", ""]
    assert mutation.sentence().startswith("16 of 18 mutants")


def test_a_module_that_has_changed_is_named(folder, monkeypatch):
    first = list(mutation.TESTS)[0]
    mutation.record(first, outcomes(killed=1))
    digests = mutation.digests()
    monkeypatch.setattr(mutation, "digests", lambda: digests | {first: "another"})
    assert first in mutation.changed() and first not in set(mutation.scores()["module"])
