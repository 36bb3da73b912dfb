"""What method.qmd says of the placement of a virtual machine's processors."""

from bench.analysis import placement


def core_placement() -> dict[str, str]:
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
