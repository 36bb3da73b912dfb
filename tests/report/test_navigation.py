"""The navigation: at most eight entries, every page reachable, menus where Quarto has them."""

from bench.report import preview


def test_the_navigation_has_eight_entries_at_most_and_leads_to_every_page_but_the_first():
    site = preview.settings()
    entries = preview.links(site["website"], "pages/latency.html")
    linked = [link["href"] for e in entries for link in e.get("menu", [e])]
    assert len(entries) <= 8 and len(linked) == len(set(linked))
    assert {preview.page(name) for name in site["project"]["render"]} - set(linked) == {"index.html"}


def test_a_menu_says_which_of_its_pages_is_shown():
    navbar = {
        "left": [
            {"text": "More", "menu": [{"href": "a.qmd", "text": "A"}, {"href": "b.qmd"}]},
            {"href": "c.qmd"},
        ]
    }
    assert preview.links({"navbar": navbar}, "b.html") == [
        {"text": "More", "menu": [
            {"text": "A", "href": "a.html", "current": False},
            {"text": "b.qmd", "href": "b.html", "current": True},
        ]},
        {"text": "c.qmd", "href": "c.html", "current": False},
    ]  # fmt: skip
