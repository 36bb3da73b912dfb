"""**llama.cpp**: inference in plain C++ on GGUF files, here through the wheel `xllamacpp`, which runs
llama.cpp's own server inside this process.

- Install: part of the default environment
  (`environments/default.txt`): `xllamacpp` for the engine, `gguf` for making
  its files. With an NVIDIA GPU `make study ENGINES=llamacpp` makes an environment of its own,
  `.venvs/llamacpp-cuda`, from `environments/llamacpp-cuda.txt`: its wheel for CUDA 12.8 is on the project's
  own list, not on the public index; it needs glibc 2.35 and the libraries of CUDA 12. Not tried on CUDA: no
  GPU was at hand.
- Documentation: <https://github.com/ggml-org/llama.cpp/tree/master/tools/server> and
  <https://github.com/xorbitsai/xllamacpp>
- Licence: MIT (both).
- Options: the type of every matrix in the GGUF file, tied head included: `F16`, `Q8_0` (8 bits and a 16-bit
  scale per 32 weights), `Q4_0` (4 bits likewise). Norms stay float32, the KV cache is float16. In the
  quantised options activations are rounded to 8 bits as well, on a GPU too. A Llama or a Qwen2 without a GGUF
  file (from the hub, or random weights) is written as one from its own layout. `as-shipped` is the GGUF file
  that the model came as, untouched, in the mixture of types that its publisher chose (`Q4_K_M` of
  Qwen2.5-Coder, `Q4_1` of SmolLM2; the run's settings have it as `file_type`).
  `Q8_0-ngram` is speculative decoding without a second model (`--spec-type ngram-simple`): what followed the
  last two tokens when they stood in the text before, up to ten tokens, is drafted and checked in one pass.
  `as-shipped-draft` and `Q4_0-draft` have a smaller model draft a few (`bench/backends/common/drafts.py`),
  its file in the same form, `Q4_0-draft2` two; their MBU counts the larger model's weights alone.
  `Q4_0-kv-q8_0` and `Q4_0-kv-q4_0` keep keys and values in 8 or 4 bits and a 16-bit scale per 32 of them.
- On CUDA all layers and the head are on the first visible GPU, flash attention is as llama.cpp decides; `F16`
  multiplies in float16 there.
- Tokens become visible through `Server.handle_completions(body, callback)`. It speaks OpenAI's dialect, which
  has no token ids, except as part of `logprobs`; with `post_sampling_probs` these cost nothing to compute.
  Without a callback the ids come from the server's `/completion`, in one piece.
- Prefix cache (its server, where requested): every slot keeps the tokens that it computed, for
  whoever has the longest common prefix with them; what a slot loses goes to host memory (`cache_ram_mib`,
  whole MiB, so the declared size is rounded down) and comes back. It reports hits token by token, and counts
  them at `/metrics`. `cache_prompt: false` computes everything, and still leaves its tokens in the slot.
- Traps: plain `logprobs` sort the whole vocabulary for every token, a tenth of the speed here. A token that
  ends inside a UTF-8 character is held back and its id never sent: the ids of such a character are found
  again with the tokenizer, and arrive together. Accepted drafts are sent one by one, without ids: these are
  found again in the same way. `ignore_eos` suppresses every token that llama.cpp takes for an end of
  generation, also one that the model's configuration does not name (SmolLM2: 0, 2, 4). The Linux wheel is
  compiled for AVX2, without AVX-512. Its threads are OpenMP's: spinning while they wait, they collapse beside
  another busy process. A callback costs the engine time wherever all cores are computing: compare the rows
  with and without streaming. The wheels for CPUs and for CUDA bear the same name and version, and the former
  computes on the CPU without a word: the adapter looks for the GPU first. The wheel for CUDA has no machine
  code for data-centre GPUs: the driver compiles its kernels at the first start and keeps them
  (`~/.nv/ComputeCache`), so the first `load_s` is longer.
"""

import http.client
import json
import math
import sys
import threading
from importlib.metadata import version as _installed
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from bench import prefix_cache
from bench.backends import common
from bench.backends.common import contract, cuda, drafts, gguf_files, servers
from bench.backends.common.checkpoints import Checkpoint
from bench.backends.common.contract import OnToken, Prompts
from bench.backends.common.servers import ServerSpec
from llm_measured.core.definitions import Fields

if TYPE_CHECKING:
    import xllamacpp

