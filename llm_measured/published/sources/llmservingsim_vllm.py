"""Time stamps of each request in an open loop of vLLM: means and percentiles are taken here over all
requests.

The one source whose rows are statistics of its raw records: it publishes requests, and a row is a
setting."""

import re
from collections.abc import Iterator

import numpy as np

from llm_measured.core.definitions import Fields
from llm_measured.published.reading import LeftOut, Place, Raw, Row, joined
from llm_measured.published.sources import about

ABOUT = about("llmservingsim-vllm")
STAMPS = ("queued_ts", "first_token_ts", "last_token_ts", "input_toks", "output_toks")


def rows(raw: Raw) -> Iterator[Row | LeftOut]:
    for file in raw.files("*vllm/requests.jsonl"):
        whole = [r for _, r in raw.jsonl(file)]
        at = Place(raw, file, "L1–", whole)
        told = raw.json(file.replace("requests.jsonl", "meta.json"))
        table = np.array([[r[name] for name in STAMPS] for r in whole], dtype=float)
        if not len(table) or not np.isfinite(table).all() or (table[:, 4] < 2).any():
            yield at.left_out("time stamps are missing, or answers of one token")
            continue
        queued, first, last, given, made = table.T
        times = {"ttft": first - queued, "tpot": (last - first) / (made - 1), "e2e": last - queued}
        summaries: Fields = {f"{name}_mean_ms": float(values.mean() * 1000) for name, values in times.items()}
        for p in (50, 90, 95, 99):
            summaries |= {f"{n}_p{p}_ms": float(np.percentile(v, p) * 1000) for n, v in times.items()}
        kwargs = told["engine_kwargs"] or {}
        rate = re.search(r"sps([\d.]+?)(?:\.jsonl|$)", str(told["dataset_path"] or ""))
        yield at.row(
            measured_on=str(told["started_at"] or "")[:10] or None,
            accelerator_raw=told.at("hardware", "device_name") or file.split("/")[-4],
            accelerators=told.at("hardware", "device_count") or kwargs.get("tensor_parallel_size"),
            engine="vLLM",
            engine_version=told["vllm_version"],
            flags=joined(max_num_batched_tokens=kwargs.get("max_num_batched_tokens")),
            checkpoint_raw=told["model"],
            weights_format=kwargs.get("dtype"),
            tp=kwargs.get("tensor_parallel_size"),
            workload="open_loop",
            request_rate=rate[1] if rate else None,
            max_num_seqs=kwargs.get("max_num_seqs"),
            input_tokens=float(given.mean()),
            output_tokens=float(made.mean()),
            lengths="dataset",
            throughput_raw=float(made.sum() / (last.max() - queued.min())),
            throughput_counts="output",
            throughput_scope="all",
            requests=len(table),
            duration_s=float(last.max() - queued.min()),
            **summaries,
        )
