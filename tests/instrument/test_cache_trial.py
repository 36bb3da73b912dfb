"""The trial before a run: what a server says of its cache and of prompts, held against its times."""

import pytest

from bench.instrument.load import prefix_cache


def trial(fresh, repeated, cached=(None,) * 5, **more):
    """The rows of a trial whose two measured prompts took `fresh` s, and sent again `repeated` s."""
    times = 9.0, fresh[0], repeated[0], fresh[1], repeated[1]
    return [
        {"error": "", "ttft_s": ttft, "e2e_s": ttft + 1, "prompt_tokens": 300, "cached_tokens": hit} | more
        for ttft, hit in zip(times, cached)
    ]


ZERO, HITS, SLOTS = (0,) * 5, (0, 0, 280, 0, 280), (0, 24, 296, 0, 296)
TRIALS = {  # (new prompts, s), (again, s), cached tokens reported, whether a cache answers, whether refused
    "a cache that says nothing": ((1.6, 1.7), (0.02, 0.03), (None,) * 5, True, True),
    "a cache that reports nothing but 0": ((1.6, 1.7), (0.02, 0.03), ZERO, True, True),
    "a cache that reports its hits": ((1.6, 1.7), (0.02, 0.03), HITS, True, False),
    "several slots behind a template": ((1.6, 1.7), (0.02, 0.03), SLOTS, True, False),
    "a machine that flips": ((2.0, 2.4), (0.1, 2.0), (None,) * 5, False, False),
    "no cache": ((2.0, 2.4), (2.1, 1.9), ZERO, False, False),
    "short prompts on a fast engine": ((0.02, 0.021), (0.004, 0.004), ZERO, None, False),
    "somewhat faster again": ((2.0, 2.4), (1.2, 1.1), (None,) * 5, None, False),
}


@pytest.mark.parametrize("case", TRIALS)
def test_times_tell_a_cache_whatever_the_server_reports(case):
    fresh, repeated, reported, cached, refused = TRIALS[case]
    found = prefix_cache.result(trial(fresh, repeated, reported))
    assert found["cached"] is cached and bool(prefix_cache.why_not(found)) == refused
    assert bool(prefix_cache.unknown(found)) == (cached is None)
    assert found["template_tokens"] == (24 if reported == SLOTS else 0)
    assert bool(prefix_cache.why_not(found, off=True)) == (refused or reported in (HITS, SLOTS))


def test_a_sentence_names_both_times_and_the_switches_and_a_failed_trial_its_error():
    sentence = prefix_cache.why_not(prefix_cache.result(trial((0.999, 0.999), (0.02, 0.02))))
    assert (
        "a new prompt of 300 tokens takes 999.0 ms" in sentence and "the same one again 20.0 ms" in sentence
    )
    assert prefix_cache.SWITCHES in sentence and prefix_cache.REPORTS in sentence
    with pytest.raises(RuntimeError, match="HTTP 500: no$"):
        prefix_cache.result(trial((1, 1), (1, 1), error="HTTP 500: no"))


@pytest.mark.parametrize(
    ("sent", "back", "cached", "was_cut"),
    [(2048, 256, 0, True), (2048, 1840, None, True), (2048, 1850, 0, False), (2048, 48, 2000, False),
     (250, 100, 0, False), (256, 200, 0, True)],
)  # fmt: skip
def test_a_prompt_that_came_back_shorter_was_cut(sent, back, cached, was_cut):
    rows = trial((1, 1), (1, 1), (cached,) * 5, prompt_tokens=back)
    assert bool(prefix_cache.cut(rows, sent)) == was_cut
    rows[1]["prompt_tokens"] = rows[3]["prompt_tokens"] = sent
    assert not prefix_cache.cut(rows, sent), "once is none"


@pytest.mark.parametrize(
    "cached, block, where",
    [(None, 1, ""), (78, 1, ""), (77, 1, "answer"), (59, 1, "answer"), (58, 1, "prompt"), (48, 16, ""),
     (47, 16, "answer"), (44, 16, "answer"), (43, 16, "prompt")],
)  # fmt: skip
def test_where_the_prefix_of_a_second_turn_broke(cached, block, where):
    """60 tokens of the prompt and 19 of the answer were computed; the last block may be missing."""
    trial = [{"prompt_tokens": 60, "output_tokens": 20}, {"cached_tokens": cached}]
    said = prefix_cache.broken_history(trial, *([] if block == 1 else [block]))
    assert (f"after {cached} of 79 tokens, in the first turn's {where}:" in said) if where else said == ""
