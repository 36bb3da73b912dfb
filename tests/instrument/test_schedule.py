"""The schedule of a load test: lengths, arrivals, prompts, levels, calls, all without a server."""

import hashlib

import numpy as np
import pandas as pd
import pytest
from answers import Words

from bench import inputs
from bench.backends.common import servers
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


def test_lengths_from_a_file_are_taken_in_their_order(tmp_path):
    file = tmp_path / "trace.csv"
    file.write_text("new_tokens,prompt_tokens,note\n20,10,a\n40,30,b\n")
    assert schedule.lengths(str(file), 3) == [(10, 20), (30, 40), (10, 20)]
    file.write_text("prompt_tokens,new_tokens\n")
    with pytest.raises(ValueError, match="has no rows"):
        schedule.lengths(file, 3)
    for bad in ("", "0", "many"):
        file.write_text(f"prompt_tokens,new_tokens\n20,10\n20,{bad}\n")
        with pytest.raises(ValueError, match="no positive number"):
            schedule.lengths(file, 3)
    with pytest.raises(ValueError, match="distribution of lengths .*shareGPT.*Did you mean 'sharegpt'"):
        schedule.lengths("shareGPT", 3)


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


def test_a_trace_is_replayed(tmp_path):
    file = tmp_path / "trace.csv"
    file.write_text("prompt_tokens,new_tokens,at_s\n10,5,103\n10,5,100\n10,5,101\n")
    (level,) = schedule.replay(file)
    assert level.at_s.tolist() == [3, 0, 1] and level.requests == 3
    assert level.condition == {"request_rate": pytest.approx(2 / 3, abs=1e-3)}
    for bad in (
        "prompt_tokens,new_tokens\n10,5\n10,5\n",
        "prompt_tokens,new_tokens,at_s\n10,5,1\n",
        "prompt_tokens,new_tokens,at_s\n10,5,1\n10,5,1\n",
        "prompt_tokens,new_tokens,at_s\n10,5,1\n10,5,\n",
    ):
        file.write_text(bad)
        with pytest.raises(ValueError, match="at_s"):
            schedule.replay(file)


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


def test_arrivals_are_those_of_their_seed():
    gaps = np.random.default_rng([7, 1]).exponential(0.25, 5)
    assert schedule.poisson(4, 5, 7) == pytest.approx(np.cumsum(gaps))
    assert (schedule.poisson(4, 5) == schedule.poisson(4, 5, 0)).all()
    assert schedule.constant(4, 2).tolist() == [0, 0.25]


def test_arrivals_tell_nothing_of_the_lengths_of_the_same_seed():
    gaps = np.diff(schedule.poisson(4, 2001, 7))
    prompts, answers = np.array(schedule.lengths("sharegpt", 1000, seed=7)).T
    for drawn in (prompts, answers):
        for part in (gaps[:1000], gaps[0::2], gaps[1::2]):
            assert abs(np.corrcoef(part, drawn)[0, 1]) < 0.1


def test_exponential_lengths_are_drawn_for_prompt_and_answer_apart():
    row = inputs.table("lengths").set_index("lengths").loc["sharegpt"]
    drawn = np.random.default_rng(0).exponential(1.0, (6, 2)) * row[["prompt_tokens", "new_tokens"]].to_numpy(
        float
    )
    expected = [tuple(map(int, pair)) for pair in np.maximum(np.rint(drawn), (schedule.HEAD_TOKENS, 2))]
    assert schedule.lengths("sharegpt", 6) == expected == schedule.lengths("sharegpt", 6, 1.0, None, 0)
    assert all(type(n) is int for pair in schedule.lengths("sharegpt", 2) for n in pair), (
        "no NumPy in a sidecar"
    )


def test_a_column_of_a_trace_that_is_no_number_is_named(tmp_path):
    file = tmp_path / "trace.csv"
    file.write_text("prompt_tokens\n5\n")
    with pytest.raises(ValueError, match=f"{file.name} has no new_tokens: it needs"):
        schedule.trace(file)
    file.write_text("at_s\n5\n")
    with pytest.raises(ValueError, match="has no new_tokens and no prompt_tokens: it needs"):
        schedule.trace(file)
    file.write_text("prompt_tokens,new_tokens\n-1,5\n")
    with pytest.raises(ValueError, match="no positive number"):
        schedule.trace(file)
    file.write_text("prompt_tokens,new_tokens\n1,1\n")
    assert schedule.trace(file).to_dict("records") == [{"prompt_tokens": 1, "new_tokens": 1}]
    with pytest.raises(ValueError, match="none.csv' cannot be read .* No such file") as refused:
        schedule.lengths(tmp_path / "none.csv", 1)
    assert refused.value.__suppress_context__


