"""Adapters of engines that cannot run here: what they say of themselves, the commands they build, and that
they leave nothing behind."""

import contextlib
import http.server
import io
import itertools
import json
import os
import stat
import subprocess
import sys
import threading
import time
import types
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from unittest import mock

import pytest
from builders import make_rows
from commands import run

from bench import backends, html, inputs, processes
from bench.analysis import systems as systems_analysis
from bench.backends import mlc, tgi
from bench.backends.common import checkpoints, copies, gguf_files, servers, vllm_server
from bench.instrument.load import protocols
from bench.machine import gpu
from bench.observations import schema, store
from bench.paths import ROOT
from bench.report.tables import backends as backends_tables
from bench.workflow import plan
from llm_measured.core import files as files_

FILES = sorted(path.stem for path in (ROOT / "bench" / "backends").glob("[!_]*.py"))
NEW = [
    "exllamav3",
    "hf_endpoint",
    "lmdeploy",
    "mlc",
    "sglang",
    "tensorrt_llm",
    "text_generation_webui",
    "tgi",
]
SECRET = "hf_ThisIsTheTokenThatNobodyMaySee0123456789"
WANTED = servers.ServerSpec(requests=8, tokens=512, threads=2, tensor_parallel=2)


# What every adapter says of itself


@pytest.mark.parametrize("name", FILES)
def test_an_adapter_says_what_its_options_and_its_traps_are(name):
    """The rest of the contract is that of every adapter (test_check_backend)."""
    module = backends.get(name).module
    for word in ("Install:", "Documentation: <http", "Licence:", "Options:", "Traps:"):
        assert word in module.__doc__, f"the docstring lacks {word}"
    assert all(set(about.get("on_request", ())) <= {"cpu", "cuda"} for about in module.OPTIONS.values())


LOOK = """
import json, sys, time
from bench import backends
began = time.perf_counter()
said = {name: [backends.get(name).module.available(), *(backends.get(name).missing(device) for device in ("cpu", "cuda")), *backends.get(name).absent("cuda")] for name in backends.names()}
heavy = {"torch", "transformers", "vllm", "sglang", "lmdeploy", "tensorrt_llm", "exllamav3", "mlc_llm", "huggingface_hub", "openvino", "ctranslate2", "onnxruntime", "xllamacpp"}
print(json.dumps([said, time.perf_counter() - began, sorted(heavy & set(sys.modules))]))
"""


@pytest.mark.timing
def test_looking_whether_engines_are_there_is_fast_and_imports_none():
    done = subprocess.run(
        [sys.executable, "-c", LOOK],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
        env=os.environ | {"BENCH_BACKENDS": ""},
    )
    said, seconds, imported = json.loads(done.stdout)
    assert set(NEW) <= set(said) and imported == [] and seconds < 10
    for name, sentences in said.items():
        for sentence in filter(None, sentences):
            assert "\n" not in sentence and len(sentence) < 300 and name.split("_")[0] in sentence


def test_an_engine_for_gpus_is_refused_on_a_cpu_in_one_sentence():
    sglang = backends.get("sglang")
    assert backends.get("sglang").missing("cpu") == "sglang runs on cuda, not on cpu."
    assert backends.get("sglang").ready("cpu") == []
    with pytest.raises(ValueError, match="sglang runs on cuda, not on cpu"):
        sglang.option("", "cpu")
    with pytest.raises(ValueError, match="sglang runs on cuda, not on cpu"):
        plan.engines({"engines": "sglang"}, "cpu")


def test_the_report_has_one_line_for_all_engines_that_run_elsewhere():
    lines = plan.left_out("cpu")
    elsewhere = [line for line in lines if line.startswith("Not for a cpu")]
    assert len(elsewhere) == 1 and all(name in elsewhere[0] for name in set(NEW) - {"hf_endpoint"})
    assert not any(
        name in line for name in ("sglang", "mlc", "tensorrt_llm") for line in lines if line not in elsewhere
    )
    assert len(lines) <= len(backends.names())
    assert all("\n" not in line for line in [*lines, *plan.left_out("cuda")])


@pytest.mark.parametrize(
    "name",
    [
        *(name for name in NEW if getattr(backends.get(name).module, "ENVIRONMENT", None)),
        "ctranslate2",
        "llamacpp",
        "onnxruntime",
    ],
)
def test_an_environment_pins_what_can_be_pinned(name):
    file = ROOT / "environments" / f"{backends.get(name).environment('cuda')}.txt"
    lines = file.read_text().splitlines()
    needed = [line for line in lines if line and not line.startswith(("#", "--"))]
    loose = [line for line in needed if "==" not in line and " @ https://" not in line]
    assert lines[0].startswith("#")
    assert not loose or name == "mlc" and all(line.startswith("mlc-") for line in loose)
    assert {"papermill", "ipykernel", "pandas", "psutil"} <= {line.partition("==")[0] for line in needed}


# The commands


class Checkpoint:
    name, end_token_ids, weights = "shape:tiny", [2], "synthetic"
    kv_values_per_token = 512

    def __init__(self, path):
        self.path = path

    @property
    def config(self):
        return json.loads((self.path / "config.json").read_text())


@pytest.fixture
def checkpoint(tmp_path, monkeypatch):
    monkeypatch.setattr(checkpoints, "MODELS", tmp_path / "models")
    folder = tmp_path / "checkpoint"
    folder.mkdir()
    (folder / "config.json").write_text('{"eos_token_id": 2}')
    (folder / "generation_config.json").write_text('{"eos_token_id": [2], "bos_token_id": 1}')
    (folder / "model.safetensors").write_bytes(b"weights")
    return Checkpoint(folder)


@pytest.fixture
def launched(monkeypatch, tmp_path):
    """What `processes.started` was asked for, instead of starting it."""
    seen = {}

    @contextmanager
    def started(command, port, log, patience_s=600, health="/health", environment=None):
        seen.update(command=list(map(str, command)), port=port, health=health, environment=environment or {})
        yield f"http://127.0.0.1:{port}"

    monkeypatch.setattr(processes, "started", started)
    monkeypatch.setattr(files_, "made", lambda path, make: path)
    monkeypatch.setattr(gguf_files, "read_back", lambda engine, checkpoint, path: {})  # it is not made
    return seen


