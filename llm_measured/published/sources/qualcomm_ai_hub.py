"""Qualcomm's own numbers on Snapdragon NPUs, one sequence; TTFT is a range from the shortest to the longest
prompt."""

from collections.abc import Iterator

from llm_measured.published.reading import LeftOut, Place, Raw, Row, joined
from llm_measured.published.sources import about

ABOUT = about("qualcomm-ai-hub")


def rows(raw: Raw) -> Iterator[Row | LeftOut]:
    for file in raw.files(*ABOUT.files):
        whole = raw.yaml(file) or {}
        for precision, parts in (whole.get("precisions") or {}).items():
            for component, told in ((parts or {}).get("components") or {}).items():
                for device, paths in ((told or {}).get("performance_metrics") or {}).items():
                    for runtime, path in (paths or {}).items():
                        for index, r in enumerate((path or {}).get("llm_metrics") or []):
                            pointer = f"/precisions/{precision}/components/{component}/performance_metrics/"
                            at = Place(
                                raw,
                                file,
                                f"{pointer}{device}/{runtime}/{index}",
                                [precision, device, runtime, r],
                            )
                            span = r.get("time_to_first_token_range_milliseconds") or {}
                            yield at.row(
                                accelerator_raw=device,
                                accelerators=1,
                                engine="Genie" if runtime == "genie" else runtime,
                                backend="NPU",
                                flags=joined(context_length=r.get("context_length")),
                                checkpoint_raw=component,
                                weights_format=precision,
                                workload="single",
                                concurrency=1,
                                throughput_raw=r.get("tokens_per_second"),
                                throughput_counts="output",
                                throughput_scope="all",
                                ttft_min_ms=span.get("min"),
                                ttft_max_ms=span.get("max"),
                            )
