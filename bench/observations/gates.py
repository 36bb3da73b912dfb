"""Gates: what may not be published, and the sentence that says why."""

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
# Mean number of cores that the hypervisor may give to other virtual machines during a run, and the share of
# its time that a container's quota may hold the run's threads back.
STEAL_CORES = 0.1
THROTTLED_SHARE = 0.01
# Events of an answer that follow each other faster than this on average came in one lump: a proxy had kept
# them. A step of the smallest model on the fastest GPU takes several times as long.
EVENT_GAP_S = 5e-5
LUMP_EVENTS = 8  # an answer with fewer events than this says nothing of them
CLOCK_DRIFT = 0.1  # how far a GPU's clock after a run may be from the one before
# How late the load client may be in the 99th percentile, as a share of the gap between two scheduled
# requests.
LATE_SHARE = 0.01


class Refused(ValueError):
    """A run that may not be published; the message says which gate refused it and why."""


def check(table, sidecar, identifier, scratch=False):
    """Every gate of a run; raises Refused with one sentence that says why it may not be published.

    A `scratch` run goes to a folder of one's own: neighbours do not refuse it, but its sidecar says so
    (field `shared`, the sentence).
    """
    _complete(table, sidecar)
    _agrees_with_path(table, identifier)
    _counts(table)
    _ordered_times(table)
    _streamed(table)
    _warm(table, sidecar)
    try:
        _alone(table, sidecar)
    except Refused as refused:
        if not scratch:
            raise
        sidecar["shared"] = str(refused)
    _unthrottled(sidecar)
    _steady_clock(sidecar)
    _punctual(table)
    _uncached(table)
    rows = derived.derive(schema.numbers(table.assign(**derived.context(sidecar))))
    _possible_bandwidth(rows)
    _possible_arithmetic(rows)


def _complete(table, sidecar):
    lacking = [c for c in schema.COLUMNS if c not in table] + [k for k in schema.SIDECAR if k not in sidecar]
    if lacking:
        raise Refused(
            f"The run lacks {', '.join(lacking)}: every row has every column and the sidecar every field of "
            "bench/observations/schema.py."
        )
    if table.empty or (table["error"] != "").all():
        why = table["error"].iloc[0] if len(table) else "no request was made"
        raise Refused(f"No request succeeded, so nothing was measured; the first error was: {why}")


def _agrees_with_path(table, identifier):
    _, number = naming.split_number(identifier)
    of_a_run = [column for column in schema.IDENTITY if column != "request"]
    for row in table[of_a_run].drop_duplicates().to_dict("records"):
        identity = {part: row[part] for part in ("experiment", "backend", "model", "option", "gpu", "host")}
        expected = naming.run_id(**identity, n=number)
        if not expected == identifier == row["run_id"]:
            raise Refused(
                f"The rows say they are {expected} (run_id {row['run_id']}), the path says {identifier}: "
                "identity "
                "and path must agree."
            )


def _counts(table):
    good = table[table["error"] == ""]
    for column in ("prompt_tokens", "max_new_tokens", "batch_size"):
        if not (good[column] > 0).all():
            raise Refused(f"{column} must be a positive number in every row.")
    counted = good["output_ids"].str.split().str.len()
    # Over HTTP the load client has counted; a load test keeps no answers, and not every server sends ids.
    counted = counted.where((counted > 0) | good["chunks"].isna(), good["output_tokens"])
    if not ((counted == good["output_tokens"]) & (good["output_tokens"] == good["max_new_tokens"])).all():
        raise Refused(
            "Token counts disagree: output_ids, output_tokens and max_new_tokens must be the same number in "
            "every row."
        )


def _ordered_times(table):
    good = table[table["error"] == ""]
    if not (good["e2e_s"] > 0).all() or (good["ttft_s"] > good["e2e_s"]).any() or (good["ttft_s"] <= 0).any():
        raise Refused("Times contradict each other: 0 < ttft_s <= e2e_s must hold in every row.")


def _streamed(table):
    """Refuse a run whose answers came in one lump: something between server and client had kept the events.

    Then TTFT is the whole answer's time and TPOT nothing.
    """
    events = table[(table["error"] == "") & (table["chunks"] > LUMP_EVENTS)]
    gap_s = (events["e2e_s"] - events["ttft_s"]) / (events["chunks"] - 1)
    if len(events) and gap_s.median() < EVENT_GAP_S:
        raise Refused(
            f"The answers came in one lump: {events['chunks'].median():.0f} events within "
            f"{gap_s.median() * (events['chunks'].median() - 1) * 1e3:.2g} ms, after "
            f"{events['ttft_s'].median():.3g} s of silence. A proxy between client and server keeps the "
            "events back; "
            "switch its buffering off (nginx: proxy_buffering off) or ask the server itself."
        )


def settled(warmup):
    """Whether the last two warm-up requests took the same time at the same clock, within SETTLED.

    `warmup`: dicts with e2e_s and, where there is a GPU, clocks.sm in MHz.
    """
    pairs = [[request.get(name) for request in warmup[-2:]] for name in ("e2e_s", "clocks.sm")]
    return len(warmup) > 1 and all(
        None in pair or abs(pair[0] - pair[1]) <= SETTLED * max(pair) for pair in pairs
    )


