"""Made-up rows, sidecars and runs that pass every validity check, for tests of what reads them."""

import operator

from bench.observations import schema, store
from llm_measured.core import naming


def make_rows(
    n=3, backend="fake", option="float32", host="abc123", gpu="test-cpu", experiment="latency",
    rate=100.0, run=1, tokens=10, model="smollm2-135m", **changes,
):  # fmt: skip
    """Rows of one plausible run: `rate` tokens/s after a TTFT of 50 ms."""
    identity = {
        "experiment": experiment, "backend": backend, "model": model, "option": option,
        "gpu": gpu, "host": host,
    }  # fmt: skip
    e2e = 0.05 + (tokens - 1) / rate
    row = identity | {
        "run_id": naming.run_id(**identity, n=run), "backend_version": "1.0", "weights": "real",
        "tensor_parallel": 1, "prompt_tokens": 8, "max_new_tokens": tokens, "batch_size": 1, "temperature": 0,
        "ttft_s": 0.05, "e2e_s": e2e, "output_tokens": tokens, "itl_p50_s": 1 / rate, "itl_p90_s": 1 / rate,
        "itl_p99_s": 1 / rate, "itl_max_s": 1 / rate, "peak_memory_bytes": 10**9, "load_s": 1.0,
        "answer": "a,b \"c\"\n<script>", "error": "",
    }  # fmt: skip
    return [
        row | {"request": k, "prompt": k, "sent_s": k * 2.0, "output_ids": answer_ids(k, tokens)} | changes
        for k in range(1, n + 1)
    ]


def answer_ids(request, tokens):
    """Token ids of a made-up answer: no token repeated all along, and another answer to each request."""
    return " ".join(str(5 + (request + place) % 97) for place in range(tokens))


def make_sidecar(**changes):
    """A complete sidecar of a machine with 40 GB/s."""
    return {
        "packages": {}, "git": {}, "machine": {"cpu": "test"}, "busy_cores": {"others": 0.0, "steal": 0.0},
        "bandwidth_probes_bytes_per_s": [20e9, 40e9], "datasheet_bandwidth_bytes_per_s": None,
        "weight_bytes": 1e8, "kv_value_bytes": 4, "kv_values_per_token": 1000, "parameters": {},
        "settings": {}, "threads": 2, "model_sha256": "", "prompts_sha256": "",
        "started": "2026-01-01T00:00:00+00:00", "ended": "2026-01-01T00:01:00+00:00",
    } | changes  # fmt: skip


PASSED = {}  # what runs that passed the validity checks in this process were made of -> their times
TIMES = {"ttft_s", "e2e_s", *(f"itl_{name}_s" for name in ("p50", "p90", "p99", "max"))}
VARIES = TIMES | {"run_id", "backend", "option", "gpu", "host", "sent_s"}


def _write(rows, sidecar, folder, scratch=False):
    """Write a run through the checks. One that differs from such a run in its name alone, and is nowhere
    faster, is written without them: judging takes ten times longer than writing, and who loads runs judges
    them again."""
    target = store.path(rows[0]["run_id"], folder=folder)
    kept = [{name: value for name, value in row.items() if name not in VARIES} for row in rows]
    shared_by = rows[0]["gpu"] if rows[0]["tensor_parallel"] > 1 else ""  # GPUs have a bandwidth each
    known = PASSED.setdefault(repr((kept, sidecar | {"started": "", "ended": ""}, shared_by)), [])
    times = [row.get(name) or 0 for row in rows for name in sorted(TIMES)]
    slower = any(all(map(operator.ge, times, passed)) for passed in known)
    if slower and not scratch and not target.exists():
        store._write_both(target, schema.frame(rows), sidecar)
    else:
        store.write(rows, sidecar, rows[0]["run_id"], folder, scratch)
        known.append(times)
    return target


def write_run(folder, sidecar=None, scratch=False, **columns):
    """Write one made-up run; returns its path."""
    return _write(make_rows(**columns), sidecar or make_sidecar(), folder, scratch)


def two_engines(folder):
    """Write runs of two engines on two machines, one of them with repeats; returns the folder."""
    for option, rate in (("float32", 50.0), ("int8", 120.0)):
        for n in (1, 2, 3):
            write_run(folder, option=option, rate=rate + n, run=n)
    write_run(folder, backend="transformers", option="float32", rate=30.0)
    write_run(folder, backend="llamacpp", option="Q4_0", rate=200.0, host="def456", gpu="other-cpu")
    return folder


