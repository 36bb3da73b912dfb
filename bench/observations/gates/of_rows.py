"""Gates of a run's rows: a function of `Runs` each, that gives a sentence for every run that falls."""

import functools
from dataclasses import dataclass

import pandas as pd

from bench import naming
from bench.observations import derived, schema
from bench.observations.gates import limits


@dataclass(frozen=True)
class Runs:
    """Runs to be judged: `rows` of all (`derived.derive`; column `file`: the place of the run in the lists),
    and for each its entry of `sidecars` and its path without suffix, in `identifiers`."""

    rows: pd.DataFrame
    sidecars: list
    identifiers: list
    published: frozenset = frozenset()  # places of those among the repository's own observations

    @functools.cached_property
    def good(self):
        """The rows without `error`."""
        return self.rows[self.rows["error"] == ""]

    @functools.cached_property
    def experiments(self):
        """The experiment of each run."""
        return self.rows.drop_duplicates("file").set_index("file")["experiment"]


def succeeded(runs):
    rows = runs.rows
    if len(runs.good) == len(rows):
        return {}
    lost = rows[~rows["file"].isin(runs.good["file"])].drop_duplicates("file")
    sentence = "No request succeeded, so nothing was measured; the first error was: {}".format
    return dict(zip(lost["file"], map(sentence, lost["error"])))


def agrees_with_path(runs):
    found, parts = {}, ("experiment", "backend", "model", "option", "gpu", "host")
    of_a_run = [column for column in schema.IDENTITY if column != "request"]
    for row in runs.rows[["file", *of_a_run]].drop_duplicates().to_dict("records"):
        identifier = runs.identifiers[row["file"]]
        expected = naming.run_id(**{part: row[part] for part in parts}, n=naming.split_number(identifier)[1])
        if not expected == identifier == row["run_id"]:
            found[row["file"]] = (
                f"The rows say they are {expected} (run_id {row['run_id']}), the path says {identifier}: "
                "identity and path must agree."
            )
    return found


def counts(runs):
    good, found = runs.good, {}
    for column in ("prompt_tokens", "max_new_tokens", "batch_size"):
        sentence = f"{column} must be a positive number in every row."
        found |= dict.fromkeys(good.loc[~(good[column] > 0), "file"], sentence)
    counted = pd.Series([len(ids.split()) for ids in good["output_ids"]], good.index, dtype=float)
    # Over HTTP the load client has counted; a load test keeps no answers, and not every server sends ids.
    counted = counted.where((counted > 0) | good["chunks"].isna(), good["output_tokens"])
    same = (counted == good["output_tokens"]) & (good["output_tokens"] == good["max_new_tokens"])
    sentence = (
        "Token counts disagree: output_ids, output_tokens and max_new_tokens must be the same number in "
        "every row."
    )
    return dict.fromkeys(good.loc[~same, "file"], sentence) | found


def ordered_times(runs):
    good = runs.good
    wrong = ~(good["e2e_s"] > 0) | (good["ttft_s"] > good["e2e_s"]) | (good["ttft_s"] <= 0)
    sentence = "Times contradict each other: 0 < ttft_s <= e2e_s must hold in every row."
    return dict.fromkeys(good.loc[wrong, "file"], sentence)


def streamed(runs):
    """Refuse a run whose answers came in one lump: something between server and client had kept the events.

    Then TTFT is the whole answer's time and TPOT nothing.
    """
    good = runs.good
    events = good[good["chunks"] > limits.LUMP_EVENTS]
    if events.empty:
        return {}
    gap_s = (events["e2e_s"] - events["ttft_s"]) / (events["chunks"] - 1)
    middle = events.assign(gap_s=gap_s).groupby("file")[["chunks", "gap_s", "ttft_s"]].median()
    return {
        file: f"The answers came in one lump: {row['chunks']:.0f} events within "
        f"{row['gap_s'] * (row['chunks'] - 1) * 1e3:.2g} ms, after {row['ttft_s']:.3g} s of silence. A proxy "
        "between client and server keeps the events back; switch its buffering off (nginx: proxy_buffering "
        "off) or ask the server itself."
        for file, row in middle[middle["gap_s"] < limits.EVENT_GAP_S].iterrows()
    }


