"""Contradictions between answers and between options: an answer that cost nothing, runs that are one run,
formats that are another."""

import itertools
import re

import numpy as np
import pandas as pd

from llm_measured.audit import catalog, frame
from llm_measured.audit.checks.finding import CONTRADICTION, MISSING, Finding, check, count, number
from llm_measured.audit.frame import Audited
from llm_measured.core import naming
from llm_measured.core.plausibility import digits

FASTER = 3.0  # the fastest answers lie so many times beyond the next before they count as a group
OUTLYING = 4.0  # and so many times beyond the median
# the same where others ran beside it: one that ran alone for a while was faster, of a mixture of experts much
OUTLYING_UNDER_LOAD = 12.0
CACHED_SHARE = 0.25  # of the requests at most
SKEWED = 1.5  # mean of rates over their median from here on
NO_RESULT = "duration_s", "late_mean_s", "late_p99_s", "bandwidth_bytes_per_s", "flops_per_s"
WORDS = re.compile(r"[\s_,;/-]")  # between the parts of a label
LABELS = ["engine", "option", "weights", "model", "gpu"]
BASELINE = {"baseline", "reference", "default"}  # words that say what a row is compared as
SAME_TIME = 0.02  # median difference of two options' times, relative, that counts as none
EXACT = 5  # digits of a time from which two equal ones are one measurement
SAME = 1e-4  # relative: further apart are two figures
DIGITS = 3  # of a figure that counts, and
ALL_DIGITS = 6  # of all figures together


@check(
    CONTRADICTION,
    "fastest tokens/s / next >= 3 and / median >= 4, in at most a quarter of the requests; or mean / "
    "median of rates >= 1.5",
    "Husain, Optimizing latency: one answer from a cache lifts a mean from 65 to 124 tokens/s",
    (
        "prefix_cache",
        "bandwidth_beyond_device",
        "rate_against_times",
        "tokens_per_event",
        "compute_beyond_device",
    ),
)
def cached_answer_in_mean(audited: Audited) -> Finding | None:
    """A few answers came at once, as from a cache, and lift the mean."""
    known = audited.figures()
    at_once = frame.first(known["concurrency"], known["batch_size"])
    loaded = (at_once > 1) | ~np.isnan(known["request_rate"]) | (known["all_at_once"] == 1)
    loaded = dict(zip(known["level"], loaded))
    for rows in audited.by_level():
        far = OUTLYING_UNDER_LOAD if loaded.get(rows["level"].iloc[0], False) or _overlap(rows) else OUTLYING
        stated = rows["request_tokens_per_s"].dropna()
        if len(stated) == len(rows) and rows["e2e_s"].isna().all():
            fast = _fast_group(stated, far)
            if fast is not None:
                return _cached_finding(audited, stated, fast)
        rows = rows[(rows["output_tokens"] > 1) & (rows["e2e_s"] > 0)]
        after = (rows["e2e_s"] - rows["ttft_s"]).where(rows["ttft_s"] < rows["e2e_s"])
        decode = (rows["output_tokens"] - 1) / after
        for rates in ((rows["output_tokens"] / rows["e2e_s"]), decode.dropna()):
            fast = _fast_group(rates, far)
            if fast is not None and _whole_answers(rows, fast):
                return _cached_finding(audited, rows["output_tokens"] / rows["e2e_s"], fast)
    return _cached_by_figures(audited)


@np.errstate(all="ignore")
def _overlap(rows: pd.DataFrame) -> bool:
    """Whether requests were under way at the same time, by their own times."""
    times = rows[["sent_s", "e2e_s"]].to_numpy()
    times = times[~np.isnan(times).any(axis=1)]
    if len(times) < 3:
        return False
    sent, whole = times[np.argsort(times[:, 0])].T
    ends = np.maximum.accumulate(sent + whole)[:-1]  # of the last request before each
    return bool((sent[1:] < ends - 0.5 * whole[1:]).sum() / len(sent) > 0.2)


