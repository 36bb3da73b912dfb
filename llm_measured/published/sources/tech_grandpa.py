"""llmperf on cards of a home lab and rented ones, 64 requests together, lengths drawn around a mean.

"(P)" in a card's name is not explained by the files. Runs with it end in the same seconds on three or five
cards, with the same latencies as alone and half the rate, and the file's name says "parallel": one client
asked several machines and kept fewer requests in flight at each. `flags` keeps it, and a row with it says
so."""

import json
from collections.abc import Iterator

from llm_measured.published.reading import LeftOut, Raw, Record, Row, joined, number, scaled
from llm_measured.published.sources import about

ABOUT = about("tech-grandpa")
STATISTICS = {"mean": "mean", "p50": "p50", "p90": "p90", "p95": "p95", "p99": "p99"}
# llmperf divides the whole time by the tokens for its inter-token latency: neither TPOT nor ITL.
TIMES = {"ttft_s": "ttft", "end_to_end_latency_s": "e2e"}


def rows(raw: Raw) -> Iterator[Row | LeftOut]:
    for file in raw.files(*ABOUT.files):
        for at, r in raw.sqlite(file, "benchmark_runs"):
            try:
                found = json.loads(r["raw_results"] or "{}", object_pairs_hook=Record).get("results") or {}
            except ValueError:
                yield at.left_out("its raw results are not JSON")
                continue
            times = {
                f"{ours}_{statistic}_ms": scaled(_of(found.get(theirs) or {}, statistic), 1000)
                for theirs, ours in TIMES.items()
                for statistic in STATISTICS
            }
            card = str(r["gpu_info"] or "")
            answers = found.get("number_output_tokens") or {}
            prompts = found.get("number_input_tokens") or {}
            total, done = number(r["completed_requests"]), number(r["error_rate"])
            yield at.row(
                original_id=f"{file.rsplit('/', 1)[-1]}#{r['id']}",
                measured_on=str(r["timestamp"] or "")[:10] or None,
                accelerator_raw=card.replace("(P)", "").replace("(runpod)", "").strip(),
                accelerators=1,
                engine="vLLM",
                flags=joined(card=card if "(" in card else None),
                checkpoint_raw=r["model"],
                weights_format=r["data_type"],
                workload="closed_loop",
                concurrency=r["num_concurrent_requests"],
                input_tokens=prompts.get("mean") or r["mean_input_tokens"],
                output_tokens=answers.get("mean") or r["mean_output_tokens"],
                lengths="mean",
                throughput_raw=r["overall_throughput"],
                throughput_counts="output",
                throughput_scope="all",
                requests=total,
                failed=0 if done == 0 else None,
                caveat='"(P)" in the card\'s name: one client asked several machines at the same time'
                if "(P)" in card
                else None,
                **times,
            )


def _of(statistics: dict, name: str) -> float | None:
    return statistics.get("mean") if name == "mean" else (statistics.get("quantiles") or {}).get(name)
