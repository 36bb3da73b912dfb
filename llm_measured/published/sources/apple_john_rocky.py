"""Single requests on an iPhone 17 Pro and a Mac M4 Max; the summaries of 24 and 25 June repeat runs and
are not read.

`arm64` is that Mac (the files' names say m4max; 128 GB). A run that ends a tenth slower than it begins is
marked: its rate is the mean of a throttling curve."""

from collections.abc import Iterator

from llm_measured.published.reading import LeftOut, Place, Raw, Record, Row, joined, number, scaled
from llm_measured.published.sources import about

ABOUT = about("apple-john-rocky")
DEVICES = {"arm64": "Apple M4 Max", "iPhone18,1": "Apple A19 Pro (iPhone 17 Pro)"}


def rows(raw: Raw) -> Iterator[Row | LeftOut]:
    for file in raw.files(*ABOUT.files):
        if file.endswith(".jsonl"):
            records = list(raw.jsonl(file))
        else:
            whole = raw.json(file)
            records = [(Place(raw, file, "/", whole), whole)] if isinstance(whole, Record) else []
        for at, r in records:
            if isinstance(r["metrics"], dict):
                yield _run(at, r)
            elif isinstance(r["averages"], dict):
                yield at.row(
                    accelerator_raw="Apple M4 Max",
                    accelerators=1,
                    engine="Core AI",
                    checkpoint_raw=r["model"],
                    workload="single",
                    concurrency=1,
                    input_tokens=r["prompt_tokens"],
                    output_tokens=r["generation_tokens"],
                    lengths="exact",
                    throughput_raw=r.at("averages", "generation_tps"),
                    throughput_counts="output",
                    throughput_scope="all",
                    prompt_tokens_per_s=r.at("averages", "prompt_tps"),
                    statistic="mean",
                    runs=r["num_trials"],
                )
            else:
                yield at.left_out("a summary of runs that are read themselves")


def _run(at: Place, r: Record) -> Row | LeftOut:
    m, model = r["metrics"], r["model"] or Record()
    device = (r["device"] or Record())["modelIdentifier"]
    rates = [number(v) for v in m["decodeRateRollingWindow"] or []]
    slowed = len(rates) > 3 and rates[0] and rates[-1] / rates[0] < 0.9
    energy, made = number(m["averagePackagePowerW"]), number(m["decodeTokensPerSecond"])
    return at.row(
        original_id=r["id"],
        measured_on=str(r["timestamp"] or "")[:10] or None,
        accelerator_raw=DEVICES.get(device, device),
        accelerators=1,
        engine=r["runtime"],
        flags=joined(task=r["task"], thermal=m["finalThermalState"], cold=m["coldRun"]),
        checkpoint_raw=model["displayName"] or model["id"],
        parameters_b=model["parameterCountB"] or None,
        weights_format=model["quantization"],
        workload="single",
        concurrency=1,
        input_tokens=m["promptTokenCount"] or None,
        output_tokens=m["generatedTokenCount"],
        lengths="exact",
        throughput_raw=made or None,
        throughput_counts="output",
        throughput_scope="all",
        prompt_tokens_per_s=m["promptTokensPerSecond"] or None,
        ttft_mean_ms=m["firstTokenLatencyMS"],
        itl_p50_ms=m["interTokenLatencyP50MS"] or None,
        itl_p95_ms=m["interTokenLatencyP95MS"] or None,
        itl_p99_ms=m["interTokenLatencyP99MS"] or None,
        statistic="single",
        runs=1,
        power_w=energy,
        power_scope="package" if energy else None,
        peak_memory_bytes=scaled(m["memoryPeakDuringDecodeMB"], "1e6"),
        caveat=f"slowed from {rates[0]:.0f} to {rates[-1]:.0f} tokens/s while it lasted" if slowed else None,
    )
