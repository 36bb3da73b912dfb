"""What method.qmd says of the place of a virtual machine's processors."""

from bench.analysis import machines, placement
from bench.report import html


def core_placement():
    """What two virtual processors read near each other and apart, as numbers for method.qmd."""
    states = placement.states()
    return {
        f"{state}{name}": f"{row[column] * factor:.0f}"
        for state, row in states.iterrows()
        for name, column, factor in (
            ("_one", "one_core_bytes_per_s", 1e-9),
            ("_two", "two_cores_bytes_per_s", 1e-9),
            ("_ns", "round_trip_s", 1e9),
        )
    } | states["samples"].to_dict()


def effect(requests):
    """The sentence on what the place does to the engines of the machine in front; empty where no
    configuration has three runs that met both places."""
    rows = machines.here(requests, "latency")
    found = placement.effects(rows)
    if found.empty:
        return ""
    faster, slower = found[found["high"] < 1], found[found["low"] > 1][::-1]
    same = len(found) - len(faster) - len(slower)
    count = f"{found['runs'].sum()} runs of {len(found)} configurations on `{rows['gpu'].iloc[0]}`"
    said = [
        f"{count} met both places; each is compared with itself.",
        _group(slower, "a token takes longer while the processors lie apart, although they read more"),
        _group(faster, "a token takes less time while they lie apart"),
        f"Of {same} it cannot be told." if same else "",
    ]
    return " ".join(filter(None, said))


def _group(rows, words):
    """How many of the configurations do so, and the one that does most; empty for none."""
    if rows.empty:
        return ""
    most = rows.iloc[0]
    name = " ".join([most["backend"], most["option"], *([most["model"]] if ":" in most["model"] else [])])
    ratio, low, high = (html.number(round(most[key], 3)) for key in ("ratio", "low", "high"))
    return f"For {len(rows)} {words}: most for {name}, {ratio} times as long ({low} to {high})."
