"""AIConfigurator's estimates for a table of serving points, in its own environment: TTFT and TPOT in ms.

    python3 -m venv .venvs/aiconfigurator
    .venvs/aiconfigurator/bin/pip install --requirement environments/aiconfigurator.txt
    .venvs/aiconfigurator/bin/python llm_planner/aiconfigurator_rows.py \
        data/published/gpu_serving_measured.csv data/planner_aiconfigurator.csv

One row per row of the table, by its number from 0. Measured columns are not read. It gets no engine version:
its own default is used. A row that it refuses has empty estimates and the reason.
"""

import csv
import sys

from aiconfigurator.cli.api import cli_estimate

from llm_measured.core.definitions import Fields

MODELS = {
    "llama-3.1-8b": "meta-llama/Meta-Llama-3.1-8B",
    "llama-3.1-70b": "meta-llama/Meta-Llama-3.1-70B",
    "qwen3-32b": "Qwen/Qwen3-32B",
}
GEMM = {"fp8": "fp8", "nvfp4": "nvfp4", "unstated": "bfloat16"}


def estimate(row: Fields) -> tuple[str, str, str]:
    """(TTFT ms, TPOT ms, the refusal) of a row."""
    try:
        answer = cli_estimate(
            MODELS[row["model"]],
            row["gpu"],
            backend_name=row["engine"],
            isl=int(float(row["input_tokens"])),
            osl=int(float(row["output_tokens"])),
            batch_size=int(float(row["concurrency"])),
            tp_size=int(float(row["tensor_parallel"])),
            gemm_quant_mode=GEMM[row["weights"]],
        )
        return f"{answer.ttft:.6g}", f"{answer.tpot:.6g}", ""
    except Exception as failure:  # a library of which any part may refuse a row
        return "", "", f"{type(failure).__name__}: {str(failure)[:200]}"


def main(source: str, target: str) -> None:
    """Estimate every row of `source`, and write what came out to `target`."""
    with open(source, newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    names = ["row", "estimated_ttft_ms", "estimated_tpot_ms", "refusal"]
    with open(target, "w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(names)
        for number, row in enumerate(rows):
            writer.writerow([number, *estimate(row)])
            file.flush()


if __name__ == "__main__":
    main(*sys.argv[1:])