def test_heads_follow_from_source_and_number():
    heads = schedule.Heads(Words(), ("c0ffee", 3))
    tokens = sorted(set(Words().encode(inputs.text())))
    seed = int.from_bytes(hashlib.sha256(b"c0ffee 3").digest()[:8], "big")
    expected = np.random.default_rng([seed, 5]).choice(tokens, schedule.HEAD_TOKENS).tolist()
    assert heads[5] == expected and all(type(token) is int for token in heads[5])
    assert heads[6] != expected, "every prompt has its own"


def test_prompts_are_a_head_and_the_studys_text():
    text = Words().encode(inputs.text())
    first, second = schedule.prompts(Words(), [(12, 3), (len(text) * 2, 4)], ("c0ffee", 1))
    heads = schedule.Heads(Words(), ("c0ffee", 1))
    assert first.ids == (*heads[0], *text[:4]) and first.new_tokens == 3
    around = text[37:] + text * 3
    assert second.ids == (*heads[1], *around[: len(text) * 2 - schedule.HEAD_TOKENS])
    (far,) = schedule.prompts(Words(), [(10, 2)], ("c0ffee", 1), first=len(text) + 1)
    assert far.ids[schedule.HEAD_TOKENS :] == tuple((text + text)[(len(text) + 1) * 37 % len(text) :][:2])
    (short,) = schedule.prompts(Words(), [(3, 2)], ("c0ffee", 1))
    assert short.ids == tuple(heads[0][:3]) and short.text == " ".join(map(str, heads[0][:3]))


def test_a_level_says_its_load():
    assert schedule.Level("replay", 2.5, 3).condition == {"request_rate": 2.5}
    assert str(schedule.Level("replay", 2.5, 3)) == "2.5 requests/s"
    with pytest.raises(ValueError, match="kind of arrivals .*constnat.*Did you mean 'constant'"):
        schedule.plan([], [1], counted, "constnat", 1)
    assert [level.at_s for level in schedule.plan([1, 2], [], counted, "constant", 1)] == [None, None]


def test_a_replay_keeps_moments_and_rounds_its_rate(tmp_path):
    file = tmp_path / "trace.csv"
    rows = pd.DataFrame({"prompt_tokens": 9, "new_tokens": 5, "at_s": [7.0, 8.5]})
    rows.to_csv(file)
    (level,) = schedule.replay(file)
    assert (level.kind, level.value, level.requests) == ("replay", 0.667, 2)
    assert level.at_s.tolist() == [0, 1.5]
    rows.assign(at_s=[7, 7.5]).to_csv(file)
    assert schedule.replay(file)[0].value == 2.0
    rows.assign(at_s=[3, 5]).to_csv(file)
    assert schedule.replay(file)[0].at_s.dtype == float
    rows.assign(at_s=["soon", 2.0]).to_csv(file)
    with pytest.raises(ValueError, match="without a moment in at_s"):
        schedule.replay(file)
    rows.drop(columns="at_s").to_csv(file)
    with pytest.raises(ValueError, match="trace.csv has no column at_s"):
        schedule.replay(file)


def test_calls_are_numbered_from_one_and_ask_for_the_model():
    made = schedule.prompts(Words(), [(10, 4)], ("c0ffee", 1))
    served = servers.RunningServer(
        "http://here:1/below", "llamacpp", "the-model", {}, lambda n: {"n_max": n}, ""
    )
    level = schedule.Level("open", 2, 1, np.array([0.5]))
    (call,) = schedule.calls(served, level, made)
    assert call.number == 1 and type(call.at_s) is float and call.at_s == 0.5
    assert b"/below/completion " in call.payload and b'"n_max": 4' in call.payload
    chat = servers.RunningServer("http://here:1", "chat", "the-model", {}, lambda n: {}, "")
    assert b'"model": "the-model"' in schedule.calls(chat, level, made)[0].payload
    assert b"Authorization" not in call.payload


def test_ids_of_a_text_stand_where_the_server_sent_fewer_than_tokens():
    row = {"error": "", "output_ids": [1], "output_tokens": 3, "text": "a b c"}
    assert decoding.with_ids(row, Words().encode)["output_ids"] == Words().encode("a b c")
    assert decoding.with_ids(row | {"text": "a b"}, Words().encode)["output_ids"] == []
    whole = row | {"output_ids": [1, 2, 3]}
    assert decoding.with_ids(whole, Words().encode) is whole
    failed = row | {"error": "gone", "output_tokens": 0}
    assert decoding.with_ids(failed, Words().encode) is failed


def test_moments_in_another_unit_than_seconds_are_named(tmp_path):
    """400 requests over 100 s, in milliseconds, would be replayed in 28 hours."""
    file = tmp_path / "ms.csv"
    rows = "".join(f"{250 * k},16,4\n" for k in range(400))
    file.write_text("at_s,prompt_tokens,new_tokens\n" + rows)
    with pytest.raises(ValueError, match="ms.csv would have 0.004 requests per second .* ms if"):
        schedule.replay(file)
