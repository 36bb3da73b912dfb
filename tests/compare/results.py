"""Made-up results in the form of `vllm bench serve --save-detailed`."""

import json

import numpy as np


def serve(seed=0, requests=200, slow=1.0, scatter=0.0, **stated):
    """The JSON of one run at 8 in flight: `slow` times as slow, runs apart by `scatter` (sd of the logarithm)."""
    random = np.random.default_rng(seed)
    factor = slow * np.exp(random.normal(0, scatter))
    ttft = 0.1 * factor * random.lognormal(0, 0.3, requests)
    tpot = 0.02 * factor * random.lognormal(0, 0.05, requests)
    tokens = np.full(requests, 100)
    e2e = ttft + tpot * 99
    free, sent = np.zeros(8), []
    for one in e2e:
        place = free.argmin()
        sent.append(float(free[place]))
        free[place] += one
    duration = float(free.max())
    figures = {}
    for name, values in {"ttft": ttft, "tpot": tpot, "itl": tpot, "e2el": e2e}.items():
        figures |= {f"mean_{name}_ms": 1e3 * values.mean(), f"median_{name}_ms": 1e3 * np.median(values)}
        figures |= {f"p{q}_{name}_ms": 1e3 * np.percentile(values, q) for q in (90, 99)}
    document = {
        "model_id": "meta-llama/Llama-3.1-8B-Instruct",
        "gpu_name": "NVIDIA GeForce RTX 3090",
        "num_prompts": requests,
        "completed": requests,
        "failed": 0,
        "request_rate": "inf",
        "max_concurrency": 8,
        "duration": duration,
        "request_throughput": requests / duration,
        "output_throughput": float(tokens.sum()) / duration,
        "total_input_tokens": 500 * requests,
        "total_output_tokens": int(tokens.sum()),
        "input_lens": [500] * requests,
        "output_lens": tokens.tolist(),
        "ttfts": ttft.tolist(),
        "itls": [[float(t)] * 99 for t in tpot],
        "start_times": sent,
        "errors": [""] * requests,
    }
    return document | {name: float(value) for name, value in figures.items()} | stated


def write(path, documents):
    """Write each document to path/0.json, path/1.json ...; returns the folder as text."""
    path.mkdir(parents=True, exist_ok=True)
    for number, document in enumerate(documents):
        (path / f"{number}.json").write_text(json.dumps(document), encoding="utf-8")
    return str(path)
