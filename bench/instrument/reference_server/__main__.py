"""The command line of the reference server: prints its address, and serves until its parent ends."""

import argparse
import os
import resource
import threading

from bench import processes
from bench.instrument import reference_server
from bench.instrument.reference_server.cache import Cache
from bench.instrument.reference_server.events import Schedule
from bench.instrument.reference_server.server import Server


def main() -> None:
    parser = argparse.ArgumentParser(description=reference_server.__doc__.splitlines()[0])
    parser.add_argument("--port", type=int, default=0, help="0: any that is free")
    parser.add_argument("--ttft-s", type=float, default=0.05)
    parser.add_argument("--itl-s", type=float, default=0.01)
    parser.add_argument(
        "--prefill-s-per-token", type=float, default=0.0, help="of each prompt token computed"
    )
    parser.add_argument("--cache-blocks", type=int, default=0, help="0: it keeps nothing")
    parser.add_argument("--block-tokens", type=int, default=16)
    arguments = parser.parse_args()
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    threading.Thread(target=processes.die_with, args=(os.getppid(),), daemon=True).start()
    kept = Cache(arguments.cache_blocks, arguments.block_tokens) if arguments.cache_blocks else None
    schedule = Schedule(arguments.ttft_s, arguments.itl_s, arguments.prefill_s_per_token)
    server = Server(arguments.port, schedule, kept)
    print(f"http://127.0.0.1:{server.port}", flush=True)
    server.run()


if __name__ == "__main__":
    main()
