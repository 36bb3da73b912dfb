"""One run under two names, and one run in two files."""

import re
from collections.abc import Iterator

import numpy as np
import pandas as pd

from llm_measured.audit import catalog
from llm_measured.audit.checks.finding import CONTRADICTION, MISSING, Finding, check, count, number
from llm_measured.audit.frame import Audited
from llm_measured.core.plausibility import digits

NO_RESULT = set(
    "duration_s late_mean_s late_p99_s bandwidth_bytes_per_s flops_per_s request_rate sample_s prefill_s "
    "decode_s".split()
)
LABELS = "engine option weights model gpu".split()
CONDITIONS = "concurrency batch_size request_rate prompt_tokens output_tokens tensor_parallel".split()
BASELINE = {"baseline", "reference", "default"}  # words that say what a row is compared as
EXACT = 5  # digits of a time from which two equal ones are one measurement
DIGITS, ALL_DIGITS = 3, 6  # of a figure that counts, and of all figures together
SAME, LENGTH = 1e-4, 0.02  # relative: further apart are two figures, two lengths
MOST_FINDINGS = 20


@check(
    CONTRADICTION,
    "times of 3 answers and more, or all figures of a level with 6 digits and more together, equal to every "
    "digit",
    "two measurements are never equal to the digit; Husain: the row of unquantised weights comes from the "
    "file of nf4",
    (
        *("plain_sums", "rate_against_times", "littles_law", "prefix_cache", "compute_beyond_device"),
        *("prompt_counted_as_output", "rate_of_other_scope", "tokens_per_event", "bandwidth_beyond_device"),
    ),
    across=True,
)
def same_run_twice(audited: Audited) -> list[Finding]:
    """Two options have identical figures: one run stands under two names.

    Where one of two files holds all rows of the other and no label contradicts, both hold one run (raw and
    collected, a file and its extract), which is said and accuses nobody.
    """
    level = audited.levels.set_index("level")
    groups: dict[tuple[str, str], list[tuple[float, float, str]]] = {}
    for first, second, why in [*_equal_requests(audited), *_equal_figures(audited)]:
        files = level.at[first, "file"], level.at[second, "file"]
        groups.setdefault(files, []).append((first, second, why))
    found = []
    for files, pairs in groups.items():
        apart = [pair for pair in pairs if _other(level.loc[pair[0]], level.loc[pair[1]])]
        whole = files[0] != files[1] and not apart and _holds_all(level, files, pairs)
        if whole or (not apart and files[0] == files[1]):
            found.append(_once(files, pairs))
        elif apart:
            found.append(_two_names(level, files, apart))
    return found[:MOST_FINDINGS]


def _equal_requests(audited: Audited) -> Iterator[tuple[float, float, str]]:
    """(level, level, why) of levels that share at least three times of answers to every digit, and half of
    those of the shorter."""
    rows = audited.good().dropna(subset=["e2e_s"])
    rows = rows[rows["e2e_s"].map(digits) >= EXACT]
    owners = rows.groupby("e2e_s")["level"].agg(lambda one: tuple(sorted(set(one))))
    sizes = rows.groupby("level")["e2e_s"].nunique()
    pairs: dict[tuple[float, float], int] = {}
    for group, n in owners[owners.map(len).between(2, 10)].value_counts().items():
        for k, first in enumerate(group):
            for second in group[k + 1 :]:
                pairs[first, second] = pairs.get((first, second), 0) + n
    for pair, n in pairs.items():
        if n >= max(3, 0.5 * min(sizes[pair[0]], sizes[pair[1]])):
            yield (*pair, f"{count(int(n), 'answer')} took the same time to every digit")


def _equal_figures(audited: Audited) -> Iterator[tuple[float, float, str]]:
    """The same of levels whose published figures are all equal, and oftener than chance makes them; of one
    that states more than the other those that both have."""
    level = audited.levels
    columns = [c for c in level if c.endswith("_s") and c not in NO_RESULT]
    columns += [c for c in level if c.startswith("request_tokens_per_s") and c not in columns]
    columns = [c for c in columns if audited.levels_have(c)]
    owners: dict[tuple[str, float], list[int]] = {}
    table = level[columns].to_numpy(float)
    for row, figures in enumerate(table):
        for column, value in zip(columns, figures):
            if value == value and digits(value) >= DIGITS:
                owners.setdefault((column, value), []).append(row)
    shared: dict[tuple[int, int], list[tuple[str, float]]] = {}
    for figure, rows in owners.items():
        if 2 <= len(rows) <= 6:
            for k, first in enumerate(rows):
                for second in rows[k + 1 :]:
                    shared.setdefault((first, second), []).append(figure)
    needed = ALL_DIGITS + np.log10(max(len(level) * (len(level) - 1) / 2, 1))
    power = level["power_w"].to_numpy(float)
    for (first, second), figures in shared.items():
        both = ~np.isnan(table[first]) & ~np.isnan(table[second])
        with np.errstate(all="ignore"):
            apart = np.abs(table[first] / table[second] - 1)[both] > SAME
        other_power = abs(power[first] - power[second]) > SAME * abs(power[first])
        if not apart.any() and not other_power and _digits(figures) >= needed:
            names = level["level"].iloc[first], level["level"].iloc[second]
            n = len(figures)
            yield (*names, f"{'the figure is' if n == 1 else f'all {n} figures are'} equal to every digit")


