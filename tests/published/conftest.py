"""A folder for the tables that a build writes: tests leave the package's own alone."""

import pytest

from llm_measured.published import build, checks


def forget():
    """Forget what this process has read of the committed tables."""
    build._table.cache_clear()
    checks.committed.cache_clear()


@pytest.fixture
def tables(tmp_path, monkeypatch):
    """The folder of the tables, empty and the test's own."""
    monkeypatch.setattr(build, "FOLDER", tmp_path / "tables")
    (tmp_path / "tables").mkdir()
    forget()
    yield tmp_path / "tables"
    forget()
