"""What this machine is, and its measured roofs: read bandwidth and matrix-multiply peak.

    python -m bench.hardware cpu 2          a bandwidth probe that waits on standard input: one line in, one measurement out (bytes/s)
    python -m bench.hardware gemm cpu 2     the matrix-multiply peak in every number format (operations/s)

The probe is a process of its own, so that neither its memory nor its threads touch the engine that is measured beside it.
"""

import itertools
import json
import math
import os
import platform
import re
import secrets
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from time import perf_counter as clock

import numpy as np
import pandas as pd
import psutil
from filelock import FileLock, Timeout

from bench import ROOT, data

ZEN = {(23, 1): "zen1", (23, 8): "zen1", (23, 49): "zen2", (25, 1): "zen3", (25, 17): "zen4", (25, 160): "zen4c", (26, 2): "zen5", (26, 17): "zen5"}
PASSES = 5
GPU_STATE = ("clocks.sm", "clocks.mem", "temperature.gpu", "power.draw", "memory.used")
ROOF_COLUMNS = ["roof", "threads", "value", "unit"]


def host():
    """This checkout's short random id, drawn once and kept in .host, which git ignores."""
    file = ROOT / ".host"
    if not file.exists():
        file.write_text(secrets.token_hex(3) + "\n")
    return file.read_text().strip()


def cores():
    """Number of physical cores this process may use."""
    allowed = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return max(1, min(psutil.cpu_count(logical=False) or allowed, allowed))


def memory_bytes():
    """Bytes of main memory."""
    return psutil.virtual_memory().total


def _cpuinfo():
    """First processor of /proc/cpuinfo as a dict; empty where there is none."""
    file = Path("/proc/cpuinfo")
    text = file.read_text().split("\n\n")[0] if file.exists() else ""
    return {k.strip(): v.strip() for k, _, v in (line.partition(":") for line in text.splitlines())}


def cpu_name():
    """Marketing name of the processor as the system gives it."""
    name = _cpuinfo().get("model name")
    if not name and sys.platform == "darwin":
        name = subprocess.run(["sysctl", "-n", "machdep.cpu.brand_string"], capture_output=True, text=True).stdout.strip()
    return name or platform.processor() or platform.machine()


def is_cpu(slug):
    """Whether a device's slug is that of a CPU: it ends with the number of its cores (`slug`)."""
    return bool(re.search(r"-\d+c$", slug))


def has_cuda():
    """Whether an NVIDIA driver answers."""
    return bool(nvidia("name"))


def visible_gpus():
    """GPUs as CUDA_VISIBLE_DEVICES lists them, numbers or identifiers; None where it is not set and CUDA may use all."""
    listed = os.environ.get("CUDA_VISIBLE_DEVICES")
    return None if listed is None else [name for name in listed.split(",") if name]


def _first():
    """The GPU that CUDA counts as the first one; None where it may use none."""
    listed = visible_gpus()
    return next(iter(["0"] if listed is None else listed), None)


def nvidia(*fields, gpu=None):
    """Fields of `nvidia-smi --query-gpu` for one GPU (the first visible one if None) as a dict; empty without an NVIDIA driver or such a GPU."""
    gpu = _first() if gpu is None else gpu
    if gpu is None:
        return {}
    command = ["nvidia-smi", f"--query-gpu={','.join(fields)}", "--format=csv,noheader,nounits", f"--id={gpu}"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=30)
    except (FileNotFoundError, subprocess.TimeoutExpired):
        return {}
    return dict(zip(fields, done.stdout.strip().split(", "))) if done.returncode == 0 else {}


def gpus():
    """Names of the GPUs that CUDA may use here. In CUDA_VISIBLE_DEVICES one that does not exist hides those behind it. Empty without an NVIDIA driver."""
    listed = visible_gpus()
    chosen = range(int(nvidia("count").get("count", 0))) if listed is None else listed
    return [about["name"] for about in itertools.takewhile(bool, (nvidia("name", gpu=one) for one in chosen))]


def slug(device="cpu"):
    """Short name of the device as it stands in paths and rows: `h200`, `epyc-zen5-2c`."""
    if device == "cuda":
        name = nvidia("name").get("name", "cuda")
        return re.sub(r"[^a-z0-9]+", "-", re.sub(r"NVIDIA|GeForce|Tesla", "", name).lower()).strip("-")
    info, name = _cpuinfo(), cpu_name()
    zen = ZEN.get((int(info.get("cpu family", 0)), int(info.get("model", 0)))) if "AMD" in info.get("vendor_id", "") else None
    plain = re.sub(r"\(.*?\)|CPU|Processor|@.*|AMD|\d+-Core", " ", name, flags=re.I).lower()
    words = re.sub(r"[^a-z0-9]+", "-", plain).strip("-")
    return "-".join(w for w in (words, zen, f"{cores()}c") if w)


