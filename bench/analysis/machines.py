"""Which machine is in front where several have measured."""

from bench import naming
from bench.machine import identity


def focus(table, host):
    """`table` restricted to one machine: that of the checkout `host` if it has measured, else the one
    with the latest run (column measured or started)."""
    if table.empty or (table["host"] == host).any():
        return table[table["host"] == host]
    latest = table.loc[table["measured" if "measured" in table else "started"].idxmax()]
    return table[(table["host"] == latest["host"]) & (table["gpu"] == latest["gpu"])]


def here(requests, experiment):
    """The requests of `experiment` on the machine in focus: this checkout's own, else the one measured last;
    options as `naming.named`."""
    return naming.named(focus(requests[requests["experiment"] == experiment], identity.host()))