# --- sweeps of batches -----------------------------------------------------------------------------------

# As many parameters as the 1e8 bytes of `make_sidecar` hold in float32.
MATRICES = {"block_parameters": 2e7, "head_parameters": 5e6, "attention_values": 2e4, "arithmetic": "float32"}
PEAKS = {"gemm_flops_per_s": {"float32": [2e11, 4e11], "bfloat16": [8e11]}}
# (batch size, prompt tokens, new tokens)
SHAPES = [(1, n, 16) for n in (32, 128, 512, 1024, 2048)] + [(b, 512, 64) for b in (1, 2, 4, 8, 16, 32, 64)]


def step_s(batch, context, overhead=0.002, bandwidth=30e9, peak=2e11):
    """The step-time model itself, for the sizes of `make_sidecar` and MATRICES."""
    memory = (1e8 + batch * context * 1000 * 4) / bandwidth
    return overhead + max(memory, batch * (2 * 2.5e7 + 4 * 2e4 * context) / peak)


def sweep_rows(
    lost=(),
    shapes=SHAPES,
    wait=1e-3,
    error="MemoryError: no room for the KV cache",
    coefficients=None,
    slowest=1.0,
    **columns,
):
    """Rows of a made-up sweep whose steps follow `step_s`; batches of the sizes `lost` failed.

    The longest gap of the first request of each batch is `slowest` steps.
    """
    rows, sent = [], 0.0
    for batch, prompt, tokens in shapes:
        step = step_s(batch, prompt + tokens / 2, **(coefficients or {}))
        ttft = wait * batch * prompt + 0.01
        for k in range(1, batch + 1):
            row = make_rows(1, tokens=tokens, **columns)[0]
            row |= {"output_ids": answer_ids(len(rows) + 1, tokens)}
            row |= {"request": len(rows) + 1, "prompt": k, "batch_size": batch, "prompt_tokens": prompt}
            row |= {"ttft_s": ttft, "e2e_s": ttft + step * (tokens - 1), "itl_p50_s": step, "sent_s": sent}
            row |= {"itl_p90_s": step, "itl_p99_s": step, "itl_max_s": step if k > 1 else step * slowest}
            row["e2e_s"] += row["itl_max_s"] - step
            if batch in lost:
                row |= dict.fromkeys(("ttft_s", "e2e_s", "itl_p50_s", "itl_p90_s", "itl_p99_s", "itl_max_s"))
                row |= {"output_tokens": 0, "output_ids": "", "error": error}
            rows.append(row)
        sent += 100.0
    return rows


def write_sweep(folder, lost=(), experiment="batching", sidecar=None, **columns):
    """Write one made-up sweep (see `sweep_rows`); `overhead`, `bandwidth` and `peak` go to `step_s`."""
    coefficients = {name: columns.pop(name) for name in ("overhead", "bandwidth", "peak") if name in columns}
    rows = sweep_rows(lost, coefficients=coefficients, experiment=experiment, **columns)
    return _write(rows, sidecar or make_sidecar(**MATRICES, **PEAKS), folder)


# --- servers under load ----------------------------------------------------------------------------------


def serving_row(number, kind, load, began, ttft, tpot, tokens, **columns):
    """One request of a made-up load test at `load`, a concurrency or a request rate."""
    row = make_rows(1, experiment="serving", tokens=tokens, **columns)[0]
    row |= {"request": number, "prompt": number, kind: load, "sent_s": began, "ttft_s": ttft}
    row |= {"e2e_s": ttft + (tokens - 1) * tpot, "answer": "", "output_ids": "", "finish_reason": "length"}
    row |= {f"itl_{name}_s": tpot for name in ("p50", "p90", "p99", "max")}
    row |= {"connect_s": 0.0, "chunks": tokens, "cached_tokens": 0}
    return row | {"late_s": 1e-5 if kind == "request_rate" else None}


