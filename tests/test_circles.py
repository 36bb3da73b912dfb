"""No circle of files: whoever opens a file finds what it needs in files that do not need it."""

import graphlib
import sys

import grimp
import pytest

PACKAGES = "bench", "llm_measured"


def imports(*packages):
    """{file: files that it imports}, as dotted names; imports inside functions and for types count."""
    graph = grimp.build_graph(*packages, cache_dir=None)
    return {name: graph.find_modules_directly_imported_by(name) - {name} for name in graph.modules}


def circle(graph):
    """One circle of `graph`, its first file last again; empty where there is none."""
    try:
        graphlib.TopologicalSorter(graph).prepare()
        return []
    except graphlib.CycleError as error:
        return error.args[1]


def test_no_files_import_each_other_in_a_circle():
    found = circle(imports(*PACKAGES))
    assert not found, f"Move what they share into one file: {' <- '.join(found)}."


@pytest.mark.parametrize(
    "line",
    [
        "from circular import b",
        "def later():\n    import circular.b",
        "if False:\n    from circular.b import x",
    ],
)
def test_a_circle_is_found_wherever_its_import_stands(tmp_path, monkeypatch, line):
    (tmp_path / "circular").mkdir()
    for name, text in (
        ("__init__", ""),
        ("a", line),
        ("b", "x = 1\nimport circular.c"),
        ("c", "import circular.a"),
    ):
        (tmp_path / "circular" / f"{name}.py").write_text(text + "\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "circular", raising=False)
    assert set(circle(imports("circular"))) == {"circular.a", "circular.b", "circular.c"}
