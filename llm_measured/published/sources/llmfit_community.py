"""`llmfit bench --share`: what owners sent of their own machines, three answers of some 300 tokens one after
the other. A rate of llama.cpp's server is the whole request's, of ollama the decoding's alone (the files'
`avgTotalMs` and `avgTtftMs`); no file says whether weights stand partly in the CPU's
memory."""

import re
from collections.abc import Iterator
from datetime import UTC, datetime

from llm_measured.published.reading import LeftOut, Raw, Row, joined, number
from llm_measured.published.sources import about
from llm_measured.published.sources._tables import single

ABOUT = about("llmfit-community")
ENGINES = {"llamacpp": "llama.cpp", "mlx": "mlx-lm"}
FORMAT = re.compile(r"(?:UD-)?I?Q\d(?:_[A-Z0-9]+)+|BF16|F16|FP8|NVFP4|MXFP4|\d-?bit", re.I)


def rows(raw: Raw) -> Iterator[Row | LeftOut]:
    for file in raw.files(*ABOUT.files):
        whole = raw.json(file)
        machine = whole["hardware"]
        sent = number(whole["submittedAtUnix"])
        for at, r in raw.json_items(file, "results"):
            named = FORMAT.search(str(r["model"]))
            most, least = number(r["maxTps"]), number(r["minTps"])
            yield at.row(
                **single(r["avgTps"]),
                published_on=datetime.fromtimestamp(sent, UTC).date().isoformat() if sent else None,
                accelerator_raw=machine["hardwareName"],
                accelerator_memory_gb=machine["vramGb"] or machine["memTierGb"],
                accelerators=machine["gpuCount"],
                host_cpu=machine["cpu"],
                engine=ENGINES.get(r["provider"], r["provider"]),
                flags=joined(llmfit=whole.at("tool", "version"), os=machine["os"]),
                checkpoint_raw=r["model"],
                weights_format=named[0] if named else None,
                speculative="MTP" if re.search(r"[-:]mtp\b", str(r["model"]), re.I) else None,
                output_tokens=r["avgOutputTokens"],
                lengths="mean",
                ttft_mean_ms=r["avgTtftMs"],
                e2e_mean_ms=r["avgTotalMs"],
                statistic="mean",
                runs=r["numRuns"],
                spread=most - least if most is not None and least is not None else None,
                spread_kind="min–max" if most is not None and least is not None else None,
            )
