"""What audit.qmd and notebooks/audit.ipynb show: audits of published figures and of a study's own runs, as
tables and numbers. The page hands in which runs those are."""

import functools

import numpy as np
import pandas as pd

from bench import inputs
from bench.paths import DATA
from bench.report.audit import own_runs
from llm_measured.audit import catalog, checks, collected, frame, importers
from llm_measured.audit.checks.finding import ALARMS, CONTRADICTION, IMPOSSIBLE, KINDS, UNCOUNTED
from llm_measured.audit.checks.impossible import peaks, steps
from llm_measured.core.definitions import Fields

# Table of data/ -> what it is called here, and the facts that its study states in words.
PUBLISHED = {
    "published/husain_llama2_7b_latency": (
        "Husain, latency",
        {"model": "llama-2-7b", "batch_size": 1, "tensor_parallel": 1},
    ),
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
        return importers.read(DATA / f"{name}.csv").stated(**facts)
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
def published() -> list[tuple[str, frame.Audited, list[checks.Finding]]]:
    """Audits of all published tables: list of (title, `Audited`, findings)."""
    out = []
    for name, (title, facts) in PUBLISHED.items():
        read = _read(name, facts)
        out.append((title, read, checks.run(read)))
    return out


def overview(own: pd.DataFrame) -> pd.DataFrame:
    """One row per audited table and one for our runs (`own_runs.audited`): what, rows, and the number of
    findings of each kind."""
    rows = [
        [title, len(read.levels), *(sum(f.kind == kind for f in theirs) for kind in KINDS)]
        for title, read, theirs in published()
    ]
    n = _count(own)
    rows.append([f"our {n} committed runs", n, *own[[*KINDS]].sum()])
    return pd.DataFrame(rows, columns=["audited", "rows or runs", *KINDS])


def _count(own: pd.DataFrame) -> int:
    return int((own["run"] != own_runs.ALL).sum())


def alarms() -> pd.DataFrame:
    """One row per impossible or contradictory finding in published tables: audited, finding, smallest
    change."""
    rows = [
        [title, f.sentence, f.change]
        for title, _, found in published()
        for f in found
        if f.kind in (IMPOSSIBLE, CONTRADICTION)
    ]
    return pd.DataFrame(rows, columns=["audited", "finding", "what would explain it"])


def undone() -> pd.DataFrame:
    """One row per published rate beyond its device: what, published tokens/s, MBU in per cent, and the most
    tokens/s that the datasheet's bandwidth allows for that format, alone and with half the bits."""
    title, read, _ = published()[-1]
    peak, (step, _) = peaks(read), steps(read)
    level = read.levels.set_index("level")
    most = peak["bandwidth_bytes_per_s"] / peak["step_bytes"]
    table = pd.DataFrame(
        {
            "published by": level["engine"],
            "model": level["model"],
            "device": level["gpu"],
            "weights": level["weights"],
            "tokens/s": 1 / step,
            "MBU, %": 100 / step / most,
            "most tokens/s": most,
            "bits that fit": np.floor(peak["bits"] * most * step * 10) / 10,
        }
    )
    return table.reset_index(drop=True)


def corrections() -> pd.DataFrame:
    """What published numbers become when their mistake is undone, from
    data/published/husain_corrections.csv."""
    table = inputs.table("published/husain_corrections")
    table = table[table["published"].notna() & table["corrected"].notna()]
    return table[["platform", "published", "corrected", "unit", "why"]].reset_index(drop=True)


def serving() -> Fields:
    """Numbers on the measured serving points: rows, largest MBU of weights alone (per cent), unstated rows
    and how
    many of those no 16-bit weights allow."""
    read = _read(SERVING, {})
    peak, (step, _) = peaks(read), steps(read)
    level = read.levels.set_index("level")
    mbu = peak["step_bytes"] / step / peak["bandwidth_bytes_per_s"]
    unstated = level["weights"].map(catalog.bits).isna()
    parameters = level["model"].map(lambda name: catalog.model(name)["step_parameters"])
    bits = step * peak["bandwidth_bytes_per_s"] * 8 / parameters
    return {
        "rows": len(level),
        "most": f"{100 * mbu.max():.0f}",
        "unstated": int(unstated.sum()),
        "fewer": int((unstated & (bits < 16)).sum()),
    }


def collected_numbers() -> Fields:
    """Numbers on published files, data/audits/collected.csv: files and sources, how many of each an importer
    reads, files whose first alarm is impossible, impossible on one device or contradictory, and sources with
    such a file."""
    table = inputs.table(collected.TABLE)
    read = table[table["strength"] != collected.UNREAD]
    alarming = read[read["strength"] != collected.PASSED]
    kinds = alarming.groupby("strength")["files"].sum()
    return {
        "files": int(table["files"].sum()),
        "sources": table["source"].nunique(),
        "read": int(read["files"].sum()),
        "readable": read["source"].nunique(),
        "impossible": int(kinds.get(IMPOSSIBLE, 0)),
        "uncounted": int(kinds.get(UNCOUNTED, 0)),
        "contradictory": int(kinds.get(CONTRADICTION, 0)),
        "alarming": alarming["source"].nunique(),
    }


def collected_alarms() -> pd.DataFrame:
    """One row per strength and check that came first in a published file, impossible ones and the most
    frequent before: strength, check, files, and the sources with how many of them each has."""
    table = inputs.table(collected.TABLE)
    table = table[table["strength"].isin(ALARMS)]
    table = table.sort_values(["files", "source"], ascending=[False, True])
    rows = [
        [
            *key,
            int(part["files"].sum()),
            ", ".join(f"{s} ({n})" for s, n in zip(part["source"], part["files"])),
        ]
        for key, part in table.groupby(["strength", "check"], sort=False)
    ]
    rows.sort(key=lambda row: (KINDS.index(row[0]), -row[2]))
    return pd.DataFrame(rows, columns=["strength", "check", "files", "sources"])


def tools() -> Fields:
    """Names of the tools whose files the audit reads, as a list in words."""
    names = [module.TOOL for module in importers.modules()]
    return {"tools": ", ".join(names[:-1]) + " and " + names[-1]}


def statements() -> pd.DataFrame:
    """Every check in words: check, kind, what it says, formula, source."""
    table = checks.table()
    return table[["name", "kind", "statement", "formula", "source"]].rename(columns={"name": "check"})


def own_sentence(own: pd.DataFrame) -> str:
    """What the audit says of our own runs (`own_runs.audited`), in one sentence."""
    alarms = own.loc[own["alarms"] != "", "alarms"]
    if alarms.empty:
        return f"In our {_count(own)} committed runs the audit finds nothing impossible and no contradiction."
    return f"In our {_count(own)} committed runs the audit finds: " + " ".join(alarms)