def serve(name, option, checkpoint, tmp_path, wanted=WANTED):
    """The `RunningServer` of a server that was not started."""
    wanted = replace(wanted, log=tmp_path / "server.txt")
    with backends.get(name).serve(checkpoint, option, "cuda", wanted) as served:
        return served


def flag(command, name):
    return command[command.index(name) + 1]


FLAGS = {
    "sglang": {
        "--model-path": None,
        "--dtype": "bfloat16",
        "--tensor-parallel-size": "2",
        "--max-running-requests": "8",
        "--context-length": "544",
        "--host": "127.0.0.1",
    },
    "lmdeploy": {
        "--dtype": "bfloat16",
        "--tp": "2",
        "--backend": "turbomind",
        "--session-len": "544",
        "--max-batch-size": "8",
    },
    "tensorrt_llm": {
        "--tp_size": "2",
        "--max_batch_size": "8",
        "--max_seq_len": "544",
        "--backend": "pytorch",
        "--host": "127.0.0.1",
    },
    "mlc": {"--device": "cuda", "--prefix-cache-mode": "disable", "--mode": "server", "--host": "127.0.0.1"},
    "tgi": {
        "--model-id": "/model",
        "--dtype": "float16",
        "--num-shard": "2",
        "--max-total-tokens": "544",
        "--max-input-tokens": "543",
    },
    "text_generation_webui": {
        "--loader": "ExLlamav3",
        "--ctx-size": "4352",
        "--cache-type": "fp16",
        "--tp-backend": "nccl",
    },
}
PORTS = {
    "sglang": "--port",
    "lmdeploy": "--server-port",
    "tensorrt_llm": "--port",
    "mlc": "--port",
    "text_generation_webui": "--api-port",
}
HEALTH = {"mlc": "/v1/models", "text_generation_webui": "/v1/internal/health"}


@pytest.mark.parametrize("name", sorted(FLAGS))
def test_a_server_is_launched_as_its_maintainers_document_it(name, checkpoint, launched, tmp_path):
    served = serve(name, next(iter(backends.get(name).module.OPTIONS)), checkpoint, tmp_path)
    command = launched["command"]
    for word, value in FLAGS[name].items():
        assert word in command and value in (None, flag(command, word)), f"{word} {value}"
    if name in PORTS:
        assert flag(command, PORTS[name]) == str(launched["port"])
    assert launched["health"] == HEALTH.get(name, "/health") and served.url.endswith(str(launched["port"]))
    assert served.dialect in protocols.DIALECTS and served.weight_bytes is None
    assert str(tmp_path) not in json.dumps(served.settings)
    assert str(launched["port"]) not in map(str, served.settings.values())
    # The hub's or the user's folder, or what was made of it under models/.
    assert str(checkpoint.path) in command or str(checkpoints.folder(checkpoint.name)) in " ".join(command)


def test_there_is_room_for_what_a_server_adds_but_no_more_than_the_model_takes(
    checkpoint, launched, tmp_path
):
    assert servers.context(checkpoint, WANTED) == 512 + servers.SPARE
    (checkpoint.path / "config.json").write_text('{"max_position_embeddings": 520}')
    assert servers.context(checkpoint, WANTED) == 520
    serve("mlc", "q4f16_1", checkpoint, tmp_path)
    told = dict(pair.split("=") for pair in flag(launched["command"], "--overrides").split(";"))
    assert told == {
        "max_num_sequence": "8",
        "max_total_seq_length": "4160",
        "context_window_size": "520",
        "tensor_parallel_shards": "2",
    }


def test_prefix_caches_are_off(checkpoint, launched, tmp_path):
    commands = {}
    for name in FLAGS:
        serve(name, next(iter(backends.get(name).module.OPTIONS)), checkpoint, tmp_path)
        commands[name] = list(launched["command"])
    assert "--disable-radix-cache" in commands["sglang"] and "--enable-cache-report" in commands["sglang"]
    assert "--enable-prefix-caching" not in commands["lmdeploy"]
    assert json.loads(Path(flag(commands["tensorrt_llm"], "--extra_llm_api_options")).read_text())[
        "kv_cache_config"
    ] == {"enable_block_reuse": False}
    assert "PREFIX_CACHING=0" in commands["tgi"] and "USE_PREFIX_CACHING=0" in commands["tgi"]


def test_drafts_without_a_second_model(checkpoint, launched, tmp_path):
    serve("sglang", "bfloat16-ngram", checkpoint, tmp_path)
    assert (
        flag(launched["command"], "--speculative-algorithm") == "NGRAM"
        and flag(launched["command"], "--speculative-num-draft-tokens") == "11"
        and flag(launched["command"], "--speculative-ngram-max-bfs-breadth") == "1"
    ), "ten drafts after the root, in one chain"
    serve("tensorrt_llm", "bfloat16-ngram", checkpoint, tmp_path)
    told = json.loads(Path(flag(launched["command"], "--extra_llm_api_options")).read_text())
    assert told["speculative_config"] == {
        "decoding_type": "NGram",
        "max_draft_len": 10,
        "max_matching_ngram_size": 2,
    }
    assert told["disable_overlap_scheduler"]
    serve("tgi", "float16-ngram", checkpoint, tmp_path)
    assert flag(launched["command"], "--speculate") == "10"
    for name in FLAGS:
        for option in backends.get(name).module.OPTIONS:
            assert backends.get(name).batches(option) != option.endswith("-ngram")


def test_quantised_options_say_so(checkpoint, launched, tmp_path):
    told = {
        "tgi": {
            "bnb-int8": "bitsandbytes",
            "nf4": "bitsandbytes-nf4",
            "eetq-int8": "eetq",
            "gptq-int4": "gptq",
        },
        "sglang": {"fp8": "fp8"},
    }
    for name, options in told.items():
        for option, value in options.items():
            serve(name, option, checkpoint, tmp_path)
            assert flag(launched["command"], "--quantiz" + ("ation" if name == "sglang" else "e")) == value
            assert name == "sglang" or "--dtype" not in launched["command"], (
                "TGI refuses --dtype beside --quantize"
            )
    serve("lmdeploy", "awq-int4", checkpoint, tmp_path)
    assert flag(launched["command"], "--model-format") == "awq"