def gpu_state():
    """What moves on the first visible GPU: clocks in MHz, degrees Celsius, watts, MiB in use; empty without an NVIDIA driver, None where it keeps silent."""
    return {name: _number(said) for name, said in nvidia(*GPU_STATE).items()}


def _number(said):
    try:
        return float(said)
    except ValueError:  # [N/A], [Not Supported]
        return None


def gpu_company():
    """Sorted process numbers that compute on the first visible GPU and are not this process or its children; empty where the driver names none."""
    return sorted(pid for pid, _ in _gpu_processes() if pid not in _family())


def describe(device="cpu"):
    """What the sidecar keeps of this machine: names, sizes, and of a GPU driver, power limit, top clock, clocks and temperature."""
    about = {
        "cpu": cpu_name(),
        "cores": cores(),
        "memory_bytes": memory_bytes(),
        "system": platform.platform(),
        "python": platform.python_version(),
        "cpu_flags": [f for f in _cpuinfo().get("flags", "").split() if f.startswith(("avx", "amx", "fma"))],
    }
    if device == "cuda":
        about["gpu"] = nvidia("name", "driver_version", "memory.total", "power.limit", "clocks.max.sm", "clocks.max.mem")
        about["gpu_before"] = gpu_state()
    return about


def datasheet_bandwidth(gpu):
    """The vendor's figure for the device called `gpu` in bytes/s, None where data/gpus.csv has no such row (CPUs)."""
    table = data.table("gpus")
    match = table[table["gpu"].str.lower().str.replace(r"[^a-z0-9]+", "-", regex=True) == gpu]
    return float(match["bandwidth_gb_per_s"].iloc[0]) * 1e9 if len(match) else None


class Neighbours:
    """How many cores everybody else kept busy since this was made: other processes, and other virtual machines (steal)."""

    def __init__(self):
        self.start, self.system, self.own = clock(), psutil.cpu_times(), _own_cpu_s()

    def cores(self):
        """{'others': cores busy with other processes, 'steal': cores taken by the hypervisor}, means over the time since."""
        passed, system = clock() - self.start, psutil.cpu_times()
        spent = lambda name: getattr(system, name, 0) - getattr(self.system, name, 0)
        busy = sum(spent(name) for name in ("user", "system", "nice", "irq", "softirq"))
        others = max(0.0, busy - (_own_cpu_s() - self.own))
        return {"others": round(others / passed, 4), "steal": round(spent("steal") / passed, 4)}


def _own_cpu_s():
    """CPU seconds of this process, its living children and those that have ended."""
    me = psutil.Process()
    used = me.cpu_times()
    total = used.user + used.system + used.children_user + used.children_system
    for child in me.children(recursive=True):
        try:
            times = child.cpu_times()
            total += times.user + times.system
        except psutil.Error:
            pass
    return total


def alone(device="cpu"):
    """A machine-wide lock: whoever measures on `device` holds it, whatever checkout it runs from."""
    return FileLock(Path(tempfile.gettempdir()) / f"llm-inference-{device}.lock", mode=0o666)


def take(device="cpu", wait_s=3600):
    """Hold `device` until this process ends; TimeoutError if another measurement keeps it for `wait_s` seconds."""
    lock = alone(device)
    try:
        lock.acquire(timeout=wait_s)
    except Timeout:
        raise TimeoutError(f"Another measurement has held the {device} for {wait_s} s; runs never overlap on one device. Wait for it or stop it.") from None
    return lock


def _cache_bytes():
    """Size of the last-level cache in bytes, 32 MiB where the system does not say."""
    file = Path("/sys/devices/system/cpu/cpu0/cache/index3/size")
    text = file.read_text().strip() if file.exists() else "32768K"
    return int(text.rstrip("KM")) * (2**20 if text.endswith("M") else 2**10)


