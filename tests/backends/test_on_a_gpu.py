"""What engines need on a GPU beside the libraries that are there, tried without one."""

import os
import shutil
import subprocess
import sys

import pytest

from bench import backends
from bench.backends.common import servers, vllm_server

LIBRARY = """
#include <dlfcn.h>
int answer(void) {
    void *blas = dlopen("libcublas.so.12", RTLD_LAZY);
    return blas ? ((int (*)(void))dlsym(blas, "blas"))() : -1;
}
"""


def test_cublas_13_answers_to_the_name_of_12(tmp_path, monkeypatch):
    """A library that opens libcublas.so.12 by name, as CTranslate2's, and a cuBLAS 13 as PyTorch's wheels bring it."""
    if not shutil.which("gcc"):
        pytest.skip("there is no C compiler")
    new, own = tmp_path / "nvidia" / "cu13" / "lib", tmp_path / "engine.libs"
    new.mkdir(parents=True)
    own.mkdir()
    compiled(new / "libcublasLt.so.13", "int lt(void) { return 13; }")
    calls_lt = "int lt(void); int blas(void) { return lt(); }"
    compiled(new / "libcublas.so.13", calls_lt, f"-L{new}", "-l:libcublasLt.so.13")
    compiled(own / "libengine.so", LIBRARY, "-Wl,-rpath,$ORIGIN", "-Wl,--disable-new-dtags", "-ldl")
    code = (
        f"import ctypes, sys; sys.path.insert(0, {str(tmp_path)!r}); from bench.backends.common import cuda\n"
        f"print(cuda.cublas_12({str(own)!r}), ctypes.CDLL({str(own / 'libengine.so')!r}).answer())"
    )
    for _ in range(2):  # the link is there the second time
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
        assert done.stdout.strip() == "13 under the name of 12 13", done.stderr
    shutil.rmtree(tmp_path / "nvidia")
    assert (
        subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout.strip()
        == "None -1"
    )


def compiled(file, source, *more):
    source_file = file.with_suffix(".c")
    source_file.write_text(source)
    command = ["gcc", "-shared", "-fPIC", f"-Wl,-soname,{file.name}", "-o", file, source_file, *more]
    subprocess.run(command, check=True)


def test_vllm_leaves_flashinfer_alone_on_a_gpu(monkeypatch):
    """Without it vLLM imports FlashInfer when it starts, which a bundle leaves out; on a CPU nothing is set."""
    name, adapter = "VLLM_USE_FLASHINFER_SAMPLER", backends.get("vllm").module
    for variable in (name, "VLLM_LOGGING_LEVEL", "VLLM_NO_USAGE_STATS", "DO_NOT_TRACK"):
        monkeypatch.setenv(variable, "before")
    request = servers.ServerSpec(requests=8, tokens=512, threads=2)
    assert vllm_server.environment("cuda", request)[name] == "0"
    assert name not in vllm_server.environment("cpu", request)
    adapter._set_environment("cuda", 2)
    assert os.environ[name] == "0"
