"""Read bandwidth of a device's memory, probed by a process of its own.

    python -m bench.machine.bandwidth cpu 2     one line in (bytes of a working set, or 0), one measurement
                                                out (JSON: memory, working_set in bytes/s, cpu_share, ways)

So neither the probe's memory nor its threads touch the engine that is measured beside it. Other modules know
the probe by this module's name in its command line.

**Each reader has a core of its own.** Threads that are woken for a few milliseconds are often put on the core
of the thread that wakes them and share it until the scheduler moves one, which it rarely does in that time: a
probe with two free threads then finds what one core can read, and no engine is any slower in that moment.

**Memory is read in several ways, and the fastest counts.** One stream of loads per core does not fill the
memory's queue everywhere: on Zen 5 a dot product, which reads two arrays side by side, can find a third more
than a reduction. So did the matrix-vector products of an engine, whose MBU against the reduction was above 1.
"""

import json
import math
import os
import subprocess
import sys
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from time import perf_counter as clock
from time import thread_time
from typing import Self

import numpy as np

from bench.machine import identity
from bench.paths import ROOT
from llm_measured.core.definitions import Fields

PASSES = 5
WORKING_SET_S = 0.1  # a small working set is read for at least so long
COLUMNS = 4096  # of the matrices that are read, as of a small model: the nearest cache holds their vector
VECTOR = np.ones(COLUMNS, dtype=np.float32)


def _reduction(part: np.ndarray) -> None:
    """One stream; equal to a C loop of vector loads within 2 %."""
    np.bitwise_or.reduce(part.view(np.int64))


def _dot_product(part: np.ndarray) -> None:
    """Two streams, one half of the array beside the other."""
    half = len(part) // 2
    np.dot(part[:half], part[half:])


def _matrix_vector(part: np.ndarray) -> None:
    """What a decode step does at batch size 1: a few rows side by side."""
    np.matmul(part.reshape(-1, COLUMNS), VECTOR)


# Each reads the whole of a float32 array. NumPy and its BLAS release the interpreter lock meanwhile.
WAYS = {"reduction": _reduction, "dot_product": _dot_product, "matrix_vector": _matrix_vector}


class Readers:
    """Threads that read an array together, each its part, each on a core of its own."""

    def __init__(self, threads: int) -> None:
        cores: Sequence[int | None] = identity.allowed_cores() or [None]
        self.pools = [
            ThreadPoolExecutor(1, initializer=identity.pin, initargs=(cores[k % len(cores)],))
            for k in range(threads)
        ]

    def _each(self, function: Callable, parts: Iterable) -> list:
        return [done.result() for done in [p.submit(function, x) for p, x in zip(self.pools, parts)]]

    def buffer(self, size: int) -> list[np.ndarray]:
        """One float32 array per thread, `size` bytes in all (rounded to two rows of COLUMNS), first touched
        by the thread that reads it."""
        rows = 2 * max(1, round(size / len(self.pools) / (2 * 4 * COLUMNS)))
        return self._each(lambda count: np.ones(count, dtype=np.float32), [rows * COLUMNS] * len(self.pools))

    def read(self, parts: list[np.ndarray], way: str) -> tuple[float, float]:
        """Read all `parts` once, in one of WAYS: (bytes/s, share of the time for which the slowest reader had
        its core)."""
        start = clock()
        shares = self._each(lambda part: _share(WAYS[way], part), parts)
        return sum(part.nbytes for part in parts) / (clock() - start), min(shares)


def _share(read: Callable[[np.ndarray], object], part: np.ndarray) -> float:
    """Read `part` once; returns the share of that time for which this thread had a core."""
    wall, cpu = clock(), thread_time()
    read(part)
    return (thread_time() - cpu) / (clock() - wall)


class CpuProbe:
    """Read bandwidth of a CPU's memory, and of a working set as large as a model's weights."""

    def __init__(self, threads: int) -> None:
        self.readers, self.working_set, self.working_set_bytes = Readers(threads), [], 0
        self.memory_bytes = max(2**29, 8 * identity.cache_bytes())
        self.memory = self.readers.buffer(self.memory_bytes)
        for way in WAYS:
            self.readers.read(self.memory, way)

    def measure(self, working_set_bytes: int = 0) -> Fields:
        """memory and working_set (bytes/s, best pass of the best way), cpu_share (share of the best
        pass over memory for which the slowest reader had its core; 1 if nobody interrupted it), ways (bytes/s
        of memory in each of WAYS, best pass).

        working_set is None without one, and for one beyond the memory that is read anyway.
        """
        if working_set_bytes != self.working_set_bytes:
            self.working_set_bytes, fits = working_set_bytes, 0 < working_set_bytes <= self.memory_bytes
            self.working_set = self.readers.buffer(working_set_bytes) if fits else []
        found = {way: max(self.readers.read(self.memory, way) for _ in range(PASSES)) for way in WAYS}
        memory, share = max(found.values())
        ways = {way: rate for way, (rate, _) in found.items()}
        return {"memory": memory, "working_set": self._working_set_rate(), "cpu_share": share, "ways": ways}

    def _working_set_rate(self) -> float | None:
        """Best pass over the working set in any way, of PASSES in each at least and WORKING_SET_S of them;
        None without one."""
        if not self.working_set:
            return None
        end, rates = clock() + WORKING_SET_S, []
        while len(rates) < PASSES * len(WAYS) or clock() < end:
            rates += [self.readers.read(self.working_set, way)[0] for way in WAYS]
        return max(rates)


