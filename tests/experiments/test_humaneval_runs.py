"""HumanEval: the prompt, an evaluation that is cut and goes on, programs made of answers, scores."""

import contextlib
import json
from types import SimpleNamespace

import pytest
from builders import evaluation_sidecar, make_rows, make_sidecar

from bench.backends import fake
from bench.backends.common import checkpoints, contract
from bench.experiments import humaneval, humaneval_score, sandbox
from bench.observations import partial, store

PROBLEMS = [
    {
        "task_id": f"HumanEval/{k}",
        "prompt": f'import math\n\n\ndef add{k}(a, b):\n    """Return a + b + {k}."""\n',
        "entry_point": f"add{k}",
        "canonical_solution": f"    return a + b + {k}\n",
        "test": f"def check(candidate):\n    assert candidate(1, 2) == {3 + k}\n",
    }
    for k in range(4)
]
RIGHT = "def add{k}(a, b):\n    return a + b + {k}\n```\nThat is all."


@pytest.fixture
def four(monkeypatch):
    """Four made-up problems instead of 164 downloaded ones."""
    monkeypatch.setattr(humaneval, "problems", lambda: PROBLEMS)


def rows_on_disk(folder):
    return [len(table) for file in folder.glob(f"*/*{store.PARTIAL}") for table, _ in partial.levels(file)]


SHORT = {"backend": "fake", "max_new_tokens": 40, "batch_size": 1}


def test_ids_end_before_the_first_end_token():
    assert contract.until_end([5, 6, 2, 7], [2, 9]) == [5, 6] and contract.until_end([5, 6], [2]) == [5, 6]


def test_an_evaluation_is_a_run_with_a_row_for_each_problem(cells, four, tmp_path):
    observed = cells("humaneval", **SHORT | {"max_new_tokens": 400})["observed"]
    assert list(observed["prompt"]) == [0, 1, 2, 3] and set(observed["finish_reason"]) == {"stop"}
    assert observed["ttft_s"].isna().all() and set(observed["batch_size"]) == {1}
    cut = cells("humaneval", **SHORT | {"max_new_tokens": 3})["observed"].tail(4)
    assert set(cut["finish_reason"]) == {"length"} and set(cut["output_tokens"]) == {3}
    assert not list(tmp_path.glob(f"*/*{store.PARTIAL}"))


def test_problems_are_prompts_of_a_timed_run_where_they_are_named(cells, four):
    observed = cells("latency", backend="fake", problems="1 3", max_new_tokens=20)["observed"]
    assert set(observed["experiment"]) == {"drafts"} and list(observed["prompt"]) == [1, 3]
    assert observed["ttft_s"].notna().all()


def test_problems_are_asked_together_where_the_engine_can(cells, four, monkeypatch):
    observed = cells("humaneval", **SHORT | {"batch_size": 3})["observed"]
    assert list(observed["batch_size"]) == [3, 3, 3, 1]
    monkeypatch.setattr(fake.Engine, "answers_together", False, raising=False)
    assert set(cells("humaneval", **SHORT | {"batch_size": 3})["observed"].tail(4)["batch_size"]) == {1}


def test_what_was_answered_before_a_cut_is_not_asked_again(cells, four, tmp_path, monkeypatch):
    asked, answer = [], fake.Engine.answer

    def until_the_third(self, prompts, max_new_tokens):
        if len(asked) == 2:
            raise KeyboardInterrupt
        asked.append(prompts)
        return answer(self, prompts, max_new_tokens)

    with monkeypatch.context() as cut:
        cut.setattr(fake.Engine, "answer", until_the_third)
        with pytest.raises(KeyboardInterrupt):
            cells("humaneval", **SHORT)
    assert rows_on_disk(tmp_path) == [1, 1] and not store.files(tmp_path)
    (file,) = tmp_path.glob(f"*/*{store.PARTIAL}")
    with open(file, "a") as torn:
        torn.write('{"csv": "a line that a kill has cut')
    again = []
    monkeypatch.setattr(fake.Engine, "answer", lambda *own: again.append(own[1]) or answer(*own))
    observed = cells("humaneval", **SHORT)["observed"]
    assert len(again) == 2 and list(observed["prompt"]) == [0, 1, 2, 3]
    assert observed["sent_s"].is_monotonic_increasing and not rows_on_disk(tmp_path)
    sidecar = store.read(store.files(tmp_path)[0])[1]
    assert sidecar["settings"]["continued_at"] == 2
    begun = [attempt["answers_before"] for attempt in sidecar["settings"]["attempts"]]
    assert begun == [0, 2] and all(attempt["revision"] for attempt in sidecar["settings"]["attempts"])


