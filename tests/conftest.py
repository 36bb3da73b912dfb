"""What all tests share: the fake engine, folders of their own, and made-up runs that pass every gate."""

import os
import signal
import subprocess
import sys
from pathlib import Path

TESTS = Path(__file__).parent
# A job in the background is started deaf to Ctrl-C, and so would be everything that it starts.
signal.signal(signal.SIGINT, signal.default_int_handler)
os.environ["BENCH_BACKENDS"] = str(TESTS / "backends")

import pytest  # noqa: E402

from bench import naming
from bench.observations import store
from bench.paths import ROOT

BIN = Path(sys.executable).parent


def make_rows(
    n=3,
    backend="fake",
    option="float32",
    host="abc123",
    gpu="test-cpu",
    experiment="latency",
    rate=100.0,
    run=1,
    tokens=10,
    model="smollm2-135m",
    **changes,
):
    """Rows of one plausible run: `rate` tokens/s after a TTFT of 50 ms."""
    identity = {
        "experiment": experiment,
        "backend": backend,
        "model": model,
        "option": option,
        "gpu": gpu,
        "host": host,
    }
    identifier = naming.run_id(**identity, n=run)
    e2e = 0.05 + (tokens - 1) / rate
    row = identity | {
        "run_id": identifier, "backend_version": "1.0", "weights": "real", "tensor_parallel": 1, "prompt_tokens": 8, "max_new_tokens": tokens,
        "batch_size": 1, "temperature": 0, "ttft_s": 0.05, "e2e_s": e2e, "output_tokens": tokens, "itl_p50_s": 1 / rate, "itl_p90_s": 1 / rate,
        "itl_p99_s": 1 / rate, "itl_max_s": 1 / rate, "peak_memory_bytes": 10**9, "load_s": 1.0, "answer": "a,b \"c\"\n<script>",
        "output_ids": " ".join(["5"] * tokens), "error": "",
    }  # fmt: skip
    return [row | {"request": k, "prompt": k, "sent_s": k * 2.0} | changes for k in range(1, n + 1)]


def make_sidecar(**changes):
    """A complete sidecar of a machine with 40 GB/s."""
    return {
        "packages": {}, "git": {}, "machine": {"cpu": "test"}, "busy_cores": {"others": 0.0, "steal": 0.0}, "bandwidth_probes_bytes_per_s": [20e9, 40e9], "datasheet_bandwidth_bytes_per_s": None,
        "weight_bytes": 1e8, "kv_value_bytes": 4, "kv_values_per_token": 1000, "parameters": {}, "settings": {}, "threads": 2,
        "model_sha256": "", "prompts_sha256": "", "started": "2026-01-01T00:00:00+00:00", "ended": "2026-01-01T00:01:00+00:00",
    } | changes  # fmt: skip


def write_run(folder, sidecar=None, **about):
    """Write one made-up run; returns its path."""
    rows = make_rows(**about)
    return store.write(rows, sidecar or make_sidecar(), rows[0]["run_id"], folder)


MATRICES = {"block_parameters": 1e8, "head_parameters": 2e7, "attention_values": 2e4, "arithmetic": "float32"}
PEAKS = {"gemm_flops_per_s": {"float32": [2e11, 4e11], "bfloat16": [8e11]}}
SHAPES = [(1, n, 16) for n in (32, 128, 512, 1024, 2048)] + [(b, 512, 64) for b in (1, 2, 4, 8, 16, 32, 64)]


def step_s(batch, context, overhead=0.002, bandwidth=30e9, peak=2e11):
    """The step-time model itself, for the sizes of `make_sidecar` and MATRICES."""
    memory = (1e8 + batch * context * 1000 * 4) / bandwidth
    return overhead + max(memory, batch * (2 * 1.2e8 + 4 * 2e4 * context) / peak)


def write_sweep(
    folder,
    lost=(),
    experiment="batching",
    sidecar=None,
    shapes=SHAPES,
    wait=1e-3,
    run=1,
    error="MemoryError: no room for the KV cache",
    **about,
):
    """Write one made-up sweep whose steps follow `step_s` (its coefficients are taken from `about`); batches of the sizes `lost` failed."""
    known = {k: about.pop(k) for k in ("overhead", "bandwidth", "peak") if k in about}
    rows, sent = [], 0.0
    for batch, prompt, tokens in shapes:
        step, ttft = step_s(batch, prompt + tokens / 2, **known), wait * batch * prompt + 0.01
        for k in range(1, batch + 1):
            row = make_rows(1, experiment=experiment, tokens=tokens, run=run, **about)[0] | {
                "request": len(rows) + 1,
                "prompt": k,
                "batch_size": batch,
            }
            row |= {
                "prompt_tokens": prompt,
                "ttft_s": ttft,
                "e2e_s": ttft + step * (tokens - 1),
                "itl_p50_s": step,
                "sent_s": sent,
            }
            if batch in lost:
                row |= {c: None for c in ("ttft_s", "e2e_s", "itl_p50_s")} | {
                    "output_tokens": 0,
                    "output_ids": "",
                    "error": error,
                }
            rows.append(row)
        sent += 100.0
    sidecar = sidecar or make_sidecar(**MATRICES, **PEAKS)
    return store.write(rows, sidecar, rows[0]["run_id"], folder)