def serving_rows(closed, opened=(), n=8, tokens=11, failed=0, slow=None, **columns):
    """Rows of a made-up load test of closed and open loops.

    `closed` is {concurrency: (TTFT in s, TPOT in s)}, `opened` {request rate: likewise}. Each level has `n` requests; `slow` is the TTFT of its last one, and its last `failed` ones have failed.
    """
    rows, sent = [], 0.0
    levels = [("concurrency", *level) for level in dict(closed).items()]
    levels += [("request_rate", *level) for level in dict(opened).items()]
    for kind, load, (ttft, tpot) in levels:
        for k in range(n):
            began = k // load * (ttft + (tokens - 1) * tpot) if kind == "concurrency" else k / load
            wait = slow if slow and k == n - 1 else ttft
            row = serving_row(len(rows) + 1, kind, load, sent + began, wait, tpot, tokens, **columns)
            if k >= n - failed:
                row |= dict.fromkeys(("ttft_s", "e2e_s", "finish_reason"))
                row |= {"output_tokens": 0, "error": "ConnectionResetError: reset"}
            rows.append(row)
        sent += 1000.0
    return rows


def write_serving(folder, closed, opened=(), sidecar=None, **columns):
    """Write one made-up load test (see `serving_rows`); returns its path."""
    parameters = {"lengths": "sharegpt", "scale": 0.0, "arrivals": "poisson"}
    sidecar = sidecar or make_sidecar(parameters=parameters, bandwidth_probes_bytes_per_s=[400e9])
    return _write(serving_rows(closed, opened, **columns), sidecar, folder)


# --- quality ---------------------------------------------------------------------------------------------

TEXT_IDS = [7] * 20, [8] * 12


def _scored(ids):
    """The columns of an answer that consists of `ids`, none of which was timed."""
    written = {"output_ids": " ".join(map(str, ids)), "output_tokens": len(ids), "max_new_tokens": len(ids)}
    return written | {"ttft_s": None}


def write_quality(
    folder, answers, nll, own=None, pieces=TEXT_IDS, sidecar=None, experiment="quality", **columns
):
    """Write a made-up quality run; returns its path.

    `answers` are lists of ids with one NLL each in `nll`, `pieces` those of a text with their own NLLs in
    `own` (None: this piece failed).
    """
    rows = make_rows(n=len(answers) + len(own or []), experiment=experiment, **columns)
    for row, ids, each in zip(rows, answers, nll):
        row |= _scored(ids) | {"reference_nll_nats": each}
    for row, ids, each in zip(rows[len(answers) :], pieces, own or []):
        row |= _scored(ids) | {"prompt": 0, "prompt_tokens": 1, "own_nll_nats": each}
        row |= {"error": "" if each is not None else "RuntimeError: no"}
    return _write(rows, make_sidecar(**MATRICES | (sidecar or {})), folder)


def write_every(folder, rate=100.0, lost=(), **columns):
    """Write a run of every experiment of one option, as fast as `rate` output tokens/s say."""
    write_run(folder, rate=rate, **columns)
    write_sweep(folder, overhead=0.1 / rate, lost=lost, **columns)
    write_quality(folder, [[5, 5], [5, 6]], [0.5, 0.6], [2.0, 3.0], **columns)
    write_serving(folder, {1: (0.05, 2 / rate), 8: (0.1, 4 / rate)}, {2: (0.05, 3 / rate)}, **columns)


# --- solved problems -------------------------------------------------------------------------------------


def evaluation_sidecar(problems, whole=164, **more):
    """The sidecar of an evaluation that set out to answer `problems` of `whole`."""
    settings = {"problems": problems, "problems_of": whole, "problems_sha256": "0"}
    return make_sidecar(**MATRICES, settings=settings, **more)


def write_evaluation(folder, problems=164, cut=0, whole=164, sidecar=None, **columns):
    """Write made-up answers to HumanEval, the first `cut` of which were cut; returns the run's path."""
    rows = make_rows(n=problems, experiment="humaneval", tokens=6, **columns)
    for place, row in enumerate(rows):
        row |= {"prompt": place, "ttft_s": None, "max_new_tokens": 8, "finish_reason": "stop"}
        if place < cut:
            row |= {"output_tokens": 8, "output_ids": answer_ids(place, 8), "finish_reason": "length"}
    return _write(rows, evaluation_sidecar(problems, whole, **(sidecar or {})), folder)


def write_score(folder, passed, scored_run, sidecar=None, **columns):
    """Write a made-up score of the answers `scored_run`: `passed` has a 1 or a 0 for each problem."""
    rows = make_rows(n=len(passed), experiment="humaneval-score", tokens=6, **columns)
    for place, (row, each) in enumerate(zip(rows, passed)):
        row |= {"prompt": place, "ttft_s": None, "output_ids": "", "passed": each}
        row |= {"failure": "" if each else "AssertionError"}
    more = {"scored_run": scored_run} | (sidecar or {})
    return _write(rows, evaluation_sidecar(len(passed), **more), folder)
