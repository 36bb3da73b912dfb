"""mlx-lm, LM Studio, Ollama and torch on one Apple M4 Pro, one sequence of 100 new tokens."""

import re
from collections.abc import Iterator

from llm_measured.published.reading import LeftOut, Raw, Row
from llm_measured.published.sources import about

ABOUT = about("mlx-transformers")


def rows(raw: Raw) -> Iterator[Row | LeftOut]:
    for file in raw.files(*ABOUT.files):
        machine, _, day = file.partition("__")[0].rpartition("/")
        machine = machine.rsplit("/", 1)[-1]
        memory = re.search(r"_(\d+)GB$", machine)
        for at, r in raw.csv(file):
            batch = r["batch_size"] or "1"
            yield at.row(
                measured_on=day if re.fullmatch(r"\d{4}-\d\d-\d\d", day) else None,
                accelerator_raw=machine.replace("_", " "),
                accelerator_memory_gb=memory[1] if memory else None,
                accelerators=1,
                engine=r["framework"],
                backend=r["backend"],
                checkpoint_raw=r["name"],
                weights_format=r["dtype"],
                workload="single" if batch == "1" else "static_batch",
                batch=batch,
                concurrency=batch,
                input_tokens=r["num_prompt_tokens"],
                output_tokens=r["num_generated_tokens"],
                lengths="mean",
                throughput_raw=r["generation_tps"],
                throughput_counts="output",
                throughput_scope="all",
                prompt_tokens_per_s=r["prompt_tps"],
                statistic="mean",
            )