BODIES = {
    "sglang": {"min_tokens": 7, "ignore_eos": True, "stop_token_ids": [2], "return_token_ids": True},
    "tensorrt_llm": {"ignore_eos": True},  # of stop_token_ids its sampler makes stop words
    "lmdeploy": {"ignore_eos": True, "top_k": 1, "repetition_penalty": 1.0},
    "mlc": {"debug_config": {"ignore_eos": True}},
    "tgi": {},
}


@pytest.mark.parametrize("name", sorted(BODIES))
def test_answers_have_exactly_as_many_tokens_as_asked_for(name, checkpoint, launched, tmp_path):
    served = serve(name, next(iter(backends.get(name).module.OPTIONS)), checkpoint, tmp_path)
    assert served.body(7) == BODIES[name]
    assert ("--enable-debug" in launched["command"]) == (name == "mlc"), (
        "MLC heeds ignore_eos with --enable-debug only"
    )


def test_the_web_interface_adds_nothing_to_a_prompt(checkpoint, launched, tmp_path, monkeypatch):
    monkeypatch.setenv("TEXT_GENERATION_WEBUI", str(tmp_path))
    served = serve("text_generation_webui", "4bpw", checkpoint, tmp_path)
    path, body, _ = protocols.DIALECTS[served.dialect]
    sent = body(protocols.Prompt((1,), "Once upon a time", 7), served.model, served.body(7))
    assert path == "/v1/completions" and sent["prompt"] == "Once upon a time"
    assert not {"messages", "mode"} & set(sent)
    assert sent["ban_eos_token"] and not sent["do_sample"] and not sent["add_bos_token"]
    assert sent["max_tokens"] == 8, "its loop ends before it hands on the last one"
    assert launched["command"][:2] == ["env", f"--chdir={tmp_path}"]
    assert launched["environment"] == {"CUDA_VISIBLE_DEVICES": "0,1"}


@pytest.mark.parametrize("config", [{}, {"bos_token_id": 1}])
def test_the_web_interface_s_count_of_an_answer_has_the_beginning_of_sequence_off(
    config, checkpoint, launched, tmp_path, monkeypatch
):
    """It counts N tokens and that one as N + 1 wherever its tokenizer knows one."""
    monkeypatch.setenv("TEXT_GENERATION_WEBUI", str(tmp_path))
    (checkpoint.path / "config.json").write_text(json.dumps(config))
    served = serve("text_generation_webui", "float16", checkpoint, tmp_path)
    assert served.dialect == ("text-bos" if config else "text")
    usage = {"choices": [], "usage": {"prompt_tokens": 5, "completion_tokens": 7 + bool(config)}}
    assert protocols.read(served.dialect, json.dumps(usage).encode()).output_tokens == 7


@pytest.mark.parametrize(("loader", "refused"), [("0.0.30", True), ("1.6.5", False)])
def test_the_web_interface_refuses_a_model_that_its_loader_cannot_pad(
    loader, refused, checkpoint, monkeypatch
):
    webui = backends.get("text_generation_webui").module
    monkeypatch.setattr(webui, "_loader", lambda: loader)
    (checkpoint.path / "config.json").write_text('{"hidden_size": 576, "intermediate_size": 1536}')
    if refused:
        with pytest.raises(ValueError, match=r"sizes of 576 and 1536.* 0.0.30 .*multiples of 128 only"):
            webui.prepare(checkpoint, "float16", "cuda")
    else:
        assert webui.prepare(checkpoint, "float16", "cuda").is_dir()


def test_a_container_computes_on_the_gpu_that_is_described(checkpoint, launched, tmp_path, monkeypatch):
    """With CUDA_VISIBLE_DEVICES=1 `--gpus all` would compute on GPU 0, and GPU 1 would be named in the
    row."""
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3,1")
    monkeypatch.delenv("CUDA_DEVICE_ORDER", raising=False)
    serve("tgi", "float16", checkpoint, tmp_path)
    command = launched["command"]
    assert flag(command, "--gpus") == '"device=3,1"' and "CUDA_DEVICE_ORDER=PCI_BUS_ID" in command
    assert flag(command, "--gpus") == f'"device={",".join(gpu.used(2))}"'
    serve("text_generation_webui", "float16", checkpoint, tmp_path)
    assert launched["environment"]["CUDA_VISIBLE_DEVICES"] == "3,1"


def test_tensorrt_llm_names_the_libraries_that_the_machine_lacks(monkeypatch):
    tensorrt = backends.get("tensorrt_llm").module
    monkeypatch.setattr(tensorrt.common, "absent", lambda *packages, study: None)
    monkeypatch.setattr(tensorrt, "LIBRARIES", {"libc6": ("libc.so.6",), "libthing1": ("libthing.so.1",)})
    assert tensorrt.available().endswith("lacks libraries that it opens: apt install libthing1")
    monkeypatch.setattr(tensorrt, "LIBRARIES", {"libc6": ("no.so", "libc.so.6")})
    monkeypatch.setattr(tensorrt.cuda, "without_toolkit", lambda: None)
    assert tensorrt.available() is None


@pytest.mark.parametrize("name", ["tensorrt_llm", "exllamav3"])
def test_an_engine_that_compiles_names_the_toolkit_that_the_machine_lacks(name, monkeypatch, tmp_path):
    module = backends.get(name).module
    monkeypatch.setattr(module.common, "absent", lambda *packages, study: None)
    if name == "tensorrt_llm":
        monkeypatch.setattr(module, "LIBRARIES", {})
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(module.cuda, "TOOLKIT", tmp_path)
    for variable in ("CUDA_HOME", "CUDA_PATH"):
        monkeypatch.delenv(variable, raising=False)
    assert "no nvcc" in module.available() and "CUDA_HOME" in module.available()
    nvcc = tmp_path / "bin" / "nvcc"
    nvcc.parent.mkdir()
    nvcc.touch()
    assert module.available() is None


