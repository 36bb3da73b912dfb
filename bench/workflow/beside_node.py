"""On a node without network that has its own PyTorch: install beside it, then run a list of notebooks.

    sh node.sh [budget=600] [list=FILE] [repeats=1] [archive=FILE]

node.sh joins the parts of the bundle and calls this file with the node's Python.

An environment of its own gets what was packed; a `.pth` file in it names the folders of packages of the
Python that runs this, so that a PyTorch in a virtual environment or a module's folder is found. Nothing of
the node's is changed. Only the standard library is used.
"""

import json
import os
import subprocess
import sys
import time
import venv
from pathlib import Path

HOME = Path(__file__).resolve().parents[2]
NEEDED = ("torch", "transformers", "papermill", "ipykernel", "bench")


def package_folders():
    """Folders of packages that the running Python reads, in its order: a virtual environment's, a module's in
    PYTHONPATH, the system's."""
    return [folder for folder in sys.path if Path(folder).name in ("site-packages", "dist-packages")]


def make(folder, wheels):
    """The environment: what `wheels` holds and install.txt lists, then this repository, then the node's
    packages."""
    venv.create(folder, with_pip=False, symlinks=True)
    python = folder / "bin" / "python"
    (site,) = folder.glob("lib/python*/site-packages")
    lines = [str(HOME), *(f"import site; site.addsitedir({path!r})" for path in package_folders())]
    pip = max(wheels.glob("pip-*.whl"))
    command = [
        python,
        f"{pip}/pip",
        "install",
        "--quiet",
        "--no-index",
        "--no-deps",
        "--no-compile",  # what is imported is compiled then; of vLLM's thousands of files few are
        f"--find-links={wheels}",
    ]
    subprocess.run([*command, "--requirement", wheels / "install.txt", "pip"], check=True)
    (site / "node.pth").write_text("\n".join(lines) + "\n", encoding="utf-8")
    return python


def check(python, packing):
    """Print what cannot be imported, and what pip says of versions that do not fit: the node's packages are
    used all the same."""
    engines = (name.partition("-")[0] for name in packing["environments"])
    for name in (*NEEDED, *(name for name in engines if name in packing["packed"])):
        code = f"import {name} as m; print(getattr(m, '__version__', ''), m.__file__)"
        done = subprocess.run([python, "-c", code], capture_output=True, text=True, cwd=HOME)
        words = (
            done.stdout.strip()
            if done.returncode == 0
            else "cannot be imported: " + done.stderr.strip().splitlines()[-1]
        )
        print(f"{name} {words}", flush=True)
    done = subprocess.run([python, "-m", "pip", "check"], capture_output=True, text=True)
    complaints = [] if done.returncode == 0 else done.stdout.strip().splitlines()
    print(f"pip check: {'; '.join(complaints[:8]) or 'no complaint'}", flush=True)


def install():
    """Make `.venv` once, and let the environments of the packed engines be the same one."""
    folder, start = HOME / ".venv", time.monotonic()
    if (folder / "ready").exists():
        return folder / "bin" / "python"
    packing = json.loads((HOME / "wheels" / "packing.json").read_text(encoding="utf-8"))
    python = make(folder, HOME / "wheels")
    check(python, packing)
    (HOME / ".venvs").mkdir(exist_ok=True)
    for name in packing["environments"]:
        if not (HOME / ".venvs" / name).exists():
            (HOME / ".venvs" / name).symlink_to(folder)
    (folder / "ready").touch()
    print(
        f"installed {len(packing['packed'])} packages in {time.monotonic() - start:.1f} s; "
        f"{len(packing['left'])} are the node's",
        flush=True,
    )
    return python


def main(*words):
    python = install()
    offline = {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(HOME / "wheels"), "HF_HUB_OFFLINE": "1"}
    os.environ.update(offline | {"PATH": f"{HOME / '.venv' / 'bin'}{os.pathsep}{os.environ['PATH']}"})
    os.chdir(HOME)
    os.execv(python, [str(python), "-m", "bench.workflow.gpu_matrix", *words])


if __name__ == "__main__":
    main(*sys.argv[1:])
