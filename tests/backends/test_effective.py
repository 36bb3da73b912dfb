"""What an engine says of the model that it computes with, against the checkpoint."""

import contextlib
import http.server
import json
import threading
import types

import pytest

from bench import backends, processes
from bench.backends import lmdeploy
from bench.backends.common import copies, effective, gguf_files, servers
from llm_measured.core import files

CONFIG = {"rope_parameters": {"rope_theta": 100000.0}, "vocab_size": 49152, "dtype": "float32"}
SAME = {"rope_theta": 100000.0, "dtype": "torch.bfloat16", "vocab_size": 49152, "end_token_ids": [2]}


@pytest.fixture
def checkpoint(tmp_path):
    (tmp_path / "config.json").write_text(json.dumps(CONFIG))
    return types.SimpleNamespace(
        name="a-model", path=tmp_path, config=CONFIG, end_token_ids=[0, 2], kv_values_per_token=1
    )


def test_what_agrees_is_kept_and_what_is_not_said_is_not(checkpoint):
    assert effective.checked("It", checkpoint, SAME, "bfloat16") == {
        "read_back": SAME | {"dtype": "bfloat16"}
    }
    assert effective.checked("It", checkpoint, {"rope_theta": None}) == {}


@pytest.mark.parametrize(
    ("told", "words"),
    [
        ({"rope_theta": 10000}, "a rotary base of 10000 where a-model has 100000"),
        ({"dtype": "float32"}, "numbers of the format float32 where a-model has bfloat16"),
        ({"vocab_size": 32000}, "a vocabulary of 32000 where a-model has 49152"),
        ({"end_token_ids": [2, 7]}, r"ends of a sequence \[2, 7\] where a-model has \[0, 2\]"),
    ],
)
def test_a_difference_refuses_the_run_in_one_sentence(checkpoint, told, words):
    with pytest.raises(ValueError, match=f"^It says that it computes with {words}: its answers") as refused:
        effective.checked("It", checkpoint, SAME | told, "bfloat16")
    assert "\n" not in str(refused.value)


def test_both_ways_of_writing_a_configuration_are_read():
    old = {"rope_theta": 5.0, "torch_dtype": "float16", "vocab_size": 3, "eos_token_id": 2}
    new = {"rope_parameters": {"rope_theta": 5.0}, "dtype": "float16", "vocab_size": 3, "eos_token_id": [2]}
    facts = {"rope_theta": 5.0, "dtype": "float16", "vocab_size": 3, "end_token_ids": [2]}
    assert effective.of_config(old) == effective.of_config(new) == facts
    assert effective.of_config({}) == {}


@pytest.fixture
def address(monkeypatch):
    """A server whose answers are set by `answers`; `processes.started` yields it instead of starting one."""
    answers = {}

    class Handler(http.server.BaseHTTPRequestHandler):
        def log_message(self, *words):
            pass

        def do_GET(self):
            found = answers.get(self.path)
            self.send_response(200 if found is not None else 404)
            self.end_headers()
            self.wfile.write(json.dumps(found).encode())

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        url = f"http://127.0.0.1:{server.server_port}"

        @contextlib.contextmanager
        def started(*arguments, **named):
            yield url

        monkeypatch.setattr(processes, "started", started)
        yield url, answers
        server.shutdown()


def serve(name, option, checkpoint, log):
    with backends.get(name).serve(
        checkpoint, option, "cuda", servers.ServerSpec(4, 64, 1, log=log / "server.txt")
    ) as served:
        return served.settings.get("read_back", {})


@pytest.mark.parametrize(
    ("name", "path", "said"),
    [
        ("sglang", "/server_info", lambda dtype: {"dtype": dtype}),
        ("tgi", "/info", lambda dtype: {"model_dtype": f"torch.{dtype}"}),
        (
            "vllm",
            "/server_info?config_format=json",
            lambda dtype: {"vllm_config": {"model_config": {"dtype": f"torch.{dtype}"}}},
        ),
    ],
)
def test_a_server_that_computes_in_another_format_is_refused(
    checkpoint, address, tmp_path, monkeypatch, name, path, said
):
    _, answers = address
    monkeypatch.setattr(copies, "for_transformers_4", lambda *a, **k: tmp_path)
    assert serve(name, "bfloat16", checkpoint, tmp_path) == {}, "a server that tells nothing is measured"
    answers[path] = said("bfloat16")
    assert serve(name, "bfloat16", checkpoint, tmp_path) == {"dtype": "bfloat16"}
    answers[path] = said("float32")
    with pytest.raises(ValueError, match="float32 where a-model has bfloat16"):
        serve(name, "bfloat16", checkpoint, tmp_path)


@pytest.mark.parametrize(
    ("base", "tokens", "end", "words"),
    [
        (100000.0, 3, 2, ""),
        (None, 3, 2, "a rotary base of 10000 where a-model has 100000"),
        (100000.0, 4, 2, "a vocabulary of 4 where a-model has 3"),
        (100000.0, 3, 1, r"ends of a sequence \[1\] where a-model has \[0, 2\]"),
    ],
)
def test_what_a_gguf_file_tells_is_held_against_the_model(checkpoint, tmp_path, base, tokens, end, words):
    import gguf

    file = tmp_path / "model.gguf"
    writer = gguf.GGUFWriter(file, "llama")
    if base:
        writer.add_rope_freq_base(base)
    writer.add_token_list([f"<{number}>" for number in range(tokens)])
    writer.add_eos_token_id(end)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.close()
    checkpoint.config = CONFIG | {"vocab_size": 3}
    if words:
        with pytest.raises(ValueError, match=f"llama.cpp says that it computes with {words}: its answers"):
            gguf_files.read_back("llama.cpp", checkpoint, file)
        return
    told = gguf_files.read_back("llama.cpp", checkpoint, file)["read_back"]
    assert told == {"rope_theta": 100000.0, "vocab_size": 3, "end_token_ids": [2]}


def test_mlc_s_own_format_is_read_back(checkpoint, address, tmp_path, monkeypatch):
    made = tmp_path / "made"
    made.mkdir()
    monkeypatch.setattr(files, "made", lambda *a: made)
    about = {"model_config": {"position_embedding_base": 10000, "vocab_size": 49152}, "eos_token_id": 2}
    (made / "mlc-chat-config.json").write_text(json.dumps(about))
    with pytest.raises(ValueError, match="MLC says .* rotary base of 10000 where a-model has 100000"):
        serve("mlc", "q0f16", checkpoint, tmp_path)
    about["model_config"]["position_embedding_base"] = 100000
    (made / "mlc-chat-config.json").write_text(json.dumps(about))
    assert serve("mlc", "q0f16", checkpoint, tmp_path)["rope_theta"] == 100000


def test_lmdeploy_on_its_other_engine_is_refused(checkpoint, address, tmp_path):
    log = tmp_path / "server.txt"
    log.write_text("INFO: started\n")
    assert serve("lmdeploy", "bfloat16", checkpoint, tmp_path) == {}
    words = "WARNING - Fallback to pytorch engine because turbomind is not built."
    log.write_text(f"INFO: started\n{words}\n")
    with pytest.raises(RuntimeError, match="which bfloat16 does not stand for.*turbomind is not built"):
        serve("lmdeploy", "bfloat16", checkpoint, tmp_path)
    assert lmdeploy.OPTIONS["bfloat16"]["backend"] == "turbomind"