def _warm(table, sidecar):
    """Refuse a run whose first counted request was much slower than every later one of its kind, or whose GPU
    went on changing its clocks."""
    warmup = sidecar.get("warmup", [])
    if len(warmup) == WARMUPS and not settled(warmup):
        raise Refused(
            f"The warm-up had not settled: after {WARMUPS} requests the last two still differ by more than "
            f"{SETTLED:.0%} in time or clock: {warmup[-2:]}."
        )
    times = table[(table["error"] == "") & table["ttft_s"].notna()]["e2e_s"]
    if len(times) > 2 and times.iloc[0] > WARM_FACTOR * times.iloc[1:].max() + WARM_SLACK_S:
        raise Refused(
            f"The warm-up had not settled: the first counted request took {times.iloc[0]:.3g} s, the slowest "
            "of "
            f"the others {times.iloc[1:].max():.3g} s."
        )


def _alone(table, sidecar):
    """Refuse a run beside which other processes kept the machine busy: a benchmark that shares its machine is
    void.

    Scores are no times; and a server that ran already is one of the others.
    """
    if (table["experiment"] == "quality").all() or sidecar["parameters"].get("url"):
        return
    others = sidecar["busy_cores"]["others"]
    if others > BUSY_CORES:
        raise Refused(
            f"Other processes kept {others:.2f} cores busy during this run (allowed: {BUSY_CORES}). Leave "
            "the "
            "machine idle and measure again."
        )
    steal = sidecar["busy_cores"]["steal"]
    if steal > STEAL_CORES:
        raise Refused(
            f"The hypervisor gave {steal:.2f} of this machine's cores to other virtual machines during this "
            "run "
            f"(allowed: {STEAL_CORES}). Measure again at another time, or on a machine that is not shared."
        )


def _unthrottled(sidecar):
    """Refuse a run whose threads a container's CPU quota held back; nothing where the system kept no
    count."""
    throttled = sidecar["busy_cores"].get("throttled")
    if throttled is not None and throttled > THROTTLED_SHARE:
        raise Refused(
            f"The container's CPU quota held this run's threads back for {throttled:.0%} of its time. Give "
            "the "
            "container whole cores, or as many threads as its quota has: -p threads."
        )


def _steady_clock(sidecar):
    """Refuse a run during which a GPU's clock drifted or was throttled; nothing where none was reported."""
    warmup, after = sidecar.get("warmup", []), sidecar["machine"].get("gpu_after", {}).get("clocks.sm")
    warm = next((request.get("clocks.sm") for request in reversed(warmup)), None)
    if warm and after and abs(after - warm) > CLOCK_DRIFT * warm:
        raise Refused(
            f"The GPU's clock went from {warm:.0f} to {after:.0f} MHz during this run, more than "
            f"{CLOCK_DRIFT:.0%}. "
            "Let it cool, or fix its clocks (nvidia-smi --lock-gpu-clocks), and measure again."
        )


def committed(sidecar):
    """Refuse a run of an instrument that differs from its revision; an adapter may, and is marked so.

    Called where a run goes into the repository's own observations.
    """
    changed = [file for file in sidecar["git"].get("uncommitted", []) if not is_adapter(file)]
    if changed:
        more = " and more" if len(changed) > 3 else ""
        raise Refused(
            f"The instrument differs from its revision: {', '.join(changed[:3])}{more}. Commit the change "
            "before "
            "measuring, or measure into a folder of your own: -p results scratch."
        )


def is_adapter(file):
    """Whether `file`, relative to the repository, is one engine's adapter."""
    return file.startswith("bench/backends/") and file.count("/") == 2 and not file.endswith("__init__.py")


def late(rows):
    """Why one level of scheduled requests does not count, in a sentence: the load client was late; else
    empty.

    `rows`: columns request_rate (1/s) and late_s (s).
    """
    rate, behind = rows["request_rate"].iloc[0], rows["late_s"].quantile(0.99)
    if not behind > LATE_SHARE / rate:
        return ""
    return (
        f"The load client was late: at {rate:g} requests/s it took up requests {behind * 1e3:.2g} ms behind "
        f"schedule (99th percentile), and {LATE_SHARE:.0%} of the gap between them is "
        f"{LATE_SHARE / rate * 1e3:.2g} ms. Give it a core of its own, or lower the rate."
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
            f"The server answered {len(hits)} requests from its prefix cache "
            f"({hits['cached_tokens'].max():.0f} of "
            f"{hits['prompt_tokens'].iloc[0]:.0f} prompt tokens). Start it without prefix caching."
        )


def _possible_bandwidth(table):
    """Refuse more bytes per second than the memory was seen to read."""
    if not table["mbu"].max() > 1:
        return
    row = table.loc[table["mbu"].idxmax()]
    roof = row["bandwidth_bytes_per_s"] * derived.sharing(table)[table["mbu"].idxmax()]
    raise Refused(
        f"MBU is {row['mbu']:.2f}, above 1: {row['weight_bytes'] / 1e9:.3f} GB of weights in "
        f"{row['tpot_s'] * 1e3:.2f} ms is more than the {roof / 1e9:.1f} GB/s that the probes found. Either "
        "the "
        "bytes, the time or the probe is wrong."
    )


def _possible_arithmetic(table):
    """Refuse more operations per second than the matrix-multiply peak measured beside the run."""
    if table["peak_flops_per_s"].isna().all():
        return
    batches = derived.batches(table)
    for phase in ("prefill", "decode"):
        column = batches[f"mfu_{phase}"]
        if column.max() > 1:
            row = batches.loc[column.idxmax()]
            raise Refused(
                f"MFU of the {phase} is {column.max():.2f} at batch {row['batch_size']:.0f}, above 1: more "
                "than the "
                f"{row['arithmetic']} peak of {row['peak_flops_per_s'] / 1e9:.0f} GFLOP/s that was measured "
                "beside "
                "it. Either the operations, the time or the peak is wrong."
            )