def test_an_option_whose_answers_are_noise_is_none():
    """MLC leaves the activations' scales of this format uninitialised until `mlc_llm calibrate` has run."""
    assert "e4m3_e4m3_f16" not in mlc.OPTIONS and "calibrate" in mlc.__doc__


def test_the_web_interface_says_which_folder_it_needs(tmp_path, monkeypatch):
    webui = backends.get("text_generation_webui").module
    monkeypatch.delenv("TEXT_GENERATION_WEBUI", raising=False)
    assert "git clone" in webui.available() and "TEXT_GENERATION_WEBUI" in webui.available()
    (tmp_path / "server.py").touch()
    (tmp_path / ".git" / "refs" / "heads").mkdir(parents=True)
    (tmp_path / ".git" / "HEAD").write_text("ref: refs/heads/main\n")
    (tmp_path / ".git" / "refs" / "heads" / "main").write_text("0123456789abcdef0123\n")
    monkeypatch.setenv("TEXT_GENERATION_WEBUI", str(tmp_path))
    assert webui.available() is None and webui.version() == "0123456789ab"


# Engines of the default environment, on a GPU


@pytest.mark.parametrize("name", ["llamacpp", "onnxruntime"])
def test_an_engine_of_the_default_environment_has_another_one_for_a_gpu(name, tmp_path, monkeypatch):
    engine = backends.get(name)
    assert engine.environment("cpu") is None and engine.environment("cuda") == f"{name}-cuda"
    assert engine.prefix("cuda") == ROOT / ".venvs" / f"{name}-cuda"
    assert engine.prefix("cpu") == Path(sys.prefix)
    assert backends.get("transformers").environment("cuda") is None
    monkeypatch.setattr(backends, "ROOT", tmp_path)
    assert engine.environment("cuda") is None, "the file is what makes it"


def test_llamacpp_puts_every_layer_on_one_gpu_or_none(monkeypatch, tmp_path):
    import xllamacpp

    llamacpp = backends.get("llamacpp").module
    about, mode = llamacpp.OPTIONS["F16"], xllamacpp.llama_split_mode
    with pytest.raises(RuntimeError, match="finds no NVIDIA GPU.*whl/cu128"):
        llamacpp._params("model.gguf", None, about, "cuda", 2, 1, 256)
    monkeypatch.setattr(xllamacpp, "get_device_info", lambda: [{"name": "CPU"}, {"name": "CUDA0"}])
    there, here = (
        llamacpp._params("model.gguf", None, about, device, 2, 3, 256) for device in ("cuda", "cpu")
    )
    assert (there.n_gpu_layers, there.split_mode, there.fit_params) == (
        llamacpp.ALL,
        mode.LLAMA_SPLIT_MODE_NONE,
        False,
    )
    assert llamacpp.ALL <= -2
    assert here.n_gpu_layers == 0 and there.n_ctx == here.n_ctx == 768 and there.n_parallel == 3
    assert there.flash_attn_type == here.flash_attn_type == xllamacpp.CommonParams().flash_attn_type, (
        "flash attention is llama.cpp's own choice"
    )


def test_llamacpp_s_server_is_told_the_device(checkpoint, launched, tmp_path):
    served = serve("llamacpp", "Q8_0", checkpoint, tmp_path)
    assert launched["command"][1:3] == ["-m", "bench.backends.llamacpp"]
    assert launched["command"][4:6] == ["Q8_0", "cuda"]
    assert served.settings["n_gpu_layers"] == "all"


def test_llamacpp_starts_the_cache_that_is_declared_and_says_what_it_is(checkpoint, launched, tmp_path):
    plain = serve("llamacpp", "Q8_0", checkpoint, tmp_path)
    assert plain.body(4)["cache_prompt"] is False and plain.cache.kind == "off"
    assert launched["command"][-2:] == ["0", "0"], "no host memory, and no counters that nobody reads"
    per_mib = 2**20 // (checkpoint.kv_values_per_token * 2)
    in_slots = WANTED.requests * 512
    size = in_slots + 3 * per_mib + per_mib // 2
    served = serve("llamacpp", "Q8_0", checkpoint, tmp_path, replace(WANTED, cache_tokens=size))
    assert served.body(4)["cache_prompt"] is True and launched["command"][-2:] == ["3", "1"]
    assert (served.cache.kind, served.cache.slots) == ("slots", WANTED.requests)
    assert in_slots < served.cache.capacity_tokens <= size, "whole MiB of host memory"
    assert served.settings["cache_ram_mib"] == 3 and served.settings["n_cache_reuse"] == 0
    with pytest.raises(ValueError, match=f"slots alone keep {in_slots} tokens"):
        serve("llamacpp", "Q8_0", checkpoint, tmp_path, replace(WANTED, cache_tokens=in_slots - 1))


def test_vllm_is_given_as_many_blocks_as_are_declared(checkpoint):
    wanted = replace(WANTED, cache_tokens=2048)
    chosen, switches = vllm_server.flags(checkpoint, {"dtype": "bfloat16"}, "cpu", wanted)
    assert "--enable-prefix-caching" in switches and chosen["--block-size"] == "32"
    assert chosen["--num-gpu-blocks-override"] == "65", "the first block is never used"
    chosen, switches = vllm_server.flags(checkpoint, {"dtype": "bfloat16"}, "cuda", WANTED)
    assert "--no-enable-prefix-caching" in switches and "--num-gpu-blocks-override" not in chosen
    with pytest.raises(ValueError, match="vLLM needs a cache of 512 tokens or more"):
        vllm_server.blocks(replace(WANTED, cache_tokens=256), 32)


@pytest.mark.parametrize("blocks", [65, 64])
def test_vllm_s_cache_is_what_it_says_itself(blocks, monkeypatch):
    page = f'vllm:cache_config_info{{block_size="32",num_gpu_blocks="{blocks}"}} 1.0\n'
    monkeypatch.setattr(
        vllm_server.urllib.request,
        "urlopen",
        lambda url, timeout: contextlib.closing(io.BytesIO(page.encode())),
    )
    wanted = replace(WANTED, cache_tokens=2048)
    if blocks == 65:
        found = vllm_server.cache("cpu", wanted, "http://localhost:1")
        assert (found.kind, found.block_tokens, found.capacity_tokens) == ("blocks", 32, 65 * 32)
    else:
        with pytest.raises(RuntimeError, match="65 blocks of 32 tokens and says that it has 64 of 32"):
            vllm_server.cache("cpu", wanted, "http://localhost:1")


