"""Gates: what may not be published, and the sentence that says why."""

import numpy as np

from bench import naming
from bench.observations import derived, schema

# The first counted request may be slower than the slowest of the others by this factor, else the warm-up had
# not settled. Two, because the memory of small virtual machines flips between two speeds a factor of two
# apart.
WARM_FACTOR = 2.0
WARMUPS = 20  # on a GPU: warm-up requests at most
SETTLED = 0.03  # how far time and clock of two warm-up requests in a row may be apart once a GPU has settled
WARM_SLACK_S = 0.001  # what the scheduler alone may take, which is many times what a toy engine does
# Mean number of cores that other processes may keep busy during a run: background services pass, a second job
# does not.
BUSY_CORES = 0.5
LATE_SHARE = (
    0.01  # of the gap between two scheduled requests: how late the load client may be, in the 99th percentile
)


class Refused(ValueError):
    """A run that may not be published; the message says which gate refused it and why."""


def check(table, sidecar, identifier):
    """Every gate of a run; raises Refused with one sentence that says why it may not be published."""
    _complete(table, sidecar)
    _agrees_with_path(table, identifier)
    _counts(table)
    _warm(table, sidecar)
    _alone(table, sidecar)
    _punctual(table)
    _uncached(table)
    _possible(derived.derive(schema.numbers(table.assign(**derived.context(sidecar)))))


def _complete(table, sidecar):
    lacking = [c for c in schema.COLUMNS if c not in table] + [k for k in schema.SIDECAR if k not in sidecar]
    if lacking:
        raise Refused(
            f"The run lacks {', '.join(lacking)}: every row has every column and the sidecar every field of bench/observations/schema.py."
        )
    if table.empty or (table["error"] != "").all():
        why = table["error"].iloc[0] if len(table) else "no request was made"
        raise Refused(f"No request succeeded, so nothing was measured; the first error was: {why}")


def _agrees_with_path(table, identifier):
    n = identifier.rsplit("-", 1)[-1]
    for _, row in (
        table[schema.IDENTITY]
        .drop_duplicates(subset=[c for c in schema.IDENTITY if c != "request"])
        .iterrows()
    ):
        said = naming.run_id(
            row["experiment"], row["backend"], row["model"], row["option"], row["gpu"], row["host"], n
        )
        if not said == identifier == row["run_id"]:
            raise Refused(
                f"The rows say they are {said} (run_id {row['run_id']}), the path says {identifier}: identity and path must agree."
            )


def _counts(table):
    good = table[table["error"] == ""]
    for column in ("prompt_tokens", "max_new_tokens", "batch_size"):
        if not (good[column] > 0).all():
            raise Refused(f"{column} must be a positive number in every row.")
    given = good["output_ids"].str.split().str.len()
    # Over HTTP the load client has counted; a load test keeps no answers, and not every server sends ids.
    given = given.where((given > 0) | good["chunks"].isna(), good["output_tokens"])
    if not ((given == good["output_tokens"]) & (good["output_tokens"] == good["max_new_tokens"])).all():
        raise Refused(
            "Token counts disagree: output_ids, output_tokens and max_new_tokens must be the same number in every row."
        )
    if not (good["e2e_s"] > 0).all() or (good["ttft_s"] > good["e2e_s"]).any() or (good["ttft_s"] <= 0).any():
        raise Refused("Times contradict each other: 0 < ttft_s <= e2e_s must hold in every row.")


def settled(warmup):
    """Whether the last two of the warm-up requests (dicts of e2e_s and, where there is a GPU, its clock) took
    the same time at the same clock."""
    told = [[about.get(name) for about in warmup[-2:]] for name in ("e2e_s", "clocks.sm")]
    return len(warmup) > 1 and all(
        None in pair or abs(pair[0] - pair[1]) <= SETTLED * max(pair) for pair in told
    )