def _cuda_rate(device: str = "cuda", size: int = 2**30, times: int = 16) -> float:
    """Best read rate in bytes/s of the two ways to read memory that come nearest to decoding: summing up, and
    a matrix times a vector.

    The buffer (1 GiB: beyond any cache, and small enough to find room beside an engine that took nine tenths
    of the device) is freed after each probe. Each way is started `times` times before it is waited for,
    so that neither start nor wait counts.
    """
    import torch

    wait = torch.cuda.synchronize if device == "cuda" else lambda: None
    # Random, for constant bits take less power and clocks depend on it.
    matrix = torch.randn(size // 2 // 8192, 8192, dtype=torch.bfloat16, device=device)
    vector, whole = torch.randn(8192, dtype=torch.bfloat16, device=device), matrix.view(torch.float32)

    def often(read: Callable[[], object]) -> None:
        for _ in range(times):
            read()
        wait()

    ways = [lambda: often(whole.sum), lambda: often(lambda: torch.mv(matrix, vector))]
    with torch.inference_mode():
        for way in ways:
            way()
        best = max(best_rate(way, times * size) for way in ways)
    matrix, vector, whole, ways = None, None, None, []  # freed before the cache is emptied
    if device == "cuda":
        torch.cuda.empty_cache()
    return best


def best_rate(work: Callable[[], object], size: int) -> float:
    """Best of PASSES rates of `work()`, which handles `size` bytes or operations: size / s."""

    def once() -> float:
        start = clock()
        work()
        return size / (clock() - start)

    return max(once() for _ in range(PASSES))


def _serve_probe(device: str, threads: int) -> None:
    cpu = CpuProbe(threads) if device == "cpu" else None
    for line in sys.stdin:
        found = cpu.measure(int(line)) if cpu else {"memory": _cuda_rate()}
        print(json.dumps(found), flush=True)


class Unprobed:
    """What stands for `Bandwidth` where the device cannot be reached: nothing is read, so nothing is kept."""

    def __init__(self) -> None:
        self.probes, self.working_set_probes, self.cpu_shares, self.ways = [], [], [], []
        self.working_set_bytes = 0

    def probe(self) -> float:
        """NaN: nobody can read that memory from here."""
        return math.nan

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass


class Bandwidth(Unprobed):
    """Context manager: measured read bandwidth of `device` in bytes/s, now, each time `probe()` is called;
    all are kept.

    probes: of memory far beyond the caches. working_set_probes: of a buffer of `working_set_bytes`, which is
    to be set to the bytes of an engine's weights once they are known (CPU only). cpu_shares: of each probe,
    the share of its time for which the slowest reader had its core. ways: of each probe, what each way to
    read found, {way: bytes/s} (CPU only).
    """

    def __init__(self, device: str = "cpu", threads: int | None = None) -> None:
        command = [sys.executable, "-m", "bench.machine.bandwidth", device, str(threads or identity.cores())]
        environment = {k: v for k, v in os.environ.items() if not k.startswith(("OMP_", "MKL_"))}
        # Each reader is a thread already, with a core of its own: BLAS brings no more.
        environment |= dict.fromkeys(("OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "OMP_NUM_THREADS"), "1")
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT, env=environment
        )
        super().__init__()

    def probe(self) -> float:
        """Best of a few passes over a buffer that no cache holds, in bytes/s."""
        self.process.stdin.write(f"{self.working_set_bytes:.0f}\n")
        self.process.stdin.flush()
        answer = self.process.stdout.readline()
        if not answer:
            code = self.process.wait()
            raise RuntimeError(
                f"The bandwidth probe ended with exit code {code}; is there enough memory for its buffer?"
            )
        found = json.loads(answer)
        self.probes.append(found["memory"])
        kept = {"working_set": self.working_set_probes, "cpu_share": self.cpu_shares, "ways": self.ways}
        for name, values in kept.items():
            if found.get(name) is not None:
                values.append(found[name])
        return self.probes[-1]

    def __exit__(self, *_: object) -> None:
        self.process.stdin.close()
        self.process.wait(timeout=30)
        self.process.stdout.close()


if __name__ == "__main__":
    _serve_probe(sys.argv[1], int(sys.argv[2]))