def _fast_group(rates, far=OUTLYING):
    """Which of `rates` form a fast group of their own; None where there is none."""
    if len(rates) < 4:
        return None
    ordered = rates.sort_values(ascending=False)
    most = max(1, int(CACHED_SHARE * len(ordered)))
    steps = ordered.to_numpy()[:most] / ordered.to_numpy()[1 : most + 1]
    place = int(np.argmax(steps))
    if steps[place] < FASTER or ordered.iloc[place] < far * rates.median():
        return None
    return ordered.index[: place + 1]


def _whole_answers(rows, fast):
    """Whether the fast answers are as long as others: a very short answer is no cached one."""
    return rows.loc[fast, "output_tokens"].median() >= 0.25 * rows["output_tokens"].median()


def _cached_finding(audited, rates, fast):
    mean, rest = rates.mean(), rates.drop(fast, errors="ignore")
    return Finding(
        "cached_answer_in_mean",
        CONTRADICTION,
        audited.first_file,
        f"{count(len(fast), 'answer')} of {len(rates)} came at {number(rates[fast].max())} tokens/s where "
        f"the median is {number(rates.median())}: an answer from a cache is in the mean of {number(mean)}.",
        {
            "mean_tokens_per_s": float(mean),
            "median_tokens_per_s": float(rates.median()),
            "answers": len(fast),
        },
        f"Leave what was not computed out: the mean becomes {number(rest.mean())} tokens/s.",
        {"published_tokens_per_s": float(mean), "tokens_per_s": float(rest.mean())},
    )


def _cached_by_figures(audited):
    """The same from published figures alone: mean and median of the requests' rates, fastest time against
    the median."""
    if not audited.levels_have("request_tokens_per_s_p50", "e2e_p50_s", "tpot_p50_s"):
        return None
    level = audited.levels
    mean, median = level["request_tokens_per_s_mean"], level["request_tokens_per_s_p50"]
    skew, top = (mean / median).max(), (level["request_tokens_per_s_max"] / median).max()
    fastest = (level["e2e_p50_s"] / level["e2e_min_s"]).max()
    pace = (level["tpot_p50_s"] / level["tpot_min_s"]).max()
    cases = [
        (skew >= SKEWED, f"the mean of the requests' rates is {number(skew)} times their median"),
        (top >= 2 * OUTLYING, f"the fastest request's rate is {number(top)} times the median"),
        # A cached answer is short as a whole, too; a short TPOT alone is that of tokens in one lump.
        (
            pace >= 3 * OUTLYING and not fastest < OUTLYING,
            f"the shortest TPOT is {number(pace)} times below the median",
        ),
        (
            fastest >= 5 * OUTLYING and pace != pace,
            f"the fastest answer took a {number(fastest)}th of the median",
        ),
    ]
    found = next((text for hit, text in cases if hit), None)
    if not found:
        return None
    return Finding(
        "cached_answer_in_mean",
        CONTRADICTION,
        audited.first_file,
        f"Mean and median lie far apart, as when an answer came from a cache: {found}.",
        {"mean_over_median": float(skew)},
        f"Publish the median, {number(median.max())} tokens/s, or leave out what was not computed."
        if median.notna().any()
        else "Publish the median, or leave out what was not computed.",
    )


@check(
    CONTRADICTION,
    "times of >= 3 answers (or >= 2 figures) equal to every digit, or equal answers with times within 2 "
    "%, under other labels",
    "Husain, Optimizing latency: the row of unquantised weights comes from the file of nf4",
    (
        "other_number_format",
        "bandwidth_beyond_device",
        "compute_beyond_device",
        "prefix_cache",
    ),
    across=True,
)
def same_run_twice(audited: Audited) -> list[Finding]:
    """Two options have identical answers and times: one run stands under two names."""
    pairs, groups = _equal_runs(audited) or _equal_figures(audited), {}
    files = audited.levels.set_index("level")["file"]
    for pair in pairs:  # one finding for a pair of files
        groups.setdefault((files[pair[0]], files[pair[1]]), []).append(pair)
    findings = []
    for found in list(groups.values())[:20]:
        findings.append(_same_finding(audited, found))
    return findings


