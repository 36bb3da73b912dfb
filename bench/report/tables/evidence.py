"""Tables of the topic evidence: how often the study's intervals hold, and how often equals are
distinguished."""

import functools

import pandas as pd

from bench import columns, inputs, memo
from bench.analysis import equal_runs as equal_runs_analysis
from bench.analysis import latency as latency_analysis
from bench.analysis import machines, mutation, proof
from bench.columns import Column
from bench.observations import store
from bench.report import tables


@tables.listed
def coverage() -> pd.DataFrame:
    """Simulated studies: one row per quantity, method, number of runs and scatter; the share of intervals
    that hold the truth, by the correlation of neighbouring runs."""
    return columns.shown(
        proof.table(proof.load()).rename(columns=str),
        "quantity method runs scatter spread 0.0 0.3 0.6 width runs_used studies",
        **{
            "quantity": Column("interval of the"),
            "spread": Column("standard deviation", "%", 100),
            "0.0": Column("share at correlation 0", "%", 100),
            "0.3": Column("at 0.3", "%", 100),
            "0.6": Column("at 0.6", "%", 100),
            "width": Column("half width", "%", 100),
            "runs_used": Column("runs used, mean"),
        },
    )


@tables.listed
def comparisons() -> pd.DataFrame:
    """Simulated studies of the committed design: one row per machine, scenario and quantity over all
    configurations, and of adjusted means also the configuration whose interval holds least often."""
    table = inputs.table("proof/comparisons")
    every = table["configuration"] == "all"
    keys = ["host", "model", "scenario"]
    worst = table[~every].sort_values("share").drop_duplicates(keys)
    worst = worst.assign(configuration="worst: " + worst["configuration"])
    table = pd.concat([table[every], worst]).sort_values([*keys, "quantity", "configuration"], kind="stable")
    return columns.shown(
        table,
        "gpu host model scenario quantity configuration share share_low share_high half_width studies",
        scenario=Column("scatter"),
        quantity=Column("what"),
        configuration=Column("of"),
        share=Column("share", "%", 100),
        share_low=Column("95 % interval from", "%", 100),
        share_high=Column("to", "%", 100),
        half_width=Column("half width, median", "%", 100),
    )


@tables.listed
def variances() -> pd.DataFrame:
    """How much runs scatter, how much more a configuration does from sitting to sitting and from placement to
    placement: one row per machine, model and metric."""
    return columns.shown(
        inputs.table("proof/variances"),
        "gpu host model metric runs configurations sittings freedom residual sitting placement",
        freedom=Column("differences between sittings"),
        residual=Column("run to run", "%", 100),
        sitting=Column("configuration in a sitting", "%", 100),
        placement=Column("configuration in a placement", "%", 100),
    )


@tables.listed
def sittings(requests: pd.DataFrame) -> pd.DataFrame:
    """What the choice of a sitting's end changes: one row per machine and gap that parts two sittings; the
    ratio of the two fastest configurations of the model with most of them."""
    return columns.shown(
        latency_analysis.other_sittings(requests),
        "gpu host gap_minutes sittings first second ratio low high verdict",
        gap_minutes=Column("gap that parts sittings", "min"),
        first=Column("fastest"),
        second=Column("next"),
        low=Column("from"),
        high=Column("to"),
    )


@tables.of_machines
def equal_runs(requests: pd.DataFrame) -> pd.DataFrame:
    """A/A: the runs of one configuration dealt into two; one row per way of dealing; how often the two are
    significantly different, either way."""
    rows = machines.here(requests, "latency")
    rows = rows[(rows["error"] == "") & (rows["weights"] == "real")]
    return columns.shown(
        _dealt(latency_analysis.runs(rows, strata=True)),
        "way configurations comparisons distinguished share low high",
        way=Column("dealt"),
        share=Column("share", "%", 100),
        low=Column("95 % interval from", "%", 100),
        high=Column("to", "%", 100),
    )


# The dearest number of the site; a run that is added changes that of its own machine alone.
_dealt = memo.by_content(equal_runs_analysis.dealt)


def judged(requests: pd.DataFrame) -> tuple[pd.DataFrame, pd.DataFrame]:
    """`store.judged` of the folder that `requests` were read from, once for the same files."""
    folder = requests.attrs.get("folder")
    return memo.kept(("judged", store.digest(folder)), functools.partial(store.judged, folder=folder))


@tables.listed
def gates(requests: pd.DataFrame) -> pd.DataFrame:
    """What the gates say of the runs that lie there: one row per gate; runs that it could check, runs that it
    concerns whose files do not hold what it needs, and runs that it refuses."""
    counts, _ = judged(requests)
    return columns.shown(counts, "gate checked not_checked refused", checked="runs checked")


@tables.listed
def mutants() -> pd.DataFrame:
    """Mutants of the measuring code: one row per module and one for all; how many the tests let live."""
    return columns.shown(
        mutation.scores(),
        "module mutants survived equivalent killed_share",
        equivalent=Column("of them without effect"),
        killed_share=Column("killed", "%", 100),
    )