@pytest.mark.parametrize(
    ("option", "precision"), [("float16", "fp16"), ("bfloat16", "bf16"), ("int4-float16", "int4")]
)
def test_onnxruntime_s_model_is_built_for_the_device(option, precision, checkpoint, monkeypatch):
    engine, commands = backends.get("onnxruntime").module, []
    monkeypatch.setattr(
        subprocess,
        "run",
        lambda command, **_: (
            commands.append(command)
            or Path(flag(command, "-o")).mkdir()
            or types.SimpleNamespace(returncode=0)
        ),
    )
    assert engine.prepare(checkpoint, option, "cuda").name.endswith(f"-{option}")
    assert engine.prepare(checkpoint, "int4", "cpu").name.endswith("-int4")
    assert [(flag(command, "-p"), flag(command, "-e")) for command in commands] == [
        (precision, "cuda"),
        ("int4", "cpu"),
    ]
    offered = backends.get("onnxruntime")
    assert option in offered.options("cuda") and option not in offered.options("cpu")


def test_onnxruntime_s_version_is_that_of_the_package_that_is_there(monkeypatch):
    engine = backends.get("onnxruntime").module
    there = {"onnxruntime-genai-cuda": "0.18.0", "onnxruntime-gpu": "1.31.1"}
    monkeypatch.setattr(engine, "distributions", lambda name: [name] if name in there else [])
    monkeypatch.setattr(engine, "_installed", there.__getitem__)
    assert engine.version() == "0.18.0, onnxruntime 1.31.1"


# Formats that are made first, and a container that is really started


def tools(tmp_path, monkeypatch, **scripts):
    """Put Python `scripts` on PATH under their names; each gets its own name's log as LOG."""
    folder = tmp_path / "bin"
    folder.mkdir()
    for name, body in scripts.items():
        file = folder / name
        file.write_text(
            f"#!{sys.executable}\nimport sys\nLOG = {str(tmp_path / (name + '.log'))!r}\nopen(LOG, "
            f"'a').write(' '.join(sys.argv[1:]) + chr(10))\n{body}"
        )
        file.chmod(file.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")
    return folder


DOCKER = """
import http.server
if sys.argv[1] == "run":
    import os
    port = int(sys.argv[sys.argv.index("--publish") + 1].split(":")[1])
    open(LOG + ".pid", "w").write(str(os.getpid()))
    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            self.send_response(200 if self.path == "/health" else 404)
            self.end_headers()
    http.server.HTTPServer(("127.0.0.1", port), Handler).serve_forever()
"""


@pytest.mark.parametrize("fails", [False, True])
def test_a_container_is_stopped_whatever_happens(checkpoint, tmp_path, monkeypatch, fails):
    tools(tmp_path, monkeypatch, docker=DOCKER)
    assert tgi.available() is None
    wanted = servers.ServerSpec(4, 256, 1, 1, tmp_path / "server.txt", patience_s=30)
    try:
        with backends.get("tgi").serve(checkpoint, "float16", "cuda", wanted) as served:
            assert processes.answers(served.url + "/health")
            pid = int((tmp_path / "docker.log.pid").read_text())
            if fails:
                raise KeyError("something else went wrong")
    except KeyError:
        pass
    run, stop = (tmp_path / "docker.log").read_text().splitlines()
    name = f"bench-tgi-{served.url.rpartition(':')[2]}"
    assert run.startswith(f'run --rm --name {name} --gpus "device=0" --shm-size')
    assert f" {tgi.IMAGE} --model-id /model" in run and stop == f"stop {name}"
    assert f"{tgi.prepare(checkpoint, 'float16', 'cuda').resolve()}:/model:ro" in run
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


def test_docker_is_asked_for_where_there_is_none(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    assert "docker" in tgi.available() and "NVIDIA Container Toolkit" in tgi.available()


def test_mlc_makes_its_format_without_a_conversation_template(checkpoint, tmp_path, monkeypatch):
    folder = tools(
        tmp_path,
        monkeypatch,
        fake="import os; os.makedirs(sys.argv[sys.argv.index('--output') + 1], exist_ok=True)\n",
    )
    monkeypatch.setattr(mlc, "TOOL", [str(folder / "fake"), "-m", "mlc_llm"])
    made = mlc.prepare(checkpoint, "q4f16_1", "cuda")
    convert, configure = (tmp_path / "fake.log").read_text().splitlines()
    source = copies.for_transformers_4(checkpoint)
    assert made.name == f"mlc-{mlc.version()}-q4f16_1".replace(" ", "-")
    assert convert.startswith(f"-m mlc_llm convert_weight {source} --quantization q4f16_1 --output ")
    assert configure.startswith(
        f"-m mlc_llm gen_config {source} --conv-template LM --quantization q4f16_1 --output "
    )
    tools_fail = tmp_path / "fails"
    tools_fail.write_text(f"#!{sys.executable}\nimport sys; sys.exit('no GPU here')\n")
    tools_fail.chmod(0o755)
    monkeypatch.setattr(mlc, "TOOL", [str(tools_fail), "-m", "mlc_llm"])
    with pytest.raises(RuntimeError, match="convert_weight failed:\nno GPU here"):
        mlc.prepare(checkpoint, "q3f16_1", "cuda")


CONVERTER = """
import argparse, json, pathlib
parser = argparse.ArgumentParser()
for flag, kind in ("-i", str), ("-o", str), ("-w", str), ("-b", float):
    parser.add_argument(flag, type=kind)
def prepare(args):
    return vars(args), {}, args.b < 9, "no room for 9 bits"
def main(args, state):
    folder = pathlib.Path(args["o"])
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps({"in": args["i"], "bits": args["b"]}))
"""


def test_exllamav3_converts_with_its_own_tool(checkpoint, tmp_path, monkeypatch):
    exllamav3 = backends.get("exllamav3").module
    package = tmp_path / "site" / "exllamav3" / "conversion"
    package.mkdir(parents=True)
    # As in 0.0.30, without a command line of its own: only `prepare` and `main` do anything.
    (package / "convert_model.py").write_text(CONVERTER)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "site"))
    made = exllamav3.converted(checkpoint, 4, sys.executable, "1.0")
    said = json.loads((made / "config.json").read_text())
    assert made.name == "exl3-1.0-4bpw" and said == {"in": str(checkpoint.path), "bits": 4.0}
    with pytest.raises(RuntimeError, match="no room for 9 bits"):
        exllamav3.converted(checkpoint, 9, sys.executable, "1.0")
    assert exllamav3.converted(checkpoint, None, "nobody", "1.0") == checkpoint.path


