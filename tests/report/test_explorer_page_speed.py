"""The explorer with 1,000 runs: its weight, its first picture and a filter."""

import pytest
from builders import make_sidecar, write_run
from test_explorer_page import browser, changed, opened, rendered  # noqa: F401

pytestmark = [pytest.mark.check, pytest.mark.timing]
HEAVIEST, FIRST_MS, FILTER_MS = 500_000, 1000, 100


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """1,000 runs of 500 configurations, so that little is the same in any two rows."""
    folder = tmp_path_factory.mktemp("many")
    for k in range(500):
        for n in (1, 2):
            columns = {
                "option": f"o{k}",
                "rate": 20 + k * 0.6 + n * 3.3,
                "load_s": 1 + k / 7,
                "backend": ("llamacpp", "openvino", "fake")[k % 3],
            }
            write_run(
                folder / "r", make_sidecar(started=f"2026-01-01T00:0{n}:00+00:00"), run=n, n=2, **columns
            )
    return rendered(folder)


def test_a_thousand_runs_are_light_and_quick(site, opened, capsys):  # noqa: F811
    assert site.stat().st_size <= HEAVIEST
    page = opened()
    first = page.evaluate("performance.getEntriesByName('explorer-first')[0].startTime")
    assert page.locator("#explorer-table tbody tr").count() == 500
    box = page.locator('details[data-name="backend"]')
    box.evaluate("each => each.open = true")
    times = []
    for act in ("check", "uncheck", "check", "uncheck"):
        changed(page, getattr(box.locator('input[value="llamacpp"]'), act))
        times.append(page.evaluate("performance.getEntriesByName('explorer-update').at(-1).duration"))
    with capsys.disabled():
        print(
            f"\n{site.stat().st_size / 1e3:.0f} kB, first picture {first:.0f} ms, filters {[round(t) for t in times]} ms"
        )
    assert first <= FIRST_MS and sorted(times)[2] <= FILTER_MS
