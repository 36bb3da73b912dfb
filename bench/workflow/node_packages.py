"""What a node has, what it lacks, and the wheels of what it lacks.

What the node has is shown to pip's resolver as wheels without contents and without dependencies, so that it
neither fetches nor replaces any of it: a node's PyTorch with its CUDA libraries stays the node's.
"""

import json
import re
import subprocess
import sys
import zipfile
from dataclasses import dataclass, field
from pathlib import Path

from packaging.markers import default_environment
from packaging.metadata import parse_email
from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name, parse_wheel_filename

PASSES = 5  # rounds of asking for what a packed wheel wants on the node's Python and nobody has


@dataclass
class Packing:
    """Which packages travel (name -> version), and which are left to the node (name -> version, empty where
    unread)."""

    packed: dict = field(default_factory=dict)
    left: dict = field(default_factory=dict)


def freeze(file):
    """Name -> version of a `pip freeze`; the version is empty where a line has none. ValueError for a line
    that is no package.

    `name @ address` and `-e …#egg=name` stand for a package whose version the file does not say.
    """
    found = {}
    for number, line in enumerate(Path(file).read_text(encoding="utf-8").splitlines(), start=1):
        text = line.partition(" #")[0].strip()
        if not text or text.startswith("#"):
            continue
        editable = re.fullmatch(r"(?:-e|--editable)\s.*#egg=([\w.-]+).*", text)
        try:
            requirement = Requirement(editable[1] if editable else text)
        except InvalidRequirement:
            raise ValueError(
                f"{file}, line {number}: {text!r} is no line of `pip freeze`. Write name==version, or name "
                "alone."
            ) from None
        versions = [clause.version for clause in requirement.specifier if clause.operator in ("==", "===")]
        found[canonicalize_name(requirement.name)] = versions[0] if versions else ""
    return found


def stubs(have, folder):
    """A file of pip constraints that name a wheel without contents for each package of `have` whose version
    is known."""
    folder.mkdir(parents=True, exist_ok=True)
    lines = []
    for name, version in have.items():
        if version:
            wheel = _stub(name, version, folder)
            lines.append(f"{name} @ {wheel.resolve().as_uri()}")
    constraints = folder / "have.txt"
    constraints.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return constraints


def _stub(name, version, folder):
    stem = f"{name.replace('-', '_')}-{version}"
    wheel = folder / f"{stem}-py3-none-any.whl"
    contents = {
        "METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n",
        "WHEEL": "Wheel-Version: 1.0\nGenerator: bench\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        "RECORD": "",
    }
    with zipfile.ZipFile(wheel, "w") as archive:
        for file, text in contents.items():
            archive.writestr(f"{stem}.dist-info/{file}", text)
    return wheel


def requirements(files, have, extra=(), leave=()):
    """Lines for pip: those of the environment files, the node's own version in place of a pin, `extra` in
    place of a line of its name.

    Names in `leave` are dropped. ValueError for a line that pip would have to look up elsewhere (an option or
    an address).
    """
    chosen, leave = {}, {canonicalize_name(name) for name in leave}
    for file in files:
        for line in file.read_text(encoding="utf-8").splitlines():
            text = line.partition(" #")[0].strip()
            if not text or text.startswith("#"):
                continue
            if text.startswith("-") or " @ " in text:
                raise ValueError(
                    f"{file.name} asks for {text!r}, which cannot be packed for a node: leave this engine "
                    "out, or pack its wheel by hand."
                )
            requirement = Requirement(text)
            chosen[canonicalize_name(requirement.name)] = requirement
    chosen |= {canonicalize_name(requirement.name): requirement for requirement in map(Requirement, extra)}
    return [
        _line(name, requirement, have) for name, requirement in sorted(chosen.items()) if name not in leave
    ]


def without(have, extra):
    """`have` without the packages that `extra` names: their own versions travel and go before the node's."""
    own = {canonicalize_name(Requirement(line).name) for line in extra}
    return {name: version for name, version in have.items() if name not in own}


def _line(name, requirement, have):
    """The node's version, where it has the package, is as good as the pin: it is what can be used there."""
    extras = f"[{','.join(sorted(requirement.extras))}]" if requirement.extras else ""
    return f"{name}{extras}" if name in have else f"{name}{extras}{requirement.specifier}"