def test_it_does_not_go_on_with_other_lengths_and_is_no_run_before_its_end(
    cells, four, tmp_path, monkeypatch
):
    answers = iter([[[5]]])

    def once(self, prompts, max_new_tokens):
        with contextlib.suppress(StopIteration):
            return next(answers)
        raise KeyboardInterrupt

    with monkeypatch.context() as cut:
        cut.setattr(fake.Engine, "answer", once)
        with pytest.raises(KeyboardInterrupt):
            cells("humaneval", **SHORT)
    (file,) = tmp_path.glob(f"*/*{store.PARTIAL}")
    with pytest.raises(
        ValueError, match=r"1 answers that were begun with another max_new_tokens \(40, now 41\)"
    ):
        cells("humaneval", **SHORT | {"max_new_tokens": 41})
    with pytest.raises(ValueError, match="begun with another threads .*delete the file"):
        cells("humaneval", **SHORT | {"threads": 1})
    monkeypatch.setattr(humaneval, "templated", lambda checkpoint, messages: "another template")
    with pytest.raises(ValueError, match="begun with another chat template"):
        cells("humaneval", **SHORT)
    assert partial.main([str(file)]) == 1 and not store.files(tmp_path)


def test_a_problem_that_fails_is_a_row_and_a_dead_engine_ends_the_run(cells, four, tmp_path, monkeypatch):
    answer = fake.Engine.answer

    def fails(*places):
        count = iter(range(100))

        def once(self, prompts, max_new_tokens):
            if next(count) in places:
                raise MemoryError("no room")
            return answer(self, prompts, max_new_tokens)

        monkeypatch.setattr(fake.Engine, "answer", once)

    fails(1)
    observed = cells("humaneval", **SHORT)["observed"]
    assert list(observed["error"]) == ["", "MemoryError: no room", "", ""]
    fails(1, 2, 3)
    with pytest.raises(RuntimeError, match="fails again and again: MemoryError: no room"):
        cells("humaneval", **SHORT)
    assert rows_on_disk(tmp_path) == [1], "what failed is asked again"


def test_a_part_of_the_problems_stays_out_of_the_study_s_folder(cells, four, monkeypatch):
    monkeypatch.setattr(store, "is_published", lambda file: True)
    with pytest.raises(ValueError, match="2 of 4 problems are a trial"):
        cells("humaneval", **SHORT | {"problems": 2})


def test_the_prompt_is_the_template_s_with_a_code_block_begun(tmp_path):
    template = "{% for m in messages %}<{{ m['role'] }}>{{ m['content'] }}{% endfor %}{{ eos_token }}<answer>"
    (tmp_path / "chat_template.jinja").write_text(template)
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"eos_token": "."}))
    seen = []
    encode = lambda text, add_special_tokens: seen.append(text) or SimpleNamespace(ids=[1])
    checkpoint = SimpleNamespace(name="m", path=tmp_path, tokenizer=SimpleNamespace(encode=encode))
    humaneval.prompt(checkpoint, PROBLEMS[0])
    code = PROBLEMS[0]["prompt"].strip()
    question = f"Can you complete the following Python function?\n```python\n{code}\n```\n"
    assert seen == [f"<system>{humaneval.SYSTEM}<user>{question}.<answer>```python\n"]
    (tmp_path / "chat_template.jinja").unlink()
    with pytest.raises(ValueError, match="no chat template"):
        humaneval.prompt(checkpoint, PROBLEMS[0])


@pytest.mark.check
def test_the_template_is_rendered_as_transformers_does():
    from transformers import AutoTokenizer

    checkpoint = checkpoints.checkpoint("smollm2-135m")
    messages = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": " 9 * 8?\n"}]
    theirs = AutoTokenizer.from_pretrained(checkpoint.path).apply_chat_template(
        messages, tokenize=False, add_generation_prompt=True
    )
    assert humaneval.templated(checkpoint, messages) == theirs


def test_code_is_what_stands_before_the_block_s_end_or_its_own_trial():
    assert humaneval_score.code("def f():\n\treturn 1\n```\nprose") == "\ndef f():\n    return 1"
    assert humaneval_score.code("def f(): pass\nprint(f())\n```") == "\ndef f(): pass"
    assert (
        humaneval_score.code("```python\ndef f(): pass") == "" and humaneval_score.code("x = 1") == "\nx = 1"
    )


