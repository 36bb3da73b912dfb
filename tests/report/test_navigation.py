"""The navigation: at most eight entries, every page reachable."""

from bench.report import prerender


def test_the_navigation_has_eight_entries_at_most_and_leads_to_every_page_but_the_first():
    site = prerender.settings()
    entries = site["website"]["navbar"]["left"]
    linked = [link["href"] for entry in entries for link in entry.get("menu", [entry])]
    assert len(entries) <= 8 and len(linked) == len(set(linked))
    assert set(site["project"]["render"]) - set(linked) == {"index.qmd"}
