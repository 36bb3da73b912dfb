"""The command line of the reference server: prints its address, and serves until its parent ends."""

import argparse
import os
import resource
import threading

from bench import processes
from bench.instrument import reference_server
from bench.instrument.reference_server.server import Server


def main():
    parser = argparse.ArgumentParser(description=reference_server.__doc__.splitlines()[0])
    parser.add_argument("--port", type=int, default=0, help="0: any that is free")
    parser.add_argument("--ttft-s", type=float, default=0.05)
    parser.add_argument("--itl-s", type=float, default=0.01)
    arguments = parser.parse_args()
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    threading.Thread(target=processes.die_with, args=(os.getppid(),), daemon=True).start()
    server = Server(arguments.port, arguments.ttft_s, arguments.itl_s)
    print(f"http://127.0.0.1:{server.port}", flush=True)
    server.run()


if __name__ == "__main__":
    main()
