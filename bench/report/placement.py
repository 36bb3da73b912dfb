"""What method.qmd and latency.qmd say of the placement of a virtual machine's processors."""

import pandas as pd

from bench import html
from bench.analysis import machines, placement
from bench.observations.placement import APART, NEAR


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


def strata(requests: pd.DataFrame) -> list[str]:
    """Sentences on each machine whose processors have two placements: the peak of each, the requests in it,
    and how much MBU scatters with and without; none where all have one."""
    peaks, scatter = placement.peaks(requests), placement.scatter(requests)
    found = []
    for (gpu, host), own in peaks.groupby(["gpu", "host"]):
        known = own.dropna(subset="peak_bytes_per_s").pivot_table(
            index="probe_ways", columns="placement", values="peak_bytes_per_s"
        )
        best = [
            f"{row[NEAR] / 1e9:.0f} GB/s near and {row[APART] / 1e9:.0f} GB/s apart"
            + (" (read in one way, so perhaps too low)" if ways == 1 else "")
            for ways, row in known.reindex(columns=[NEAR, APART]).dropna().iterrows()
        ]
        counts = own.groupby("placement")["requests"].sum().reindex([NEAR, APART, ""], fill_value=0)
        sentence = (
            f"On `{gpu}` {counts[NEAR]} of {counts.sum()} requests were answered with the processors near "
            f"each other, {counts[APART]} with them apart, and {counts['']} between probes of different "
            "placements"
        )
        sentence += f"; the peaks are {' and '.join(best)}." if best else "."
        for _, row in scatter[(scatter["gpu"] == gpu) & (scatter["host"] == host)].iterrows():
            sentence += (
                f" Within configurations log(MBU) scatters by {row['stratified']:.3f} with each placement "
                f"against its own peak, and by {row['pooled']:.3f} with each run against its best probe."
            )
        found.append(sentence)
    return found


def effect(requests: pd.DataFrame) -> str:
    """The sentence on what the place does to the engines of the machine in front; empty where no
    configuration has three runs that met both placements."""
    rows = machines.here(requests, "latency")
    found = placement.effects(rows)
    if found.empty:
        return ""
    faster, slower = found[found["high"] < 1], found[found["low"] > 1][::-1]
    same = len(found) - len(faster) - len(slower)
    count = f"{found['runs'].sum()} runs of {len(found)} configurations on `{rows['gpu'].iloc[0]}`"
    sentences = [
        f"{count} met both placements; each is compared with itself.",
        _group(slower, "a token takes longer while the processors lie apart, although they read more"),
        _group(faster, "a token takes less time while they lie apart"),
        f"Of {same} the effect is not significant." if same else "",
    ]
    return " ".join(filter(None, sentences))


def _group(rows, words):
    """How many of the configurations do so, and the one that does most; empty for none."""
    if rows.empty:
        return ""
    most = rows.iloc[0]
    name = " ".join([most["backend"], most["option"], *([most["model"]] if ":" in most["model"] else [])])
    ratio, low, high = (html.number(round(most[key], 3)) for key in ("ratio", "low", "high"))
    return f"For {len(rows)} {words}: most for {name}, {ratio} times as long ({low} to {high})."
