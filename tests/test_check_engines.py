"""`make check-engines` finds what a new pin no longer takes: made-up packages that lack a flag, a field, a text."""

import importlib
import sys

import check_engines
import pytest
from contracts import checks, packages, stand_ins

ELSEWHERE = sorted(name for name, about in checks.ENGINES.items() if "elsewhere" in about)


@pytest.mark.parametrize("name", ELSEWHERE)
def test_what_is_on_no_index_is_checked_against_what_was_read(name):
    found = list(checks.recorded(name))
    assert len(found) >= 6 and [fault for _, fault in found if fault] == []


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("--num-shard", "unrecognized arguments: --num-shard"),
        ("parameters", "no field parameters"),
        ("float16", "invalid choice: 'float16'"),
    ],
)
def test_what_an_engine_no_longer_takes_is_named(monkeypatch, name, words):
    def without(value):
        if isinstance(value, dict):
            return {key: without(part) for key, part in value.items()}
        return [part for part in value if part != name] if isinstance(value, list) else value

    monkeypatch.setitem(checks.ENGINES, "tgi", without(checks.ENGINES["tgi"]))
    faults = [fault for _, fault in checks.recorded("tgi") if fault]
    assert faults and all(words in fault for fault in faults)


def package(folder, **files):
    """A package of the `files` given by name, `__` for a slash."""
    for name, text in files.items():
        file = folder / f"{name.replace('__', '/')}.py"
        file.parent.mkdir(exist_ok=True)
        file.write_text(text)
    return packages.Package("engine==1", folder, 0, 0, [], {"engine.libs/libengine-1.so": 5})


def test_what_a_package_no_longer_has_is_named(tmp_path):
    about = {
        "takes": {"engine/job.py": {"Job.__init__": ["ids"], "Job.run": [], "convert": ["to"]}},
        "says": {"engine/job.py": ['"token_ids"'], "engine/gone.py": ["anything"]},
        "built": ["engine.libs/libengine", "engine.libs/libcuda"],
    }
    text = 'class Job:\n    def __init__(self, ids): ...\ndef convert(to): return "token_ids"\n'
    wrong = [what for what, fault in checks.read(about, package(tmp_path, engine__job=text)) if fault]
    assert wrong == [
        "Job.run takes the adapter's arguments",
        "engine/gone.py says anything",
        "it has a compiled engine.libs/libcuda",
    ]


def test_a_program_that_is_gone_is_named(tmp_path):
    made = package(tmp_path)
    assert checks.no_program(made, "engine.serve") == "engine.serve is no program"
    made = package(tmp_path, engine__serve='if __name__ == "__main__":\n    pass\n')
    assert checks.no_program(made, "engine.serve") == ""


def test_every_pin_is_found():
    for about in checks.ENGINES.values():
        assert "pin" not in about or "==" in check_engines.requirement(about["pin"])
    with pytest.raises(ValueError, match="vllm.txt does not pin nothing"):
        packages.pin("vllm", "nothing")


def test_stand_ins_replace_libraries_and_kernels_and_no_module_of_the_package(tmp_path, monkeypatch):
    package = tmp_path / "madeup_engine"
    package.mkdir()
    (package / "__init__.py").write_text(
        "import importlib.util\n"
        "import madeup_kernels.fast as fast\n"
        "from madeup_engine._C import add\n"
        "class Layer(fast.Layer): pass\n"
        "optional = importlib.util.find_spec('madeup_other') is not None\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    finder = stand_ins.installed("madeup_engine", ["madeup_engine._C"])
    try:
        engine = importlib.import_module("madeup_engine")
        assert engine.Layer() and not engine.optional, (
            "who asks whether something is there learns that it is not"
        )
        with pytest.raises(ModuleNotFoundError, match="madeup_engine.moved"):
            importlib.import_module("madeup_engine.moved")
        assert {"madeup_kernels", "madeup_kernels.fast", "madeup_engine._C"} == set(finder.made)
    finally:
        sys.meta_path.remove(finder)
        for name in [name for name in sys.modules if name.startswith("madeup_")]:
            del sys.modules[name]
