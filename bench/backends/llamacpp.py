"""**llama.cpp**: inference in plain C++ on GGUF files, here through the wheel `xllamacpp`, which runs llama.cpp's own server inside this
process.

- Install: part of the default environment (`requirements.txt`): `xllamacpp` for the engine, `gguf` for making its files.
- Documentation: <https://github.com/ggml-org/llama.cpp/tree/master/tools/server> and <https://github.com/xorbitsai/xllamacpp>
- Licence: MIT (both).
- Options: the type of every matrix in the GGUF file, tied head included: `F16`, `Q8_0` (8 bits and a 16-bit scale per 32 weights),
  `Q4_0` (4 bits likewise). Norms stay float32, the KV cache is float16. In the quantised options activations are rounded to 8 bits as
  well.
- Tokens become visible through `Server.handle_completions(body, callback)`. It speaks OpenAI's dialect, which has no token ids, except
  as part of `logprobs`; with `post_sampling_probs` these cost nothing to compute. Without a callback the ids come from the server's
  `/completion`, in one piece.
- Traps: plain `logprobs` sort the whole vocabulary for every token, a tenth of the speed here. A token that ends inside a UTF-8
  character is held back and its id never sent: the ids of such a character are found again with the tokenizer, and arrive together.
  `ignore_eos` suppresses every token that llama.cpp takes for an end of generation, also one that the model's configuration does not
  name (SmolLM2: 0, 2, 4). The Linux wheel is compiled for AVX2, without AVX-512. Its threads are OpenMP's: spinning while they wait,
  they collapse beside another busy process. A callback costs the engine time wherever all cores are computing: compare the rows with and
  without streaming.
"""

import http.client
import json
from importlib.metadata import version as _installed
from importlib.util import find_spec

from bench import gguf_files

OPTIONS = {"F16": {}, "Q8_0": {}, "Q4_0": {}}
DEVICES = ("cpu",)
CONTEXT = 2048  # tokens of one slot; a longer request makes the server start again with more


def version():
    return f"xllamacpp {_installed('xllamacpp')}"


def available():
    absent = [name for name in ("xllamacpp", "gguf") if not find_spec(name)]
    return f"{' and '.join(absent)} cannot be imported. Install it with: make .venv" if absent else None


def prepare(checkpoint, option, device):
    return gguf_files.prepare(checkpoint, option)


def load(checkpoint, option, device, threads):
    return Engine(checkpoint, prepare(checkpoint, option, device), threads)


class Engine:
    kv_value_bytes = 2

    def __init__(self, checkpoint, path, threads):
        import xllamacpp

        self.xllamacpp, self.checkpoint, self.path, self.threads = xllamacpp, checkpoint, path, threads
        self.weight_bytes = gguf_files.step_bytes(path)
        self.settings = {"n_threads": threads, "prompt_cache": False, "kv_cache": "f16", "system": xllamacpp.get_system_info().strip()}
        self.server, self.room = None, (0, 0)
        self._make_room(1, CONTEXT)

    def generate(self, prompts, max_new_tokens, on_token):
        self._make_room(len(prompts), max_new_tokens + max(map(len, prompts)))
        body = {
            "prompt": prompts, "n_predict": max_new_tokens, "temperature": 0, "cache_prompt": False,
            "ignore_eos": True, "logit_bias": [[i, False] for i in self.checkpoint.end_token_ids],
        }  # fmt: skip
        return self._post(body | {"return_tokens": True}) if on_token is None else self._stream(body, len(prompts), on_token)

    def _stream(self, body, requests, on_token):
        """The server's own callback, one event per visible token, in this process."""
        found, failures = [[] for _ in range(requests)], []

        def event(answer):
            try:
                for request, token in self._tokens(answer):
                    on_token(request, token)
                    found[request].append(token)
            except Exception as failure:  # xllamacpp swallows what a callback raises
                failures.append(failure)

        self.server.handle_completions(body | {"stream": True, "logprobs": 1, "post_sampling_probs": True}, event)
        if failures:
            raise failures[0]
        return found

    def _tokens(self, answer):
        """(request, id) of every token that became visible with the event `answer`, those held back for an incomplete character first."""
        if not answer:  # a batch begins with an empty event
            return []
        if "choices" not in answer:
            raise RuntimeError(f"llama.cpp refused the request: {answer}")
        choice = answer["choices"][0]
        if not choice["logprobs"]:  # the last event has no token
            return []
        last, text = choice["logprobs"]["content"][0]["top_probs"][0], choice["text"]
        ids = [last["id"]]
        if len(text.encode()) != len(last["bytes"]):
            ids = self.checkpoint.tokenizer.encode(text, add_special_tokens=False).ids
            if ids[-1:] != [last["id"]]:
                raise RuntimeError(f"llama.cpp sent {text!r} without its token ids, and the tokenizer splits it otherwise.")
        return [(choice["index"], token) for token in ids]

    def _post(self, body):
        """One plain request to the server's own /completion on the loopback: all ids at the end."""
        connection = http.client.HTTPConnection(self.server.listening_address.removeprefix("http://"))
        connection.request("POST", "/completion", json.dumps(body), {"Content-Type": "application/json"})
        answer = json.loads(connection.getresponse().read())
        connection.close()
        if "error" in answer:
            raise RuntimeError(answer["error"])
        return [one["tokens"] for one in sorted(answer if isinstance(answer, list) else [answer], key=lambda one: one["index"])]

    def _make_room(self, slots, context):
        """Start the server, again if it has fewer slots or less context than needed (a warm-up request comes before any that counts)."""
        if slots <= self.room[0] and context <= self.room[1]:
            return
        self.close()
        self.room = max(slots, self.room[0]), max(context, self.room[1])
        params = self.xllamacpp.CommonParams()
        params.model.path, params.verbosity = str(self.path), -1
        params.cpuparams.n_threads = params.cpuparams_batch.n_threads = self.threads
        params.n_parallel, params.n_ctx = self.room[0], self.room[0] * self.room[1]
        params.cache_ram_mib = 0  # no cache of earlier prompts
        self.server = self.xllamacpp.Server(params)

    def close(self):
        self.server = None  # its destructor stops the threads
