"""What is computed once: of the same inputs and the same code, in this process and the next."""

import os
import pickle
import subprocess
import sys

import pytest

from bench import memo
from bench.paths import ROOT

pytestmark = pytest.mark.usefixtures("monkeypatch")  # nothing is shared with other tests (conftest.py)


def test_what_is_kept_is_computed_once_and_a_damaged_file_again(tmp_path):
    calls = []
    memo.keep_in(tmp_path)
    try:
        compute = lambda: calls.append(1) or 7
        assert memo.kept("key", compute) == memo.kept("key", compute) == 7 and len(calls) == 1
        assert memo.kept("another", compute) == 7 and len(calls) == 2
        for file in tmp_path.iterdir():
            file.write_bytes(pickle.dumps(8)[:3])
        assert memo.kept("key", compute) == 7 and len(calls) == 3
    finally:
        memo.keep_in(None)


def test_results_of_other_inputs_are_kept_apart_and_the_oldest_go(tmp_path, monkeypatch):
    monkeypatch.setattr(memo, "CACHE", tmp_path)
    try:
        for hour, results in enumerate(("first", "second", "third", "fourth")):
            monkeypatch.setenv("BENCH_BACKENDS", results)
            for place in ("RESULTS", "DOWNLOADS"):
                monkeypatch.setenv(f"BENCH_{place}", f"of the site of {hour} o'clock")
            before = set(tmp_path.iterdir())
            memo.begin("here")
            assert memo.kept("key", lambda: results) == results
            (new,) = set(tmp_path.iterdir()) - before
            os.utime(new, (hour, hour))
        assert len(list(tmp_path.iterdir())) == memo.LEFT + 1
        monkeypatch.setenv("BENCH_DOWNLOADS", "of another site")
        memo.begin("here")
        assert memo.kept("key", lambda: "computed anew") == "fourth"
    finally:
        memo.keep_in(None)


PACKAGE = {
    "__init__.py": "",
    "callee.py": "def twice(value):\n    return 2 * value\n",
    "between.py": "from study import (\n    callee,  # however it is imported\n)\n",
    "other.py": "",
    "result.py": """
from bench import memo
from study import between


def compute():
    print("computed")
    return between.callee.twice(3)


def total():
    return memo.kept("total", compute)
""",
}
ASK = """
import sys
from pathlib import Path
from bench import memo
from study import result
memo.keep_in(Path(sys.argv[1]))
print(result.total())
"""


def test_a_change_in_any_function_that_a_result_depends_on_is_seen(tmp_path):
    """A callee two imports away changes, and with it the number; a module that nothing imports changes nothing."""
    (tmp_path / "study").mkdir()
    for name, text in PACKAGE.items():
        (tmp_path / "study" / name).write_text(text)

    def asked():
        environment = os.environ | {"PYTHONPATH": f"{tmp_path}{os.pathsep}{ROOT}"}
        command = [sys.executable, "-B", "-c", ASK, str(tmp_path / "cache")]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
        return done.stdout.split()

    assert asked() == ["computed", "6"] and asked() == ["6"]
    (tmp_path / "study" / "other.py").write_text("changed = True\n")
    assert asked() == ["6"]
    (tmp_path / "study" / "callee.py").write_text("def twice(value):\n    return 20 * value\n")
    assert asked() == ["computed", "60"]


def test_what_a_number_depends_on_is_what_its_module_imports():
    """A page imports figures by their folder, an analysis no page; what has no source has none here."""
    analysis, page = memo.code("bench.topics.latency"), memo.code("bench.report.pages")
    assert len({"", analysis, page, memo.code("llm_measured.core.metrics")}) == 4 and memo.code("math") == ""


PLAIN = "import math\n\n\ndef half(x, share=0.5):\n    return math.floor(x * share)\n"
TYPED = '''"""A module."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TypeAlias

Number: TypeAlias = float


def half(x: Sequence[Number] | Number, share: float = 0.5) -> Number:
    """Half of it."""
    return math.floor(x * share)  # downwards
'''


def test_what_a_module_computes_hangs_neither_on_types_nor_on_words(tmp_path):
    def computes(text):
        (tmp_path / "module.py").write_text(text)
        return memo.computes(tmp_path / "module.py")

    assert computes(PLAIN) == computes(TYPED)
    assert computes(PLAIN) != computes(PLAIN.replace("0.5", "0.25")), "a default"
    assert computes(PLAIN) != computes(PLAIN.replace("math.floor", "math.ceil"))
    assert computes(PLAIN) != computes(PLAIN.replace("import math", "import cmath as math"))
    assert computes("x = 1\n") == computes("x: int = 1\n") != computes("x: int = 2\n")