def serving_rows(closed, opened=(), n=8, tokens=11, failed=0, slow=None, run=1, **about):
    """Rows of a made-up load test: `closed` {concurrency: (ttft_s, tpot_s)}, `opened` {request rate: likewise}, `n` requests a level.

    `slow` is the TTFT of each level's last request; the last `failed` requests of every level have failed.
    """
    rows, sent = [], 0.0
    levels = [("concurrency", *level) for level in dict(closed).items()] + [
        ("request_rate", *level) for level in dict(opened).items()
    ]
    for kind, load, (ttft, tpot) in levels:
        for k in range(n):
            wait = slow if slow and k == n - 1 else ttft
            began = k // load * (ttft + (tokens - 1) * tpot) if kind == "concurrency" else k / load
            row = make_rows(1, experiment="serving", tokens=tokens, run=run, **about)[0] | {
                "request": len(rows) + 1,
                "prompt": len(rows) + 1,
                kind: load,
            }
            row |= {
                "sent_s": sent + began,
                "ttft_s": wait,
                "e2e_s": wait + (tokens - 1) * tpot,
                "answer": "",
                "output_ids": "",
                "finish_reason": "length",
            }
            row |= {f"itl_{name}_s": tpot for name in ("p50", "p90", "p99", "max")} | {
                "connect_s": 0.0,
                "chunks": tokens,
                "cached_tokens": 0,
            }
            row |= {"late_s": 1e-5 if kind == "request_rate" else None}
            if k >= n - failed:
                row |= {c: None for c in ("ttft_s", "e2e_s", "finish_reason")} | {
                    "output_tokens": 0,
                    "error": "ConnectionResetError: reset",
                }
            rows.append(row)
        sent += 1000.0
    return rows


def write_serving(folder, closed, opened=(), sidecar=None, **about):
    """Write one made-up load test (see `serving_rows`); returns its path."""
    rows = serving_rows(closed, opened, **about)
    asked = {"lengths": "sharegpt", "scale": 0.0, "arrivals": "poisson"}
    return store.write(
        rows, sidecar or make_sidecar(parameters=asked, weight_bytes=1e7), rows[0]["run_id"], folder
    )


TEXT_IDS = [7] * 20, [8] * 12


def write_quality(folder, answers, nll, own=None, pieces=TEXT_IDS, sidecar=None, **about):
    """Write a made-up quality run: one answer per list of ids in `answers` with its NLL, and pieces of a text with their own NLLs."""
    rows = make_rows(n=len(answers) + len(own or []), experiment="quality", **about)
    for row, ids, each in zip(rows, answers, nll):
        row |= {
            "output_ids": " ".join(map(str, ids)),
            "output_tokens": len(ids),
            "max_new_tokens": len(ids),
            "reference_nll_nats": each,
            "ttft_s": None,
        }
    for row, ids, each in zip(rows[len(answers) :], pieces, own or []):
        row |= {
            "prompt": 0,
            "prompt_tokens": 1,
            "output_ids": " ".join(map(str, ids)),
            "output_tokens": len(ids),
            "max_new_tokens": len(ids),
        }
        row |= {"own_nll_nats": each, "ttft_s": None, "error": "" if each is not None else "RuntimeError: no"}
    return store.write(rows, make_sidecar(**MATRICES | (sidecar or {})), rows[0]["run_id"], folder)


def run(*command, check=True, **environment):
    """Run a command of this environment in the repository; returns the finished process with its text."""
    variables = (
        os.environ
        | {"PATH": f"{BIN}{os.pathsep}{os.environ['PATH']}"}
        | {k: str(v) for k, v in environment.items()}
    )
    done = subprocess.run(
        [str(c) for c in command], cwd=ROOT, env=variables, capture_output=True, text=True, timeout=900
    )
    assert not check or done.returncode == 0, done.stdout + done.stderr
    return done


@pytest.fixture
def observations(tmp_path):
    """A folder with runs of two engines on two machines, one of them with repeats."""
    for option, rate in (("float32", 50.0), ("int8", 120.0)):
        for n in (1, 2, 3):
            write_run(tmp_path, option=option, rate=rate + n, run=n)
    write_run(tmp_path, backend="transformers", option="float32", rate=30.0)
    write_run(tmp_path, backend="llamacpp", option="Q4_0", rate=200.0, host="def456", gpu="other-cpu")
    return tmp_path


@pytest.fixture
def watchdog():
    """A test that hangs is a test that fails."""

    def bark(*_):
        raise TimeoutError("the test hangs")

    before = signal.signal(signal.SIGALRM, bark)
    signal.alarm(20)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)
