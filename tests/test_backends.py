"""Every adapter keeps the contract; every installed one gives the tokens that the reference gives."""

import ast
import json

import pytest
from conftest import run

from bench import ROOT, backends

FILES = sorted((ROOT / "bench" / "backends").glob("[!_]*.py"))
# These must give the reference's tokens, all of them: the weights are those of the reference (float16 is exact enough for what were 4 bits)
# and the arithmetic is float32. bfloat16 rounds in every step and quantised options round the weights: they part from it after a while.
UNQUANTISED = {"float32", "F16"}
TOKENS = 200


@pytest.mark.parametrize("path", FILES, ids=lambda p: p.stem)
def test_adapters_import_no_clock(path):
    imported = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            imported |= {alias.name.split(".")[0] for alias in node.names}
        if isinstance(node, ast.ImportFrom):
            imported |= {(node.module or "").split(".")[0], *(alias.name for alias in node.names)}
    assert not imported & {"time", "timeit", "datetime", "perf_counter", "monotonic", "measure"}


@pytest.mark.parametrize("path", FILES, ids=lambda p: p.stem)
def test_adapters_keep_the_contract(path):
    module = backends.get(path.stem)
    for word in ("Install", "Licence", "Documentation", "http"):
        assert word in module.__doc__, f"the docstring lacks {word}"
    assert set(module.DEVICES) <= {"cpu", "cuda"} and module.OPTIONS
    assert callable(module.version) and callable(module.available) and callable(module.load)
    environment = backends.environment(module)
    assert environment is None or (ROOT / "environments" / f"{environment}.txt").exists()


@pytest.mark.parametrize("path", sorted((ROOT / "bench").rglob("*.py")), ids=lambda p: p.stem)
def test_functions_can_be_read_at_a_glance(path):
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.FunctionDef):
            assert node.end_lineno - node.lineno < 40, f"{node.name} is too long"


GENERATE = """
import json, sys
from bench import backends, data, experiment, measure, models
name, option, count = sys.argv[1], sys.argv[2], int(sys.argv[3])
threads = experiment.threads_for(0)
experiment.set_threads(threads)
checkpoint = models.prepare(name, "smollm2-135m", option, "cpu")
engine = backends.get(name).load(checkpoint, option, "cpu", threads)
prompts = [checkpoint.encode(text) for text in data.prompts().loc[[5, 7]]]
with_callback = [measure.generate(engine, [ids], count)[0] for ids in prompts]
without = [measure.generate(engine, [ids], count, streaming=False)[0] for ids in prompts]
engine.close()
print("RESULT", json.dumps([with_callback, without, engine.weight_bytes, checkpoint.end_token_ids]))
"""


def generated(name, option, count):
    python = backends.prefix(backends.get(name)) / "bin" / "python"
    out = run(python, "-c", GENERATE, name, option, count).stdout
    return json.loads(next(line for line in out.splitlines() if line.startswith("RESULT"))[7:])


@pytest.fixture(scope="module")
def reference():
    return [row["output_ids"] for row in generated("transformers", "float32", TOKENS)[0]]


INSTALLED = [
    (path.stem, option)
    for path in FILES if backends.missing(path.stem) is None
    for option in backends.options(backends.get(path.stem), "cpu")
]  # fmt: skip


@pytest.mark.parametrize(("name", "option"), INSTALLED)
def test_engines_generate_what_was_asked(name, option, reference):
    count = TOKENS if option in UNQUANTISED else 24
    with_callback, without, weight_bytes, end = generated(name, option, count)
    for seen, own, expected in zip(with_callback, without, reference):
        assert seen["error"] == own["error"] == ""
        assert seen["output_ids"] == own["output_ids"], "the callback saw other tokens than the engine returned"
        assert not set(seen["output_ids"]) & set(end), "an end-of-sequence token was let through"
        assert 0 < seen["ttft_s"] < seen["e2e_s"]
        if option in UNQUANTISED:
            assert seen["output_ids"] == expected
        else:
            assert seen["output_ids"][:2] == expected[:2], "even the first tokens differ from the reference: not only rounding"
    assert 0.5e8 < weight_bytes < 6e8


def test_every_installed_engine_was_found():
    assert {"transformers", "ctranslate2", "llamacpp", "openvino", "onnxruntime"} <= {name for name, _ in INSTALLED}