def _warm(table, sidecar):
    """Refuse a run whose first counted request was much slower than every later one of its kind, or whose GPU
    went on changing its clocks."""
    warmup = sidecar.get("warmup", [])
    if len(warmup) == WARMUPS and not settled(warmup):
        raise Refused(
            f"The warm-up had not settled: after {WARMUPS} requests the last two still differ by more than {SETTLED:.0%} in time or clock: {warmup[-2:]}."
        )
    times = table[(table["error"] == "") & table["ttft_s"].notna()]["e2e_s"]
    if len(times) > 2 and times.iloc[0] > WARM_FACTOR * times.iloc[1:].max() + WARM_SLACK_S:
        raise Refused(
            f"The warm-up had not settled: the first counted request took {times.iloc[0]:.3g} s, the slowest of the others {times.iloc[1:].max():.3g} s."
        )


def _alone(table, sidecar):
    """Refuse a run beside which other processes kept the machine busy: a benchmark that shares its machine is
    void. Scores are no times."""
    if (table["experiment"] == "quality").all() or sidecar["parameters"].get(
        "url"
    ):  # a server that ran already is one of the others
        return
    others = sidecar["busy_cores"]["others"]
    if others > BUSY_CORES:
        raise Refused(
            f"Other processes kept {others:.2f} cores busy during this run (allowed: {BUSY_CORES}). Leave the machine idle and measure again."
        )


def late(rows):
    """Why one level of scheduled requests (columns request_rate, late_s) does not count, in a sentence: the
    load client was late. Empty where it was not."""
    rate, behind = rows["request_rate"].iloc[0], rows["late_s"].quantile(0.99)
    if not behind > LATE_SHARE / rate:
        return ""
    return (
        f"The load client was late: at {rate:g} requests/s it took up requests {behind * 1e3:.2g} ms behind schedule (99th percentile), "
        f"and {LATE_SHARE:.0%} of the gap between them is {LATE_SHARE / rate * 1e3:.2g} ms. Give it a core of its own, or lower the rate."
    )


def _punctual(table):
    """Refuse a run whose load client was late: what it then measures is itself."""
    for _, rows in table[table["error"] == ""].dropna(subset="request_rate").groupby("request_rate"):
        if late(rows):
            raise Refused(late(rows))


def _uncached(table):
    """Refuse a run in which a prefix cache answered: a prompt that is not computed costs nothing."""
    hits = table[table["cached_tokens"] > 0]
    if len(hits):
        raise Refused(
            f"The server answered {len(hits)} requests from its prefix cache ({hits['cached_tokens'].max():.0f} of {hits['prompt_tokens'].iloc[0]:.0f} "
            "prompt tokens). Start it without prefix caching."
        )


def _possible(table):
    worst = table["mbu"].max()
    if worst > 1:
        row = table.loc[table["mbu"].idxmax()]
        raise Refused(
            f"MBU is {worst:.2f}, above 1: {row['weight_bytes'] / 1e9:.3f} GB of weights in {row['tpot_s'] * 1e3:.2f} ms is more than the "
            f"{row['bandwidth_bytes_per_s'] * derived.sharing(table)[table['mbu'].idxmax()] / 1e9:.1f} GB/s that the probes found. Either the bytes, the time or the probe is wrong."
        )
    groups = (
        derived.batches(table)
        if table["peak_flops_per_s"].notna().any()
        else table.assign(mfu_prefill=np.nan, mfu_decode=np.nan)
    )
    for column in ("mfu_prefill", "mfu_decode"):
        if groups[column].max() > 1:
            row = groups.loc[groups[column].idxmax()]
            raise Refused(
                f"MFU of the {column[4:]} is {row[column]:.2f} at batch {row['batch_size']:.0f}, above 1: more than the {row['arithmetic']} peak of "
                f"{row['peak_flops_per_s'] / 1e9:.0f} GFLOP/s that was measured beside it. Either the operations, the time or the peak is wrong."
            )
