"""How far is a load client off? Each client of `bench/instrument/peers/` against a server that knows when it really sent what.

    rows = [client_accuracy.measure(name, streams, requests) for name, _, streams, requests in client_accuracy.loads("auto", [1, 10], 3)]

The server (`bench.instrument.reference_server`) is on one core, the client with all its processes on another. Per load one server and one client are started
anew. What a client reports is compared with what the server did: the true TTFT of a request is the moment of its first event less the moment
at which the request's bytes had arrived. CPU time counts from the first request to the last event, so what a client imports does not count.

Connection set-up apart: the first `streams` requests find no open connection. They are left out on both sides, each side by its own
order: the server's by arrival, the client's by the beginning of the requests as the client reports it.
"""

import json
import os
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from pathlib import Path
from time import monotonic as clock

import numpy as np
import psutil

from bench import processes
from bench.analysis import client_accuracy as accuracy_analysis
from bench.backends.common import checkpoints
from bench.instrument import peers, reference_server
from bench.observations import schema
from bench.paths import ROOT

TOKENS = 100
ALONE_REQUESTS = 10  # at least so many where there is one stream
MODEL = "smollm2-135m"  # its tokenizer makes the peers' prompts
LIMIT_S = 300  # a load that takes longer, start of the client included, has failed
SAMPLE_S = 0.01
FAMILY_EVERY = 5  # samples from one look at which processes there are, and at their memory, to the next
# What a client finds in its environment: nothing is fetched, and nobody is told.
OFFLINE = {
    "HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false", "DO_NOT_TRACK": "1",
    "VLLM_NO_USAGE_STATS": "1", "VLLM_LOGGING_LEVEL": "WARNING", "NO_PROXY": "127.0.0.1", "no_proxy": "127.0.0.1",
}  # fmt: skip


def loads(chosen, streams, per_stream, width=1):
    """[(client, version, streams, requests)]: every client in `chosen` (text, see `peers.chosen`) at every number of `streams` (list).

    ValueError and RuntimeError with a sentence for what cannot be: a client that does not exist or is not installed, too few requests or cores.
    """
    if per_stream < 2:
        raise ValueError(
            f"requests_per_stream must be at least 2, not {per_stream}: the first request of a stream opens its connection."
        )
    cores(width)
    names = peers.chosen(chosen)
    return [(name, peers.get(name).version(), n, requests(n, per_stream)) for n in streams for name in names]


def requests(streams, per_stream):
    """How many requests a load has."""
    return max(streams * per_stream, ALONE_REQUESTS if streams == 1 else 1)


def sentence(row):
    """One row of `measure` in a line."""
    if row["error"]:
        return f"{row['client']}, {accuracy_analysis.at(row['streams'])}: {row['error']}"
    errors = f"TTFT {row['ttft_error_ms']:+.3f} ms, ITL p99 {row['itl_p99_excess_ms']:+.3f} ms"
    return f"{row['client']}, {accuracy_analysis.at(row['streams'])}: off by {errors}, {row['cpu_us_per_token']:.1f} µs of CPU time per token, {row['failed']} requests failed"


def cores(width=1):
    """(core of the server, cores of the client): the first core that this process may use, and the `width` after it. RuntimeError if there are fewer."""
    allowed = sorted(os.sched_getaffinity(0))
    if not 1 <= width < len(allowed):
        raise RuntimeError(
            f"The server needs a core and the client {width}, at least 1; this process may use {len(allowed)}."
        )
    return allowed[0], allowed[1 : 1 + width]


