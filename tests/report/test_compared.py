"""The verdicts that the page's headings promise."""

from bench.report.audit import compared


def test_pairs_of_the_page_are_what_they_are_called():
    assert "B is faster than A" in compared.published(compared.BETTER)
    assert "cannot be told" in compared.published(compared.UNDECIDED)
    assert "Not comparable" in compared.published(compared.NOT_COMPARABLE)
    assert "B is faster than A" in compared.own()
