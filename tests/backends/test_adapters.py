"""Adapters of engines that cannot run here: what they say of themselves, the commands they build, and that
they leave nothing behind."""

import contextlib
import io
import json
import os
import re
import stat
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
from builders import make_rows
from contracts import adapters

from bench import backends, inputs, processes
from bench.backends import mlc, text_generation_webui, tgi
from bench.backends.common import checkpoints, copies, servers, vllm_server
from bench.instrument.load import protocols
from bench.observations import schema
from bench.paths import ROOT
from bench.topics import systems as systems_analysis
from bench.workflow import plan

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


@pytest.fixture
def checkpoint(tmp_path, monkeypatch):
    monkeypatch.setattr(checkpoints, "MODELS", tmp_path / "models")
    return adapters.checkpoint(tmp_path / "checkpoint")


def launched(name, option, folder, device="cuda", **wanted):
    """(its command as words, its environment, the `RunningServer`) of a server that is not started."""
    with adapters.launched(name, option, folder, device, **wanted) as found:
        return found


def flag(command, name):
    return command[command.index(name) + 1]


# Server and option -> the end of its command for eight requests of 512 tokens on two GPUs.
COMMANDS = {
    "sglang bfloat16": """-m sglang.launch_server --model-path FOLDER/checkpoint --served-model-name shape:tiny
        --host 127.0.0.1 --port 4242 --dtype bfloat16 --context-length 544 --max-running-requests 8
        --tensor-parallel-size 2 --disable-radix-cache --enable-cache-report --log-level warning""",
    "sglang fp8": "--quantization fp8",
    "sglang bfloat16-ngram": """--speculative-algorithm NGRAM --speculative-num-draft-tokens 11
        --speculative-ngram-max-bfs-breadth 1""",
    "lmdeploy bfloat16": """serve api_server FOLDER/checkpoint --model-name shape:tiny --server-name 127.0.0.1
        --server-port 4242 --backend turbomind --dtype bfloat16 --tp 2 --log-level WARNING --session-len 544
        --max-batch-size 8""",
    "lmdeploy bfloat16-pytorch": """--backend pytorch --dtype bfloat16 --tp 2 --log-level WARNING
        --session-len 544 --max-batch-size 8""",
    "lmdeploy awq-int4": "--dtype float16 --tp 2 --log-level WARNING --session-len 544 --max-batch-size 8 "
    "--model-format awq",
    "tensorrt_llm bfloat16": """FOLDER/models/shape-tiny/transformers-4-HASH --host 127.0.0.1 --port 4242
        --backend pytorch --tp_size 2
        --max_batch_size 8 --max_seq_len 544 --log_level warning --extra_llm_api_options FOLDER/server.yaml""",
    "mlc q4f16_1": """-m mlc_llm serve FOLDER/models/shape-tiny/mlc-of-no-known-version-q4f16_1
        --device cuda --mode server --host 127.0.0.1 --port 4242 --prefix-cache-mode disable --speculative-mode disable --enable-debug --overrides
        max_num_sequence=8;max_total_seq_length=4352;context_window_size=544;tensor_parallel_shards=2""",
    "tgi float16": """docker run --rm --name bench-tgi-4242 --gpus "device=3,1" --shm-size 1g
        --publish 127.0.0.1:4242:80 --volume FOLDER/models/shape-tiny/transformers-4-HASH:/model:ro
        --env CUDA_DEVICE_ORDER=PCI_BUS_ID
        --env PREFIX_CACHING=0 --env USE_PREFIX_CACHING=0
        ghcr.io/huggingface/text-generation-inference:3.3.7 --model-id /model --num-shard 2
        --max-total-tokens 544 --max-input-tokens 543 --max-concurrent-requests 1024 --usage-stats off
        --dtype float16""",
    "tgi bnb-int8": "--usage-stats off --quantize bitsandbytes",
    "tgi nf4": "--usage-stats off --quantize bitsandbytes-nf4",
    "tgi eetq-int8": "--usage-stats off --quantize eetq",
    "tgi gptq-int4": "--usage-stats off --quantize gptq",
    "tgi float16-ngram": "--dtype float16 --speculate 10",
    "text_generation_webui 4bpw": """env --chdir=FOLDER python3 server.py --api --nowebui --api-port 4242
        --model-dir FOLDER/models/shape-tiny --model exl3-0.0.30-4bpw --loader ExLlamav3 --cache-type fp16 --ctx-size 4352
        --enable-tp --tp-backend nccl""",
}
# What else an option's server is given: body, dialect, address that answers when it is ready.
IDS = {"min_tokens": 7, "ignore_eos": True, "stop_token_ids": [2], "return_token_ids": True}
REQUESTS = {
    "sglang": (IDS, "completions", "/health"),
    "lmdeploy": ({"ignore_eos": True, "top_k": 1, "repetition_penalty": 1.0}, "text", "/health"),
    "tensorrt_llm": ({"ignore_eos": True}, "completions", "/health"),
    "mlc": ({"debug_config": {"ignore_eos": True}}, "completions", "/v1/models"),
    "tgi": ({}, "tgi", "/health"),
    "text_generation_webui": (
        {  # its loop ends before it hands on the last one, and counts the beginning of sequence
            "max_tokens": 8,
            "ban_eos_token": True,
            "add_bos_token": False,
            "do_sample": False,
            "truncation_length": 0,
        },
        "text-bos",
        "/v1/internal/health",
    ),
}


