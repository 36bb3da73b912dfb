"""Heads before the published prompts, for a server that is not ours."""

from types import SimpleNamespace

import pandas as pd
import pytest
from answers import Words

from bench.experiments import session, target
from bench.instrument.load import schedule


@pytest.fixture
def headed(monkeypatch):
    """A function: the prompts of a run of a server that runs already, on a host."""
    monkeypatch.setattr(target, "encoded", lambda which, checkpoint: pd.Series({1: [1, 2], 2: [3]}))

    def prompts(run, host="c0ffee"):
        words, elsewhere = Words(), SimpleNamespace(url="http://127.0.0.1:1")
        run_id = f"http/latency-{run}"
        setup = SimpleNamespace(identity={"host": host}, run_id=run_id, checkpoint=words, target=elsewhere)
        setup.settings, setup.source = {}, lambda: session.Setup.source(setup)
        return session.Setup.prompts(setup, "latency")

    return prompts


def test_published_prompts_stay_whole_behind_heads_of_one_length(headed):
    first = headed(1)
    assert [ids[schedule.HEAD_TOKENS :] for ids in first] == [[1, 2], [3]] and list(first.index) == [1, 2]
    heads = [tuple(ids[: schedule.HEAD_TOKENS]) for ids in [*first, *headed(2), *headed(1, "decade")]]
    assert len(set(heads)) == 6, "another prompt, another repeat, another machine: another head"
    again = [tuple(ids[: schedule.HEAD_TOKENS]) for ids in headed(1)]
    assert not {*again} & {*heads}, "another attempt of the same number: another head"