def _cpu_reader(threads):
    """A function that reads a buffer much larger than the caches once with `threads` threads, and the buffer's bytes.

    NumPy's reductions release the interpreter lock and run at the memory's speed: equal to a C loop of vector loads within 2 %.
    """
    buffer = np.ones(max(2**29, 8 * _cache_bytes()) // 8, dtype=np.int64)
    parts = np.array_split(buffer, threads)
    pool = ThreadPoolExecutor(threads)
    return lambda: list(pool.map(np.bitwise_or.reduce, parts)), buffer.nbytes


def _cuda_rate(device="cuda", size=2**30, times=16):
    """Best read rate in bytes/s of the two ways to read memory that come nearest to decoding: summing up, and a matrix times a vector.

    The buffer (1 GiB: beyond any cache, and small enough to find room beside an engine that took nine tenths of the device) is given back after
    each probe. Each way is started `times` times before it is waited for, so that neither start nor wait counts.
    """
    import torch

    wait = torch.cuda.synchronize if device == "cuda" else lambda: None
    matrix = torch.ones(size // 2 // 8192, 8192, dtype=torch.bfloat16, device=device)
    vector, whole = torch.ones(8192, dtype=torch.bfloat16, device=device), matrix.view(torch.float32)

    def often(read):
        for _ in range(times):
            read()
        wait()

    ways = [lambda: often(whole.sum), lambda: often(lambda: torch.mv(matrix, vector))]
    with torch.inference_mode():
        for way in ways:
            way()
        best = max(_best_rate(way, times * size) for way in ways)
    del matrix, vector, whole, ways
    if device == "cuda":
        torch.cuda.empty_cache()
    return best


def _best_rate(read, size):
    def once():
        start = clock()
        read()
        return size / (clock() - start)

    return max(once() for _ in range(PASSES))


def _serve_probe(device, threads):
    if device == "cpu":
        read, size = _cpu_reader(threads)
        read()
    for _ in sys.stdin:
        print(_cuda_rate() if device == "cuda" else _best_rate(read, size), flush=True)


class Bandwidth:
    """Context manager: measured read bandwidth of `device` in bytes/s, now, each time `probe()` is called; all are kept."""

    def __init__(self, device="cpu", threads=None):
        command = [sys.executable, "-m", "bench.hardware", device, str(threads or cores())]
        environment = {k: v for k, v in os.environ.items() if not k.startswith(("OMP_", "MKL_"))}
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT, env=environment)
        self.probes = []

    def probe(self):
        """Best of a few passes over a buffer that no cache holds, in bytes/s."""
        self.process.stdin.write("\n")
        self.process.stdin.flush()
        answer = self.process.stdout.readline()
        if not answer:
            raise RuntimeError(f"The bandwidth probe ended with exit code {self.process.wait()}; is there enough memory for its buffer?")
        self.probes.append(float(answer))
        return self.probes[-1]

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.stdin.close()
        self.process.wait(timeout=30)
        self.process.stdout.close()


def address_space_bytes():
    """Bytes of address space that this process has mapped: what a limit on it bounds."""
    return psutil.Process().memory_info().vms


def forget_peak(device="cpu"):
    """Let `peak_memory_bytes` begin anew, where the system can (Linux; PyTorch's allocator on a GPU)."""
    if device == "cuda" and (torch := sys.modules.get("torch")):
        torch.cuda.reset_peak_memory_stats()
    try:
        Path("/proc/self/clear_refs").write_text("5")
    except OSError:
        pass  # then a peak is that of the process so far


def peak_memory_bytes(device="cpu"):
    """Largest resident set of this process and, added up, what its children hold now; on a GPU what it holds there. In bytes.

    On a GPU it is the peak of PyTorch's allocator, or what the driver counts for this process and its children where the engine
    allocates by other means (in a container, which hides processes from the driver, all that is in use there).
    """
    return _gpu_bytes() if device == "cuda" else _own_peak_bytes() + _children_bytes()


def _own_peak_bytes():
    status = Path("/proc/self/status")
    if status.exists():
        return int(re.search(r"VmHWM:\s+(\d+) kB", status.read_text())[1]) * 1024
    import resource

    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if platform.system() == "Darwin" else 1024)


def _children_bytes():
    held = 0
    for child in psutil.Process().children(recursive=True):
        try:
            if not _is_probe(child):  # its buffer is not the engine's
                held += child.memory_info().rss
        except psutil.Error:
            pass
    return held


def _is_probe(process):
    return "bench.hardware" in process.cmdline()


def _family(probes=True):
    """Process numbers of this process and its children, the bandwidth probe among them or not."""
    found = {os.getpid()}
    for child in psutil.Process().children(recursive=True):
        try:
            if probes or not _is_probe(child):
                found.add(child.pid)
        except psutil.Error:
            pass
    return found