def test_a_tool_is_the_one_beside_the_interpreter(tmp_path, monkeypatch):
    folder = tools(tmp_path, monkeypatch, **{"trtllm-serve": "pass"})
    assert servers.tool("trtllm-serve") == str(folder / "trtllm-serve")
    assert servers.tool("nowhere") == "nowhere"
    assert servers.tool("python") == str(Path(sys.executable).with_name("python"))


# ExLlamaV3 in this process, with a library of the documented shape instead of a GPU


class Job:
    def __init__(self, input_ids, identifier, max_new_tokens, sampler):
        assert list(input_ids.shape)[0] == 1 and sampler == [("ban", [2]), "argmax"], (
            "suppressed on the device"
        )
        self.identifier, self.left = identifier, max_new_tokens
        self.first = int(input_ids[0, -1])


class Generator:
    """Two tokens a step after the first, as where a character was held back; the last result tells of
    drafts."""

    def __init__(self, model, cache, tokenizer, **drafting):
        self.jobs, self.drafting, self.resets, self.pagetable = [], drafting, 0, self

    def enqueue(self, jobs):
        self.jobs += jobs

    def num_remaining_jobs(self):
        return len(self.jobs)

    def iterate(self):
        import torch

        results = [{"stage": "started", "identifier": job.identifier} for job in self.jobs]
        for job in list(self.jobs):
            count = min(job.left, 2)
            result = {
                "stage": "streaming",
                "identifier": job.identifier,
                "token_ids": torch.arange(job.left, job.left - count, -1)[None] + 100,
                "eos": False,
            }
            job.left -= count
            if not job.left:
                self.jobs.remove(job)
                result |= {"eos": True} | (
                    {"accepted_draft_tokens": 3, "rejected_draft_tokens": 4} if self.drafting else {}
                )
            results.append(result)
        return results

    def clear_queue(self):
        self.jobs.clear()

    def reset_page_table(self):
        self.resets += 1

    def close(self):
        pass


@pytest.fixture
def exllama(monkeypatch, checkpoint):
    class Model:
        loads = []

        @classmethod
        def from_config(cls, config):
            return cls()

        def load(self, device):
            Model.loads.append(device)

        def unload(self):
            pass

    class Named:
        from_directory = from_config = staticmethod(lambda value: value)

    class Cache:
        rooms = []

        def __init__(self, model, max_num_tokens):
            Cache.rooms.append(max_num_tokens)

    library = types.ModuleType("exllamav3")
    library.__dict__.update(
        Config=Named,
        Tokenizer=Named,
        Model=Model,
        Cache=Cache,
        Generator=Generator,
        Job=Job,
        CustomSampler=lambda steps: steps,
        SS_BanTokens=lambda ids: ("ban", ids),
        SS_Argmax=lambda: "argmax",
    )
    monkeypatch.setitem(sys.modules, "exllamav3", library)
    monkeypatch.setattr(checkpoints, "linear_bytes", lambda *a, multiple_of: multiple_of)
    return backends.get("exllamav3").module, library


def test_exllamav3_hands_on_every_token_and_keeps_no_pages(exllama, checkpoint):
    module, library = exllama
    engine = module.Engine(checkpoint, checkpoint.path, module.OPTIONS["float16"])
    assert engine.weight_bytes == 128, "matrices are read with their padding"
    seen = []
    found = engine.generate([[5, 6, 7], [8, 9]], 5, lambda request, token: seen.append((request, token)))
    assert found == [[105, 104, 103, 102, 101]] * 2 and [t for r, t in seen if r == 1] == found[1]
    assert engine.generator.resets == 1
    assert engine.generate([[5, 6, 7]], 5, None) == found[:1] and not hasattr(engine, "speculation")
    assert library.Cache.rooms == [2048 + 256], "one load: there was room"
    engine.reserve(4, 1000)
    assert library.Cache.rooms[-1] == 4 * 1024 and len(library.Model.loads) == 2
    engine.close()
    engine.close()


def test_exllamav3_says_why_a_job_failed(exllama, checkpoint, monkeypatch):
    """What its `reap_failed_job` appends has no identifier."""
    module, _ = exllama
    engine = module.Engine(checkpoint, checkpoint.path, module.OPTIONS["float16"])
    failed = [{"stage": "error", "eos": True, "error": RuntimeError("out of pages")}]
    monkeypatch.setattr(engine.generator, "iterate", lambda: engine.generator.jobs.clear() or failed)
    with pytest.raises(RuntimeError, match="out of pages"):
        engine.generate([[5, 6]], 4, None)
    assert engine.generator.resets == 1


def test_exllamav3_is_refused_where_it_reads_another_model(exllama, checkpoint):
    module, library = exllama
    about = types.SimpleNamespace(rope_settings=types.SimpleNamespace(rope_theta=10000.0), vocab_size=9)
    library.Config.from_directory = staticmethod(lambda path: about)
    (checkpoint.path / "config.json").write_text(
        '{"rope_parameters": {"rope_theta": 100000.0}, "vocab_size": 9}'
    )
    with pytest.raises(
        ValueError, match="ExLlamaV3 says .* rotary base of 10000 where shape:tiny has 100000"
    ):
        module.Engine(checkpoint, checkpoint.path, module.OPTIONS["float16"])
    about.rope_settings.rope_theta = 100000.0
    engine = module.Engine(checkpoint, checkpoint.path, module.OPTIONS["float16"])
    assert engine.settings["read_back"] == {"rope_theta": 100000.0, "vocab_size": 9}