class Watch:
    """CPU time and memory of all processes below `root`, sampled by a thread on the core `core` until `end`."""

    def __init__(self, root, core):
        self.root, self.core, self.family, self.spent, self.samples, self.peak_memory_bytes = (
            root,
            core,
            {},
            {},
            [],
            0,
        )
        self.ended, self.thread = threading.Event(), threading.Thread(target=self._run, daemon=True)
        self.thread.start()

    def _run(self):
        os.sched_setaffinity(0, {self.core})  # this thread alone: the client's core is the client's
        looks = 0
        while not self.ended.wait(SAMPLE_S):
            if looks % FAMILY_EVERY == 0:
                self._look()
            looks += 1
            self._sample()

    def _look(self):
        """Which processes there are now, and what memory all of them have; pages that they share count in each."""
        memory = 0
        for process in descendants(self.root.pid):
            try:
                self.family.setdefault(process, psutil.Process(process))
                memory += self.family[process].memory_info().rss
            except psutil.Error:
                pass  # it has just ended
        self.peak_memory_bytes = max(self.peak_memory_bytes, memory)

    def _sample(self):
        for process in self.family.values():
            try:
                self.spent[process.pid] = cpu_s(process)
            except (psutil.Error, OSError):
                pass  # it has ended; what it had spent at the last look stays
        self.samples.append((clock(), sum(self.spent.values())))

    def end(self):
        """Stop looking; whatever is still there of the client is ended."""
        self.ended.set()
        self.thread.join()
        self._look()
        for process in self.family.values():
            try:
                process.kill()  # not a stranger with the same number: psutil compares the times at which they began
            except psutil.Error:
                pass

    def cpu_s(self, begin, end):
        """CPU seconds that all of them spent between two moments (s, monotonic clock); NaN without samples."""
        if not self.samples:
            return np.nan
        at, spent = np.array(self.samples).T
        return float(np.interp(end, at, spent) - np.interp(begin, at, spent))


def cpu_s(process):
    """CPU seconds that `process` has spent: on Linux its CPU clock, which counts nanoseconds where /proc counts hundredths of a second."""
    if sys.platform == "linux":
        return time.clock_gettime(
            (~process.pid << 3) | 2
        )  # the clock's number as clock_getcpuclockid(3) gives it
    spent = process.cpu_times()
    return spent.user + spent.system


def descendants(pid):
    """Ids of all processes below `pid`; where the kernel lists children it is asked directly, which costs a hundredth of looking at all processes."""
    if not Path(f"/proc/{pid}/task/{pid}/children").exists():
        return (
            [child.pid for child in psutil.Process(pid).children(recursive=True)]
            if psutil.pid_exists(pid)
            else []
        )
    found, unseen = [], [pid]
    while unseen:
        of = unseen.pop()
        for task in Path(f"/proc/{of}/task").glob("*/children"):
            try:
                found += (born := list(map(int, task.read_text().split())))
                unseen += born
            except OSError:
                pass  # it has just ended
    return found


def measure(name, streams, wanted, width=1, limit_s=LIMIT_S):
    """One row (`schema.ACCURACY`) of client `name` with `streams` streams and `wanted` requests; `error` says why where there are no numbers."""
    client, where = peers.get(name), cores(width)
    row = dict.fromkeys(schema.ACCURACY) | {
        "client": name,
        "version": client.version(),
        "streams": streams,
        "requests": wanted,
        "error": "",
    }
    row |= {"server_core": where[0], "client_cores": " ".join(map(str, where[1]))}
    try:
        with tempfile.TemporaryDirectory() as folder:
            told, truth, watch = _drive(client, streams, wanted, where, Path(folder), limit_s)
        return row | compared(told, truth, watch, streams, wanted)
    except Exception as failure:  # whatever a client does wrong, the others are measured all the same
        return row | {
            "failed": wanted,
            "error": f"{type(failure).__name__}: {' '.join(str(failure).split())[:500]}",
        }