def test_what_an_answer_does_only_to_try_itself_is_left_out():
    """The last lines would fail: `sorted_list` is no function of it."""
    tried = "import re\nLIMIT = 3\ndef f():\n    return LIMIT\n\n# Test cases\nassert sorted_list() == 1\nf()"
    kept = humaneval_score.code(tried)
    assert "assert" not in kept and "f()\n" not in kept + "\n".replace("def f()", "")
    space = {}
    exec(kept, space)
    assert space["f"]() == 3 and "re" in space
    assert humaneval_score.code("def f(:\nassert 1") == "\ndef f(:\nassert 1", "what is no Python stays"
    assert humaneval_score.code("def f(): pass\x00") == "\ndef f(): pass\x00"


def test_programs_of_answers_pass_and_fail_by_the_problem_s_tests():
    """Executed here: the answers are this test's own."""
    problem = PROBLEMS[2]
    exec(humaneval_score.program(problem, RIGHT.format(k=2)), {})
    with pytest.raises(AssertionError):
        exec(humaneval_score.program(problem, RIGHT.format(k=1).replace("add1", "add2")), {})
    with pytest.raises(NameError):
        exec(humaneval_score.program(problem, "```"), {})


def kept(folder, texts):
    """The run of made-up answers `texts` on this machine, with the problems of this file."""
    rows = make_rows(n=4, experiment="humaneval", tokens=6)
    for place, (row, text) in enumerate(zip(rows, texts)):
        row |= {"prompt": place, "ttft_s": None, "max_new_tokens": 8, "finish_reason": "stop", "answer": text}
    sidecar = evaluation_sidecar(4, 4, judge={"verdict": "not judged", "why": "Its answers are made up."})
    sidecar["settings"]["problems_sha256"] = humaneval.digest(PROBLEMS)
    return store.write(rows, sidecar, rows[0]["run_id"], folder)


SCORE = {"backend": "fake", "answers": "fake/humaneval-smollm2-135m-float32-test-cpu-abc123-1"}


def test_no_code_runs_unless_it_is_said(cells, four, tmp_path, monkeypatch):
    kept(tmp_path, ["pass"] * 4)
    monkeypatch.setattr(sandbox, "run", lambda *_: pytest.fail("a program was run"))
    with pytest.raises(PermissionError, match="-p run_generated_code True"):
        cells("humaneval-score", **SCORE)


def test_without_answers_the_sentence_names_the_notebook(cells, four):
    with pytest.raises(FileNotFoundError, match="notebooks/humaneval.ipynb"):
        cells("humaneval-score", **SCORE, run_generated_code=True)


def test_answers_of_another_experiment_are_refused_by_name(cells, four, tmp_path):
    rows = make_rows(n=2)
    path = store.write(rows, make_sidecar(), rows[0]["run_id"], tmp_path)
    with pytest.raises(ValueError, match=f"{path.stem} is no run of notebooks/humaneval.ipynb"):
        cells("humaneval-score", **SCORE | {"answers": f"fake/{path.stem}"}, run_generated_code=True)


def test_where_a_limit_does_not_hold_nothing_is_scored(cells, four, tmp_path, monkeypatch):
    kept(tmp_path, ["pass"] * 4)
    monkeypatch.setattr(sandbox, "self_test", lambda python: [sandbox.Check("network", False, "open")])
    monkeypatch.setattr(sandbox, "run", lambda *_: pytest.fail("a program was run"))
    with pytest.raises(sandbox.Uncontained, match="network: open"):
        cells("humaneval-score", **SCORE, run_generated_code=True)
    assert len(store.files(tmp_path)) == 1


def test_a_score_is_a_run_of_its_own_and_can_be_repeated(cells, four, tmp_path):
    try:
        sandbox.demand()
    except sandbox.Uncontained as why:
        pytest.skip(str(why))
    answers = kept(tmp_path, [RIGHT.format(k=0), "def add1(a, b): return 0", "", RIGHT.format(k=3)])
    for _ in range(2):
        observed = cells("humaneval-score", **SCORE, run_generated_code=True)["observed"]
    scores = observed[observed["experiment"] == "humaneval-score"]
    assert scores.groupby("run_id")["passed"].agg(list).tolist() == [[1, 0, 0, 1]] * 2
    assert set(scores["scored_run"]) == {f"fake/{answers.stem}"}
    assert list(scores["failure"])[:3] == ["", "AssertionError", "NameError: name 'add2' is not defined"]
    sidecar = store.read(store.path(scores["run_id"].iloc[-1], folder=tmp_path))[1]
    assert sidecar["scored_sha256"] == store.read(answers)[1]["csv_sha256"]
    assert sidecar["settings"]["self_test"][0].startswith("ok ")
