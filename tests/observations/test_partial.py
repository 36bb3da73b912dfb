"""Levels of a run that did not end are on disk, and become a run of the whole ones."""

import errno
import os

import pytest
from builders import make_sidecar, serving_rows

from bench.observations import checks, partial, schema, store

LEVELS = (1, 2, 4, 8)


def kept(folder, levels=LEVELS, **changes):
    """The file of a run whose `levels` have ended; `changes` are columns of the last one's rows."""
    rows = serving_rows(dict.fromkeys(levels, (0.05, 0.01)))
    for value in levels:
        level = [row for row in rows if row["concurrency"] == value]
        level = [row | changes for row in level] if value == levels[-1] else level
        sidecar = make_sidecar(bandwidth_probes_bytes_per_s=[400e9], client=[{"level": value}])
        file = partial.append(level, sidecar, level[0]["run_id"], folder)
    return file


def test_the_levels_of_a_run_that_did_not_end_become_a_run(tmp_path, capsys):
    file = kept(tmp_path)
    assert not store.files(tmp_path), "what has not ended is no run"
    assert partial.main([str(file)]) == 0
    (path,) = store.files(tmp_path)
    requests = store.load([path])
    assert sorted(requests["concurrency"].unique()) == [*LEVELS] and requests["sent_s"].min() == 0
    assert str(path) in capsys.readouterr().out and not file.exists()
    _, sidecar = store.read(path)
    assert sidecar["recovered"] == {"levels": 4, "left_out": 0, "why": ""}
    assert sidecar["client"] == [{"level": 8}], "the sidecar is that of the last level"


def test_a_level_that_was_cut_while_it_was_written_is_none(tmp_path):
    file = kept(tmp_path)
    file.write_bytes(file.read_bytes()[:-200])
    path, why = partial.finish(file)
    assert sorted(store.load([path])["concurrency"].unique()) == [1, 2, 4] and not why


def test_levels_before_one_that_a_check_refuses_become_a_run(tmp_path):
    """A cache that is off answered in the last level: the ones before it are a run, and the cause is said."""
    file = kept(tmp_path, cached_tokens=8.0)
    path, why = partial.finish(file)
    assert sorted(store.load([path])["concurrency"].unique()) == [1, 2, 4]
    assert why.startswith("Without the last 1 of 4 levels: The server answered")
    assert store.read(path)[1]["recovered"]["left_out"] == 1


def test_levels_of_which_none_may_be_published_stay(tmp_path, capsys):
    file = kept(tmp_path, levels=(1,), cached_tokens=8.0)
    with pytest.raises(checks.Rejected, match="prefix cache"):
        partial.finish(file)
    assert partial.main([str(file)]) == 1 and "stays as it is" in capsys.readouterr().err and file.exists()


def test_a_full_disk_keeps_the_levels_that_are_there(tmp_path, monkeypatch):
    file = kept(tmp_path, levels=(1, 2, 4))
    before = file.read_bytes()

    def full(*_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as no_room:
        no_room.setattr(partial.os, "fsync", full)
        with pytest.raises(OSError, match="No space left"):
            kept(tmp_path, levels=(1,))
    assert file.read_bytes() == before and len(partial.levels(file)) == 3


def test_a_number_whose_levels_wait_is_not_given_again(tmp_path):
    file = kept(tmp_path)
    names = ("experiment", "backend", "model", "option", "gpu", "host")
    identity = {name: partial.levels(file)[0][0][name].iloc[0] for name in names}
    assert store.next_number(identity, tmp_path) == 2
    partial.finish(file)
    assert store.next_number(identity, tmp_path) == 2


def test_rows_that_were_kept_are_those_that_were_measured(tmp_path):
    """Ids, hosts and texts that look like numbers or missing values come back as they were."""
    row = serving_rows({1: (0.05, 0.01)})[0] | {"answer": "NA", "host": "096e72", "error": ""}
    (table, _) = partial.levels(partial.append([row], {}, "fake/x-1", tmp_path))[0]
    assert table.equals(schema.frame([row]))
