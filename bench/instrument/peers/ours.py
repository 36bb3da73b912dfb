"""**ours (bench.load)**: this study's own client, which stamps bytes as the kernel gets them and reads them when the run is over.

- Install: nothing; it is part of this repository (`bench/instrument/load/client.py`).
- Documentation: the head of `bench/instrument/load/client.py`, and method.qmd.
- Licence: Apache-2.0.
- A request begins when its bytes are handed to the kernel; on a connection that is not there yet, the time to open it is told apart
  (`connect_s`) and is in no TTFT. Closed loop over `/v1/completions` with token ids.
"""

import json
import pickle
import subprocess
import sys

import numpy as np

from bench.instrument import peers
from bench.instrument.load import client, parallel, protocols
from bench.paths import ROOT

PATIENCE_S = 120  # for one request; a load that takes longer is ended by the caller
PROMPT = tuple(range(1, 17))


def available():
    return None


def version():
    return (
        subprocess.run(
            ["git", "-C", str(ROOT), "rev-parse", "--short", "HEAD"], capture_output=True, text=True
        ).stdout.strip()
        or "unknown"
    )


def command(work):
    return [
        sys.executable,
        "-m",
        __name__,
        work.url,
        work.model,
        work.streams,
        work.requests,
        work.tokens,
        work.folder,
    ]


def reported(work):
    rows, about = pickle.loads((work.folder / "rows.pickle").read_bytes())
    good = [row for row in rows if not row["error"]]
    join = lambda parts: np.concatenate([np.empty(0), *parts])  # noqa: E731
    return peers.Reported(
        np.array([row["ttft_s"] for row in good]), np.array([row["sent_s"] for row in good]), join(np.diff(row["arrivals_s"]) for row in good),
        join(row["delays_s"] for row in good), about["kernel_stamps"],
    )  # fmt: skip


def main(url, model, streams, requests, tokens, folder):
    """Do the work in this process's own children, and leave the rows in `folder`."""
    prompt = protocols.Prompt(PROMPT, "", int(tokens))
    payload = protocols.request("completions", url, prompt, model)
    calls = [client.Call(k + 1, payload, None, len(PROMPT), int(tokens)) for k in range(int(requests))]
    rows, about = parallel.run(url, calls, "completions", int(streams), timeout_s=PATIENCE_S)
    with open(f"{folder}/rows.pickle", "wb") as out:
        pickle.dump((rows, about), out)
    print(json.dumps(about))


if __name__ == "__main__":
    main(*sys.argv[1:])