@frame.once
def _equal_runs(audited):
    """Triples (level, level, why) of levels that are one run by their requests' times or answers."""
    return _equal_times(audited) or _equal_answers(audited)


def _equal_times(audited):
    """Pairs of levels that share at least three times of answers to every digit, and half of those of the
    shorter."""
    rows = audited.good().dropna(subset=["e2e_s"])
    rows = rows[rows["e2e_s"].map(digits) >= EXACT]
    if rows["level"].nunique() < 2:
        return []
    owners = rows.groupby("e2e_s")["level"].agg(lambda level: tuple(sorted(set(level))))
    sizes = rows.groupby("level")["e2e_s"].nunique()
    shared = owners[owners.map(len).between(2, 10)].value_counts()
    pairs = {}
    for group, n in shared.items():
        for k, first in enumerate(group):
            for second in group[k + 1 :]:
                pairs[first, second] = pairs.get((first, second), 0) + n
    return [
        (*pair, f"{count(int(n), 'answer')} took the same time to every digit")
        for pair, n in pairs.items()
        if n >= max(3, 0.5 * min(sizes[pair[0]], sizes[pair[1]])) and _labels(audited, *pair)
    ]


def _equal_answers(audited):
    """Pairs of levels of different number formats whose long answers are all equal, and whose times differ
    by less than runs do."""
    rows = audited.good()
    rows = rows[(rows["answer"].str.len() > 40) & (rows["e2e_s"] > 0)].reset_index(drop=True)
    if rows.empty:
        return []
    rows = rows.assign(key=rows["question"] + "\0" + rows["answer"]).drop_duplicates(["level", "key"])
    times = {
        level: dict(zip(part["key"], part["e2e_s"]))
        for level, part in rows.groupby("level")
        if len(part) >= 3
    }
    bits = {level: _bits(audited, level) for level in times}
    pairs = []
    for first, second in itertools.combinations(list(times)[:100], 2):
        if bits[first] == bits[second]:
            continue
        common = times[first].keys() & times[second].keys()
        if len(common) < max(3, 0.9 * min(len(times[first]), len(times[second]))):
            continue
        apart = np.array([abs(times[first][key] / times[second][key] - 1) for key in common])
        if np.median(apart) < SAME_TIME and apart.max() < 3 * SAME_TIME:
            alike = f"{count(len(common), 'answer')} are the same text"
            pairs.append((first, second, f"{alike} and took the same time within {SAME_TIME:.0%}"))
    return pairs


def _bits(audited, level):
    row = audited.levels.set_index("level").loc[level]
    named = [catalog.bits(row[c]) for c in ("weights", "option", "name", "model")]
    return min((size for size in named if size), default=16.0)


def _equal_figures(audited):
    """Pairs of levels of different formats, engines or devices whose published figures are all equal, three
    digits and more, and oftener than chance makes them."""
    level = audited.levels
    columns = [c for c in level if c.endswith("_s") and c not in NO_RESULT]
    columns += [c for c in level if c.startswith("request_tokens_per_s") and c not in columns]
    conditions = ["concurrency", "batch_size", "request_rate", "prompt_tokens", "tensor_parallel"]
    seen, pairs = {}, []
    for row in level.to_dict("records"):
        figures = tuple((c, row[c]) for c in columns if row[c] == row[c] and digits(row[c]) >= DIGITS)
        if sum(digits(value) for _, value in figures) < ALL_DIGITS:
            continue
        key = figures, tuple(None if pd.isna(row[c]) else row[c] for c in conditions)
        chance = len(level) * (len(level) - 1) / 2
        if key in seen and _named_apart(row, seen[key]) and _rare(figures, chance) and _agree(row, seen[key]):
            pairs.append((seen[key]["level"], row["level"], f"{_figures(len(figures))} equal to every digit"))
        seen.setdefault(key, row)
    return pairs


