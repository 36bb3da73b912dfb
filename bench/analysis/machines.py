"""Which machine is in front where several have measured, and which versions of an engine it has run."""

from bench import naming
from bench.machine import identity
from bench.observations import schema


def focus(table, host):
    """`table` restricted to one machine: that of the checkout `host` if it has measured, else the one
    with the latest run (column measured or started)."""
    if table.empty or (table["host"] == host).any():
        return table[table["host"] == host]
    latest = table.loc[table["measured" if "measured" in table else "started"].idxmax()]
    return table[(table["host"] == latest["host"]) & (table["gpu"] == latest["gpu"])]


def versioned(table):
    """`table` with the version in the option's name where a configuration has runs of several versions
    (`Q4_0 (0.3.16)`).

    What is told apart by engine and option is then told apart by version as well, so none are pooled.
    """
    count = table.groupby(schema.CONFIGURATION, dropna=False)["backend_version"].transform("nunique")
    several = count > 1
    if not several.any():
        return table
    version = " (" + table["backend_version"] + ")"
    return table.assign(option=table["option"] + version.where(several, ""))


def front(requests, experiment):
    """The requests of `experiment` on the machine in focus, with the options' own names."""
    return focus(requests[requests["experiment"] == experiment], identity.host())


def here(requests, experiment):
    """The requests of `experiment` on the machine in focus: this checkout's own, else the one measured last;
    options as `naming.named` and `versioned`."""
    return versioned(naming.named(front(requests, experiment)))


def each(requests):
    """[((gpu, host), its requests)] of every machine that has measured, the one in front first.

    In front is the device of this checkout with the most runs; where this checkout has measured nothing, the
    machine measured last. The others follow, measured last first.
    """
    if requests.empty:
        return []
    groups = list(requests.groupby(["gpu", "host"], sort=True))

    def order(group):
        (_, host), rows = group
        own = host == identity.host()
        return own, rows["run_id"].nunique() if own else 0, rows["started"].max()

    return sorted(groups, key=order, reverse=True)