def pip_wheel(folder):
    """The newest pip as a wheel, which resolves here and installs there; RuntimeError where no index
    answers."""
    _run([sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", f"--dest={folder}", "pip"])
    return max(folder.glob("pip-*.whl"))


def collect(lines, have, python, to, leave=()):
    """Put into `to` the wheels of what `lines` need and `have` lacks on Python `python` ('3.12'); returns the
    Packing.

    RuntimeError with pip's words where nothing fits the node. pip judges markers by the Python that runs it,
    so what the packed wheels want on `python` beyond that is asked for afterwards.
    """
    to.mkdir(parents=True, exist_ok=True)
    pip, constraints = pip_wheel(to), stubs(have, to.parent / "stubs")
    absent = {canonicalize_name(name) for name in leave}
    packing = Packing()
    for _ in range(PASSES):
        found = _resolve(pip, lines, constraints, python, have)
        packing = Packing(
            {name: version for name, version in found.items() if name not in have and name not in absent},
            {name: version if have.get(name) else "" for name, version in found.items() if name in have},
        )
        _download(pip, packing.packed, python, to)
        more = [
            line
            for line in _unmet(to, found, python)
            if canonicalize_name(Requirement(line).name) not in absent
        ]
        if not more:
            return packing
        lines = [*lines, *more]
    raise RuntimeError(f"After {PASSES} rounds packed wheels still want what nobody has: {', '.join(more)}.")


def _resolve(pip, lines, constraints, python, have):
    """Name -> version of everything that `lines` lead to."""
    report = constraints.with_name("report.json")
    command = [sys.executable, f"{pip}/pip", "install", "--dry-run", "--ignore-installed"]
    command += [
        f"--target={constraints.with_name('nowhere')}",
        f"--report={report}",
        f"--constraint={constraints}",
    ]
    try:
        _run([*command, *_for(python), *lines])
    except RuntimeError as failure:
        unread = sorted(name for name, version in have.items() if not version)
        hint = (
            f" HAVE gives no version of: {', '.join(unread)}; with versions the resolver knows more."
            if unread
            else ""
        )
        raise RuntimeError(
            f'{failure}\nName a version that fits the node with WITH="name==version".{hint}'
        ) from None
    installed = json.loads(report.read_text(encoding="utf-8"))["install"]
    return {canonicalize_name(one["metadata"]["name"]): one["metadata"]["version"] for one in installed}


def _for(python):
    return [f"--python-version={python}", "--only-binary=:all:"]


def _download(pip, packed, python, to):
    here = {
        parse_wheel_filename(file.name)[0]: str(parse_wheel_filename(file.name)[1])
        for file in to.glob("*.whl")
    }
    pins = [f"{name}=={version}" for name, version in packed.items() if here.get(name) != version]
    if pins:
        command = [sys.executable, f"{pip}/pip", "download", "--quiet", "--no-deps", f"--dest={to}"]
        _run([*command, *_for(python), *pins])


def _unmet(folder, found, python):
    """Requirements of the wheels in `folder` that hold on Python `python` and that nothing of `found` meets
    by name."""
    node = default_environment() | {"python_version": python, "python_full_version": f"{python}.0"}
    lacking = set()
    for wheel in sorted(folder.glob("*.whl")):
        if wheel.name.startswith("pip-"):
            continue
        for line in metadata(wheel).get("requires_dist", []):
            requirement = Requirement(line)
            applies = requirement.marker is None or requirement.marker.evaluate(node | {"extra": ""})
            if applies and canonicalize_name(requirement.name) not in found:
                lacking.add(f"{requirement.name}{requirement.specifier}")
    return sorted(lacking)


def metadata(wheel):
    """METADATA of a wheel as packaging parses it."""
    with zipfile.ZipFile(wheel) as archive:
        name = next(n for n in archive.namelist() if n.endswith(".dist-info/METADATA"))
        return parse_email(archive.read(name))[0]


def _run(command):
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        words = [line for line in done.stderr.splitlines() if not line.startswith("WARNING")]
        _, conflict, causes = done.stdout.partition("The conflict is caused by:")
        last_words = "\n".join(words[-25:])
        raise RuntimeError(f"pip found no set of packages:\n{last_words}\n{conflict}{causes}")
