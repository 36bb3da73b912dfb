"""The wheels that environments/ pins: downloaded without their dependencies, and unpacked, never installed."""

import json
import re
import shutil
import subprocess
import sys
import tempfile
import time
import zipfile
from dataclasses import dataclass
from pathlib import Path

from bench.paths import ROOT
from llm_measured.core import files

FOLDER = ROOT / ".venvs" / "contracts"
# Linux on x86-64 and the Python of GPU nodes, whatever this machine is: of an engine nothing compiled is loaded.
PYTHON = "3.12"
PLATFORMS = [
    *(f"manylinux_2_{minor}_x86_64" for minor in (39, 35, 34, 31, 28, 27, 24, 17)),
    "manylinux2014_x86_64",
    "any",
]
LEFT = {".cubin", ".cu", ".cuh", ".a", ".ptx", ".fatbin"}  # kernels


@dataclass(frozen=True)
class Package:
    """An unpacked wheel: what was asked for, its folder, bytes of the download, s that it took, and the names
    of its compiled modules, which are not unpacked."""

    requirement: str
    folder: Path
    size: int
    seconds: float
    compiled: list[str]
    binaries: dict[str, int]


def pin(environment: str, name: str) -> str:
    """`name==version` as the file environments/<environment>.txt pins it.

    ValueError where it does not.
    """
    file = ROOT / "environments" / f"{environment}.txt"
    found = re.search(rf"^{re.escape(name)}(\[[^]]*\])?==([^ ;\n]+)", file.read_text(), re.M | re.I)
    if not found:
        raise ValueError(f"{file.name} does not pin {name}.")
    return f"{name}=={found[2]}"


def unpacked(requirement: str, whole: bool = False) -> Package:
    """The wheel of `requirement`, downloaded and unpacked once, with its compiled modules if `whole`;
    RuntimeError with pip's words where it is not to be had."""
    name = requirement.replace("==", "-") + ("-whole" if whole else "")
    path = files.made(FOLDER / name, lambda to: _make(requirement, whole, to))
    about = json.loads((path / "about.json").read_text())
    return Package(requirement, path / "package", **about)


def _make(requirement, whole, to):
    start = time.monotonic()
    with tempfile.TemporaryDirectory() as scratch:
        words = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "-d", scratch, requirement]
        python = f"{sys.version_info.major}.{sys.version_info.minor}" if whole else PYTHON
        wheel = ["--only-binary=:all:", "--python-version", python]
        wheel += [word for platform in PLATFORMS for word in ("--platform", platform)]
        done = subprocess.run([*words, *wheel], capture_output=True, text=True)
        if done.returncode:  # a project without wheels: its source
            source = ["--no-binary=:all:", "--no-build-isolation"]
            again = subprocess.run([*words, *source], capture_output=True, text=True)
            if again.returncode:
                raise RuntimeError(done.stderr.strip().splitlines()[-1])
        (archive,) = Path(scratch).iterdir()
        size = archive.stat().st_size
        compiled, binaries = [], {}
        if archive.suffix == ".whl":
            with zipfile.ZipFile(archive) as content:
                for entry in content.infolist():
                    if re.search(r"\.so(\.\d+)*$", entry.filename):
                        binaries[entry.filename] = entry.file_size
                        stem = entry.filename.removesuffix(".so").partition(".")[0]
                        compiled.append(stem.replace("/", "."))
                        if whole:
                            content.extract(entry, to / "package")
                    elif Path(entry.filename).suffix not in LEFT:
                        content.extract(entry, to / "package")
        else:
            shutil.unpack_archive(archive, to / "package", filter="data")
    about = {"size": size, "seconds": time.monotonic() - start, "compiled": compiled, "binaries": binaries}
    (to / "about.json").write_text(json.dumps(about))