def _digits(figures):
    """Digits of what is independent: a further statistic of one quantity counts half a digit."""
    by_quantity: dict[str, list[int]] = {}
    for column, value in figures:
        quantity = re.sub(r"(_(mean|p\d\d|min|max|sd))?(_s)?$", "", column)
        by_quantity.setdefault(quantity, []).append(digits(value))
    return sum(max(each) + 0.5 * (len(each) - 1) for each in by_quantity.values())


def _other(one: pd.Series, two: pd.Series) -> str:
    """What two equal rows name differently; empty where nothing. Of two files one may leave out a label or
    round a length; in one file the same words in other columns are one label."""
    apart = one["file"] != two["file"]
    if apart or _words(one) != _words(two):
        for column in LABELS:
            stated = one[column] != "" and two[column] != ""
            if one[column] != two[column] and (stated or not apart):
                return f"{column} {one[column][:40] or 'unnamed'} and {two[column][:40] or 'unnamed'}"
    for column in CONDITIONS:
        known = one[column] == one[column], two[column] == two[column]
        far = abs(one[column] - two[column]) > LENGTH * max(abs(one[column]), abs(two[column]))
        if far or (not apart and known[0] != known[1]):
            return f"{column.replace('_', ' ')} {one[column]:g} and {two[column]:g}"
    formats = [catalog.bits(row["file"].rpartition(".")[0], published=False) for row in (one, two)]
    if apart and None not in formats and formats[0] != formats[1]:
        return f"format {one['file']} and {two['file']}"
    return ""


def _words(row):
    """The words of a row's labels, whichever column holds them: a further table of a page may repeat a row as
    its baseline."""
    return set(re.findall(r"[a-z0-9.]+", " ".join(row[c] for c in LABELS).lower())) - BASELINE


def _holds_all(level, files, pairs):
    """Whether one of two files holds all rows of the other."""
    matched = {one for pair in pairs for one in pair[:2]}
    return any(set(level.index[level["file"] == file]) <= matched for file in files)


def _once(files, pairs):
    """The note that one measurement is there twice."""
    where = f"{files[0]} has it twice, under the same labels"
    if files[0] != files[1]:
        where = f"{files[0]} and {files[1]} hold the same run"
    return Finding(
        f"One measurement is listed twice: {count(len(pairs), 'row')}, {pairs[0][2]}; {where}. It counts "
        "once.",
        "Count it once.",
        numbers={"rows": len(pairs)},
        file=files[0] if files[0] == files[1] else f"{files[0]} and {files[1]}",
        kind=MISSING,
    )


def _two_names(level, files, pairs):
    """The finding of rows that are equal under other labels or conditions, with the words of the first."""
    first, second, why = pairs[0]
    names = []
    for one in (first, second):
        words = [level.at[one, c] for c in ("engine", "option", "weights", "model") if level.at[one, c]]
        names.append(f"{level.at[one, 'file']}: {', '.join(dict.fromkeys(words)) or 'no option named'}")
    plain = [
        16.0 if level.at[one, "weights"] in catalog.UNQUANTISED - {""} else None for one in (first, second)
    ]
    known = {found for name, stated in zip(names, plain) if (found := stated or catalog.bits(name))}
    formats = f" The figures may be those of {number(min(known))}-bit weights." if len(known) > 1 else ""
    rows = f", and so in {len(pairs)} pairs of rows" if len(pairs) > 1 else ""
    other = _other(level.loc[first], level.loc[second])
    return Finding(
        f"One run stands under two names ({names[0]} | {names[1]}): {why}{rows}, under {other}.{formats}",
        "Measure the one that was copied.",
        numbers={"rows": len(pairs)},
        levels=sorted({float(one) for pair in pairs for one in pair[:2]}),
        file=files[0] if files[0] == files[1] else f"{files[0]} and {files[1]}",
    )
