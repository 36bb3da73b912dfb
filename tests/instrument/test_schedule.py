"""The schedule of a load test: lengths, arrivals, prompts, levels, calls, all without a server."""

from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from answers import Words

from bench import inputs
from bench.backends.common import servers
from bench.experiments import session, target
from bench.instrument.load import decoding, schedule


def test_lengths_of_a_named_distribution():
    table = inputs.table("lengths").set_index("lengths")
    for name, row in table.iterrows():
        drawn = np.array(schedule.lengths(name, 4000))
        assert drawn.mean(axis=0) == pytest.approx([row["prompt_tokens"], row["new_tokens"]], rel=0.15)
        assert (drawn.std(axis=0) > 0).all() == (row["spread"] == "exponential")
        assert (drawn.min(axis=0) >= [schedule.HEAD_TOKENS, 2]).all()
    assert (
        schedule.lengths("sharegpt", 50, seed=1)
        == schedule.lengths("sharegpt", 50, seed=1)
        != schedule.lengths("sharegpt", 50, seed=2)
    )
    assert schedule.lengths("fixed-100-500", 2) == [(100, 500)] * 2


def test_lengths_are_scaled_and_bounded():
    assert schedule.lengths("fixed-100-500", 1, scale=0.1) == [(10, 50)]
    assert schedule.lengths("fixed-100-500", 1, scale=0.001) == [(schedule.HEAD_TOKENS, 2)]
    assert max(map(sum, schedule.lengths("sharegpt", 500, most=256))) <= 256
    assert schedule.lengths("fixed-100-500", 1, most=400) == [(100, 200)]


def test_a_trace_gives_lengths_in_its_order(tmp_path):
    file = tmp_path / "trace.csv"
    file.write_text("output,input,at_s\n20,10,100\n40,30,101\n50,8,103\n")
    assert schedule.lengths(str(file), 4) == [(10, 20), (30, 40), (8, 50), (10, 20)]


def test_prompts_share_nothing_that_a_cache_could_answer():
    sizes = [(8, 4), (9, 4), (100, 4), (3000, 4)] * 100
    source = "c0ffee", 1
    made = schedule.prompts(Words(), sizes, source)
    made += schedule.prompts(Words(), sizes, source, first=len(sizes))
    assert [(len(prompt.ids), prompt.new_tokens) for prompt in made] == sizes * 2
    assert len({prompt.ids[: schedule.HEAD_TOKENS] for prompt in made}) == len(made)
    assert len({prompt.ids[0] for prompt in made}) > 50, "they differ from the first token on"
    for other in (("c0ffee", 2), ("decade", 1)):
        heads = {prompt.ids[: schedule.HEAD_TOKENS] for prompt in schedule.prompts(Words(), sizes, other)}
        assert heads.isdisjoint({prompt.ids[: schedule.HEAD_TOKENS] for prompt in made}), "repeats, machines"
    assert made[5] == schedule.prompts(Words(), sizes, source)[5]
    assert made[5].text == Words().decode(made[5].ids)


def counted(kind, load):
    """A number of requests per level."""
    return {"closed": 100 + load, "open": round(20 * load)}[kind]


def test_the_plan_goes_from_little_load_to_much():
    plan = schedule.plan([8, 1, 100], [4, 0.5], counted, "poisson", seed=2)
    assert [(level.kind, level.value, level.requests) for level in plan] == [
        ("closed", 1, 101),
        ("closed", 8, 108),
        ("closed", 100, 200),
        ("open", 0.5, 10),
        ("open", 4, 80),
    ]
    assert plan[0].condition == {"concurrency": 1} and plan[3].condition == {"request_rate": 0.5}
    assert plan[0].at_s is None and (plan[4].at_s == schedule.poisson(4, 80, 2)).all()
    again = schedule.plan([], [4], counted, "poisson", seed=3)[0]
    assert (again.at_s != plan[4].at_s).all(), "another run, other arrivals"
    assert str(plan[1]) == "8 at once" and str(plan[3]) == "0.5 requests/s"
    assert schedule.plan([], [4], lambda kind, load: 3, "constant", 1)[0].at_s.tolist() == [0, 0.25, 0.5]
    with pytest.raises(ValueError, match="kind of arrivals"):
        schedule.plan([1], [1], counted, "regular", 1)


def test_calls_carry_the_schedule_and_what_is_counted():
    wanted = schedule.prompts(Words(), [(10, 4), (20, 5)], ("c0ffee", 1))
    level = schedule.Level("open", 2, 2, np.array([0.0, 0.5]))
    for dialect, counted in (
        ("completions", [10, 20]),
        ("llamacpp", [10, 20]),
        ("chat", [None, None]),
        ("tgi", [None, None]),
    ):
        served = servers.RunningServer(
            "http://here:1", dialect, "m", {}, lambda new_tokens: {"min_tokens": new_tokens}, "secret"
        )
        made = schedule.calls(served, level, wanted, first=7)
        assert [(call.number, call.at_s, call.prompt_tokens, call.new_tokens) for call in made] == [
            (7, 0.0, counted[0], 4),
            (8, 0.5, counted[1], 5),
        ]
        assert b"Bearer secret" in made[0].payload and b'"min_tokens": 5' in made[1].payload
    assert schedule.calls(served, schedule.Level("closed", 2, 2), wanted)[0].at_s is None
    assert "secret" not in repr(served)


def test_arrivals_tell_nothing_of_the_lengths_of_the_same_seed():
    gaps = np.diff(schedule.poisson(4, 2001, 7))
    prompts, answers = np.array(schedule.lengths("sharegpt", 1000, seed=7)).T
    for drawn in (prompts, answers):
        for part in (gaps[:1000], gaps[0::2], gaps[1::2]):
            assert abs(np.corrcoef(part, drawn)[0, 1]) < 0.1


def test_ids_of_a_text_stand_where_the_server_sent_fewer_than_tokens():
    row = {"error": "", "output_ids": [1], "output_tokens": 3, "text": "a b c"}
    assert decoding.with_ids(row, Words().encode)["output_ids"] == Words().encode("a b c")
    assert decoding.with_ids(row | {"text": "a b"}, Words().encode)["output_ids"] == []
    whole = row | {"output_ids": [1, 2, 3]}
    assert decoding.with_ids(whole, Words().encode) is whole
    failed = row | {"error": "gone", "output_tokens": 0}
    assert decoding.with_ids(failed, Words().encode) is failed


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
