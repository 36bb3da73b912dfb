"""The page of changes: what was measured when, and which version of an engine was new."""

import pandas as pd
from builders import write_run

from bench.observations import store
from bench.report import tables


def test_changes_say_when_a_version_was_new(tmp_path):
    for n in (1, 2, 3):
        for option in ("Q4_0", "F16"):
            write_run(tmp_path, backend="llamacpp", option=option, run=n)
    repeated = store.load(folder=tmp_path)
    later = repeated.assign(
        started="2027-01-02T00:00:00", backend_version="999", run_id=repeated["run_id"] + "0"
    )
    table = tables.TABLES["measured_when"](pd.concat([repeated, later]))
    assert list(table["change"]) == ["new version", ""] and list(table["day"])[0] == "2027-01-02"
    assert table["runs"].tolist() == [6, 6]
