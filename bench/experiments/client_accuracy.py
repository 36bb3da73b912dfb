"""How far is a load client off? Each client of `bench/instrument/peers/` against a server that knows when it
really sent what.

    loads = client_accuracy.loads("auto", [1, 10], 3)
    rows = [client_accuracy.measure(load.client, load.streams, load.requests) for load in loads]

The server (`bench.instrument.reference_server`) is on one core, the client with all its processes on another.
Per load one server and one client are started anew. What a client reports is compared with what the server
did: the true TTFT of a request is the moment of its first event less the moment at which the request's bytes
had arrived. CPU time counts from the first request to the last event, so what a client imports does not
count.

Connection set-up apart: the first `streams` requests find no open connection. They are left out on both
sides, each side by its own order: the server's by arrival, the client's by the beginning of the requests as
the client reports it.
"""

import os
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from bench.backends.common import checkpoints
from bench.experiments import client_process
from bench.experiments.client_process import pinned
from bench.instrument import peers, reference_server
from bench.observations import schema
from llm_measured.core.definitions import Fields

# The server answers with its first token after TTFT_S, and with another one every ITL_S.
TTFT_S, ITL_S = 0.05, 0.01
TOKENS = 100
EVENT_S = 5e-5  # of the server for each event: a pace that it keeps, however many streams there are
ALONE_REQUESTS = 10  # at least so many where there is one stream
MODEL = "smollm2-135m"  # its tokenizer makes the peers' prompts
LIMIT_S = 300  # a load that takes longer, start of the client included, has failed
# What a client finds in its environment: nothing is fetched, and nothing is reported to anybody.
OFFLINE = {
    "HF_HUB_OFFLINE": "1",
    "TRANSFORMERS_OFFLINE": "1",
    "HF_DATASETS_OFFLINE": "1",
    "TOKENIZERS_PARALLELISM": "false",
    "DO_NOT_TRACK": "1",
    "VLLM_NO_USAGE_STATS": "1",
    "VLLM_LOGGING_LEVEL": "WARNING",
    "NO_PROXY": "127.0.0.1",
    "no_proxy": "127.0.0.1",
}


def at(streams: float) -> str:
    """Return `1 stream`, `1,000 streams`."""
    return f"{streams:,.0f} stream" + ("" if streams == 1 else "s")


@dataclass(frozen=True)
class Load:
    """One load to put on one client."""

    client: str
    version: str
    streams: int
    requests: int


@dataclass(frozen=True)
class Cores:
    """The server's core, and those of the client with all its processes."""

    server: int
    client: list


@dataclass(frozen=True)
class Outcome:
    """What a client reports (`peers.Reported`), what the server did (a list of dicts of arrived_s and
    sent_ns, one per request), and the Watch that stood beside the client."""

    reported: peers.Reported
    truth: list
    watch: client_process.Watch


def loads(chosen: str, streams: Sequence[int], per_stream: int, width: int = 1) -> list[Load]:
    """A Load for every client in `chosen` (see `peers.chosen`) at every number of `streams`.

    ValueError and RuntimeError with a sentence for what cannot be: a client that does not exist or is not
    installed, too few requests or cores.
    """
    if per_stream < 2:
        raise ValueError(
            f"requests_per_stream must be at least 2, not {per_stream}: the first request of a stream opens "
            "its connection."
        )
    cores(width)
    names = peers.chosen(chosen)
    return [
        Load(name, peers.get(name).version(), n, requests(n, per_stream)) for n in streams for name in names
    ]


def requests(streams: int, per_stream: int) -> int:
    """How many requests a load has."""
    return max(streams * per_stream, ALONE_REQUESTS if streams == 1 else 1)


def sentence(row: Fields) -> str:
    """One row of `measure` in a line."""
    who = f"{row['client']}, {at(row['streams'])}"
    if row["error"]:
        return f"{who}: {row['error']}"
    errors = f"TTFT {row['ttft_error_ms']:+.3f} ms, ITL p99 {row['itl_p99_excess_ms']:+.3f} ms"
    cost = f"{row['cpu_us_per_token']:.1f} µs of CPU time per token"
    return f"{who}: off by {errors}, {cost}, {row['failed']} requests failed"


def cores(width: int = 1) -> Cores:
    """The Cores of a comparison: the first that this process may use, and the `width` after it.

    RuntimeError if there are fewer.
    """
    allowed = sorted(os.sched_getaffinity(0))
    if not 1 <= width < len(allowed):
        raise RuntimeError(
            f"The server needs a core and the client {width}, at least 1; this process may use "
            f"{len(allowed)}."
        )
    return Cores(allowed[0], allowed[1 : 1 + width])


