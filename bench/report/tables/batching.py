"""Tables of the topic batching."""

import numpy as np

from bench.analysis import batching as batching_analysis
from bench.report import columns as columns_report
from bench.report import html, tables


@tables.listed
def batching(requests):
    """One row per engine, option and batch of the sweeps on the machine in focus: what the batch gave and how much hardware it used."""
    columns = {
        "backend": ("engine", None), "option": ("option", None), "batch_size": ("batch size", 1), "prompt_tokens": ("prompt tokens", 1),
        "max_new_tokens": ("new tokens", 1), "requests_per_s": ("requests/s", 1), "output_tokens_per_s": ("output tokens/s", 1),
        "ttft_s": ("TTFT (ms)", 1e3), "tpot_s": ("TPOT (ms)", 1e3), "e2e_s": ("latency (s)", 1), "mbu": ("MBU", 1),
        "mfu_prefill": ("MFU, prefill", 1), "mfu_decode": ("MFU, decode", 1), "peak_memory_bytes": ("peak memory (MB)", 1e-6),
        "gpu": ("device", None), "model": ("model", None), "weights": ("weights", None),
    }  # fmt: skip
    return columns_report.renamed(batching_analysis.sweeps(requests), columns)


@tables.listed
def prompt_cost(requests):
    """Whether 512 more input tokens cost less than 8 more output tokens, per engine and option at batch size 1."""
    costs = batching_analysis.prompt_cost(requests)
    costs = costs.assign(
        ratio=costs["input_s"] / costs["output_s"],
        holds=np.where(costs["input_s"] < costs["output_s"], "yes", "no"),
    )
    columns = {
        "backend": ("engine", None), "option": ("option", None), "input_s": ("512 more input tokens (ms)", 1e3),
        "output_s": ("8 more output tokens (ms)", 1e3), "ratio": ("ratio", 1), "holds": ("cost less?", None),
        "from_tokens": ("from a prompt of (tokens)", 1), "gpu": ("device", None), "model": ("model", None),
    }  # fmt: skip
    return columns_report.renamed(costs.sort_values("ratio"), columns)


@tables.listed
def memory(requests):
    """The largest batch that the planner expects, that ran, and that did not, for every run under a limit of memory."""
    columns = {
        "backend": ("engine", None), "option": ("option", None), "limit_bytes": ("limit (MB)", 1e-6), "loaded_bytes": ("mapped when loaded (MB)", 1e-6),
        "kv_bytes_per_request": ("KV cache per request (MB)", 1e-6), "planned": ("planner expects", 1), "ran": ("largest batch that ran", 1),
        "failed": ("smallest that did not", 1), "error": ("its error", None), "gpu": ("device", None), "model": ("model", None),
    }  # fmt: skip
    return columns_report.renamed(batching_analysis.memory(requests), columns)


@tables.listed
def kv_cache(requests=None):
    """The published table of KV-cache sizes beside the formula's values."""
    columns = {
        "model": ("model", None), "sequence_tokens": ("tokens per sequence", 1), "batch_size": ("batch size", 1),
        "kv_fp16_gib": ("printed, 16 bits (GiB)", 1), "fp16_gib": ("computed", 1),
        "kv_int8_gib": ("printed, 8 bits (GiB)", 1), "int8_gib": ("computed, 8 bits", 1),
        "agree": ("equal as printed?", None), "source": ("source", None),
    }  # fmt: skip
    table = batching_analysis.kv_cache()
    return columns_report.renamed(table.assign(agree=np.where(table["agree"], "yes", "no")), columns)


@tables.listed
def planner(requests=None):
    """The largest batch that fits: model x precision x GPU x context; weights and a 16-bit KV cache in 90 % of the memory."""
    rows = ["model", "precision", "gpu", "weight_bytes"]
    wide = (
        batching_analysis.planner()
        .pivot_table(index=rows, columns="context_tokens", values="largest_batch", sort=False)
        .reset_index()
    )
    wide = wide.assign(weight_bytes=wide["weight_bytes"] / 1e9)
    names = {"gpu": "GPU", "weight_bytes": "weights (GB)"} | {
        c: f"largest batch at {html.number(c)} tokens" for c in wide.columns if not isinstance(c, str)
    }
    return wide.rename(columns=names).rename_axis(columns=None)
