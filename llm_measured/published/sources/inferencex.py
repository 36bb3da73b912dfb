"""InferenceX's public benchmark rows (kept as fixtures of its app), credit SemiAnalysis: one server
configuration at one concurrency each.

Rules of this source alone. Lengths are maxima: the harness draws them from 0.8 to 1.0 of `isl` and `osl`
(RANDOM_RANGE_RATIO). An aggregated row's GPUs are `decode_tp`, as prefill and decode run on the same
ones; a disaggregated row's are both sums, and its output rate is divided by those that decode. `h100`,
`h200`, `b200` are SXM boards: aiconfigurator, which has the same runs, names them so. The four files
overlap: a row that an earlier file has word for word is left out. Rows of token_position_decode_slo name
no accelerator."""

import json
from collections.abc import Iterator

from llm_measured.published.reading import LeftOut, Place, Raw, Record, Row, joined, number
from llm_measured.published.sources import about
from llm_measured.published.sources._vllm_bench import itl_of_tokens, times

ABOUT = about("inferencex")
BOARDS = {name: f"{name}-sxm" for name in ("h100", "h200", "b200", "b300")}
MODELS = {"dsr1": "DeepSeek-R1-0528"}


def rows(raw: Raw) -> Iterator[Row | LeftOut]:
    seen: set[str] = set()
    for file in raw.files("*benchmarks*.json"):
        for at, r in raw.json_items(file):
            same = json.dumps({k: v for k, v in r.items() if k not in ("workers", "image")}, sort_keys=True)
            if same in seen:
                yield at.left_out("an earlier file has the same row")
                continue
            seen.add(same)
            yield _row(at, r)
    for file in raw.files("token_position_decode_slo/*.json"):
        at = Place(raw, file, "/", raw.json(file))
        yield at.left_out("the accelerator is not in the file")


def _row(at: Place, r: Record) -> Row | LeftOut:
    metrics = r["metrics"] if isinstance(r["metrics"], Record) else Record()
    columns, gaps = itl_of_tokens(times(metrics, 1000, ""))
    apart = bool(r["disagg"])
    prefill, decode = number(r["num_prefill_gpu"]), number(r["num_decode_gpu"])
    cards = (prefill or 0) + (decode or 0) if apart else number(r["decode_tp"])
    printed = {
        "input_tokens": r["isl"],
        "output_tokens": r["osl"],
        "lengths": "exact",
        "accelerators": cards if apart else decode,
        **gaps,
    }
    return at.row(
        printed=printed,
        original_id=r["run_url"],
        measured_on=r["date"],
        accelerator_raw=r["hardware"],
        accelerator=BOARDS.get(str(r["hardware"])),
        accelerators=cards,
        accelerators_prefill=prefill if apart else None,
        accelerators_decode=decode if apart else None,
        engine=r["framework"],
        engine_version=str(r["image"]).rsplit(":", 1)[-1] if r["image"] else None,
        image=r["image"],
        flags=joined(
            disaggregated=r["disagg"],
            prefill_tp=r["prefill_tp"] if apart else None,
            prefill_ep=r["prefill_ep"] if apart else None,
            prefill_workers=r["prefill_num_workers"],
            decode_workers=r["decode_num_workers"],
            dp_attention=r["decode_dp_attention"],
        ),
        checkpoint_raw=MODELS.get(str(r["model"]), r["model"]),
        weights_format=r["precision"],
        tp=r["decode_tp"],
        ep=r["decode_ep"],
        speculative=r["spec_method"],
        workload="closed_loop",
        concurrency=r["conc"],
        input_tokens=r["isl"],
        output_tokens=r["osl"],
        lengths="max_of_uniform_0.8",
        throughput_raw=metrics["output_tput_per_gpu"],
        throughput_counts="output",
        throughput_scope="per_accelerator",
        power_w=metrics["avg_power_w"],
        power_scope="accelerator" if metrics["avg_power_w"] is not None else None,
        energy_j_per_output_token=metrics["joules_per_output_token"],
        **columns,
    )