def _gpu_processes():
    """(process number, bytes) of whatever computes on the first visible GPU; bytes are 0 and processes are missing where the driver does not tell."""
    if _first() is None:
        return []
    command = ["nvidia-smi", "--query-compute-apps=pid,used_memory", "--format=csv,noheader,nounits", f"--id={_first()}"]
    try:
        said = subprocess.run(command, capture_output=True, text=True, timeout=30).stdout
    except (FileNotFoundError, subprocess.TimeoutExpired):
        return []
    return [(int(pid), int(mib) * 2**20 if mib.isdigit() else 0) for pid, mib in re.findall(r"^(\d+), (.*)$", said, re.M)]


def _gpu_bytes():
    """The allocator's peak; else what the driver counts for the engine's processes; else, in a container, where it counts none, all that is in use."""
    torch = sys.modules.get("torch")
    allocated = torch.cuda.max_memory_allocated() if torch and torch.cuda.is_available() else 0
    if allocated:
        return allocated
    mine = _family(probes=False)
    return sum(held for pid, held in _gpu_processes() if pid in mine) or (gpu_state().get("memory.used") or math.nan) * 2**20


def gemm_flops_per_s(dtype, device="cpu", threads=None, size=None):
    """Matrix-multiply peak of torch in `dtype` ('float32', 'bfloat16', 'int8' …), operations/s: 2 n^3 / best time of several products.

    The best of the libraries that torch has for it: on some processors one of them alone stays a tenth below what engines reach.
    """
    import torch

    size = size or (8192 if device == "cuda" else 2048)
    if device == "cpu":
        torch.set_num_threads(threads or cores())
    with torch.inference_mode():
        rates = []
        for multiply in _products(torch, dtype, device, size):
            multiply()
            rates.append(_best_rate(multiply, 2 * size**3))
    return max(rates)


def _products(torch, dtype, device, size):
    """Functions that multiply two square matrices once: the usual product and, for float32 on a CPU, oneDNN's as well."""
    a = torch.ones(size, size, dtype=getattr(torch, dtype), device=device)
    product = torch._int_mm if dtype == "int8" else torch.matmul  # no public product of int8 matrices accumulates in int32

    def multiply():
        product(a, a)
        if device == "cuda":
            torch.cuda.synchronize()

    if device == "cpu" and dtype == "float32" and torch.backends.mkldnn.is_available():
        from torch.utils import mkldnn

        layer, given = mkldnn.to_mkldnn(torch.nn.Linear(size, size, bias=False).eval()), a.to_mkldnn()
        return [multiply, lambda: layer(given)]
    return [multiply]


def gemm_peaks(device="cpu", threads=None):
    """Number format -> matrix-multiply peak in operations/s, each format the device multiplies natively, measured in a process of its own."""
    command = [sys.executable, "-m", "bench.hardware", "gemm", device, str(threads or cores())]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT)
    if done.returncode:
        raise RuntimeError(f"The matrix-multiply peak could not be measured: {done.stderr.strip().splitlines()[-1:]}")
    return json.loads(done.stdout.splitlines()[-1])


def _gemm_dtypes(device):
    return ["float32", "bfloat16", *(["float16"] if device == "cuda" else []), "int8"]


def _bandwidth_roofs(device, seconds):
    """Read bandwidth with 1, 2, 4 … all threads on a CPU, each watched for an equal share of `seconds`."""
    counts = [1] if device == "cuda" else sorted({*(2**k for k in range(cores().bit_length()) if 2**k <= cores()), cores()})
    for threads in counts:
        with Bandwidth(device, threads) as bandwidth:
            end = clock() + seconds / len(counts)
            while clock() < end or not bandwidth.probes:
                yield ("read_bandwidth", threads, bandwidth.probe(), "bytes/s")


def _gemm_roofs(device):
    """Matrix-multiply peak in each number format the device multiplies natively, with all threads."""
    for dtype, rate in gemm_peaks(device).items():
        yield (f"gemm_{dtype}", cores(), rate, "FLOP/s")


def roofs(device="cpu", seconds=10):
    """The measured roofs as a DataFrame: roof, threads, value, unit; several rows per roof where it was watched for a while."""
    return pd.DataFrame([*_bandwidth_roofs(device, seconds), *_gemm_roofs(device)], columns=ROOF_COLUMNS)


if __name__ == "__main__":
    if sys.argv[1] == "gemm":
        print(json.dumps({dtype: gemm_flops_per_s(dtype, sys.argv[2], int(sys.argv[3])) for dtype in _gemm_dtypes(sys.argv[2])}))
    else:
        _serve_probe(sys.argv[1], int(sys.argv[2]))