def test_exllamav3_counts_drafts_of_one_prompt(exllama, checkpoint):
    module, _ = exllama
    engine = module.Engine(checkpoint, checkpoint.path, {"ngram_tokens": 2, "draft_tokens": 10})
    engine.generate([[5, 6]], 5, None)
    assert engine.speculation == {"drafted_tokens": 7, "accepted_tokens": 3}
    assert engine.generator.drafting == {"ngram_match_min": 2, "num_draft_tokens": 10}
    with pytest.raises(ValueError, match="one prompt at a time"):
        engine.generate([[1], [2]], 4, None)


# vLLM in this process, of which only the drafts are counted here


@pytest.mark.parametrize("padded", [False, True])
def test_vllm_s_padding_is_no_draft(padded, checkpoint, monkeypatch):
    """Its V2 model runner fills every draft up to ten tokens and counts them all."""
    import torch

    adapter, llm = backends.get("vllm").module, mock.MagicMock()
    config = llm.llm_engine.vllm_config
    config.use_v2_model_runner = padded
    config.model_config.dtype = torch.bfloat16
    config.model_config.hf_config.to_dict.return_value = {"eos_token_id": 2}
    answer = [types.SimpleNamespace(token_ids=ids) for ids in ([5, 6, 7], [8])]
    steps = [[types.SimpleNamespace(request_id="0", outputs=[each])] for each in answer]
    llm.llm_engine.has_unfinished_requests.side_effect = [True, True, False]
    llm.llm_engine.step.side_effect = steps
    llm.llm_engine.renderer.render_cmpl.side_effect = list
    counts = [types.SimpleNamespace(name=adapter.DRAFTED, value=value) for value in (3, 23)]
    llm.get_metrics.side_effect = [[count] for count in counts]
    library = types.ModuleType("vllm")
    library.LLM = lambda *a, **k: llm
    library.SamplingParams = lambda **k: k
    kinds = types.ModuleType("vllm.sampling_params")
    kinds.RequestOutputKind = {"DELTA": "delta"}
    monkeypatch.setitem(sys.modules, "vllm", library)
    monkeypatch.setitem(sys.modules, "vllm.sampling_params", kinds)
    monkeypatch.setattr(checkpoints, "linear_bytes", lambda *a: 5)
    engine = adapter.Engine(checkpoint, adapter.OPTIONS["bfloat16-ngram"], "cuda")
    assert engine.generate([[1, 2]], 4, None) == [[5, 6, 7, 8]]
    drafted = {} if padded else {"drafted_tokens": 20}
    assert engine.speculation == {"accepted_tokens": 2} | drafted, "how many were drafted is unknown"
    assert engine.settings["read_back"] == {"dtype": "bfloat16", "end_token_ids": [2]}


# An endpoint that wants a token


def asked(url, checkpoint):
    with backends.get("hf_endpoint").serve(
        checkpoint, "completions", "cuda", servers.ServerSpec(2, 64, 1, url=url)
    ):
        pass


def test_a_token_is_not_sent_in_the_clear(checkpoint, monkeypatch):
    monkeypatch.setenv("HF_TOKEN", SECRET)
    with pytest.raises(ValueError, match="over https only") as refused:
        asked("http://somewhere.example", checkpoint)
    assert SECRET not in str(refused.value)
    with pytest.raises(ValueError, match="needs an endpoint"):
        asked("", checkpoint)
    monkeypatch.setattr("huggingface_hub.get_token", lambda: None)
    with pytest.raises(ValueError, match="hf auth login"):
        asked("http://localhost:1", checkpoint)


def test_an_endpoint_is_not_measured_of_a_studys_own_accord():
    assert backends.get("hf_endpoint").ready("cuda") == []
    assert "hf_endpoint" in backends.get("hf_endpoint").absent("cpu")[0]


# Whole runs against servers that quote the token


LOAD_TOKENS = 4, 5


class Quoting(http.server.BaseHTTPRequestHandler):
    """An OpenAI server that refuses whoever has not the token. It answers what comes before the load and every
    second request of it, and refuses the others in four ways, each with the token in its words."""

    protocol_version = "HTTP/1.1"
    accepts, numbers = SECRET, itertools.count()

    def log_message(self, *words):
        pass

    def _send(self, status, body, kind="application/json"):
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def _refused(self):
        given = self.headers.get("Authorization", "nothing")
        if given == f"Bearer {self.accepts}":
            return False
        self._send(401, json.dumps({"error": {"message": f"Wrong credentials: {given}"}}).encode())
        return True

    def do_GET(self):
        if not self._refused():
            self._send(200, json.dumps({"data": [{"id": "endpoint-model"}]}).encode())

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        given = self.headers.get("Authorization", "nothing")
        if self._refused():
            return
        loaded = body["max_tokens"] in LOAD_TOKENS  # the warm-up, the judge and the trials ask for others
        number = next(self.numbers) if loaded else 1
        quoted = json.dumps({"error": {"message": f"No: {given}"}}).encode()
        if number % 2:
            time.sleep(0.02)  # an answer that came sooner than any device computes it would be refused
            self._send(200, self.answer(body), "text/event-stream")
        elif number % 8 == 4:
            self._send(401, quoted)
        elif number % 8 == 6:
            self._send(200, b"data: " + quoted + b"\n\n", "text/event-stream")
        elif number % 8 == 0:
            self._send(500, f"Traceback: {given}".encode(), "text/plain")
        else:
            self.close_connection = True
            self.wfile.write(f"{given}\r\n\r\n".encode())

    def answer(self, body):
        events = [{"choices": [{"text": f" {k}"}]} for k in range(body["max_tokens"])]
        prompt = len(body["prompt"]) if isinstance(body.get("prompt"), list) else 9
        events.append(
            {"choices": [], "usage": {"prompt_tokens": prompt, "completion_tokens": body["max_tokens"]}}
        )
        return b"".join(b"data: " + json.dumps(e).encode() + b"\n\n" for e in events) + b"data: [DONE]\n\n"


