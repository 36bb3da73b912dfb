"""Every labelled cell of a page draws or shows something by itself, from the files in data/tables/ alone."""

import pytest
from matplotlib.figure import Figure

from bench import cells, inputs, paths, site
from bench.topics import systems

LABELS = cells.labelled()


@pytest.fixture(autouse=True)
def committed():
    """What this checkout has measured stays out of it."""
    with site.reading(paths.TABLES):
        yield


@pytest.mark.parametrize("label", LABELS)
def test_a_cell_shows_something_by_itself(label):
    shown = cells.run(label)
    assert isinstance(shown, Figure) if label.startswith("fig-") else len(shown)
    if label.startswith("fig-"):
        assert shown.axes and len(LABELS[label].source.splitlines()) <= 25


def test_a_figure_says_what_it_shows_to_who_does_not_see_it():
    for label, cell in LABELS.items():
        page = (paths.ROOT / cell.page).read_text(encoding="utf-8")
        options = page[page.index(f"#| label: {label}\n") :].split("\n```", 1)[0]
        if label.startswith("fig-"):
            (alt,) = [line for line in options.splitlines() if line.startswith("#| fig-alt:")]
            assert len(alt.split()) - 2 <= 25, label


def test_an_unknown_name_lists_those_that_exist():
    with pytest.raises(
        ValueError, match=r"Unknown figure 'latncy'. Did you mean 'latency'\? There is: .*ttft_tpot"
    ):
        cells.choose("latncy")
    with pytest.raises(ValueError, match="names no machine of these rows: epyc"):
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
    assert len(shown) == len(published) and set(shown["ours"]) == {"not run here", "measured here, on a CPU"}
