"""Every labelled cell of a page draws or shows something by itself, from the files in data/tables/ alone."""

import re
import sys

import pytest
from commands import run
from matplotlib.figure import Figure

from bench import cells, inputs, paths, site
from bench.topics import declared, systems, tables

LABELS = cells.labelled()
# Those of what others published, which is the same on every machine.
READ = re.compile(r"\b(?:verdicts|cards)\.|site\.published")
OTHERS = {label for label, cell in LABELS.items() if READ.search(cell.source)}


@pytest.fixture(autouse=True)
def committed():
    """What this checkout has measured stays out of it."""
    with site.reading(paths.TABLES):
        yield


@pytest.mark.parametrize("label", LABELS)
def test_a_cell_shows_something_by_itself(label):
    shown, source = cells.run(label), LABELS[label].source
    read = [site.table(name) for name in re.findall(r'site\.table\("(\w+)"\)', source)]
    # A cell whose tables wait for their first run says so.
    filled = not read or any(map(len, read))
    assert isinstance(shown, Figure) if label.startswith("fig-") else bool(len(shown)) == filled
    if label.startswith("fig-"):
        assert bool(shown.axes) == filled and len(source.splitlines()) <= 25


def test_a_figure_says_what_it_shows_to_who_does_not_see_it():
    for label, cell in LABELS.items():
        page = (paths.ROOT / cell.page).read_text(encoding="utf-8")
        options = page[page.index(f"#| label: {label}\n") :].split("\n```", 1)[0]
        if label.startswith("fig-"):
            (alt,) = [line for line in options.splitlines() if line.startswith("#| fig-alt:")]
            assert len(alt.split()) - 2 <= 25, label


def test_an_unknown_name_lists_those_that_exist():
    with pytest.raises(
        ValueError, match=r"Unknown figure 'latncy'. Did you mean 'latency'\? There is: .*ttft_prompt"
    ):
        cells.choose("latncy")
    with pytest.raises(ValueError, match="names no machine that has measured: epyc"):
        site.machine(site.table("latency"), "h100")


def test_every_system_of_the_three_studies_has_a_row_that_says_how_it_is_measured():
    rows = site.table("systems")
    keys = [*systems.SYSTEM[1:], "gpu", "tensor_parallel"]
    published = systems.published()
    assert rows[keys].astype(str).values.tolist() == published[keys].astype(str).values.tolist()
    assert (rows["command"] != "").all() and (rows["state"] != "").all()
    printed = inputs.table("published/husain_llama2_7b_latency")["tokens_per_s"]
    assert sorted(rows["tokens_per_s"].dropna()) == sorted(printed)
    shown = cells.run("tbl-three-studies")
    assert len(shown) == len(published) and "not run here" in set(shown["our engine, option"])


@pytest.mark.check
def test_a_study_without_runs_shows_none_of_others(tmp_path, nothing):
    """Every cell of a page says that nothing was measured; none fails, and none shows the committed rows."""
    tables.write(nothing, tmp_path)
    with site.reading(tmp_path):
        for label in LABELS.keys() - {"tbl-data-dictionary", "tbl-backends", "tbl-three-studies"} - OTHERS:
            shown = cells.run(label)
            empty = not shown.axes if isinstance(shown, Figure) else shown.empty
            assert empty, label


@pytest.mark.check
def test_every_cell_runs_where_no_table_was_made(tmp_path):
    code = "from bench import cells\nfor label in cells.labelled(): cells.run(label)"
    run(sys.executable, "-c", code, BENCH_RESULTS=tmp_path, SHOWN_ON_A_PAGE="1", PYTHONPATH=paths.ROOT)


def test_tables_that_were_not_made_are_not_those_of_others(tmp_path):
    code = "from bench import site; print(len(site.table('latency')), list(site.table('latency'))[:2])"
    said = run(sys.executable, "-c", code, BENCH_RESULTS=tmp_path, PYTHONPATH=paths.ROOT).stdout
    assert f"No tables of {tmp_path}: python -m bench.topics.tables own makes them." in said
    assert "0 ['backend', 'option']" in said


def test_every_column_of_every_table_is_in_the_data_dictionary():
    written = (paths.DATA / "dictionary.md").read_text(encoding="utf-8")
    for name, columns in declared.of_tables().items():
        section = written.split(f"### `{name}.csv`")[1].split("###")[0]
        assert [f"| {column} |" in section for column in columns["column"]] == [True] * len(columns), name
    with pytest.raises(KeyError, match="No column 'x' is declared"):
        declared.column("x")
