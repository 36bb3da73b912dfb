"""The ML.ENERGY Leaderboard v2 (vLLM, batches of requests) and v1 (legacy: FastChat, one request at a
time)."""

import re
from collections.abc import Iterator

from llm_measured.published.reading import LeftOut, Place, Raw, Row, joined, number, scaled
from llm_measured.published.sources import about

ABOUT = about("mlenergy-v2")


def rows(raw: Raw) -> Iterator[Row | LeftOut]:
    for file in raw.files("*llm_text_generation/*/bs*.json"):
        r = raw.json(file)
        yield Place(raw, file, "/", r).row(
            accelerator_raw=r["GPU"],
            accelerators=(number(r["TP"]) or 1) * (number(r["PP"]) or 1),
            engine="vLLM",
            flags=joined(task=file.split("llm_text_generation/")[1].split("/")[0]),
            checkpoint_raw=r["Model"],
            tp=r["TP"],
            pp=r["PP"],
            workload="closed_loop",
            max_num_seqs=r["Max BS (reqs)"],
            in_flight_mean=r["Avg BS (reqs)"],
            output_tokens=r["Avg Output Tokens"],
            lengths="dataset",
            throughput_raw=r["Token tput (tok/s)"],
            throughput_counts="output",
            throughput_scope="all",
            tpot_mean_ms=scaled(r["Avg TPOT (s)"], 1000),
            energy_j_per_request=r["Energy/req (J)"],
        )
    for file in raw.files("*legacy/*_benchmark.csv"):
        found = re.search(r"/(\w+?)_([\w-]+)_benchmark", file)
        for at, r in raw.csv(file):
            yield at.row(
                published_on="2023-09",
                accelerator_raw=found[1] if found else None,
                accelerators=1,
                engine="FastChat",
                flags=joined(task=found[2] if found else None),
                checkpoint_raw=r["model"],
                workload="single",
                concurrency=1,
                output_tokens=r["response_length"],
                lengths="mean",
                throughput_raw=r["throughput"],
                throughput_counts="output",
                throughput_scope="all",
                latency_raw_s=r["latency"],
                energy_j_per_request=r["energy"],
                statistic="mean",
            )
