"""**fake**: an engine of known speed, for tests only; BENCH_BACKENDS names this folder.

A model answer that tries to be markup: <script>document.title = "broken"</script>
"""

import math
import os
import sys
from pathlib import Path
from time import perf_counter, sleep

from bench import prefix_cache
from bench.backends.common import servers
from bench.machine import bandwidth, neighbours

EVERY = {
    "float32": {},
    "int8": {"faster": 2},
    "short": {"lost": 1},
    "broken": {"breaks": 3},
    "impossible": {"weight_bytes": 10**12},
    "mute": {"streams": False},
    "greedy-memory": {"most": 4, "weight_bytes": 0},
    "dies": {"survives": 4, "weight_bytes": 0},
    "speculates": {"accepts": 2},
    "slow": {"faster": 0.5},
}
# A study plans every option on offer; the last four are for tests of the worker, speculation and Slurm.
OFFERED = os.environ.get("FAKE_OPTIONS", "float32 int8 short broken impossible mute")
OPTIONS = {name: EVERY[name] for name in OFFERED.split()}
DEVICES = ("cpu",)
NOT_JUDGED = "Its answers are made up."
PREFIX_CACHE = True
BLOCK_TOKENS = 16
PARALLEL = {"load": ("tensor",), "serve": ("tensor", "data")}  # so many devices are as fast as one
TTFT_S, ITL_S = 0.030, 0.004
# Tests beside each other: the runs that they start measure nothing that a busy machine could spoil, and read no
# memory. In the tests' own process neighbours are seen, for they try the check there.
if os.environ.get("FAKE_NEIGHBOURS") and "pytest" not in sys.modules:
    sys.path.append(str(Path(__file__).parents[1]))
    import idle

    neighbours.Neighbours.cores, bandwidth.Bandwidth = idle.Alone.cores, idle.Probe
ANSWER = '<script>document.title = "broken"</script>'


def version():
    return "1.0"


def available():
    return None


def load(checkpoint, option, device, threads, tensor_parallel=1):
    return Engine(checkpoint, EVERY[option], tensor_parallel)


def serve(checkpoint, option, device, request):
    """The reference server on this schedule; `broken` never answers, `int8` counts a token too many."""
    command = [sys.executable, "-m", "bench.instrument.reference_server", "--port", request.port]
    command += ["--ttft-s", TTFT_S, "--itl-s", ITL_S]
    command += ["--no-such-option"] if option == "broken" else []
    cache = prefix_cache.Declared("off")
    if request.cache_tokens:
        blocks = request.cache_tokens // BLOCK_TOKENS
        command += ["--cache-blocks", blocks, "--block-tokens", BLOCK_TOKENS, "--prefill-s-per-token", 1e-4]
        cache = prefix_cache.Declared("blocks", BLOCK_TOKENS, capacity_tokens=blocks * BLOCK_TOKENS)
    return servers.ServerCommand(
        command,
        model="ground-truth",
        settings={"schedule": [TTFT_S, ITL_S], "devices": request.tensor_parallel * request.data_parallel},
        below="/fault/wrong-usage" if option == "int8" else "",
        cache=lambda url: cache,
    )


class Engine:
    """Tokens arrive TTFT_S, TTFT_S + ITL_S, … after the call, to a few µs; their ids spell ANSWER."""

    kv_value_bytes = 4

    def __init__(self, checkpoint, traits, tensor_parallel=1):
        self.traits, self.calls = traits, 0
        self.streams = traits.get("streams", True)
        self.weight_bytes = traits.get("weight_bytes", 10**6)
        self.settings = {"schedule": [TTFT_S, ITL_S], "devices": tensor_parallel}
        self.answer_ids = checkpoint.encode(ANSWER)

    def generate(self, prompts, max_new_tokens, on_token):
        start, self.calls = perf_counter(), self.calls + 1
        if self.calls == self.traits.get("breaks"):
            raise MemoryError("no room for the KV cache")
        if len(prompts) > self.traits.get("most", len(prompts)):
            raise MemoryError(f"no room for the KV cache of {len(prompts)} requests")
        if len(prompts) > self.traits.get("survives", len(prompts)):
            os.abort()
        count = max_new_tokens - self.traits.get("lost", 0)
        ids = [self.answer_ids[k % len(self.answer_ids)] for k in range(count)]
        for k, token in enumerate(ids):
            _until(start + (TTFT_S + k * ITL_S) / self.traits.get("faster", 1))
            for request in range(len(prompts)) if on_token else []:
                on_token(request, token)
        if "accepts" in self.traits:
            self.speculation = {
                "drafted_tokens": count - 1,
                "accepted_tokens": (count - 1) // self.traits["accepts"],
            }
        return [ids for _ in prompts]

    def keep_prefix(self, ids):
        self.kept = ids

    def answer(self, prompts, max_new_tokens):
        """ANSWER, or as much of it as is asked for."""
        self.calls += 1
        if self.calls == self.traits.get("breaks"):
            raise MemoryError("no room for the KV cache")
        return [self.answer_ids[:max_new_tokens] for _ in prompts]

    def log_probabilities(self, ids):
        """Every token has one chance in two, whatever came before."""
        return [-math.log(2)] * (len(ids) - 1)

    def close(self):
        pass


def _until(moment):
    while (left := moment - perf_counter()) > 0:
        sleep(left / 2 if left > 0.0005 else 0)