def _rare(figures, pairs):
    """Whether figures so equal are no coincidence among so many `pairs` of rows: the digits of what is
    independent, a further statistic of one quantity counting half a digit."""
    by_quantity = {}
    for column, value in figures:
        by_quantity.setdefault(re.sub(r"(_(mean|p\d\d|min|max))?(_s)?$", "", column), []).append(
            digits(value)
        )
    known = sum(max(each) + 0.5 * (len(each) - 1) for each in by_quantity.values())
    return known >= ALL_DIGITS + np.log10(max(pairs, 1))


def _agree(one, other):
    """Whether no figure that both rows have is different: power and short figures count as well."""
    measured = [c for c in one if c.endswith("_s") or c.startswith("request_tokens_per_s") or c == "power_w"]
    return all(
        not (one[c] == one[c] and other[c] == other[c]) or abs(one[c] - other[c]) <= SAME * abs(one[c])
        for c in measured
        if c not in NO_RESULT
    )


def _named_apart(one, other):
    """Whether two rows go by different names: a label that both state, or a format or device in the names of
    their files."""
    if any(one[c] and other[c] and one[c] != other[c] for c in LABELS):
        return True
    if one["file"] == other["file"]:
        return any(one[c] != other[c] for c in LABELS) and _words(one) != _words(other)
    stems = [name.rpartition(".")[0] for name in (one["file"], other["file"])]
    formats = [catalog.bits(stem, published=False) for stem in stems]
    return None not in formats and formats[0] != formats[1]


def _words(row):
    """The words of a row's labels, whichever column holds them: a further table of a page may repeat a row
    as its baseline."""
    return set(re.findall(r"[a-z0-9.]+", " ".join(row[c] for c in LABELS).lower())) - BASELINE


def _figures(n):
    return "the published figure is" if n == 1 else f"all {n} published figures are"


def _labels(audited, first, second):
    """Whether two levels go by different names."""
    level = audited.levels.set_index("level")[[*LABELS, "file"]]
    return _named_apart(level.loc[first].to_dict(), level.loc[second].to_dict())


@check(
    CONTRADICTION,
    ">= 3 published figures, 10 digits and more of them together, equal under other conditions or "
    "labels, or in another file; equal long answers of two models",
    "two measurements are never equal to the digit; anthony-chaudhary/fak issue 145",
    (
        "plain_sums",
        "rate_against_times",
        "littles_law",
        "bandwidth_beyond_device",
        "compute_beyond_device",
        "prompt_counted_as_output",
        "rate_of_other_scope",
        "tokens_per_event",
        "client_queue",
        "prefix_cache",
        "batch_time_as_request_time",
    ),
    across=True,
)
def copied_rows(audited: Audited) -> list[Finding]:
    """Rows were copied: figures are equal to every digit where something else was measured."""
    already = {frozenset(pair[:2]) for pair in _equal_runs(audited) + _equal_figures(audited)}
    level = audited.levels.set_index("level")
    groups = {}
    for first, second, n in _shared_figures(audited):
        if frozenset((first, second)) not in already:
            groups.setdefault((level.at[first, "file"], level.at[second, "file"]), []).append(
                (first, second, n)
            )
    groups = {files: (pairs, _other(level, pairs)) for files, pairs in groups.items()}
    groups = {files: (_of_one(level, files, *found), found[1]) for files, found in groups.items()}
    findings = [_copied(files, pairs, other) for files, (pairs, other) in groups.items() if pairs]
    return findings[:20] + _other_models(audited)


def _shared_figures(audited):
    """Triples (level, level, number of equal figures) of levels that share figures to every digit."""
    columns = [c for c in audited.levels if c.endswith("_s") and c not in NO_RESULT and c != "request_rate"]
    columns += [c for c in audited.levels if c.startswith("request_tokens_per_s")]
    columns = [c for c in dict.fromkeys(columns) if audited.levels[c].notna().any()]
    figures, owners = {}, {}
    for row in audited.levels[["level", *columns]].to_dict("records"):
        own = {(c, row[c]) for c in columns if row[c] == row[c] and digits(row[c]) >= DIGITS}
        figures[row["level"]] = own
        for figure in own:
            owners.setdefault(figure, []).append(row["level"])
    pairs = {}
    for figure, levels in owners.items():
        if 2 <= len(levels) <= 6:
            for k, first in enumerate(levels):
                for second in levels[k + 1 :]:
                    pairs.setdefault((first, second), []).append(digits(figure[1]))
    chance = len(audited.levels) * (len(audited.levels) - 1) / 2
    for (first, second), counts in pairs.items():
        fewer = min(len(figures[first]), len(figures[second]))
        shared = figures[first] & figures[second]
        if len(counts) >= 3 and sum(counts) >= 10 and len(counts) >= 0.6 * fewer and _rare(shared, chance):
            yield first, second, len(counts)


