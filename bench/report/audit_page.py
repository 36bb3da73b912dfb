"""What audit.qmd and notebooks/audit.ipynb show: audits of published figures and of our own runs, as tables
and numbers."""

import concurrent.futures
import functools
import multiprocessing

import numpy as np
import pandas as pd

from bench import inputs, memo
from bench.analysis.audit import catalog, checks, frame, importers
from bench.analysis.audit.checks.finding import CONTRADICTION, IMPOSSIBLE, KINDS, MISSING
from bench.analysis.audit.checks.impossible import roofs, steps
from bench.machine import identity
from bench.observations import store
from bench.paths import ROOT
from bench.report import kept

# Table of data/ -> what it is called here, and the facts that its study states in words.
PUBLISHED = {
    "published/husain_llama2_7b_latency": ("Husain, latency", {"model": "llama-2-7b", "batch_size": 1}),
    "published/mosaicml_ttft_ms": ("MosaicML, TTFT", {"weights": "float16"}),
    "published/mosaicml_throughput_req_per_s": ("MosaicML, throughput", {"weights": "float16"}),
    "published/mlc_h100_tpot": ("MLC, TPOT", {}),
    "published/mlc_h100_ttft": ("MLC, TTFT", {}),
    "published/gpu_serving_measured": ("AIConfigurator, serving", {}),
    "audits/batch_one_published": ("Published at batch size 1", {}),
}
SERVING = "published/gpu_serving_measured"


def _read(name, facts):
    """One table of data/ in the audit's frame."""
    if name != "published/mlc_h100_tpot":
        return importers.read(ROOT / "data" / f"{name}.csv").stated(**facts)
    table = inputs.table(name)  # `level` is a concurrency in some rows and a request rate in the others
    closed = table["load"] == "concurrency"
    table = table.assign(
        concurrency=table["level"].where(closed),
        request_rate=table["level"].where(~closed),
        tpot_s=table["tpot_ms"] / 1e3,
        output_tokens_per_s=table["output_tokens_per_s_per_gpu"] * table["tensor_parallel"],
    )
    return frame.make("mlc_h100_tpot.csv", "published", table)


@functools.cache
def published():
    """Audits of all published tables: list of (title, `Audited`, findings)."""
    out = []
    for name, (title, facts) in PUBLISHED.items():
        read = _read(name, facts)
        out.append((title, read, checks.run(read)))
    return out


@functools.cache
def own():
    """The audit of every committed run of this study: (number of runs, findings)."""
    files = store.files()
    if not files:
        return 0, []
    kept.begin()
    return memo.kept(("audit", kept.observed()), lambda: (len(files), _audit(files)))


ALONE = 40  # files from which on a process more is worth its start


