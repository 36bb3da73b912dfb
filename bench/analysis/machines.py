"""Which machine is in front where several have measured, and which versions of an engine it has run."""

from bench import naming
from bench.machine import identity
from bench.observations import schema


def focus(table, host):
    """`table` restricted to one machine: that of the checkout `host` if it has measured, else the one with
    the most runs; of a table that does not count runs, the one with the latest (column measured or
    started)."""
    if table.empty or (table["host"] == host).any():
        return table[table["host"] == host]
    if "run_id" in table:
        each = table.groupby(["gpu", "host"]).agg(runs=("run_id", "nunique"), started=("started", "max"))
        gpu, host = each.sort_values(["runs", "started"]).index[-1]
    else:
        gpu, host = table.loc[
            table["measured" if "measured" in table else "started"].idxmax(), ["gpu", "host"]
        ]
    return table[(table["host"] == host) & (table["gpu"] == gpu)]


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
    """The requests of `experiment` on the machine in focus: this checkout's own, else the one with the
    most runs of it; options as `naming.named` and `versioned`."""
    return versioned(naming.named(front(requests, experiment)))


def each(requests):
    """[((gpu, host), its requests)] of every machine that has measured, the one in front first.

    In front is this checkout's, by the device with the most runs; where this checkout has measured nothing,
    the machine with the most runs. The others follow by their runs.
    """

    def order(group):
        (_, host), rows = group
        return host == identity.host(), rows["run_id"].nunique(), rows["started"].max()

    return sorted(requests.groupby(["gpu", "host"], sort=True), key=order, reverse=True)