def _drive(client, streams, wanted, where, folder, limit_s):
    """Server and client from start to end: (what the client reports, what the server did, Watch)."""
    port, (core, others) = processes.free_port(), where
    serve = pinned(
        [core],
        [
            sys.executable,
            "-m",
            "bench.instrument.reference_server",
            "--port",
            port,
            "--ttft-s",
            accuracy_analysis.TTFT_S,
            "--itl-s",
            accuracy_analysis.ITL_S,
        ],
    )
    with processes.started(serve, port, folder / "server.txt", patience_s=30) as url:
        own = folder / "client"
        own.mkdir()
        work = peers.Work(
            url, reference_server.MODEL, streams, wanted, TOKENS, own, checkpoints.checkpoint(MODEL).path
        )
        variables = OFFLINE | getattr(client, "VARIABLES", {})
        watch = _run(pinned(others, client.command(work)), variables, core, folder / "client.txt", limit_s)
        with urllib.request.urlopen(f"{url}/truth", timeout=60) as answer:
            return client.reported(work), json.load(answer), watch


def pinned(cores, command):
    """`command` as words, on `cores` and no others."""
    return ["taskset", "-c", ",".join(map(str, cores)), *map(str, command)]


def _run(command, variables, core, log, limit_s):
    """Run a client to its end under a `Watch`; RuntimeError with its last words if it fails, TimeoutError after `limit_s` seconds."""
    with open(log, "wb") as words:
        # Between us stands the supervisor of `bench.processes`: if this process is killed, the client ends as well.
        supervised = [sys.executable, "-m", "bench.processes", *command]
        process = subprocess.Popen(
            supervised,
            stdin=subprocess.PIPE,
            stdout=words,
            stderr=words,
            cwd=ROOT,
            env=os.environ | variables,
        )
    watch = Watch(psutil.Process(process.pid), core)
    try:
        code = process.wait(limit_s)
    except subprocess.TimeoutExpired:
        raise TimeoutError(
            f"the client had not ended after {limit_s:g} s; its last words: {processes.last_words(log)}"
        ) from None
    finally:
        watch.end()
        process.stdin.close()
        process.wait()
    if code:
        raise RuntimeError(
            f"the client ended with exit code {code}; its last words: {processes.last_words(log)}"
        )
    return watch


def compared(told, truth, watch, streams, wanted):
    """What a client reports (clients.Reported) against the truth (dicts of arrived_s and sent_ns, one per request): columns of a row."""
    truth = sorted((one for one in truth if len(one["sent_ns"]) == TOKENS), key=lambda one: one["arrived_s"])[
        -wanted:
    ]
    reports = len(told.ttft_s)
    if not reports:
        raise RuntimeError("the client reports no successful request")
    if reports > len(truth):
        raise RuntimeError(
            f"the client reports {reports} successful requests, and the server has served {len(truth)}"
        )
    arrived, sent = (
        np.array([one["arrived_s"] for one in truth]),
        np.array([one["sent_ns"] for one in truth]) * 1e-9,
    )
    true, gaps = sent[:, 0] - arrived, np.diff(sent).ravel()
    reported = told.ttft_s[np.argsort(told.begun_s, kind="stable")]
    itl, passed, delays = np.percentile(told.itl_s, 99), sent.max() - arrived.min(), told.delays_s
    spent = watch.cpu_s(arrived.min(), sent.max())
    return {
        "failed": wanted - reports, "events_per_s": sent.size / passed, "ttft_true_ms": true.mean() * 1e3,
        "ttft_error_ms": (reported.mean() - true.mean()) * 1e3, "ttft_error_connected_ms": _later(reported, true, streams) * 1e3,
        "itl_p99_ms": itl * 1e3, "itl_p99_excess_ms": (itl - np.percentile(gaps, 99)) * 1e3,
        "cpu_us_per_token": spent / sent.size * 1e6, "cpu_share": spent / passed, "peak_memory_bytes": watch.peak_memory_bytes,
        "delay_mean_ms": None if delays is None else delays.mean() * 1e3, "delay_p99_ms": None if delays is None else np.percentile(delays, 99) * 1e3,
        "kernel_stamps": told.kernel_stamps,
    }  # fmt: skip


def _later(reported, true, streams):
    """Error of the mean TTFT of all requests but the first `streams`, s; NaN where there are no others."""
    return (
        reported[streams:].mean() - true[streams:].mean()
        if min(len(reported), len(true)) > streams
        else np.nan
    )
