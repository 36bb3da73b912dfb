"""The matrix-multiply peak of a device in each number format.

python -m bench.machine.gemm cpu 2     every format that the device multiplies, as JSON (operations/s)
"""

import json
import subprocess
import sys

from bench.machine import bandwidth, identity
from bench.paths import ROOT


def gemm_flops_per_s(dtype, device="cpu", threads=None, size=None):
    """Matrix-multiply peak of torch in `dtype` ('float32', 'bfloat16', 'int8' …), operations/s: 2 n^3 / best
    time of several products.

    The best of the libraries that torch has for it: on some processors one of them alone stays a tenth below
    what engines reach.
    """
    import torch

    size = size or (8192 if device == "cuda" else 2048)
    if device == "cpu":
        torch.set_num_threads(threads or identity.cores())
    with torch.inference_mode():
        rates = []
        for multiply in _products(torch, dtype, device, size):
            multiply()
            rates.append(bandwidth.best_rate(multiply, 2 * size**3))
    return max(rates)


def _products(torch, dtype, device, size):
    """Functions that multiply two square matrices once: the usual product and, for float32 on a CPU, oneDNN's
    as well."""
    a = torch.ones(size, size, dtype=getattr(torch, dtype), device=device)
    # No public product of int8 matrices accumulates in int32.
    product = torch._int_mm if dtype == "int8" else torch.matmul

    def multiply():
        product(a, a)
        if device == "cuda":
            torch.cuda.synchronize()

    if device == "cpu" and dtype == "float32" and torch.backends.mkldnn.is_available():
        from torch.utils import mkldnn

        layer, input = mkldnn.to_mkldnn(torch.nn.Linear(size, size, bias=False).eval()), a.to_mkldnn()
        return [multiply, lambda: layer(input)]
    return [multiply]


def gemm_peaks(device="cpu", threads=None):
    """Number format -> matrix-multiply peak in operations/s, each format the device multiplies natively,
    measured in a process of its own."""
    command = [
        sys.executable,
        "-m",
        "bench.machine.gemm",
        device,
        str(threads or identity.cores()),
    ]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT)
    if done.returncode:
        raise RuntimeError(
            f"The matrix-multiply peak could not be measured: {done.stderr.strip().splitlines()[-1:]}"
        )
    return json.loads(done.stdout.splitlines()[-1])


def gemm_dtypes(device):
    """Names of the number formats that are measured on `device`."""
    return ["float32", "bfloat16", *(["float16"] if device == "cuda" else []), "int8"]


def main(device, threads):
    """Print the peak of every format as JSON."""
    print(json.dumps({dtype: gemm_flops_per_s(dtype, device, threads) for dtype in gemm_dtypes(device)}))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
