"""MLPerf Inference results of text models: tokens per second of a whole system under its scenario's
limits.

Rules of this source alone: the precision of v4.1 is left empty (`weight_data_types` says fp16 of systems
that ran fp8 and fp4); a system of several kinds of accelerator has no count; a power row is joined to the
result of the same system and scenario. MLPerf's rules let its rows be compared only inside one round,
benchmark, scenario, division and suite: `comparable_within` holds these."""

import re
from collections.abc import Iterator

from llm_measured.published.reading import LeftOut, Raw, Record, Row, number, scaled
from llm_measured.published.schema import UNKNOWN_VARIANT
from llm_measured.published.sources import about

ABOUT = about("mlperf")
PUBLISHED = {"v3.1": "2023-09", "v4.0": "2024-03", "v4.1": "2024-08", "v5.1": "2025-09", "v6.0": "2026-04"}
TEXT = re.compile(r"llama|gpt|mixtral|mistral|deepseek|qwen|gemma|phi|glm|kimi|minimax", re.I)
WORKLOADS = {
    "Offline": "offline",
    "Server": "mlperf_server",
    "Interactive": "mlperf_interactive",
    "SingleStream": "mlperf_single_stream",
}


def rows(raw: Raw) -> Iterator[Row | LeftOut]:
    for file in raw.files("*summary_results.json"):
        for at, r in raw.json_items(file):
            name = f"{r['UsedModel'] or ''} {r['Model'] or ''}"
            if not TEXT.search(name) or re.search(r"vl|vision|stable|whisper", name, re.I):
                yield at.left_out("no text generation")
                continue
            if str(r["Performance_Units"]).lower() != "tokens/s":
                yield at.left_out(f"not in tokens/s ({r['Performance_Units']})")
                continue
            version = str(r["version"] or "")
            yield at.row(
                **_common(version, r["ID"], r["Submitter"], r["Category"], r["Suite"], r["Availability"]),
                comparable_within=_group(version, r["Model"], r["Scenario"], r["Category"], r["Suite"]),
                **_machine(r["Accelerator"], _total(r), r["Nodes"], r["Processor"]),
                engine=str(r["Software"] or "").split(",")[0].strip() or None,
                engine_version=r["Software"],
                flags=str(r["System"] or "").strip() or None,
                checkpoint_raw=r["UsedModel"],
                printed={"weights_format": r["weight_data_types"]} if version == "v4.1" else None,
                weights_format=None if version == "v4.1" else r["weight_data_types"],
                workload=WORKLOADS.get(str(r["Scenario"])),
                lengths="dataset",
                output_tokens=_answer(r["Accuracy"]),
                throughput_raw=r["Performance_Result"],
                throughput_counts="output",
                throughput_scope="all",
            )
    for file in raw.files("power*.csv"):
        every = list(raw.csv(file))
        watts = {
            _key(r): r["Result"] for _, r in every if "power" in r["Units"].lower() or r["Units"] == "Watts"
        }
        for at, r in every:
            if r["Units"].lower() != "tokens/s":
                yield at.left_out(
                    "the power of another row" if _key(r) in watts else f"not in tokens/s ({r['Units']})"
                )
                continue
            if _key(r) not in watts:
                yield at.left_out("a copy of a result whose power is not in the file")
                continue
            yield at.row(
                **_common(r["version"], r["Public ID"], r["Organization"], None, r["SystemType"], None),
                comparable_within=_group(r["version"], r["Model MLC"], r["Scenario"], None, r["SystemType"]),
                **_machine(
                    r["accelerator_model_name"],
                    number(r["Total Accelerators"]),
                    r["number_of_nodes"],
                    r["host_processor_model_name"],
                ),
                engine=r["Software"].split(";")[0].strip() or None,
                engine_version=r["Software"],
                flags=r["SystemName"],
                checkpoint_raw=r["Model MLC"],
                workload=WORKLOADS.get(r["Scenario"]),
                lengths="dataset",
                throughput_raw=r["Result"],
                throughput_counts="output",
                throughput_scope="all",
                power_w=scaled(watts[_key(r)], 1),
                power_scope="system",
            )


def _key(r: Record) -> tuple:
    return (r["Public ID"], r["SystemName"], r["Model MLC"], r["Scenario"])


def _common(
    version: str, result: str, submitter: str, division: str | None, suite: str, available: str | None
) -> dict:
    return {
        "original_id": result,
        "published_on": PUBLISHED.get(version),
        "measured_by": submitter,
        "submitter": submitter,
        "division": division,
        "category": ", ".join(part for part in (available, suite) if part) or None,
        "trademark": f"Result {result}, MLPerf Inference {version}. The MLPerf name and logo are registered "
        "and unregistered trademarks of MLCommons Association in the United States and other countries. All "
        "rights reserved. Unauthorized use strictly prohibited. See www.mlcommons.org for more information.",
    }


def _group(version: str, model: str, scenario: str, division: str | None, suite: str) -> str:
    return " / ".join(
        ["MLPerf Inference", version, *(str(p) for p in (model, scenario, division, suite) if p)]
    )


def _total(r: Record) -> float | None:
    if r["Total Accelerators"] is not None:
        return number(r["Total Accelerators"])
    each = number(r["a#"])
    return each * (number(r["Nodes"]) or 1) if each else None


def _machine(name: str | None, total: float | None, nodes: str, processor: str | None) -> dict:
    kinds = re.findall(r"\(x\d+\)", name or "")
    if not name:
        return {"accelerator": "cpu", "accelerator_raw": processor, "host_cpu": processor, "nodes": nodes}
    mixed = len(kinds) > 1
    return {
        "accelerator_raw": name,
        "accelerator": UNKNOWN_VARIANT if mixed else None,
        "accelerators": None if mixed or not total else total,
        "nodes": nodes,
        "host_cpu": processor,
        "caveat": "accelerators of several kinds in one result: no number per accelerator" if mixed else None,
    }


def _answer(accuracy: str | None) -> float | None:
    found = re.search(r"TOKENS_PER_SAMPLE:\s*([\d.]+)", accuracy or "")
    return number(found[1]) if found else None