NGRAM = {"ngram_tokens": 2, "draft_tokens": 10}
Q4_0 = {"file": "Q4_0", "arithmetic": "int8", "on_request": ("cpu", "cuda")}  # what is measured by name
KV_VALUE_BYTES = {"f16": 2, "q8_0": 34 / 32, "q4_0": 18 / 32}
OPTIONS: dict[str, Fields] = {
    "F16": {"file": "F16", "arithmetic": "float32", "arithmetic_cuda": "float16"},
    "Q8_0": {"file": "Q8_0", "arithmetic": "int8"},
    "Q8_0-ngram": {"file": "Q8_0", "arithmetic": "int8", "batches": False, **NGRAM},
    "Q4_0": {"file": "Q4_0", "arithmetic": "int8"},
    "Q4_0-ngram": {**Q4_0, "batches": False, **NGRAM},
    "Q4_0-draft": {**Q4_0, "batches": False, "draft_tokens": drafts.TOKENS, "draft_model": True},
    "Q4_0-draft2": {**Q4_0, "batches": False, "draft_tokens": 2, "draft_model": True},
    "Q4_0-kv-q8_0": {**Q4_0, "kv_cache": "q8_0"},
    "Q4_0-kv-q4_0": {**Q4_0, "kv_cache": "q4_0"},
    # It takes a model that came as a GGUF file.
    gguf_files.AS_SHIPPED: {
        "file": gguf_files.AS_SHIPPED,
        "arithmetic": "int8",
        "on_request": ("cpu", "cuda"),
    },
    f"{gguf_files.AS_SHIPPED}-draft": {
        "file": gguf_files.AS_SHIPPED,
        "arithmetic": "int8",
        "batches": False,
        "draft_tokens": drafts.TOKENS,
        "draft_model": True,
        "on_request": ("cpu", "cuda"),
    },
}
DEVICES = ("cuda", "cpu")
PREFIX_CACHE = True
OWN_SLOTS = 4  # of llama-server where nobody says how many (--parallel); the wheel's own number is 1
CONTEXT = 2048  # tokens of the one slot at the start; more or longer requests make the server start again
CONTEXT_STEP = 256  # tokens to which it rounds a slot up
MIB = 2**20
CACHE_REUSE = 0  # chunks that are no prefix are computed: shifted ones count as hits, and give other tokens
ALL = -2  # llama.cpp's number for all layers; -1 would be as many as it thinks fit


def version() -> str:
    return f"xllamacpp {_installed('xllamacpp')}"


def available() -> str | None:
    return common.absent("xllamacpp", "gguf")


def prepare(checkpoint: Checkpoint, option: str, device: str) -> Path:
    return gguf_files.prepare(checkpoint, OPTIONS[option]["file"])


def load(checkpoint: Checkpoint, option: str, device: str, threads: int) -> "Engine":
    return Engine(checkpoint, prepare(checkpoint, option, device), OPTIONS[option], device, threads)


def serve(
    checkpoint: Checkpoint, option: str, device: str, request: servers.ServerSpec
) -> servers.ServerCommand:
    """llama.cpp's own server in a process of its own: a slot for each request; a prompt cache where one is
    requested: what slots hold, and what is displaced from them in host memory."""
    details, path = OPTIONS[option], prepare(checkpoint, option, device)
    draft, draft_path = _draft(checkpoint, details)
    requests = request.requests or OWN_SLOTS
    room = request.threads, requests, request.tokens
    cache, host_mib = _cache(checkpoint, requests, request, _kv_value_bytes(details))
    counted = request.cache_tokens is not None
    settings = _settings(details, device, request.threads, draft)
    settings |= {"slots": requests, "slot_tokens": request.tokens}
    if counted:
        settings |= {"prompt_cache": cache.kind != "off", "cache_ram_mib": host_mib}
        settings |= {"endpoint_metrics": True, "n_cache_reuse": CACHE_REUSE}
    body = _body(checkpoint, cache.kind != "off")
    return servers.ServerCommand(
        [
            *(sys.executable, "-m", __name__, path, option, device, request.port),
            *(draft_path or "", *room, host_mib, int(counted)),
        ],
        body=lambda new_tokens: body,
        settings=settings,
        reported=lambda url: gguf_files.read_back("llama.cpp", checkpoint, path),
        cache=lambda url: cache,
    )


