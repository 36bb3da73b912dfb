"""A server whose times are known: every event carries the moment of sending, so a client's error is known per
event.

    python -m bench.instrument.reference_server --port 8000 --ttft-s 0.05 --itl-s 0.01

It speaks OpenAI's completions and chat streams. The first token is sent `ttft-s` after the request's bytes
had arrived (the kernel's stamp, so a late server is not blamed on the client), every further one `itl-s`
after that; none waits for the one before. `sent_ns` in an event is the machine's monotonic clock just before
the bytes were handed to the kernel. `GET /truth` has what was really done, request by request, and forgets
it.

`--cache-blocks 90 --block-tokens 16 --prefill-s-per-token 0.0001`: it keeps prompts and answers in so
many blocks and computes the rest; it reports cached tokens, counts them at `/metrics`, and /truth says
what was cached of which prompt (`digest`: SHA-256 of the JSON of its tokens), computed and evicted. A
prompt may come as ids or as text, whose tokens are its words.

Faults on demand: BENCH_ANSWERS names a file of them, such as tests/server_faults.py, and the path begins with
/fault/<name>, one of its FAULTS: http://localhost:8000/fault/silent.

Nothing here is taken from the load client, which this server judges.
"""

import contextlib
import json
import sys
import urllib.request
from collections.abc import Iterator, Sequence
from pathlib import Path

from bench import processes
from bench.instrument.reference_server.events import MODEL
from llm_measured.core.definitions import Fields

__all__ = ["MODEL", "running", "truth"]
START_S = 30  # what it may take to start


@contextlib.contextmanager
def running(log: Path, *options: object, before: Sequence[object] = ()) -> Iterator[str]:
    """The server with these `options` of its command line until the block ends; yields its address.

    What it prints goes to `log`; `before` are words that stand before the command, as of taskset.
    """
    port = processes.free_port()
    command = [*before, sys.executable, "-m", __name__, "--port", port, *options]
    with processes.started(command, port, log, START_S) as url:
        yield url


def truth(url: str) -> list[Fields]:
    """What the server at `url` did since this was last asked, one dict per streamed request."""
    with urllib.request.urlopen(f"{url}/truth", timeout=60) as answer:
        return json.load(answer)
