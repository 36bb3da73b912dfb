"""AWS's table of decoders on Inferentia2 and Trainium: output tokens/s of the instance, TTFT and TPOT per
request.

Encoder-decoders and training are other tables, and not read. An inf2.48xlarge has 12 chips of two cores,
a trn1.32xlarge 16: TP counts cores."""

from collections.abc import Iterator

from llm_measured.published.reading import LeftOut, Raw, Row, joined, number
from llm_measured.published.sources import FACTS, Source

ABOUT = Source(
    repository="https://github.com/aws-neuron/aws-neuron-sdk",
    commit="81ce03ae261e12925e53437a0f690478e6366155",
    licence=FACTS,
    kind="vendor",
    measured_by="AWS",
    citation="AWS, Neuron SDK documentation, decoder benchmarks, 2024 (CC BY-SA 4.0)",
    published_on="2026-08-21",
    files=("*_data_decoder.csv",),
)
CHIPS = {
    "inf2": "AWS Inferentia2",
    "trn1": "AWS Trainium",
    "trn2": "AWS Trainium2",
}


def rows(raw: Raw) -> Iterator[Row | LeftOut]:
    for file in raw.files(*ABOUT.files):
        for at, r in raw.csv(file):
            if "Output Token Throughput (tokens/sec)" not in r:
                yield at.left_out("training")
                continue
            instance = str(r["Inst. Type"] or "").lower()
            cores = number(r["TP Degree"])
            yield at.row(
                accelerator_raw=CHIPS.get(instance.split(".")[0].rstrip("n"), instance),
                accelerators=cores / 2
                if cores and cores % 2 == 0 and instance[:4] in ("inf2", "trn1")
                else None,
                engine=r["Framework"],
                engine_version=r["Neuron Version"],
                flags=joined(
                    instance=r["Inst. Type"],
                    sequence_length=r["Sequence Length"],
                    application=r["Application Type"],
                ),
                checkpoint_raw=r["Model"],
                weights_format=r["Weight Storage Data Type"] or r["Model Data Type"],
                activation_format=r["Compilation Autocast Data Type"],
                tp=r["TP Degree"],
                workload="static_batch",
                batch=r["Batch Size"],
                concurrency=r["Batch Size"],
                input_tokens=r["Input Length"],
                output_tokens=r["Output Length"],
                lengths="exact",
                throughput_raw=r["Output Token Throughput (tokens/sec)"],
                throughput_counts="output",
                throughput_scope="all",
                ttft_p50_ms=r["TTFT Latency P50 (ms)"],
                ttft_p99_ms=r["TTFT Latency P99 (ms)"],
                tpot_p50_ms=r["TPOT Latency P50 (ms)"],
                tpot_p99_ms=r["TPOT Latency P99 (ms)"],
            )