def _draft(checkpoint: Checkpoint, details: Fields) -> tuple[Checkpoint | None, Path | None]:
    """The draft model of an option that has one, and its file."""
    if not details.get("draft_model"):
        return None, None
    draft = drafts.model_of(checkpoint)
    return draft, gguf_files.prepare(draft, details["file"])


def _kv_value_bytes(details: Fields) -> float:
    return KV_VALUE_BYTES[details.get("kv_cache", "f16")]


def _cache(
    checkpoint: Checkpoint, slots: int, request: ServerSpec, kv_value_bytes: float
) -> tuple[prefix_cache.Declared, int]:
    """(the requested prefix cache, MiB of host memory that it takes beside the slots, rounded down; 0: none).

    `slots` of `request.tokens` each hold the first of `request.cache_tokens`, host memory the rest.
    `kv_value_bytes`: bytes of one number in the KV cache. ValueError where the slots alone hold more than is
    requested.
    """
    if not request.cache_tokens:
        return prefix_cache.Declared("off"), 0
    in_slots = slots * CONTEXT_STEP * math.ceil(request.tokens / CONTEXT_STEP)
    if request.cache_tokens < in_slots:
        raise ValueError(
            f"llama.cpp's {slots} slots alone keep {in_slots} tokens: declare a cache of so many or more, "
            f"not of {request.cache_tokens}, or give it fewer slots."
        )
    token_bytes = checkpoint.kv_values_per_token * kv_value_bytes
    host_mib = int((request.cache_tokens - in_slots) * token_bytes // MIB)
    host_tokens = int(host_mib * MIB // token_bytes)  # fewer than requested, as MiB are whole
    declared = prefix_cache.Declared("slots", slots=slots, capacity_tokens=in_slots + host_tokens)
    return declared, host_mib


def _body(checkpoint: Checkpoint, cached: bool = False) -> Fields:
    """Fields of every request: compute the whole prompt unless it may be `cached`, never end early."""
    return {
        "cache_prompt": cached,
        "ignore_eos": True,
        "logit_bias": [[i, False] for i in checkpoint.end_token_ids],
    }


def _params(
    path: Path,
    draft: Path | None,
    details: Fields,
    device: str,
    threads: int,
    requests: int,
    tokens: int,
    host_mib: int = 0,
    counted: bool = False,
) -> "xllamacpp.CommonParams":
    """Parameters of llama.cpp's start with the files of the model and of its `draft`: a slot for each of
    `requests`, each with room for `tokens` (rounded up to 256); `host_mib` of memory for prompts that slots
    have lost; `counted`: it counts its tokens."""
    xllamacpp = _engine(device)
    params = xllamacpp.CommonParams()
    params.model.path, params.verbosity = str(path), -1
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = threads
    params.n_parallel, params.n_ctx = requests, requests * tokens
    params.cache_ram_mib = host_mib
    params.n_cache_reuse = CACHE_REUSE
    params.endpoint_metrics = counted
    params.n_gpu_layers = ALL if device == "cuda" else 0
    if device == "cuda":
        # Of its own accord it would use every GPU there is.
        params.split_mode = xllamacpp.llama_split_mode.LLAMA_SPLIT_MODE_NONE
        params.fit_params = False  # what does not fit is an error, not a slower run
    if "kv_cache" in details:
        kind = getattr(xllamacpp.ggml_type, f"GGML_TYPE_{details['kv_cache'].upper()}")
        params.cache_type_k = params.cache_type_v = kind
    kinds = xllamacpp.common_speculative_type
    if "ngram_tokens" in details:
        params.speculative.types = [kinds.COMMON_SPECULATIVE_TYPE_NGRAM_SIMPLE]
        ngrams = params.speculative.ngram_simple
        ngrams.size_n, ngrams.size_m = details["ngram_tokens"], details["draft_tokens"]
    if draft:
        params.speculative.types = [kinds.COMMON_SPECULATIVE_TYPE_DRAFT_SIMPLE]
        guesses = params.speculative.draft
        guesses.mparams.path, guesses.n_max = str(draft), details["draft_tokens"]
        guesses.cpuparams.n_threads = guesses.cpuparams_batch.n_threads = threads
        guesses.n_gpu_layers = params.n_gpu_layers
    return params


def _settings(details: Fields, device: str, threads: int, draft: Checkpoint | None = None) -> Fields:
    settings = {"n_threads": threads, "prompt_cache": False, "kv_cache": details.get("kv_cache", "f16")}
    if device == "cuda":
        settings |= {"n_gpu_layers": "all", "split_mode": "none"}
    if "ngram_tokens" in details:
        sizes = f"n {details['ngram_tokens']}, drafts of {details['draft_tokens']}"
        settings["speculation"] = f"ngram-simple, {sizes}"
    return settings | (drafts.settings(draft, details["draft_tokens"]) if draft else {})


def _arithmetic(path: Path, details: Fields, device: str) -> str:
    """The number format in which matrices of the file at `path` are multiplied: as it was shipped, a file may
    hold floats."""
    shipped = details["file"] == gguf_files.AS_SHIPPED
    if shipped and gguf_files.file_type(path) in ("ALL_F32", "F16", "BF16"):
        details = OPTIONS["F16"]
    return str(details.get(f"arithmetic_{device}", details["arithmetic"]))


def _engine(device: str) -> ModuleType:
    """The module `xllamacpp`. RuntimeError unless it can use `device`: the wheel for CPUs would leave a GPU
    alone without a word."""
    if device == "cuda":
        cuda.load_libraries()
    import xllamacpp

    found = [about["name"] for about in xllamacpp.get_device_info()] if device == "cuda" else []
    if device == "cuda" and not any(name.startswith("CUDA") for name in found):
        raise RuntimeError(
            "This xllamacpp finds no NVIDIA GPU: it is the wheel for CPUs, or the driver is older than CUDA "
            "12.8. Install the other one with: .venvs/llamacpp-cuda/bin/pip install --force-reinstall "
            f"--no-deps xllamacpp=={_installed('xllamacpp')} --index-url "
            "https://xorbitsai.github.io/xllamacpp/whl/cu128"
        )
    return xllamacpp


class Engine:
    def __init__(
        self, checkpoint: Checkpoint, path: Path, details: dict[str, Any], device: str, threads: int
    ) -> None:
        xllamacpp = _engine(device)
        self.xllamacpp, self.checkpoint, self.path, self.details = xllamacpp, checkpoint, path, details
        self.place = device, threads
        self.weight_bytes = gguf_files.step_bytes(path)
        self.arithmetic = _arithmetic(path, details, device)
        self.ids = gguf_files.text_reader(checkpoint)
        self.kv_value_bytes = _kv_value_bytes(details)
        draft, self.draft = _draft(checkpoint, details)
        self.settings = _settings(details, device, threads, draft)
        self.settings["system"] = xllamacpp.get_system_info().strip()
        self.settings |= gguf_files.read_back("llama.cpp", checkpoint, path)
        self.settings["file_type"] = gguf_files.file_type(path)
        self.server: Any = None  # xllamacpp's, while one is started
        self.room, self.keeps = (0, 0), False
        self.reserve(1, CONTEXT)

    def generate(self, prompts: Prompts, max_new_tokens: int, on_token: OnToken | None) -> list[list[int]]:
        if "draft_tokens" in self.details and len(prompts) > 1:
            raise ValueError("This adapter counts the drafts of one prompt at a time; use Q8_0 for batches.")
        longest = max_new_tokens + max(map(len, prompts))
        if len(prompts) > self.room[0] or longest > self.room[1]:
            self.reserve(len(prompts), longest)  # a warm-up request comes before any that counts
        body = {"prompt": prompts, "n_predict": max_new_tokens, "temperature": 0}
        body |= _body(self.checkpoint, self.keeps)
        if on_token is None:
            return self._post(body | {"return_tokens": True})
        return self._stream(body, len(prompts), on_token)

    def answer(self, prompts: list[list[int]], max_new_tokens: int) -> list[list[int]]:
        longest = max_new_tokens + max(map(len, prompts))
        if len(prompts) > self.room[0] or longest > self.room[1]:
            self.reserve(len(prompts), longest)
        body = {"prompt": prompts, "n_predict": max_new_tokens, "temperature": 0, "cache_prompt": False}
        answers = self._post(body | {"return_tokens": True})
        return [contract.until_end(ids, self.checkpoint.end_token_ids) for ids in answers]

    def keep_prefix(self, ids: list[int]) -> None:
        self.keeps = True
        self.generate([ids], 1, None)

    def _stream(self, body: Fields, requests: int, on_token: OnToken) -> list[list[int]]:
        """The server's own callback, one event per visible token, in this process."""
        found: list[list[int]] = [[] for _ in range(requests)]
        failures: list[Exception] = []

        def event(answer: Fields) -> None:
            try:
                self._note(answer)
                for request, token in self._tokens(answer):
                    on_token(request, token)
                    found[request].append(token)
            except Exception as failure:  # xllamacpp swallows what a callback raises
                failures.append(failure)

        shown = {"stream": True, "logprobs": 1, "post_sampling_probs": True}
        self.server.handle_completions(body | shown, event)
        if failures:
            raise failures[0]
        return found

    def _tokens(self, answer: Fields) -> list[tuple[int, int]]:
        """(request, id) of every token that became visible with the event `answer`, those held back for an
        incomplete character first."""
        if not answer:  # a batch begins with an empty event
            return []
        if "choices" not in answer:
            raise RuntimeError(f"llama.cpp refused the request: {answer}")
        choice = answer["choices"][0]
        if not choice["logprobs"]:  # an accepted draft; the last event has no text
            return [(choice["index"], token) for token in self.ids(choice["text"])]
        last, text = choice["logprobs"]["content"][0]["top_probs"][0], choice["text"]
        ids = [last["id"]] if len(text.encode()) == len(last["bytes"]) else self.ids(text)
        if ids[-1:] != [last["id"]]:
            raise RuntimeError(
                f"llama.cpp sent {text!r} without its token ids, and the tokenizer splits it otherwise."
            )
        return [(choice["index"], token) for token in ids]

    def _note(self, answer: Fields) -> None:
        """The last answer to a request tells how many tokens came from the cache, and how many were drafted
        and accepted, if any were drafted."""
        timings = answer.get("timings", {})
        if self.keeps and timings:
            self.speculation = {"cached_tokens": timings["cache_n"]}
        if "draft_tokens" in self.details and timings:
            self.speculation = {
                "drafted_tokens": timings.get("draft_n", 0),
                "accepted_tokens": timings.get("draft_n_accepted", 0),
            }

    def _post(self, body: Fields) -> list[list[int]]:
        """One plain request to the server's own /completion on the loopback: all ids at the end."""
        connection = http.client.HTTPConnection(self.server.listening_address.removeprefix("http://"))
        connection.request("POST", "/completion", json.dumps(body), {"Content-Type": "application/json"})
        answer = json.loads(connection.getresponse().read())
        connection.close()
        if "error" in answer:
            raise RuntimeError(answer["error"])
        answers = sorted(answer if isinstance(answer, list) else [answer], key=lambda one: one["index"])
        self._note(answers[-1])
        return [one["tokens"] for one in answers]

    def reserve(self, requests: int, tokens: int) -> None:
        """Start the server with exactly so many slots of so many tokens (llama.cpp rounds up to 256), if it
        does not run so already."""
        if self.room == (requests, tokens):
            return
        self.close()
        params = _params(self.path, self.draft, self.details, *self.place, requests, tokens)
        params.n_threads_http = 4  # of its own accord one per slot, each with a stack of 8 MiB
        try:
            self.server = self.xllamacpp.Server(params)
        except RuntimeError as error:
            raise MemoryError(
                f"llama.cpp does not start with room for {requests} requests of {tokens} tokens: {error}"
            ) from None
        # Dropped before it has begun to work, a server never ends.
        self.server.handle_completions({"prompt": [0], "n_predict": 1})
        self.room = requests, tokens

    def close(self) -> None:
        self.server, self.room = None, (0, 0)  # its destructor stops the threads


def main(path: str, option: str, device: str, port: str, draft: str, *numbers: str) -> None:
    """The server's process: listen on `port` of the loopback until it is ended. `draft`: the file of the
    draft model, empty without one; `numbers`: threads, requests, tokens, MiB of host memory for prompts, and
    1 where tokens are counted."""
    xllamacpp = _engine(device)
    threads, requests, tokens, host_mib, counted = map(int, numbers)
    room = threads, requests, tokens
    files = Path(path), Path(draft) if draft else None
    params = _params(*files, OPTIONS[option], device, *room, host_mib, bool(counted))
    params.hostnames, params.port = ["127.0.0.1"], int(port)
    params.n_threads_http = requests + 8  # an open connection keeps one busy
    listening = xllamacpp.Server(params)
    listening.handle_completions({"prompt": [0], "n_predict": 1})
    print(f"llama.cpp listens on {listening.listening_address}", flush=True)
    threading.Event().wait()


if __name__ == "__main__":
    main(*sys.argv[1:])
