"""The whole data as files: every row and column, the same in both formats, and a dictionary of all of them."""

import pandas as pd
import pyarrow.parquet as pq
from builders import two_engines

from bench.observations import schema, store
from bench.report import downloads


def test_both_files_hold_every_row_and_column_and_the_dictionary_names_them(tmp_path):
    requests = store.load(folder=two_engines(tmp_path / "runs"))
    sizes = downloads.write(requests, tmp_path / "out")
    assert set(sizes) == {"observations.parquet", "observations.csv", "data-dictionary.csv"}
    assert all(sizes.values())
    assert {path.name for path in (tmp_path / "out").iterdir()} == set(sizes)
    known = pd.read_csv(tmp_path / "out" / "data-dictionary.csv", keep_default_na=False)
    csv = pd.read_csv(tmp_path / "out" / "observations.csv", dtype={"host": str})
    parquet = pq.read_table(tmp_path / "out" / "observations.parquet")
    assert list(csv) == parquet.column_names == known["column"].tolist()
    assert set(schema.COLUMNS + schema.CONTEXT) < set(csv) and (known["meaning"] != "").all()
    assert len(csv) == parquet.num_rows == len(requests)
    # Text that is empty is none in a CSV; all else is the same to the last digit.
    numbers = known.loc[known["type"] != "text", "column"]
    pd.testing.assert_frame_equal(
        parquet.to_pandas()[numbers], csv[numbers], check_dtype=False, check_exact=True
    )
    pd.testing.assert_frame_equal(
        requests[numbers].reset_index(drop=True), csv[numbers], check_dtype=False, check_exact=True
    )
    assert parquet.to_pandas()["answer"].tolist() == requests["answer"].tolist()
    assert (
        parquet.schema.field("ttft_s").metadata[b"meaning"].decode()
        == known.set_index("column")["meaning"]["ttft_s"]
    )
    assert parquet.schema.field("ttft_s").metadata[b"unit"] == b"s"


def test_nothing_measured_gives_empty_files(tmp_path):
    downloads.write(store.load(folder=tmp_path / "none"), tmp_path / "out")
    assert pq.read_table(tmp_path / "out" / "observations.parquet").num_rows == 0
