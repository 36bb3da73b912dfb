"""The explorer with 1,000 runs: its weight, its first picture and a filter."""

import pandas as pd
import pictures
import pytest
from builders import make_rows, make_sidecar
from test_explorer_page import READY, changed  # noqa: F401

from bench.observations import derived, schema
from bench.report import explorer

pytestmark = [pytest.mark.check, pytest.mark.timing]
HEAVIEST = 500_000  # bytes
ENGINES = "llamacpp", "openvino", "fake"


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """The explorer alone, of 1,000 runs of 500 configurations: little is the same in any two rows."""
    folder, rows = tmp_path_factory.mktemp("many"), []
    for k in range(500):
        for n in (1, 2):
            columns = {
                "option": f"o{k}",
                "rate": 20 + k * 0.6 + n * 3.3,
                "load_s": 1 + k / 7,
                "backend": ENGINES[k % 3],
            }
            known = derived.context(make_sidecar(started=f"2026-01-01T00:0{n}:00+00:00"))
            rows += [row | known for row in make_rows(run=n, n=2, **columns)]
    requests = derived.derive(schema.numbers(pd.DataFrame(rows, columns=schema.COLUMNS + schema.CONTEXT)))
    static = "<div id=explorer-static></div><script src=assets/sortable.min.js></script>"
    return pictures.page(folder, "explore.html", explorer.block(requests) + static)


def test_a_thousand_runs_are_light_and_quick(site, opened, capsys):
    """The quickest of several counts: what else the machine does makes the others slower, never this one."""
    assert site.stat().st_size <= HEAVIEST
    pages = [opened(), opened()]
    first = min(p.evaluate("performance.getEntriesByName('explorer-first')[0].startTime") for p in pages)
    page = pages[0]
    assert page.locator("#explorer-table tbody tr").count() == 500
    box = page.locator('details[data-name="backend"]')
    box.evaluate("each => each.open = true")
    times = {}
    for act in ("check", "uncheck") * 4:
        changed(page, getattr(box.locator('input[value="llamacpp"]'), act))
        took = page.evaluate("performance.getEntriesByName('explorer-update').at(-1).duration")
        times[act] = min(took, times.get(act, took))
    assert page.locator("#explorer-table tbody tr").count() == 500
    with capsys.disabled():
        size, slowest = site.stat().st_size / 1e3, max(times.values())
        print(f"\n{size:.0f} kB, first picture {first:.0f} ms, filter {slowest:.0f} ms")
    assert slowest < first, "a filter draws again what is loaded already"
