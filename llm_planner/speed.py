"""How long the simulator takes and how much memory: `python -m llm_planner.speed MACHINE`
writes data/planner_speed.csv, with the name that runs give this machine.

Each load is a process of its own, so that its peak of memory is its own.
"""

import datetime
import json
import os
import resource
import subprocess
import sys
import time
from collections.abc import Sequence

import numpy as np
import pandas as pd

from bench import inputs
from llm_planner import check, engines, rows, step_time

LOADS = ((10_000, 1), (10_000, 10), (1_000_000, 1000))  # requests, replicas
RATE = 3.0  # requests/s of a replica
TABLE = "planner_speed"


def simulate(requests: int, replicas: int) -> dict[str, float]:
    """CPU seconds and peak bytes of simulating so many requests, compiled before; a dict."""
    case = engines.Case("llama-3.1-8b", "h100_sxm", "vllm", "bf16", 1, engines.SLOTS, 1000, 200, "plan")
    coefficients, _, _ = check.Fits().of(case.engine, case.gpu, case.model)
    settings = step_time.cost(engines.setting(case), coefficients), engines.policy(case, slots=256)
    draw = np.random.default_rng(0)

    def once(number: int) -> rows.Simulation:
        lengths = draw.integers(500, 1500, number), draw.integers(100, 300, number)
        at_s = rows.poisson(RATE * replicas, number)
        return rows.Simulation(*lengths, *settings, at_s=at_s, replicas=replicas, router="least loaded")

    once(10)
    began = time.process_time()
    once(requests)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    return {
        "requests": requests,
        "replicas": replicas,
        "cpu_s": time.process_time() - began,
        "peak_bytes": peak,
    }


def main(arguments: Sequence[str]) -> str | None:
    """Time one load (`REQUESTS REPLICAS`, printed as JSON), or all, and write the table (`MACHINE`)."""
    if len(arguments) == 2:
        print(json.dumps(simulate(*map(int, arguments))))
        return None
    if len(arguments) != 1:
        return "Name this machine as its runs do: python -m llm_planner.speed epyc-zen4-2c."
    found = []
    for load in LOADS:
        command = [sys.executable, "-m", "llm_planner.speed", *map(str, load)]
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True, env=os.environ)
        found.append(json.loads(done.stdout))
    where = {"machine": arguments[0], "date": datetime.date.today().isoformat()}
    table = pd.DataFrame([one | where for one in found])
    table.to_csv(inputs.DATA / f"{TABLE}.csv", index=False, float_format="%.4g", lineterminator="\n")
    print(table.to_string())
    return None


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