@pytest.mark.parametrize("of", COMMANDS)
def test_a_server_is_launched_as_its_maintainers_document_it(of, tmp_path, monkeypatch):
    """Prefix caches are off, no answer ends early, and only the GPUs that are described compute."""
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3,1")
    monkeypatch.delenv("CUDA_DEVICE_ORDER", raising=False)
    name, option = of.split()
    command, variables, served = launched(name, option, tmp_path, port=4242)
    text = " ".join(command).replace(str(tmp_path), "FOLDER")
    text = re.sub("transformers-4-[0-9a-f]+", "transformers-4-HASH", text)
    assert text.endswith(" ".join(COMMANDS[of].split())), text
    assert (served.body(7), served.dialect, served.health) == REQUESTS[name]
    assert variables.get("CUDA_VISIBLE_DEVICES") == ("3,1" if name == "text_generation_webui" else None)
    assert str(tmp_path) not in json.dumps(served.settings) and served.weight_bytes is None
    assert backends.get(name).batches(option) != option.endswith("-ngram")


def test_a_server_s_own_limit_holds_where_none_is_asked_for(tmp_path):
    """And a model gets no more room than it takes."""
    for name, limits in {
        "sglang": ["--max-running-requests"],
        "lmdeploy": ["--max-batch-size"],
        "tensorrt_llm": ["--max_batch_size"],
        "text_generation_webui": ["--ctx-size"],
        "mlc": [],
    }.items():
        option = backends.get(name).option("", "cuda")
        command, _, _ = launched(name, option, tmp_path, requests=0, tokens=4000)
        assert not set(limits) & set(command), name
    assert flag(command, "--overrides") == "context_window_size=2048;tensor_parallel_shards=2"


@pytest.mark.parametrize("option", ["bfloat16", "bfloat16-ngram"])
def test_tensorrt_llm_is_told_the_rest_in_a_file(option, tmp_path):
    _, _, served = launched("tensorrt_llm", option, tmp_path)
    told = json.loads((tmp_path / "server.yaml").read_text())
    expected = {"dtype": "bfloat16", "kv_cache_config": {"enable_block_reuse": False}}
    if option == "bfloat16-ngram":
        drafts = {"decoding_type": "NGram", "max_draft_len": 10, "max_matching_ngram_size": 2}
        expected |= {"speculative_config": drafts, "disable_overlap_scheduler": True}
    assert told == expected and expected.items() <= served.settings.items()


@pytest.mark.parametrize("config", [{}, {"bos_token_id": 1}])
def test_the_web_interface_s_count_of_an_answer_has_the_beginning_of_sequence_off(config, checkpoint):
    """It counts N tokens and that one as N + 1 wherever its tokenizer knows one."""
    (checkpoint.path / "config.json").write_text(json.dumps(config))
    (checkpoint.path / "tokenizer_config.json").unlink()
    assert text_generation_webui._counts_bos(checkpoint) == bool(config)
    usage = {"choices": [], "usage": {"prompt_tokens": 5, "completion_tokens": 7 + bool(config)}}
    dialect = "text-bos" if config else "text"
    assert protocols.read(dialect, json.dumps(usage).encode()).output_tokens == 7


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
    assert here.n_cache_reuse == 0, "chunks that are shifted are no prefix, and would count as hits"
    assert there.flash_attn_type == here.flash_attn_type == xllamacpp.CommonParams().flash_attn_type, (
        "flash attention is llama.cpp's own choice"
    )


