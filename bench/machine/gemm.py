"""The matrix-multiply peak of a device in each number format.

python -m bench.machine.gemm cpu 2     every format that the device multiplies, as JSON (operations/s)
"""

import json
import math
import subprocess
import sys
from collections.abc import Callable
from time import perf_counter as clock
from types import ModuleType
from typing import TYPE_CHECKING

from bench.machine import identity
from bench.paths import ROOT

if TYPE_CHECKING:
    import torch

SECONDS = 1.0  # how long each way is watched: a GPU's clocks and power limit need that to show
WINDOWS = 2  # of that length on a GPU
# A CPU without instructions for a format multiplies one number at a time, a hundredth as fast: minutes for a
# product, and no peak of anything that an engine does.
EMULATED, SMALL = 0.1, 128  # at most this share of float32's rate, in products of so small matrices
# Number format of a GPU's tensor cores -> compute capability that has it first.
SINCE = {
    "float32": (0, 0),
    "tf32": (8, 0),
    "bfloat16": (8, 0),
    "float16": (7, 0),
    "int8": (7, 5),
    "float8_e4m3fn": (8, 9),
}


def gemm_flops_per_s(
    dtype: str,
    device: str = "cpu",
    threads: int | None = None,
    size: int | None = None,
    seconds: float = SECONDS,
) -> float:
    """Matrix-multiply peak of torch in `dtype` ('float32', 'tf32', 'int8', 'float8_e4m3fn' …), operations/s.

    2 n^3 / time of random normal matrices, watched for `seconds`: on a GPU the mean over the better of two
    such windows (constant matrices take less power and are multiplied at higher clocks than any engine's); on
    a CPU the best single product. The best of the libraries that torch has for it: on some processors one of
    them alone stays a tenth below what engines reach.
    """
    import torch

    size = size or (8192 if device == "cuda" else 2048)
    if device == "cpu":
        torch.set_num_threads(threads or identity.cores())
    wait = torch.cuda.synchronize if device == "cuda" else lambda: None
    torch.set_float32_matmul_precision("high" if dtype == "tf32" else "highest")
    rate = _sustained if device == "cuda" else _best
    with torch.inference_mode():
        ways = _products(torch, dtype, device, size)
        return max(rate(multiply, wait, seconds) for multiply in ways) * 2 * size**3


def _best(multiply: Callable[[], object], wait: Callable, seconds: float) -> float:
    """Products per second of the fastest one within `seconds`; two at least."""
    multiply()
    end, times = clock() + seconds, []
    while len(times) < 2 or clock() < end:
        start = clock()
        multiply()
        wait()
        times.append(clock() - start)
    return 1 / min(times)


def _sustained(multiply: Callable[[], object], wait: Callable, seconds: float) -> float:
    """Products per second over `seconds` without a pause, the better of WINDOWS times."""

    def timed(count: int) -> float:
        start = clock()
        for _ in range(count):
            multiply()
        wait()
        return clock() - start

    timed(1)  # libraries choose their kernels at the first call
    count = max(1, math.ceil(seconds / timed(10) * 10))
    return max(count / timed(count) for _ in range(WINDOWS))


def _products(torch: ModuleType, dtype: str, device: str, size: int) -> list[Callable[[], object]]:
    """Functions that multiply two random square matrices once: the usual product and, for float32 on a CPU,
    oneDNN's as well."""
    torch.manual_seed(0)
    a, b = (_matrix(torch, dtype, device, size) for _ in range(2))
    if dtype == "int8":  # no public product of int8 matrices accumulates in int32
        return [lambda: torch._int_mm(a, b.t())]
    if dtype == "float8_e4m3fn":  # the second matrix by columns, as cuBLAS wants it; scales are required
        one = torch.ones((), device=device)
        more = {"scale_a": one, "scale_b": one, "out_dtype": torch.bfloat16, "use_fast_accum": True}
        return [lambda: torch._scaled_mm(a, b.t(), **more)]
    if device == "cpu" and dtype == "float32" and torch.backends.mkldnn.is_available():
        from torch.utils import mkldnn

        plain = torch.nn.Linear(size, size, bias=False).eval()
        plain.weight.data.copy_(b)
        layer, input = mkldnn.to_mkldnn(plain), a.to_mkldnn()
        return [lambda: torch.matmul(a, b), lambda: layer(input)]
    return [lambda: torch.matmul(a, b)]


def _matrix(torch: ModuleType, dtype: str, device: str, size: int) -> "torch.Tensor":
    normal = torch.randn(size, size, device=device)
    if dtype == "int8":
        return (normal * 32).round().clamp(-127, 127).to(torch.int8)
    return normal.to(torch.float32 if dtype == "tf32" else getattr(torch, dtype))


def gemm_peaks(device: str = "cpu", threads: int | None = None) -> dict[str, float]:
    """Number format -> matrix-multiply peak in operations/s, each format the device multiplies natively (not
    `is_emulated`), measured in a process of its own."""
    command = [sys.executable, "-m", "bench.machine.gemm", device, str(threads or identity.cores())]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT)
    if done.returncode:
        last = done.stderr.strip().splitlines()[-1:]
        raise RuntimeError(f"The matrix-multiply peak could not be measured: {last}")
    return json.loads(done.stdout.splitlines()[-1])


def gemm_dtypes(device: str) -> list[str]:
    """Names of the number formats that are measured on `device`: on a GPU all that its tensor cores have, by
    its compute capability."""
    if device == "cpu":
        return ["float32", "bfloat16", "int8"]
    import torch

    capability = torch.cuda.get_device_capability()
    return [dtype for dtype, first in SINCE.items() if capability >= first]


def is_emulated(dtype: str, threads: int) -> bool:
    """Whether the CPU multiplies `dtype` without instructions for it: at most EMULATED of float32's rate."""
    float32, rate = (gemm_flops_per_s(d, "cpu", threads, SMALL, 0.02) for d in ("float32", dtype))
    return rate < EMULATED * float32


def main(device: str, threads: int) -> None:
    """Print the peak of every format as JSON; a format that this build of torch cannot multiply, or that a
    CPU only emulates, is left out, and why goes to standard error."""
    peaks = {}
    for dtype in gemm_dtypes(device):
        try:
            if device == "cpu" and is_emulated(dtype, threads):
                print(f"{dtype}: this processor has no instructions for it", file=sys.stderr)
                continue
            peaks[dtype] = gemm_flops_per_s(dtype, device, threads)
        except Exception as failure:  # another torch may lack a function, or take other arguments
            print(f"{dtype}: {type(failure).__name__}: {failure}", file=sys.stderr)
    print(json.dumps(peaks))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
