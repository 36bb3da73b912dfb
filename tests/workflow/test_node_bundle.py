"""A node that has its own PyTorch: what is packed, what is left to it, and that it installs beside it."""

import os
import subprocess
import sys
import zipfile

import pytest

from bench.paths import ROOT
from bench.workflow import bundle, node_bundle, node_packages


def wheel(folder, name, version, *requires, code=""):
    file = folder / f"{name}-{version}-py3-none-any.whl"
    lines = "".join(f"Requires-Dist: {line}\n" for line in requires)
    about = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n{lines}"
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr(f"{name}.py", code or f"__version__ = {version!r}\n")
        archive.writestr(f"{name}-{version}.dist-info/METADATA", about)
        archive.writestr(
            f"{name}-{version}.dist-info/WHEEL",
            "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        )
        archive.writestr(f"{name}-{version}.dist-info/RECORD", "")
    return file


def test_a_freeze_is_read_with_and_without_versions(tmp_path):
    file = tmp_path / "have.txt"
    file.write_text(
        "# of the node\ntorch==2.11.0+cu130\nNumPy\nnv_thing @ file:///opt/thing.whl\n"
        "-e git+https://example.org/x.git@abc#egg=Own_Package\nfilelock==3.1  # comment\n"
    )
    assert node_packages.freeze(file) == {
        "torch": "2.11.0+cu130", "numpy": "", "nv-thing": "", "own-package": "", "filelock": "3.1"
    }  # fmt: skip
    file.write_text("torch==2.11.0\n--index-url elsewhere\n")
    with pytest.raises(ValueError, match="line 2: '--index-url elsewhere' is no line of `pip freeze`"):
        node_packages.freeze(file)


def test_the_nodes_version_is_as_good_as_the_pin(tmp_path):
    file = tmp_path / "engine.txt"
    file.write_text("# engine\ntorch==2.13.0\npapermill==2.7.0\nnvidia-cublas-cu12==12.8\nvllm==0.33.0\n")
    have = {"torch": "2.11.0+cu130", "numpy": "2.5.2"}
    lines = node_packages.requirements([file], have, ["vllm==0.26.0", "numpy==2.3.5"], ["nvidia_cublas_cu12"])
    assert lines == ["numpy", "papermill==2.7.0", "torch", "vllm==0.26.0"]
    have = node_packages.without(have, ["numpy==2.3.5"])
    assert "numpy==2.3.5" in node_packages.requirements([file], have, ["numpy==2.3.5"])
    file.write_text("thing @ https://example.org/thing.whl\n")
    with pytest.raises(ValueError, match="cannot be packed for a node"):
        node_packages.requirements([file], {})


def test_sizes_are_read():
    assert node_bundle.size("58M") == 58 * 2**20 and node_bundle.size(900) == 900
    for wrong in ("58 MB", "0", "M"):
        with pytest.raises(ValueError, match="PARTS must be a size"):
            node_bundle.size(wrong)


def test_parts_are_below_the_limit_and_join_to_the_whole(tmp_path):
    parts = node_bundle._Parts(tmp_path / "b.tar", 1000)
    data = os.urandom(2500)
    for start in range(0, 2500, 300):
        parts.write(data[start : start + 300])
    parts.close()
    assert b"".join((tmp_path / name).read_bytes() for name in parts.sums) == data
    assert [(tmp_path / name).stat().st_size for name in parts.sums] == [999, 999, 502]


@pytest.fixture
def index(tmp_path, monkeypatch):
    """pip with no index but a folder of wheels."""
    folder = tmp_path / "links"
    folder.mkdir()
    done = subprocess.run(
        [sys.executable, "-m", "pip", "download", "-q", "--no-deps", f"--dest={folder}", "pip"],
        capture_output=True,
    )
    if done.returncode:
        pytest.skip("pip reaches no package index here, so there is no pip to pack")
    for name, value in {
        "PIP_CONFIG_FILE": os.devnull,
        "PIP_NO_INDEX": "1",
        "PIP_FIND_LINKS": str(folder),
    }.items():
        monkeypatch.setenv(name, value)
    return folder


@pytest.mark.check
def test_only_what_the_node_lacks_is_packed(index, tmp_path):
    wheel(index, "engine", "1.0", "bigtorch==2.11.0", "small>=1", "later; python_version >= '3.12'")
    wheel(index, "small", "1.5")
    wheel(index, "later", "3.0")
    wheel(index, "bigtorch", "2.11.0", "hugelibrary")  # not what the node has: its own wants nothing more
    have = {"bigtorch": "2.11.0+cu130"}
    to = tmp_path / "bundle" / "wheels"
    packing = node_packages.collect(["engine==1.0"], have, "3.12", to)
    assert packing.packed == {"engine": "1.0", "small": "1.5", "later": "3.0"}
    assert packing.left == {"bigtorch": "2.11.0+cu130"}
    assert {file.name.split("-")[0] for file in to.glob("*.whl")} == {"engine", "small", "later", "pip"}
    with pytest.raises(RuntimeError, match="bigtorch==2.11.0[^$]*WITH="):
        node_packages.collect(["engine==1.0"], {"bigtorch": "2.12.0"}, "3.12", tmp_path / "other" / "wheels")
    left_out = node_packages.collect(["engine==1.0"], have, "3.12", tmp_path / "third" / "wheels", ["small"])
    assert "small" not in left_out.packed


@pytest.mark.check
def test_it_installs_beside_the_nodes_environment(index, tmp_path):
    """The node's environment is one with a package of its own; another version of a second one is packed and goes before."""
    node = tmp_path / "node"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(node)], check=True)
    (site,) = node.glob("lib/python*/site-packages")
    (site / "owntorch.py").write_text("__version__ = 'node'\n")
    (site / "both.py").write_text("__version__ = 'node'\n")
    (site / "linked.pth").write_text(str(tmp_path / "elsewhere") + "\n")
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "moved.py").write_text("__version__ = 'linked'\n")
    wheel(index, "both", "7.0")
    (index / "install.txt").write_text("both==7.0\n")
    code = (
        "import sys; from pathlib import Path; sys.path.insert(0, sys.argv[1]); import beside_node\n"
        "print(beside_node.make(Path(sys.argv[2]), Path(sys.argv[3])))"
    )
    made = tmp_path / "made"
    command = [node / "bin" / "python", "-c", code, str(ROOT / "bench" / "workflow"), str(made), str(index)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    seen = "import owntorch, both, moved, bench; print(owntorch.__version__, both.__version__, moved.__version__, bench.__file__)"
    words = subprocess.run(
        [made / "bin" / "python", "-c", seen], capture_output=True, text=True, cwd=tmp_path
    )
    assert words.stdout.split() == ["node", "7.0", "linked", str(ROOT / "bench" / "__init__.py")], (
        words.stderr
    )
    assert {file.name for file in site.iterdir()} - {"__pycache__"} == {
        "both.py",
        "linked.pth",
        "owntorch.py",
    }


def test_a_damaged_part_is_named(tmp_path):
    (tmp_path / "bundle-cuda.tar.part00").write_text("damaged")
    here = "%d.%d" % sys.version_info[:2]
    script = node_bundle.SCRIPT.format(
        version=here,
        name=bundle.NAME,
        sums="0" * 64 + "  bundle-cuda.tar.part00",
        parts="bundle-cuda.tar.part00",
    )
    (tmp_path / "node.sh").write_text(script)
    environment = os.environ | {"PYTHON": sys.executable}
    done = subprocess.run(["sh", "node.sh"], cwd=tmp_path, capture_output=True, text=True, env=environment)
    assert done.returncode and "copy it again" in done.stderr and "part00" in done.stdout + done.stderr
    (tmp_path / "node.sh").write_text(script.replace(here, "3.5"))
    done = subprocess.run(["sh", "node.sh"], cwd=tmp_path, capture_output=True, text=True, env=environment)
    assert done.returncode and "The wheels are for Python 3.5" in done.stderr


def test_words_of_a_node_need_its_freeze():
    with pytest.raises(ValueError, match="go with have=FILE"):
        bundle.main("device=cuda", "parts=58M")
