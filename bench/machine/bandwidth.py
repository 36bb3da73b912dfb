"""Read bandwidth of a device's memory, probed by a process of its own.

    python -m bench.machine.bandwidth cpu 2     one line in, one measurement out (bytes/s)

So neither the probe's memory nor its threads touch the engine that is measured beside it. Other modules know
the probe by this module's name in its command line.
"""

import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from time import perf_counter as clock

import numpy as np

from bench.machine import identity
from bench.paths import ROOT

PASSES = 5


def _cache_bytes():
    """Size of the last-level cache in bytes, 32 MiB where the system does not say."""
    file = Path("/sys/devices/system/cpu/cpu0/cache/index3/size")
    text = file.read_text().strip() if file.exists() else "32768K"
    return int(text.rstrip("KM")) * (2**20 if text.endswith("M") else 2**10)


def _cpu_reader(threads):
    """A function that reads a buffer much larger than the caches once with `threads` threads, and the
    buffer's bytes.

    NumPy's reductions release the interpreter lock and run at the memory's speed: equal to a C loop of vector
    loads within 2 %.
    """
    buffer = np.ones(max(2**29, 8 * _cache_bytes()) // 8, dtype=np.int64)
    parts = np.array_split(buffer, threads)
    pool = ThreadPoolExecutor(threads)
    return lambda: list(pool.map(np.bitwise_or.reduce, parts)), buffer.nbytes


def _cuda_rate(device="cuda", size=2**30, times=16):
    """Best read rate in bytes/s of the two ways to read memory that come nearest to decoding: summing up, and
    a matrix times a vector.

    The buffer (1 GiB: beyond any cache, and small enough to find room beside an engine that took nine tenths
    of the device) is given back after each probe. Each way is started `times` times before it is waited for,
    so that neither start nor wait counts.
    """
    import torch

    wait = torch.cuda.synchronize if device == "cuda" else lambda: None
    # Random, for constant bits take less power and clocks depend on it.
    matrix = torch.randn(size // 2 // 8192, 8192, dtype=torch.bfloat16, device=device)
    vector, whole = torch.randn(8192, dtype=torch.bfloat16, device=device), matrix.view(torch.float32)

    def often(read):
        for _ in range(times):
            read()
        wait()

    ways = [lambda: often(whole.sum), lambda: often(lambda: torch.mv(matrix, vector))]
    with torch.inference_mode():
        for way in ways:
            way()
        best = max(best_rate(way, times * size) for way in ways)
    matrix = vector = whole = ways = None  # given back before the cache is emptied
    if device == "cuda":
        torch.cuda.empty_cache()
    return best


def best_rate(work, size):
    """Best of PASSES rates of `work()`, which handles `size` bytes or operations: size / s."""

    def once():
        start = clock()
        work()
        return size / (clock() - start)

    return max(once() for _ in range(PASSES))


def _serve_probe(device, threads):
    if device == "cpu":
        read, size = _cpu_reader(threads)
        read()
    for _ in sys.stdin:
        print(_cuda_rate() if device == "cuda" else best_rate(read, size), flush=True)


class Bandwidth:
    """Context manager: measured read bandwidth of `device` in bytes/s, now, each time `probe()` is called;
    all are kept."""

    def __init__(self, device="cpu", threads=None):
        command = [sys.executable, "-m", "bench.machine.bandwidth", device, str(threads or identity.cores())]
        environment = {k: v for k, v in os.environ.items() if not k.startswith(("OMP_", "MKL_"))}
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT, env=environment
        )
        self.probes = []

    def probe(self):
        """Best of a few passes over a buffer that no cache holds, in bytes/s."""
        self.process.stdin.write("\n")
        self.process.stdin.flush()
        answer = self.process.stdout.readline()
        if not answer:
            code = self.process.wait()
            raise RuntimeError(
                f"The bandwidth probe ended with exit code {code}; is there enough memory for its buffer?"
            )
        self.probes.append(float(answer))
        return self.probes[-1]

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.stdin.close()
        self.process.wait(timeout=30)
        self.process.stdout.close()


if __name__ == "__main__":
    _serve_probe(sys.argv[1], int(sys.argv[2]))