LENGTH = 0.02  # relative: by which a length may differ between what was asked and what came
CONDITIONS = [
    "concurrency",
    "batch_size",
    "request_rate",
    "prompt_tokens",
    "output_tokens",
    "tensor_parallel",
]


def _other(level, pairs):
    """What is named differently in the first of `pairs` that differ in anything; empty where none does. Of
    two files one may state what the other leaves out, or round a length."""
    for first, second, _ in pairs:
        apart = level.at[first, "file"] != level.at[second, "file"]
        alike = not apart and _words(level.loc[first]) == _words(level.loc[second])
        for column in [*([] if alike else LABELS), "name", *CONDITIONS]:
            one, two = level.at[first, column], level.at[second, column]
            if column in CONDITIONS:
                unlike = one != two and (one == one or two == two)
                if apart:
                    unlike = abs(one - two) > LENGTH * max(abs(one), abs(two))
            else:
                unlike = one != two and (not apart or (column != "name" and one != "" and two != ""))
            if unlike:
                names = [str(value)[:40] or "unnamed" for value in (one, two)]
                return f"{column.replace('_', ' ')} {' and '.join(names)}"
    return ""


def _of_one(level, files, pairs, other):
    """The `pairs` that are one measurement: repeats in one file, under the same labels, are two where any
    figure of theirs differs, however many short ones are equal."""
    if other or files[0] != files[1]:
        return pairs
    return [pair for pair in pairs if _agree(level.loc[pair[0]].to_dict(), level.loc[pair[1]].to_dict())]


def _both(first: str, second: str) -> str:
    """A file, or two by name."""
    return first if first == second else f"{first} and {second}"


def _copied(files, pairs, other):
    """The finding of one pair of files. Equal rows under equal labels are one measurement that is listed
    twice."""
    what = f"{count(len(pairs), 'row')}, {max(n for *_, n in pairs)} figures of one, equal to every digit"
    where = f"{files[0]} has them twice" if files[0] == files[1] else f"{files[0]} and {files[1]} share them"
    if other:
        return Finding(
            "copied_rows",
            CONTRADICTION,
            _both(*files),
            f"Rows were copied: {what}; {where}" + (f", under {other}." if other else "."),
            {"rows": len(pairs)},
            "Measure again what was copied.",
            levels=[float(pair[1]) for pair in pairs],
        )
    of_one = f"{files[0]} and {files[1]} hold the same run"
    return Finding(
        "copied_rows",
        MISSING,
        _both(*files),
        f"One measurement is listed twice: {what}; {where}, under the same labels."
        if files[0] == files[1]
        else f"{of_one}: {what}. It counts once.",
        {"rows": len(pairs)},
        "Count it once.",
    )


def _other_models(audited):
    """A finding for each pair of levels of two models whose long answers to the same questions are all
    equal."""
    rows = audited.good()
    rows = rows[rows["answer"].str.len() > 80]
    if rows["level"].nunique() < 2:
        return []
    keys = rows.assign(key=rows["question"] + "\0" + rows["answer"]).groupby("level")["key"].agg(set)
    level, found = audited.levels.set_index("level"), []
    models = level["model"].map(str).to_dict()
    slugs = {k: naming.slug(name) for k, name in models.items() if name}
    for first, second in itertools.combinations(list(keys.index)[:100], 2):
        if not {first, second} <= slugs.keys() or slugs[first] == slugs[second]:
            continue
        common = keys[first] & keys[second]
        if len(common) >= max(3, 0.5 * min(len(keys[first]), len(keys[second]))):
            files = list(dict.fromkeys(level.at[x, "file"] for x in (first, second)))
            found.append(
                Finding(
                    "copied_rows",
                    CONTRADICTION,
                    " and ".join(files),
                    f"Identical answers under different labels: {count(len(common), 'long answer')} "
                    f"of {models[first][:40]} and {models[second][:40]} are equal to every character.",
                    {"answers": len(common)},
                    "One label belongs to another model.",
                )
            )
    return found[:20]


