"""A closed loop of chats (1,024 tokens in, 256 out) on one and two DGX Spark, a file for each configuration.

`sample-spark.json` is an example and a series that is `projected` no measurement: both are left out. Gaps
count events where speculation is on, and stay empty there."""

import re
from collections.abc import Iterator
from typing import Any

from llm_measured.published.reading import LeftOut, Place, Raw, Record, Row, day, scaled
from llm_measured.published.sources import about

ABOUT = about("dgx-spark-jvr0x")


def rows(raw: Raw) -> Iterator[Row | LeftOut]:
    for file in raw.files(*ABOUT.files):
        run = raw.json(file).get("run")
        if run is None or "sample" in file:
            continue
        for at, series in raw.json_items(file, "series"):
            for index, point in enumerate(series["points"] or []):
                here = Place(raw, file, f"{at.line}/points/{index}", [run["id"], series, index])
                if series["status"] != "measured":
                    yield here.left_out(f"no measurement ({series['status']})")
                    continue
                yield here.row(**_columns(run, series, point))


def _columns(run: Record, series: Record, point: Record) -> dict[str, Any]:
    set_up = series["config"] or {}
    told = str(set_up.get("speculative") or "")
    drafted = "none" if told.lower().startswith(("none", "off")) else told.split(",")[0] or None
    if drafted is None and ("DFlash" in series["quant"] or "MTP" in series["quant"]):
        drafted = series["quant"].partition("+")[2].strip() or "stated"
    several = 2 if "DUAL" in series["model"] or "dual" in series["id"] else 1
    gaps = {f"itl_{p}_ms": point["itl_ms"].get(p) for p in ("p50", "p95", "p99")} | {"itl_counts": "token"}
    if drafted not in ("none", None):
        gaps = {}
    # Only a name like 35B-A3B says how much of a model a token passes; a size alone may be a mixture's.
    active = re.search(r"-A(\d+(?:\.\d+)?)B", f"{set_up.get('checkpoint')} {series['model']}")
    chat = run["workload"]
    return gaps | {
        "original_id": run["id"],
        "measured_on": day(run["timestamp"]),
        "accelerator_raw": f"{run['hardware']['name']} ({run['hardware']['soc']})",
        "accelerators": several,
        "nodes": several,
        "engine": series["backend"],
        "image": set_up.get("image"),
        "checkpoint_raw": set_up.get("checkpoint") or series["model"],
        "parameters_b": series["params_b"] if active else None,
        "active_b": active[1] if active else None,
        "weights_bytes": scaled(series["weights_gb"], "1e9") if active else None,
        "weights_format": series["quant"].partition("+")[0].strip(),
        "kv_format": set_up.get("kv_cache_dtype"),
        "speculative": drafted,
        "max_num_seqs": set_up.get("max_num_seqs") if several == 1 else None,
        "workload": "closed_loop" if point["concurrency"] != 1 else "single",
        "concurrency": point["concurrency"],
        "input_tokens": chat["prompt_tokens"],
        "output_tokens": chat["output_tokens"],
        "lengths": "max",
        "throughput_raw": point["agg_tok_s"],
        "throughput_counts": "output",
        "throughput_scope": "all",
        **{f"ttft_{p}_ms": point["ttft_ms"].get(p) for p in ("p50", "p95", "p99")},
        "power_w": (point["gpu"] or {}).get("power_draw_w"),
        "power_scope": "accelerator",
        "requests": point["samples"],
        "duration_s": run["sweep"]["measure_s"],
    }