def test_llamacpp_keeps_keys_and_values_in_the_option_s_format():
    import xllamacpp

    llamacpp, kinds = backends.get("llamacpp").module, xllamacpp.ggml_type
    made = [
        llamacpp._params("model.gguf", None, llamacpp.OPTIONS[option], "cpu", 2, 1, 256)
        for option in ("Q4_0", "Q4_0-kv-q8_0", "Q4_0-kv-q4_0")
    ]
    expected = [kinds.GGML_TYPE_F16, kinds.GGML_TYPE_Q8_0, kinds.GGML_TYPE_Q4_0]
    assert [params.cache_type_k for params in made] == [params.cache_type_v for params in made] == expected


def test_llamacpp_starts_the_cache_that_is_declared_and_says_what_it_is(checkpoint, tmp_path):
    command, _, plain = launched("llamacpp", "Q8_0", tmp_path)
    assert plain.body(4)["cache_prompt"] is False and plain.cache.kind == "off"
    assert command[-2:] == ["0", "0"], "no host memory, and no counters that nobody reads"
    per_mib = 2**20 // (checkpoint.kv_values_per_token * 2)
    in_slots = WANTED.requests * 512
    size = in_slots + 3 * per_mib + per_mib // 2
    command, _, served = launched("llamacpp", "Q8_0", tmp_path, cache_tokens=size)
    assert served.body(4)["cache_prompt"] is True and command[-2:] == ["3", "1"]
    assert (served.cache.kind, served.cache.slots) == ("slots", WANTED.requests)
    assert in_slots < served.cache.capacity_tokens <= size, "whole MiB of host memory"
    assert served.settings["cache_ram_mib"] == 3 and served.settings["n_cache_reuse"] == 0
    with pytest.raises(ValueError, match=f"slots alone keep {in_slots} tokens"):
        launched("llamacpp", "Q8_0", tmp_path, cache_tokens=in_slots - 1)


def test_vllm_is_given_as_many_blocks_as_are_declared(checkpoint):
    wanted = replace(WANTED, cache_tokens=2048)
    chosen, switches = vllm_server.flags(checkpoint, {"dtype": "bfloat16"}, "cpu", wanted)
    assert "--enable-prefix-caching" in switches and chosen["--block-size"] == "32"
    assert chosen["--num-gpu-blocks-override"] == "65", "the first block is never used"
    chosen, switches = vllm_server.flags(checkpoint, {"dtype": "bfloat16"}, "cuda", WANTED)
    assert "--no-enable-prefix-caching" in switches and "--num-gpu-blocks-override" not in chosen
    with pytest.raises(ValueError, match="vLLM needs a cache of 512 tokens or more"):
        vllm_server.blocks(replace(WANTED, cache_tokens=256), 32)


def test_vllm_has_room_for_the_longest_prompt_of_the_study_and_its_answer():
    asked = [each["parameters"].get("prompt_lengths", "0") for each in inputs.study()["experiments"].values()]
    longest = max(int(tokens) for lengths in asked for tokens in lengths.split())
    roomy = SimpleNamespace(config={"max_position_embeddings": 32768})
    assert longest == 4096 and vllm_server.context(roomy) >= 4096 + 128


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


def test_a_container_is_stopped_whatever_happens(checkpoint, tmp_path, monkeypatch):
    tools(tmp_path, monkeypatch, docker=DOCKER)
    assert tgi.available() is None
    wanted = servers.ServerSpec(4, 256, 1, 1, tmp_path / "server.txt", patience_s=30)
    with (
        contextlib.suppress(KeyError),
        backends.get("tgi").serve(checkpoint, "float16", "cuda", wanted) as served,
    ):
        assert processes.answers(served.url + "/health")
        pid = int((tmp_path / "docker.log.pid").read_text())
        raise KeyError("something else went wrong")
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
