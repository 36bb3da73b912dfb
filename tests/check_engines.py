"""What the adapters expect of the engines, checked against the engines' own packages without a GPU.

    python tests/check_engines.py [vllm sglang …]
    make check-engines [NAME=vllm]

Downloads each wheel that environments/ pins (without its dependencies; nothing is installed) into
.venvs/contracts and holds it against contracts/engines.yaml: its own parser and models where it imports on this
machine, its source where it does not. One line per contract that is broken, one per engine; the exit status
counts the broken ones. Raise a pin in environments/ and run this before anything is measured with it. What is
not on the public index is checked against facts that were read in its repository, and named as not checked.
"""

import dataclasses
import json
import os
import subprocess
import sys
import time

TESTS = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [TESTS, os.path.dirname(TESTS)]

from contracts import checks, packages  # noqa: E402

from bench.paths import ROOT  # noqa: E402
from llm_measured.core import naming  # noqa: E402

NOT_CHECKED = {"llamacpp": "the wheel for CUDA is on GitHub only; the one for CPUs is run by make check"}


def requirement(pin):
    """`name==version` of an engine's `pin` in the table."""
    return packages.pin(*pin) if len(pin) == 2 else pin[0]


def checked(name):
    """([(what, fault)] of the engine `name`, checked in a process of its own; a note on its package; bytes)."""
    about, package, beside = checks.ENGINES[name], None, []
    note = f"not checked: the package itself: {about.get('elsewhere')}"
    if "pin" in about:
        note = str(about["pin"])
        try:
            package = packages.unpacked(requirement(about["pin"]))
            beside = [packages.unpacked(one, True) for one in about.get("beside", [])]
        except (RuntimeError, ValueError) as failure:
            return [("its package is to be had", str(failure))], note, 0
        note = f"{package.requirement}, {package.size / 1e6:.0f} MB in {package.seconds:.0f} s"
    said = json.dumps(dataclasses.asdict(package) | {"folder": str(package.folder)} if package else {})
    path = os.pathsep.join([TESTS, str(ROOT), *(str(one.folder) for one in beside)])
    done = subprocess.run(
        [sys.executable, "-m", "contracts.checks", name, said],
        capture_output=True,
        text=True,
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": path, "CUDA_VISIBLE_DEVICES": "0,1", "HF_HUB_OFFLINE": "1"},
    )
    found = [tuple(json.loads(line)) for line in done.stdout.splitlines() if line.startswith("[")]
    if done.returncode or not found:
        found.append(("it can be checked at all", done.stderr.strip()[-600:] or "nothing was said"))
    return found, note, sum(one.size for one in [package, *beside] if one)


def main(*names):
    known = list(checks.ENGINES)
    start, size, broken = time.monotonic(), 0, 0
    for name in [naming.choose("engine", name, known) for name in names] or known:
        found, note, bytes_ = checked(name)
        faults = [(what, fault) for what, fault in found if fault]
        for what, fault in faults:
            print(f"WRONG  {name}: {what}: {fault}", flush=True)
        state = f"{len(found)} contracts hold"
        if faults:
            state = f"{len(faults)} of {len(found)} contracts broken"
        print(f"{'WRONG' if faults else 'ok   '}  {name}: {state}; {note}", flush=True)
        broken, size = broken + len(faults), size + bytes_
    if not names:
        for name, reason in NOT_CHECKED.items():
            print(f"--     {name}: not checked: {reason}")
    print(f"{broken or 'nothing'} broken; {size / 1e6:.0f} MB of packages, {time.monotonic() - start:.0f} s.")
    return broken


if __name__ == "__main__":
    try:
        sys.exit(min(main(*sys.argv[1:]), 125))
    except ValueError as failure:
        sys.exit(str(failure))
