"""Energy on the latency page: the figure of the machines that could read it, or that none could."""

import pandas as pd

from bench.analysis import commands
from bench.report import pages

COMMAND = commands.papermill("latency", {"device": "cuda"})


def show(rows: pd.DataFrame) -> None:
    """Show what a token costs in energy on the machines that could read it, or that none could."""
    read = rows[["gpu_energy_j", "cpu_energy_j"]].notna().any(axis=1)
    if not read.any():
        words = f"*No machine of these runs let its energy be read. Where NVML or RAPL can: `{COMMAND}`.*"
        return pages.show_sentences([], words)
    pages.show_figure("energy", rows[read.groupby([rows["gpu"], rows["host"]]).transform("any")])
