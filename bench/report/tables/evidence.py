"""Tables of the topic evidence: how often the study's intervals hold, and how often equals are told apart."""

from bench.analysis import latency as latency_analysis
from bench.analysis import machines, mutation, proof, same
from bench.observations import store
from bench.report import columns, tables
from bench.report.columns import Column

RATE = "output_tokens_per_s"


@tables.listed
def coverage(requests=None):
    """Simulated studies: one row per quantity, method, number of runs and scatter; the share of intervals
    that hold the truth, by the correlation of neighbouring runs."""
    table = proof.table(proof.load())
    shown = columns.of(
        "quantity method runs scatter spread 0.0 0.3 0.6 width runs_used studies",
        **{
            "quantity": Column("interval of the"),
            "method": Column("method"),
            "scatter": Column("scatter"),
            "spread": Column("standard deviation", "%", 100),
            "0.0": Column("share at correlation 0", "%", 100),
            "0.3": Column("at 0.3", "%", 100),
            "0.6": Column("at 0.6", "%", 100),
            "width": Column("half width", "%", 100),
            "runs_used": Column("runs used, mean"),
            "studies": Column("studies"),
        },
    )
    return columns.renamed(table.rename(columns=str), shown)


@tables.of_machines
def told_apart(requests):
    """A/A: the runs of one configuration dealt into two; one row per source, way and number of runs; how
    often the two are told apart, either way."""
    table = same.table(_runs(requests), latency_analysis.VERSIONED, RATE)
    shown = columns.of(
        "source runs_measured way runs_each resamplings told_apart low high",
        source=Column("runs of"),
        runs_measured=Column("runs"),
        way=Column("dealt"),
        runs_each=Column("runs on each side"),
        resamplings=Column("resamplings"),
        told_apart=Column("told apart", "%", 100),
        low=Column("95 % interval from", "%", 100),
        high=Column("to", "%", 100),
    )
    return columns.renamed(table, shown)


@tables.of_machines
def neighbours(requests):
    """How correlated neighbouring runs are, beside what simulated runs show: one row per true correlation of
    the simulated ones."""
    table = same.neighbours(_runs(requests), latency_analysis.VERSIONED, RATE)
    shown = columns.of(
        "correlation expected low high observed runs_measured configurations",
        correlation=Column("true correlation"),
        expected=Column("simulated runs show"),
        low=Column("95 % of them from"),
        high=Column("to"),
        observed=Column("ours show"),
        runs_measured=Column("runs"),
        configurations=Column("configurations"),
    )
    return columns.renamed(table, shown)


@tables.listed
def gates(requests):
    """What the gates say of the runs that lie there: one row per gate; runs that it could check, runs that it
    concerns whose files do not hold what it needs, and runs that it refuses."""
    counts, _ = store.judged(folder=requests.attrs.get("folder"))
    shown = columns.of(
        "gate checked not_checked refused",
        gate=Column("gate"),
        checked=Column("runs checked"),
        not_checked=Column("not checked"),
        refused=Column("refused"),
    )
    return columns.renamed(counts, shown)


def _runs(requests):
    """The latency runs of the machine in front, without failed requests."""
    rows = machines.here(requests, "latency")
    return latency_analysis.runs(rows[rows["error"] == ""])


@tables.listed
def mutants(requests=None):
    """Mutants of the measuring code: one row per module and one for all; how many the tests let live."""
    shown = columns.of(
        "module mutants survived equivalent killed_share",
        module=Column("module"),
        mutants=Column("mutants"),
        survived=Column("survived"),
        equivalent=Column("of them without effect"),
        killed_share=Column("killed", "%", 100),
    )
    return columns.renamed(mutation.scores(), shown)