def _same_finding(audited, found):
    """The finding of all pairs of levels of two files, with the words of the first of them."""
    (first, second, why), pairs = found[0], len(found)
    level = audited.levels.set_index("level")
    names = []
    for one in (first, second):
        words = [level.at[one, c] for c in ("engine", "option", "weights", "model") if level.at[one, c]]
        names.append(f"{level.at[one, 'file']}: {', '.join(dict.fromkeys(words)) or 'no option named'}")
    formats = [catalog.bits(name) for name in names]
    known = [f for f in formats if f]
    baseline = (
        f" The figures may be those of {number(min(known))}-bit weights."
        if known and len(set(formats)) > 1
        else ""
    )
    return Finding(
        "same_run_twice",
        CONTRADICTION,
        _both(level.at[first, "file"], level.at[second, "file"]),
        f"One run stands under two names ({names[0]} | {names[1]}): {why}"
        + (f", and so in {pairs} pairs of rows.{baseline}" if pairs > 1 else f".{baseline}"),
        {"levels": [float(first), float(second)]},
        "Measure the option that was copied.",
        # Which of two equal ones was measured is not known: what is wrong of either may follow.
        levels=sorted({float(one) for pair in found for one in pair[:2]}),
    )


@check(
    CONTRADICTION,
    "bits per weight by one label / by another outside 0.6 to 1.6, or by weight bytes x 8 / parameters "
    "outside 0.45 to 2.2",
    "llama.cpp, docs on quantization: bits per weight of each format; gianlucamazza/xllama pull request 205",
    ("bandwidth_beyond_device",),
)
def other_number_format(audited: Audited) -> Finding | None:
    """An option's label or bytes belong to another number format."""
    columns = "file weights option name model weight_bytes model_bytes model_parameters".split()
    for row in audited.levels[columns].to_dict("records"):
        stated = catalog.bits(row["weights"])
        labels = {c: str(row[c]) for c in ("option", "name") if len(str(row[c])) <= catalog.LABEL_CHARS}
        others = {c: catalog.bits(label, published=False) for c, label in labels.items()}
        # Beside other words, 16 bits are those of the cache or of the arithmetic.
        others = {c: b for c, b in others.items() if b != 16 or not WORDS.search(labels[c].strip())}
        shape = catalog.model(row["model"])
        if row["model_bytes"] > 0 and row["model_parameters"] > 0:
            others["weight bytes"] = row["model_bytes"] * 8 / row["model_parameters"]
        elif row["weight_bytes"] > 0 and shape and shape["exact"] and not shape["mixture"]:
            others["weight bytes"] = row["weight_bytes"] * 8 / shape["step_parameters"]
        for where, other in others.items():
            low, high = (
                (0.45, 2.2) if where == "weight bytes" else (0.6, 1.6)
            )  # some matrices keep more bits, some engines widen them
            if stated and other and not low <= other / stated <= high:
                shown = (
                    row[where]
                    if where in row
                    else f"{number(np.nanmax([row['weight_bytes'], row['model_bytes']]) / 1e9)} GB"
                )
                return Finding(
                    "other_number_format",
                    CONTRADICTION,
                    row["file"],
                    f"The weights are said to be {row['weights'][:40]} ({number(stated)} bits), and "
                    f'{where} "{str(shown)[:60]}" means '
                    f"{number(other)} bits.",
                    {"bits": stated, "other_bits": float(other)},
                    "One label belongs to another run; find out which.",
                )
    return None
