"""Every system of the published tables, and what this repository has measured of it.

`data/systems.csv` says which engine and which of its options measure a published system again (the first option does, the others count as the same
system); what has been measured is read from the observations.
"""

import re

import pandas as pd

from bench import backends, inputs, naming
from bench.paths import ROOT

SYSTEM = ["study", "platform", "options"]
STUDIES = {
    "husain": "Husain, Optimizing latency",
    "mlc": "MLC, MLCEngine",
    "mosaicml": "MosaicML, Best Practices",
}


def published():
    """One row per system, device and number of devices of the three published studies: study, platform, options, gpu, tensor_parallel."""
    husain = inputs.table("published/husain_llama2_7b_latency").assign(study="husain", tensor_parallel=1)
    mlc = (
        inputs.table("published/mlc_h100_tpot")
        .rename(columns={"engine": "platform", "model": "options"})
        .assign(study="mlc")
    )
    tables = [inputs.table(f"published/mosaicml_{name}") for name in ("ttft_ms", "throughput_req_per_s")]
    mosaic = (
        pd.concat(tables)
        .rename(columns={"model": "options", "gpus": "tensor_parallel"})
        .assign(study="mosaicml", platform="FasterTransformer-based")
    )
    every = pd.concat([table[[*SYSTEM, "gpu", "tensor_parallel"]] for table in (husain, mlc, mosaic)])
    return every.drop_duplicates(ignore_index=True)


def systems(requests):
    """`published` with what measures each system again (backend, option, model, note), its `state` and the `command`; empty where data/systems.csv has no row."""
    table = published().merge(inputs.table("systems").fillna(""), on=SYSTEM, how="left").fillna("")
    rows = table.to_dict("records")
    return table.assign(
        study=table["study"].map(STUDIES),
        state=[state(row, requests) for row in rows],
        command=[command(row) for row in rows],
    )


def state(row, requests):
    """What has been measured of a system, GPUs first: on which device, how many runs, of which model; `not yet` where nothing has."""
    if not row["backend"]:
        return "no engine named in data/systems.csv"
    same = (requests["tensor_parallel"] == row["tensor_parallel"]) & (requests["data_parallel"] == 1)
    mine = requests[
        (requests["backend"] == row["backend"])
        & requests["option"].isin(row["option"].split())
        & same
        & (requests["error"] == "")
    ]
    runs = mine.groupby(["gpu", "model"])["run_id"].nunique()
    on_gpus = [key for key in runs.index if not naming.is_cpu(key[0])]
    if on_gpus:
        return "measured on a GPU: " + ", ".join(
            f"{gpu} ({_runs(runs[gpu, model])} of {model})" for gpu, model in on_gpus
        )
    return (
        (
            "measured here, on a CPU: "
            + ", ".join(f"{gpu} ({_runs(n)} of {model})" for (gpu, model), n in runs.items())
        )
        if len(runs)
        else "not yet"
    )


def _runs(n):
    return f"{n} run" + ("s" if n > 1 else "")


def command(row):
    """The command that measures a system again, on a machine with its GPUs. What `make study` does not ask for (several devices, the published lengths)
    is said to the notebook, once the engine's environment is there."""
    if not row["backend"]:
        return ""
    backend, option = backends.get(row["backend"]), row["option"].split()[0]
    asked = {"backend": row["backend"], "option": option, "model": row["model"]}
    if hasattr(backend, "ON_REQUEST"):
        return _papermill(
            "papermill",
            row,
            asked | {"url": "organisation/name", "gpu": re.sub(r"[^a-z0-9]+", "-", row["gpu"].lower())},
        )
    told = dict(pair.split("=") for pair in row["parameters"].split())
    if row["tensor_parallel"] == 1 and not told:
        return f"make study DEVICE=cuda ENGINES={row['backend']}/{option} MODELS={row['model']} EXPERIMENTS={row['experiment']}"
    several = {"tensor_parallel": row["tensor_parallel"]} if row["tensor_parallel"] > 1 else {}
    home = backends.prefix(backend, "cuda", option)
    if not home.is_relative_to(ROOT / ".venvs"):
        return _papermill("papermill", row, asked | {"device": "cuda"} | several | told)
    home = home.relative_to(ROOT).as_posix()
    return f".venv/bin/snakemake {home}/ready && {_papermill(f'{home}/bin/papermill', row, asked | {'device': 'cuda'} | several | told)}"


def _papermill(papermill, row, parameters):
    return f"{papermill} notebooks/{row['experiment']}.ipynb out.ipynb " + " ".join(
        f"-p {name} {value}" for name, value in parameters.items()
    )
