"""Every system of the published tables, and what this repository has measured of it.

`data/systems.csv` says which engine and which of its options measure a published system again (the first
option does, the others count as the same system); what has been measured is read from the observations.
"""

import pandas as pd

from bench import backends, inputs
from bench.topics import commands, estimates
from llm_measured.core import naming
from llm_measured.core.definitions import Fields

SYSTEM = ["study", "platform", "options"]
MOSAIC = "ttft_ms", "throughput_req_per_s"
STUDIES = {
    "husain": "Husain, Optimizing latency",
    "mlc": "MLC, MLCEngine",
    "mosaicml": "MosaicML, Best Practices",
}


def published() -> pd.DataFrame:
    """The systems of the three published studies: one row per system, device and number of devices; columns
    study, platform, options, gpu, tensor_parallel."""
    husain = inputs.table("published/husain_llama2_7b_latency").assign(study="husain", tensor_parallel=1)
    mlc = inputs.table("published/mlc_h100_tpot").assign(study="mlc")
    mlc = mlc.rename(columns={"engine": "platform", "model": "options"})
    mosaic = pd.concat([inputs.table(f"published/mosaicml_{name}") for name in MOSAIC])
    mosaic = mosaic.assign(study="mosaicml", platform="FasterTransformer-based")
    mosaic = mosaic.rename(columns={"model": "options", "gpus": "tensor_parallel"})
    every = pd.concat([table[[*SYSTEM, "gpu", "tensor_parallel"]] for table in (husain, mlc, mosaic)])
    return every.drop_duplicates(ignore_index=True)


def systems(requests: pd.DataFrame) -> pd.DataFrame:
    """Every published system, what has been measured of it, and how to: one row per row of `published`;
    columns backend, option, model and note of data/systems.csv, `state`, `command`; empty where it has no
    row."""
    table = published().merge(inputs.table("systems").fillna(""), on=SYSTEM, how="left").fillna("")
    rows = table.to_dict("records")
    return table.assign(
        study=table["study"].map(STUDIES),
        state=[state(row, requests) for row in rows],
        command=[command(row) for row in rows],
    )


def table(requests: pd.DataFrame, measured: pd.DataFrame) -> pd.DataFrame:
    """Return `systems` beside what we measured of each, one request at a time.

    `measured` is the table latency. Columns beside those of `systems`: tokens_per_s (Husain's, as printed);
    our_option, our_tokens_per_s, our_model, our_machine: the fastest of the options that stand for it on the
    first machine that has one, with real weights.
    """
    printed = inputs.table("published/husain_llama2_7b_latency").assign(study=STUDIES["husain"])
    every = systems(requests).merge(
        printed[[*SYSTEM, "gpu", "tokens_per_s"]], how="left", on=[*SYSTEM, "gpu"]
    )
    ours = measured[(measured["weights"] == "real") & (measured["reason"] != estimates.FAILED)]
    return every.join(pd.DataFrame([_ours(row, ours) for row in every.to_dict("records")]))


OURS = {
    "our_option": "option",
    "our_tokens_per_s": "output_tokens_per_s",
    "our_model": "model",
    "our_machine": "machine",
}


def _ours(row: Fields, measured: pd.DataFrame) -> Fields:
    """Our columns of a system: OURS, without a value where nothing of it was measured."""
    same = measured["backend"].eq(row["backend"]) & measured["option"].isin(row["option"].split())
    found = measured[same & (measured["tensor_parallel"] == row["tensor_parallel"])]
    if found.empty:
        return dict.fromkeys(OURS)
    found = found[found["machine"] == found["machine"].iloc[0]]
    best = found.sort_values("output_tokens_per_s", ascending=False).iloc[0]
    return {name: best[column] for name, column in OURS.items()}


def state(row: pd.Series, requests: pd.DataFrame) -> str:
    """What has been measured of a system, GPUs first: on which device, how many runs, of which model;
    `not yet` where nothing has."""
    if not row["backend"]:
        return "no engine named in data/systems.csv"
    same = (requests["backend"] == row["backend"]) & requests["option"].isin(row["option"].split())
    same &= requests["tensor_parallel"] == row["tensor_parallel"]
    same &= (requests["data_parallel"] == 1) & (requests["error"] == "")
    runs = requests[same].groupby(["gpu", "model"])["run_id"].nunique()
    on_gpus = runs[[not naming.is_cpu(gpu) for gpu, _ in runs.index]]
    if len(on_gpus):
        return f"measured on a GPU: {_listed(on_gpus)}"
    return f"measured here, on a CPU: {_listed(runs)}" if len(runs) else "not yet"


def _listed(runs):
    """`h200 (2 runs of smollm2-135m), …` of numbers of runs by device and model."""
    return ", ".join(f"{gpu} ({n} run{'s' if n > 1 else ''} of {model})" for (gpu, model), n in runs.items())


def command(row: pd.Series) -> str:
    """The command that measures a system again, on a machine with its GPUs.

    What `make study` does not measure (several devices, the published lengths) is a papermill command of the
    engine's environment; an address that others serve is a papermill command of the default one.
    """
    if not row["backend"]:
        return ""
    backend, option = backends.get(row["backend"]), row["option"].split()[0]
    parameters = {"backend": row["backend"], "option": option, "model": row["model"]}
    if backend.on_request:
        there = {"url": "organisation/name", "gpu": naming.slug(row["gpu"])}
        return commands.papermill(row["experiment"], parameters | there)
    others = dict(pair.split("=") for pair in row["parameters"].split())
    if row["tensor_parallel"] == 1 and not others:
        engine, model, experiment = f"{row['backend']}/{option}", row["model"], row["experiment"]
        return f"make study DEVICE=cuda ENGINES={engine} MODELS={model} EXPERIMENTS={experiment}"
    several = {"tensor_parallel": row["tensor_parallel"]} if row["tensor_parallel"] > 1 else {}
    parameters |= {"device": "cuda"} | several | others
    return commands.in_environment(backend, "cuda", option, row["experiment"], parameters)