def measure(name: str, streams: int, count: int, width: int = 1, limit_s: float = LIMIT_S) -> Fields:
    """One row (`schema.ACCURACY`) of client `name` with `streams` streams and `count` requests.

    `error` says why where there are no numbers.
    """
    client, place = peers.get(name), cores(width)
    row = dict.fromkeys(schema.ACCURACY) | {
        "client": name,
        "version": client.version(),
        "streams": streams,
        "requests": count,
        "error": "",
        "server_core": place.server,
        "client_cores": " ".join(map(str, place.client)),
    }
    try:
        with tempfile.TemporaryDirectory() as folder:
            outcome = _drive(client, streams, count, place, Path(folder), limit_s)
        return row | compared(outcome, streams, count)
    except Exception as failure:  # whatever a client does wrong, the others are measured all the same
        why = " ".join(str(failure).split())[:500]
        return row | {"failed": count, "error": f"{type(failure).__name__}: {why}"}


def _drive(client, streams, count, place, folder, limit_s):
    """The Outcome of one server and one client from start to end."""
    own = folder / "client"
    own.mkdir()
    tokenizer = checkpoints.checkpoint(MODEL).path
    itl_s = max(ITL_S, streams * EVENT_S)
    schedule = "--ttft-s", TTFT_S, "--itl-s", itl_s
    on_its_core = pinned([place.server], [])
    with reference_server.running(folder / "server.txt", *schedule, before=on_its_core) as url:
        work = peers.Work(url, reference_server.MODEL, streams, count, TOKENS, own, tokenizer)
        variables = OFFLINE | getattr(client, "VARIABLES", {})
        command = pinned(place.client, client.command(work))
        watch = client_process.run(command, variables, place.server, folder / "client.txt", limit_s)
        return Outcome(client.reported(work), reference_server.truth(url), watch)


def compared(outcome: Outcome, streams: int, count: int) -> Fields:
    """Columns of a row: what a client reports of `count` requests against the truth.

    RuntimeError where it reports none, or more than the server has served.
    """
    reported, truth = outcome.reported, _served(outcome.truth, count)
    reports = len(reported.ttft_s)
    if not reports:
        raise RuntimeError("the client reports no successful request")
    if reports > len(truth):
        raise RuntimeError(
            f"the client reports {reports} successful requests, and the server has served {len(truth)}"
        )
    arrived = np.array([one["arrived_s"] for one in truth])
    sent = np.array([one["sent_ns"] for one in truth]) * 1e-9
    itl_p99_s, delays_s = np.percentile(reported.itl_s, 99), reported.delays_s
    passed, spent = sent.max() - arrived.min(), outcome.watch.cpu_s(arrived.min(), sent.max())
    return {
        "failed": count - reports,
        "events_per_s": sent.size / passed,
        **_ttft_errors(reported, sent[:, 0] - arrived, streams),
        "itl_p99_ms": itl_p99_s * 1e3,
        "itl_p99_excess_ms": (itl_p99_s - np.percentile(np.diff(sent), 99)) * 1e3,
        "cpu_us_per_token": spent / sent.size * 1e6,
        "cpu_share": spent / passed,
        "peak_memory_bytes": outcome.watch.peak_memory_bytes,
        # From the server's stamp in an event to the client's, where a client knows it.
        "delay_mean_ms": None if delays_s is None else delays_s.mean() * 1e3,
        "delay_p99_ms": None if delays_s is None else np.percentile(delays_s, 99) * 1e3,
        "kernel_stamps": reported.kernel_stamps,
    }


def _served(truth, count):
    """The last `count` requests that the server has answered in full, in the order of their arrival."""
    full = (one for one in truth if len(one["sent_ns"]) == TOKENS)
    return sorted(full, key=lambda one: one["arrived_s"])[-count:]


def _ttft_errors(reported, true_s, streams):
    """Mean TTFT, and how far the client's is off: of all requests, and of those but the first `streams`.

    NaN where there are no others.
    """
    by_begin = reported.ttft_s[np.argsort(reported.begun_s, kind="stable")]
    several = min(len(by_begin), len(true_s)) > streams
    later = by_begin[streams:].mean() - true_s[streams:].mean() if several else np.nan
    return {
        "ttft_true_ms": true_s.mean() * 1e3,
        "ttft_error_ms": (by_begin.mean() - true_s.mean()) * 1e3,
        "ttft_error_connected_ms": later * 1e3,
    }
