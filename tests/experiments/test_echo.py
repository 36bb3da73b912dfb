"""The README promises that one file is a backend: take the file out of the README and see its rows, its bar and its section."""

import re

import pytest
from commands import run

from bench.observations import store
from bench.paths import ROOT


@pytest.mark.check
@pytest.mark.timing
def test_the_backend_shown_in_the_readme_works(tmp_path):
    source = re.search(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.S).group(1)
    assert len(source.splitlines()) <= 40
    (tmp_path / "adapters").mkdir()
    (tmp_path / "adapters" / "echo.py").write_text(source)
    own = {
        "BENCH_BACKENDS": tmp_path / "adapters",
        "BENCH_RESULTS": tmp_path / "r",
        "BENCH_SITE": tmp_path / "_site",
        "BENCH_FIGURES": tmp_path / "f",
    }
    done = run("snakemake", "--config", "engines=echo", "all=True", **own)
    assert "echo" in done.stdout
    assert len(store.load(folder=tmp_path / "r", experiment="latency")) == 9
    assert {"quality", "batching"} <= set(store.load(folder=tmp_path / "r")["experiment"])
    assert "echo" in (tmp_path / "f" / "latency.svg").read_text()
    assert "smallest backend there is" in (tmp_path / "_site" / "backends.html").read_text()