def _audit(files):
    """Findings in the runs `files`: in each by itself, on all cores, then those that show across them."""
    cores = min(identity.cores(), 1 + len(files) // ALONE)
    named = list(zip(files, frame.distinct(file.name for file in files)))
    parts = [named[k::cores] for k in range(cores)]
    if cores == 1:
        done = [_audit_part(named)]
    else:
        # No fork: the kernel of a page has threads.
        start = multiprocessing.get_context("spawn")
        with concurrent.futures.ProcessPoolExecutor(cores, mp_context=start) as pool:
            done = list(pool.map(_audit_part, parts))
    each = {name: found for part in done for name, *found in part}
    each = [each[name] for _, name in named]
    return checks.run(frame.join([read for read, _ in each]), [found for _, found in each])


def _audit_part(named):
    """[(name, `Audited`, findings in it alone)] of some files and what each is called."""
    kept.begin()
    return [
        (
            name,
            *memo.kept(("audited", name, kept.of_run(file)), lambda file=file, name=name: _alone(file, name)),
        )
        for file, name in named
    ]


def _alone(file, name):
    read = importers.read(file)
    read.levels["file"] = name
    return read, checks.run_alone(read)


def overview():
    """One row per audited table and one for our runs: what, rows, and the number of findings of each kind."""
    rows = [[title, len(read.levels), *_counts(found)] for title, read, found in published()]
    n, found = own()
    rows.append([f"our {n} committed runs", n, *_counts(found)])
    return pd.DataFrame(rows, columns=["audited", "rows or runs", *KINDS])


def _counts(found):
    return [sum(f.kind == kind for f in found) for kind in KINDS]


def alarms():
    """One row per impossible or contradictory finding in published tables: audited, finding, smallest
    change."""
    rows = [
        [title, f.sentence, f.change]
        for title, _, found in published()
        for f in found
        if f.kind in (IMPOSSIBLE, CONTRADICTION)
    ]
    return pd.DataFrame(rows, columns=["audited", "finding", "what would explain it"])


def undone():
    """One row per published rate beyond its device: what, published tokens/s, MBU in per cent, and the most
    tokens/s that the datasheet's bandwidth allows for that format, alone and with half the bits."""
    title, read, _ = published()[-1]
    roof, (step, _) = roofs(read), steps(read)
    level = read.levels.set_index("level")
    most = roof["bandwidth_bytes_per_s"] / roof["step_bytes"]
    table = pd.DataFrame(
        {
            "published by": level["engine"],
            "model": level["model"],
            "device": level["gpu"],
            "weights": level["weights"],
            "tokens/s": 1 / step,
            "MBU, %": 100 / step / most,
            "most tokens/s": most,
            "bits that fit": np.floor(roof["bits"] * most * step * 10) / 10,
        }
    )
    return table.reset_index(drop=True)


def corrections():
    """What published numbers become when their mistake is undone, from
    data/published/husain_corrections.csv."""
    table = inputs.table("published/husain_corrections")
    table = table[table["published"].notna() & table["corrected"].notna()]
    return table[["platform", "published", "corrected", "unit", "why"]].reset_index(drop=True)


def serving():
    """Numbers on the measured serving points: rows, largest MBU of weights alone (per cent), unstated rows
    and how
    many of those no 16-bit weights allow."""
    read = _read(SERVING, {})
    roof, (step, _) = roofs(read), steps(read)
    level = read.levels.set_index("level")
    mbu = roof["step_bytes"] / step / roof["bandwidth_bytes_per_s"]
    unstated = level["weights"].map(catalog.bits).isna()
    parameters = level["model"].map(lambda name: catalog.model(name)["step_parameters"])
    bits = step * roof["bandwidth_bytes_per_s"] * 8 / parameters
    return {
        "rows": len(level),
        "most": f"{100 * mbu.max():.0f}",
        "unstated": int(unstated.sum()),
        "fewer": int((unstated & (bits < 16)).sum()),
    }


def rates():
    """The proof's table, data/audits/proof.csv: one row per check with rates of false alarm and detection
    in per cent."""
    table = inputs.table("audits/proof")
    return table.drop(columns=["files"]).rename(columns=lambda name: name.replace("_", " "))


def proof_numbers():
    """Parts of a sentence on the proof: clean files, the highest false-alarm rate in words, checks with a
    mistake put in, the lowest rate at which one was found first."""
    table = inputs.table("audits/proof")
    judged = table[table["kind"] != MISSING]
    tried = table.dropna(subset="found_first_percent")
    highest = judged["false_alarm_percent"].max()
    return {
        "files": f"{int(table['clean_files'].max()):,}",
        "alarm": f"in more than {highest:.2g} % of them" if highest else "in any of them",
        "tried": len(tried),
        "least": f"{tried['found_first_percent'].min():.0f}",
    }


def tools():
    """Names of the tools whose files the audit reads, as a list in words."""
    names = [module.TOOL for module in importers.modules()]
    return {"tools": ", ".join(names[:-1]) + " and " + names[-1]}


def statements():
    """Every check in words: check, kind, what it says, formula, source."""
    table = checks.table()
    return table[["name", "kind", "statement", "formula", "source"]].rename(columns={"name": "check"})


def own_sentence():
    """What the audit says of our own runs, in one sentence."""
    n, found = own()
    bad = [f for f in found if f.kind != MISSING]
    if not bad:
        return f"In our {n} committed runs the audit finds nothing impossible and no contradiction."
    return f"In our {n} committed runs the audit finds: " + " ".join(f.sentence for f in bad)