def quick_start(runs):
    """Refuse a run whose first counted request was much slower than every later one of its kind."""
    good = runs.good
    timed = good.loc[good["ttft_s"].notna(), ["file", "e2e_s"]]
    first = timed.drop_duplicates("file").set_index("file")["e2e_s"]
    others = timed[timed.duplicated("file")].groupby("file")["e2e_s"].agg(["max", "size"])
    slow = first.reindex(others.index) > limits.WARM_FACTOR * others["max"] + limits.WARM_SLACK_S
    return {
        file: f"The warm-up had not settled: the first counted request took {first[file]:.3g} s, the slowest "
        f"of the others {others['max'][file]:.3g} s."
        for file in others.index[slow & (others["size"] > 1)]
    }


def punctual(runs):
    """Refuse a run whose load client was late: what it then measures is itself."""
    good = runs.good.dropna(subset="request_rate")
    if good.empty:
        return {}
    behind = good.groupby(["file", "request_rate"])["late_s"].quantile(0.99)
    return {file: sentence for (file, rate), s in behind.items() if (sentence := limits.too_late(rate, s))}


def uncached(runs):
    """Refuse a run in which a prefix cache answered: a prompt that is not computed costs nothing."""
    hits = runs.rows[runs.rows["cached_tokens"] > 0].sort_values("cached_tokens")
    return {
        file: f"The server answered {len(own)} requests from its prefix cache "
        f"({own['cached_tokens'].iloc[-1]:.0f} of {own['prompt_tokens'].iloc[-1]:.0f} prompt tokens). Start "
        "it without prefix caching."
        for file, own in (hits.groupby("file") if len(hits) else ())
    }


def possible_bandwidth(runs):
    """Refuse more bytes per second than the memory was seen to read.

    Where no probe had its cores to itself: more than the memory can read.
    """
    unseen = runs.rows["bandwidth_bytes_per_s"].isna()
    rows = pd.concat([runs.rows[~unseen], _against_the_most(runs.rows[unseen], runs.sidecars)])
    above = rows[rows["mbu"] > 1]
    if above.empty:
        return {}
    roofs = above["bandwidth_bytes_per_s"] * derived.sharing(above)
    return {
        row["file"]: f"MBU is {row['mbu']:.2f}, above 1: {row['weight_bytes'] / 1e9:.3f} GB of weights in "
        f"{row['tpot_s'] * 1e3:.2f} ms is more than the {roofs[place] / 1e9:.1f} GB/s that the probes found. "
        "Either the bytes, the time or the probe is wrong."
        for place, row in above.sort_values("mbu").iterrows()
    }


def _against_the_most(rows, sidecars):
    """`rows` that have no roof, with MBU against `derived.most_bytes_per_s`."""
    most = {file: derived.most_bytes_per_s(sidecars[file]) for file in rows["file"].unique()}
    return derived.derive(rows.assign(bandwidth_bytes_per_s=rows["file"].map(most).astype(float)))


def possible_arithmetic(runs):
    """Refuse more operations per second than the matrix-multiply peak measured beside the run."""
    known, found = runs.rows[runs.rows["peak_flops_per_s"].notna()], {}
    if known.empty:
        return found
    files = known.drop_duplicates("run_id").set_index("run_id")["file"]
    batches = derived.batches(known)
    for phase in ("decode", "prefill"):
        column = f"mfu_{phase}"
        for _, row in batches[batches[column] > 1].sort_values(column).iterrows():
            found[files[row["run_id"]]] = (
                f"MFU of the {phase} is {row[column]:.2f} at batch {row['batch_size']:.0f}, above 1: more "
                f"than the {row['arithmetic']} peak of {row['peak_flops_per_s'] / 1e9:.0f} GFLOP/s that was "
                "measured beside it. Either the operations, the time or the peak is wrong."
            )
    return found
