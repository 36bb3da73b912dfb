"""What is in a trace, and what a prefix cache of a size could answer of it.

    python -m bench.workloads my.jsonl
    python -m bench.workloads my.jsonl --cache 512000 15360000 all --replicas 4 --router "round robin"

Hit rates need a trace with hash ids; the cache is the least recently used of blocks, requests one after the
other (`bench.prefix_cache`).
"""

import argparse
import sys

import numpy as np
import pandas as pd

from bench import prefix_cache
from bench.workloads import timing, traces

ALL = "all"


def main(words: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        prog="python -m bench.workloads",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("file", help="Mooncake's or Bailian's JSON lines, or a CSV with moments and lengths")
    parser.add_argument("--unit", default="auto", help="of its moments: s, ms, or as its format has it")
    parser.add_argument("--cache", nargs="+", default=[ALL], help="sizes in tokens of a replica, or all")
    parser.add_argument("--replicas", type=int, default=1)
    parser.add_argument("--router", default=prefix_cache.ROUTERS[1], choices=prefix_cache.ROUTERS)
    arguments = parser.parse_args(words)
    try:
        trace = traces.read(arguments.file, arguments.unit)
        sizes = [None if word == ALL else float(word) for word in arguments.cache]
        print(described(trace))
        if trace.blocks is not None:
            rates = [trace.hit_rates(size, arguments.replicas, arguments.router) for size in sizes]
            table = pd.DataFrame(rates, index=pd.Index(arguments.cache, name="cache, tokens"))
            print(table.to_string(float_format="{:.6f}".format))
    except ValueError as wrong:
        sys.exit(str(wrong))


def described(trace: traces.Trace) -> str:
    """What is in `trace`, a line each."""
    requests = trace.requests
    lines = [
        f"{trace.about['trace']}: {len(requests)} requests in {requests['session'].nunique()} sessions "
        f"({trace.about['sessions']}), format {trace.about['format']}"
    ]
    for column, word in (("prompt_tokens", "prompt"), ("new_tokens", "answer")):
        cuts = (f"{value:.0f}" for value in np.percentile(requests[column], (50, 90, 99)))
        lines.append(f"{word} tokens: {' / '.join(cuts)} (50th, 90th, 99th percentile)")
    at_s = requests["at_s"].dropna()
    if len(at_s) > 1:
        spread = (f"{timing.dispersion(at_s, window):.3g}" for window in timing.WINDOWS_S)
        tick = timing.tick_s(at_s)
        lines.append(
            f"{at_s.max():.0f} s, {len(at_s) / at_s.max():.3g} requests/s; variance / mean of counts in "
            f"{', '.join(map(str, timing.WINDOWS_S))} s: {', '.join(spread)}"
            + (f"; its clock ticks every {tick:.3g} s" if tick else "")
        )
    if trace.blocks is None:
        lines.append("It has no hash ids: nothing about its prefixes can be computed.")
    return "\n".join(lines)


if __name__ == "__main__":
    main()
