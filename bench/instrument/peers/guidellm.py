"""**guidellm**: the vLLM project's tool for sizing deployments, asyncio programs on httpx in several
processes.

- Install: `snakemake --cores 1 .venvs/guidellm/ready` makes an environment of its own from
  `environments/guidellm.txt`.
- Documentation: <https://github.com/vllm-project/guidellm>
- Licence: Apache-2.0.
- A request begins when its headers are written, so opening the connection is not part of its TTFT. A token is
  there when the program has the line of its event. Of the gaps between tokens it keeps one mean per request
  and no other, so what it calls the 99th percentile of the ITL is that of means, which hides nearly all of a
  tail.
"""

import json

import numpy as np

from bench.instrument import peers

ENVIRONMENT = "guidellm"


def available() -> str | None:
    return peers.missing(ENVIRONMENT)


def version() -> str:
    return peers.installed(ENVIRONMENT, "guidellm")


def command(work: peers.Work) -> list:
    options = {
        "--backend": f"kind=openai_http,target={work.url},model={work.model},request_format=/v1/completions",
        "--profile": f"kind=concurrent,streams={work.streams}",
        "--constraint": f"kind=max_requests,count={work.requests}",
        "--tokenizer": f"kind=huggingface_auto,model={work.tokenizer}",
        "--data": f"kind=synthetic_text,prompt_tokens=16,output_tokens={work.tokens}",
        "--output": f"kind=json,path={work.folder / 'report.json'}",
    }
    program = peers.program(ENVIRONMENT, "guidellm")
    return [program, "run", *peers.words(options), "--disable-console-interactive"]


def reported(work: peers.Work) -> peers.Reported:
    done = json.loads((work.folder / "report.json").read_text())["benchmarks"][0]["requests"]["successful"]
    ttft_ms, begun_s, itl_ms = (
        np.array([one[name] for one in done], dtype=float)
        for name in ("time_to_first_token_ms", "request_start_time", "inter_token_latency_ms")
    )
    return peers.Reported(ttft_ms / 1e3, begun_s, itl_ms / 1e3)
