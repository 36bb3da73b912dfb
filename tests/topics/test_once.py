"""What is computed once for the same rows."""

import pandas as pd

from bench.topics import once

ROWS = pd.DataFrame({"run_id": list("abcd"), "e2e_s": [0.4, 0.1, 0.3, 0.2]})


def test_a_name_is_part_of_what_is_remembered():
    calls = []

    @once.for_the_same_rows
    def largest(table, metric, of=1):
        calls.append(metric)
        return table.nlargest(of, metric)

    for _ in range(2):
        assert len(largest(ROWS, "e2e_s", of=2)) == 2 and len(largest(ROWS, "e2e_s", of=3)) == 3
    assert len(calls) == 2


def test_other_rows_are_computed_anew_and_a_caller_cannot_change_what_is_remembered():
    @once.for_the_same_rows
    def same(table):
        return table

    given = same(ROWS)
    given["e2e_s"] = 0.0
    assert same(ROWS)["e2e_s"].tolist() == [0.4, 0.1, 0.3, 0.2]
    assert same(ROWS.assign(e2e_s=1.0))["e2e_s"].tolist() == [1.0] * 4
