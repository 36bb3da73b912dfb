"""Heads before the published prompts, for a server that is not ours."""

from types import SimpleNamespace

import pandas as pd
from answers import Words

from bench.experiments import session
from bench.instrument.load import schedule


def headed(run, host="c0ffee"):
    setup = SimpleNamespace(identity={"host": host}, run_id=f"http/latency-{run}", checkpoint=Words())
    return session._headed(setup, "latency", pd.Series({1: [1, 2], 2: [3]}))


def test_published_prompts_stay_whole_behind_heads_of_one_length():
    first = headed(1)
    assert [ids[schedule.HEAD_TOKENS :] for ids in first] == [[1, 2], [3]] and list(first.index) == [1, 2]
    heads = [tuple(ids[: schedule.HEAD_TOKENS]) for ids in [*first, *headed(2), *headed(1, "decade")]]
    assert len(set(heads)) == 6, "another prompt, another repeat, another machine: another head"
    assert headed(1).tolist() == first.tolist(), "the same for every engine"
