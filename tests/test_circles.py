"""No circle of files: whoever opens a file finds what it needs in files that do not need it."""

import graphlib

import grimp

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