@pytest.fixture
def quoting(monkeypatch):
    monkeypatch.setattr(Quoting, "numbers", itertools.count())
    monkeypatch.setattr(Quoting, "accepts", SECRET)
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Quoting) as serving_:
        threading.Thread(target=serving_.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{serving_.server_port}"
        serving_.shutdown()


def measured_through(url, backend, option, folder, check=True):
    """A whole papermill run with the token in the environment; the finished process."""
    lengths = folder / "lengths.csv"
    lengths.write_text("prompt_tokens,new_tokens\n16,{}\n20,{}\n".format(*LOAD_TOKENS))
    given = {
        "backend": backend,
        "option": option,
        "url": url,
        "served_model": "endpoint-model",
        "results": folder / "results",
        "lengths": lengths,
        "concurrency": "4",
        "request_rates": "none",
        "requests": 12,
        "scale": 1.0,
    }
    words = [str(word) for name, value in given.items() for word in ("-p", name, value)]
    return run(
        "papermill",
        "notebooks/serving.ipynb",
        folder / "executed.ipynb",
        *words,
        check=check,
        HF_TOKEN=SECRET,
        BENCH_API_TOKEN=SECRET,
    )


def quotes(folder, done, since):
    """Everything that a run has left which holds any part of the token: its folder, logs/, and what it
    said."""
    logs = [file for file in (ROOT / "logs").rglob("*") if file.is_file() and file.stat().st_mtime >= since]
    files = [file for file in folder.rglob("*") if file.is_file()]
    assert any(file.suffix == ".ipynb" for file in files)
    kept = {str(file): file.read_bytes().decode(errors="replace") for file in [*files, *logs]} | {
        "stdout": done.stdout,
        "stderr": done.stderr,
    }
    return [
        name for name, text in kept.items() if any(SECRET[k : k + 10] in text for k in range(len(SECRET) - 9))
    ]


@pytest.mark.parametrize(
    ("backend", "option"),
    [("http", "chat"), ("hf_endpoint", "completions")],
)
@pytest.mark.check
@pytest.mark.timing
def test_a_whole_run_tells_the_token_to_nobody(quoting, tmp_path, backend, option):

    since = time.time()
    done = measured_through(quoting, backend, option, tmp_path)
    requests = store.load(folder=tmp_path / "results")
    failed = requests[requests["error"] != ""]
    assert len(requests) == 12 and len(failed) == 6
    assert any("HTTP 401: No: Bearer ***" in error for error in failed["error"])
    assert all("***" in error for error in failed["error"]), "every failure had quoted the token"
    assert quotes(tmp_path, done, since) == []


@pytest.mark.check
def test_a_run_that_is_refused_altogether_tells_the_token_to_nobody(quoting, tmp_path, monkeypatch):
    monkeypatch.setattr(Quoting, "accepts", "another")
    since = time.time()
    done = measured_through(quoting, "http", "completions", tmp_path, check=False)
    assert done.returncode != 0 and "/v1/models: HTTP 401" in done.stderr
    assert not list(tmp_path.rglob("results/**/*.csv"))
    assert quotes(tmp_path, done, since) == []


# Every published system


def no_requests():

    return schema.frame([]).assign(tensor_parallel=1.0)


def test_every_published_system_has_an_engine_a_state_and_a_command():
    table = systems_analysis.systems(no_requests())
    assert len(table) == len(systems_analysis.published()) > 20 and set(table["state"]) == {"not yet"}
    assert set(table["study"]) == set(systems_analysis.STUDIES.values())
    for row in table.to_dict("records"):
        backend = backends.get(row["backend"])
        assert row["option"].split()[0] in backend.options("cuda")
        assert set(row["option"].split()) <= set(backend.module.OPTIONS)
        assert backend.can(inputs.study()["experiments"][row["experiment"]].get("needs", "load"))
        assert row["backend"] in row["command"] and row["model"] in row["command"]
        assert row["model"].partition(":")[0] in {"hub", *inputs.table("models")["model"]}
        assert row["tensor_parallel"] == 1 or f"-p tensor_parallel {row['tensor_parallel']}" in row["command"]
    known = inputs.table("systems")
    assert not known.duplicated(systems_analysis.SYSTEM).any() and len(known) == len(
        table.drop_duplicates(systems_analysis.SYSTEM + ["backend"])
    ), "a row for a system that nobody published"


def test_the_state_of_a_system_is_what_has_been_measured(monkeypatch):

    def told(*runs):
        rows = [row for k, about in enumerate(runs, start=1) for row in make_rows(n=2, run=k, **about)]
        table = systems_analysis.systems(schema.frame(rows)).set_index(
            ["platform", "options", "tensor_parallel"]
        )
        return table.sort_index()["state"]

    state = told(
        {"backend": "tgi", "option": "gptq-int4", "gpu": "h200"},
        {"backend": "tgi", "option": "gptq-int4", "gpu": "h200"},
        {"backend": "tgi", "option": "nf4", "gpu": "epyc-zen4-2c"},
    )
    assert state["TGI", "quantized w/ GPTQ", 1] == "measured on a GPU: h200 (2 runs of smollm2-135m)"
    assert (
        state["TGI", "quantized w/ bitsandbytes", 1]
        == "measured here, on a CPU: epyc-zen4-2c (1 run of smollm2-135m)"
    )
    assert state["TGI", "-", 1] == "not yet"
    both = told(
        {"backend": "mlc", "option": "q0f16", "gpu": "h100", "tensor_parallel": 2},
        {"backend": "mlc", "option": "q0f16", "gpu": "h100", "error": "broken"},
    )
    assert (
        "h100" in both["MLCEngine", "Llama-3-8B fp16", 2]
        and both["MLCEngine", "Llama-3-8B fp16", 1] == "not yet"
    ), "another number of devices, or only failures"


def test_a_published_system_without_a_row_says_so(monkeypatch):
    table = inputs.table
    monkeypatch.setattr(
        inputs,
        "table",
        lambda name: table(name).query("platform != 'TGI'") if name == "systems" else table(name),
    )
    found = systems_analysis.systems(no_requests())
    lacking = found[found["platform"] == "TGI"]
    assert set(lacking["state"]) == {"no engine named in data/systems.csv"}
    assert set(lacking["command"]) == {""}
    assert "no engine named" in html.html(backends_tables.systems(no_requests()))
