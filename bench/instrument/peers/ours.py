"""**ours (bench.load)**: this study's own client, which stamps bytes as the kernel gets them and reads them
when the run is over.

- Install: nothing; it is part of this repository (`bench/instrument/load/client.py`).
- Documentation: the head of `bench/instrument/load/client.py`, and method.qmd.
- Licence: Apache-2.0.
- A request begins when its bytes are handed to the kernel; on a connection that is not there yet, the time to
  open it is apart (`connect_s`) and is in no TTFT. Closed loop over `/v1/completions` with token ids.
"""

import json
import pickle
import subprocess
import sys

import numpy as np

from bench.instrument import peers
from bench.instrument.load import parallel, protocols, records
from bench.paths import ROOT

PATIENCE_S = 120  # for one request; a load that takes longer is ended by the caller
PROMPT = tuple(range(1, 17))


def available() -> str | None:
    return None


def version() -> str:
    command = ["git", "-C", str(ROOT), "rev-parse", "--short", "HEAD"]
    return subprocess.run(command, capture_output=True, text=True).stdout.strip() or "unknown"


def command(work: peers.Work) -> list:
    load = [work.url, work.model, work.streams, work.requests, work.tokens, work.folder]
    return [sys.executable, "-m", __name__, *load]


def reported(work: peers.Work) -> peers.Reported:
    rows, report = pickle.loads((work.folder / "rows.pickle").read_bytes())
    good = [row for row in rows if not row["error"]]
    return peers.Reported(
        # A row's TTFT is empty where a server that fell behind sends all at once; arrivals are there.
        ttft_s=np.array([row["arrivals_s"][0] - row["sent_s"] for row in good]),
        begun_s=np.array([row["sent_s"] for row in good]),
        itl_s=np.concatenate([np.empty(0), *(np.diff(row["arrivals_s"]) for row in good)]),
        delays_s=np.concatenate([np.empty(0), *(row["delays_s"] for row in good)]),
        kernel_stamps=report["kernel_stamps"],
    )


def main(url: str, model: str, streams: str, requests: str, tokens: str, folder: str) -> None:
    """Do the work in this process's own children, and leave the rows in `folder`."""
    prompt = protocols.Prompt(PROMPT, "", int(tokens))
    payload = protocols.request("completions", url, prompt, model)
    calls = [records.Call(k + 1, payload, None, len(PROMPT), int(tokens)) for k in range(int(requests))]
    rows, report = parallel.run(url, calls, "completions", int(streams), timeout_s=PATIENCE_S)
    with open(f"{folder}/rows.pickle", "wb") as out:
        pickle.dump((rows, report), out)
    print(json.dumps(report))


if __name__ == "__main__":
    main(*sys.argv[1:])
