"""Contracts of each engine, as `python -m contracts.checks ENGINE` in a process of its own.

A check is a generator of (what was checked, what is wrong or ""). Where a package imports on a machine without a
GPU, with stand-ins for its kernels, its own parser takes the adapter's command, its own request model the
adapter's body, and its own response model writes the stream that the load client must count; where it does not,
its source is read.
"""

import ast
import contextlib
import inspect
import io
import json
import os
import sys
import traceback
import typing
from collections.abc import Iterator
from pathlib import Path

from bench import backends
from contracts import adapters, stand_ins
from contracts.packages import Package

Finding = tuple[str, str]
TEXTS, IDS = (" a", " b", " c", " d"), (21, 22, 23, 24)


def why(failure: BaseException) -> str:
    return f"{type(failure).__name__}: {str(failure).strip()[-400:]}"


def tried(what: str, action) -> Finding:
    """(what, "") if `action()` goes well and gives nothing, else (what, its words)."""
    said = io.StringIO()
    try:
        with contextlib.redirect_stderr(said):
            return what, action() or ""
    except SystemExit:  # a parser prints its error, and ends
        return what, (said.getvalue().strip().splitlines() or ["it ended"])[-1][-400:]
    except Exception as failure:
        return what, why(failure)


# Servers


def served(name: str, parse, accept, respond, device: str = "cuda") -> Iterator[Finding]:
    """Findings on a server's adapter, option by option: `parse(words)` its arguments, `accept(body)` the body
    of a request, and the row of the stream that `respond(pieces, usage)` writes: JSON per event."""
    engine = backends.get(name)
    with adapters.scratch() as folder:
        for option in engine.options(device):
            with adapters.launched(name, option, Path(folder), device) as (words, _, server):
                body = adapters.body(server)
                yield tried(f"{option}: its parser takes the arguments", lambda: parse(words))
                yield tried(f"{option}: its request model takes the body", lambda: accept(body))
                for each in (1, 2):  # tokens in an event: two where drafts are accepted
                    row = adapters.counted(server.dialect, respond(_pieces(each), body))
                    yield f"{option}: its stream is counted, {each} a chunk", miscounted(row, body)
        if "data" in engine.parallel("serve"):
            more = {"data_parallel": 2, "cache_tokens": 4096 if engine.prefix_cache else None}
            with adapters.launched(name, option, Path(folder), device, **more) as (words, *_):
                yield tried("its parser takes replicas and a prefix cache", lambda: parse(words))


def _pieces(each):
    return [("".join(TEXTS[k : k + each]), list(IDS[k : k + each])) for k in range(0, 4, each)]


def miscounted(row: dict, body: dict) -> str:
    """What is wrong with the row of four tokens."""
    if row["error"]:
        return row["error"]
    ids = row["output_ids"] if body.get("return_token_ids") else []
    if row["output_tokens"] != 4 or row["text"] != "".join(TEXTS) or ids not in ([], list(IDS)):
        return f"the row has {row['output_tokens']} tokens, {row['text']!r}, {row['output_ids']}"
    return ""


def lacking(model, body: dict) -> str:
    """Names of `body` that a pydantic model does not declare: it would ignore them."""
    known = {name for name, field in model.model_fields.items()}
    known |= {field.alias for field in model.model_fields.values() if field.alias}
    left = sorted(set(body) - known)
    return f"{model.__name__} has no {', '.join(left)}" if left else ""


def openai_stream(response):
    """A writer of streams with an engine's own model of a chunk, and those of the parts that it names."""
    (choice,) = typing.get_args(response.model_fields["choices"].annotation)
    usage = next(each for each in typing.get_args(response.model_fields["usage"].annotation) if each)

    def write(pieces, body):
        with_ids = bool(body.get("return_token_ids"))
        events = []
        for text, ids in pieces:
            more = {"token_ids": ids} if with_ids else {}
            one = choice(index=0, text=text, **more)
            events.append(response(id="x", model="m", choices=[one]).model_dump_json())
        # Of a text a server counts its own tokens.
        total = usage(prompt_tokens=5, completion_tokens=4, total_tokens=9)
        return [*events, response(id="x", model="m", choices=[], usage=total).model_dump_json()]

    return write


def vllm(package: Package) -> Iterator[Finding]:
    from vllm.entrypoints.openai.completion import protocol
    from vllm.platforms import current_platform
    from vllm.utils.argparse_utils import FlexibleArgumentParser

    try:
        from vllm.entrypoints.common.cli_args import make_arg_parser
    except ImportError:
        from vllm.entrypoints.launchers.cli_args import make_arg_parser

    current_platform.device_type = current_platform.device_type or "cuda"  # which is not there
    parser = make_arg_parser(FlexibleArgumentParser())

    def parse(words):
        module = words.index("-m") + 1
        parser.parse_args(words[module + 1 :])
        return no_program(package, words[module])

    def accept(body):
        protocol.CompletionRequest(**body)
        return lacking(protocol.CompletionRequest, body)

    write = openai_stream(protocol.CompletionStreamResponse)
    device = "cpu" if "cpu" in package.requirement else "cuda"
    yield from served("vllm", parse, accept, write, device)
    named = "def use_v2_model_runner" in (package.folder / "vllm/config/vllm.py").read_text()
    yield (
        "its configuration tells whether drafts are padded (use_v2_model_runner)",
        "" if named else "config/vllm.py has no such property",
    )
    source = package.folder / "vllm/entrypoints/serve/dev/server_info/api_router.py"
    yield (
        "/server_info tells vllm_config as JSON",
        "" if "config_format" in source.read_text() else "it does not",
    )
    variables = (package.folder / "vllm/envs.py").read_text()
    with adapters.scratch() as folder, adapters.launched("vllm", "bfloat16", Path(folder)) as (_, chosen, _):
        for name in [name for name in chosen if name.startswith("VLLM_")]:
            yield (
                f"the variable {name} is known",
                "" if f'"{name}"' in variables else "envs.py has no such name",
            )


def sglang(package: Package) -> Iterator[Finding]:
    import argparse

    from sglang.srt.entrypoints.openai import protocol
    from sglang.srt.server_args import ServerArgs

    parser = argparse.ArgumentParser()
    ServerArgs.add_cli_args(parser)

    def parse(words):
        module = words.index("-m") + 1
        parser.parse_args(words[module + 1 :])
        return no_program(package, words[module])

    def accept(body):
        protocol.CompletionRequest(**body)
        return lacking(protocol.CompletionRequest, body)

    write = openai_stream(protocol.CompletionStreamResponse)
    yield from served("sglang", parse, accept, write)
    server = (package.folder / "sglang/srt/entrypoints/http_server.py").read_text()
    yield "/server_info is there", "" if '"/server_info"' in server else "http_server.py has no such path"


def lmdeploy(package: Package) -> Iterator[Finding]:
    from lmdeploy.cli.cli import CLI
    from lmdeploy.cli.serve import SubCliServe
    from lmdeploy.serve.openai import protocol

    SubCliServe.add_parsers()

    def parse(words):
        CLI.parser.parse_args(words[1:])

    def accept(body):
        protocol.CompletionRequest(**body)
        return lacking(protocol.CompletionRequest, body)

    write = openai_stream(protocol.CompletionStreamResponse)
    yield from served("lmdeploy", parse, accept, write)
    said = backends.get("lmdeploy").module.FALLBACK
    source = (package.folder / "lmdeploy/archs.py").read_text().lower()
    yield "its log says that it falls back as the adapter reads it", "" if said in source else f"no {said!r}"


def recorded(name: str) -> Iterator[Finding]:
    """Findings on a server whose package is not on the public index, against facts that were read in its
    repository."""
    facts = json.loads((Path(__file__).parent / "recorded.json").read_text())[name]

    def parse(words):
        flags = {word: words[k + 1 : k + 2] for k, word in enumerate(words) if word in known_or_new(words)}
        left = sorted(set(flags) - set(facts["flags"]))
        wrong = [f"no flag {flag}" for flag in left]
        for flag, value in flags.items():
            allowed = facts["flags"].get(flag)
            if allowed and value[0] not in allowed:
                wrong.append(f"{flag} is none of {', '.join(allowed)}: {value[0]}")
        for pair in facts.get("never_together", []):
            if set(pair) <= set(flags):
                wrong.append(f"{' and '.join(pair)} together")
        if "overrides" in facts:
            given = flags["--overrides"][0].split(";")
            wrong += [
                f"no override {one}" for one in given if one.partition("=")[0] not in facts["overrides"]
            ]
        return ", ".join(wrong)

    def known_or_new(words):
        """Its own flags: those behind the image's name where the command is docker's."""
        image = [k for k, word in enumerate(words) if "text-generation-inference" in word]
        own = words[image[0] + 1 :] if image else words
        return {word for word in own if word.startswith("--") and "=" not in word}

    def accept(body):
        early = sorted(set(body) & set(facts.get("fields_that_end_an_answer_early", [])))
        left = sorted(set(body) - set(facts["fields"]) - set(early))
        wrong = [f"no field {', '.join(left)}"] if left else []
        return ", ".join([*wrong, *(f"{name} ends an answer early" for name in early)])

    def respond(pieces, body):
        return [json.dumps(event) for event in facts["stream"]]

    yield from served(name, parse, accept, respond)


# Engines in this process


def exllamav3(package: Package) -> Iterator[Finding]:
    import torch.utils.cpp_extension

    os.environ["EXL3_FUSED_SAMPLER"] = "0"  # its own steps in PyTorch instead of one kernel
    # It compiles its kernels when it is imported.
    torch.utils.cpp_extension.load = lambda *a, **k: stand_ins.Module("exllamav3_ext")
    import exllamav3 as library

    adapter = backends.get("exllamav3").module
    ban = library.CustomSampler([library.SS_BanTokens([2]), library.SS_Argmax()])
    logits = torch.tensor([[[0.0, 1.0, 9.0, 3.0]]], dtype=torch.float16)
    yield tried(
        "its sampler bans the end on the device and takes the next best",
        lambda: "" if int(ban.forward(logits)) == 3 else "it does not",
    )
    taken = {"input_ids", "identifier", "max_new_tokens", "sampler"}
    yield "Job takes the adapter's arguments", absent(library.Job.__init__, taken)
    drafting = {"ngram_match_min", "num_draft_tokens"}
    yield "Generator takes the adapter's arguments", absent(library.Generator.__init__, drafting)
    for name in ("enqueue", "iterate", "num_remaining_jobs", "clear_queue", "close"):
        yield f"Generator.{name} is there", "" if hasattr(library.Generator, name) else "it is gone"
    source = (package.folder / "exllamav3/generator/job.py").read_text()
    source += (package.folder / "exllamav3/generator/generator.py").read_text()
    for key in (
        "token_ids",
        "identifier",
        "stage",
        "accepted_draft_tokens",
        "rejected_draft_tokens",
        "error",
    ):
        yield f"results have {key}", "" if f'"{key}"' in source else "no result names it"
    yield (
        "the page table can be emptied",
        "" if "def reset_page_table" in _all(package, "generator") else "it cannot",
    )

    with adapters.scratch() as folder:
        model = adapters.checkpoint(Path(folder) / "checkpoint")
        config = library.Config.from_directory(str(model.path))
        from bench.backends.common import effective

        yield tried(
            "its Config reads the rotary base of transformers 5",
            lambda: (
                ""
                if len(effective.checked("It", model, adapter._reported(config))["read_back"]) == 3
                else "no"
            ),
        )

    def converts():
        from exllamav3.conversion import convert_model

        convert_model.parser.parse_args(["-i", "in", "-o", "out", "-w", "work", "-b", "4"])
        return absent(convert_model.main, {"args", "job_state"}) or absent(convert_model.prepare, {"args"})

    yield tried("its converter takes the adapter's arguments", converts)


def _all(package, part):
    return "\n".join(file.read_text() for file in (package.folder / "exllamav3" / part).glob("*.py"))


def absent(function, names: set[str]) -> str:
    """Names that a function does not take."""
    left = sorted(names - set(inspect.signature(function).parameters))
    return f"{function.__qualname__} takes no {', '.join(left)}" if left else ""


def transformers(package: Package) -> Iterator[Finding]:
    """What engines on transformers 4 read of a checkpoint, and of the copy that they get."""
    from bench.backends.common import copies, effective

    with adapters.scratch() as folder:
        from unittest import mock

        from transformers import AutoConfig, AutoTokenizer

        from bench.backends.common import checkpoints

        model = adapters.checkpoint(Path(folder) / "checkpoint")
        bare = AutoConfig.from_pretrained(model.path)
        yield (
            "the checkpoint itself would be read with another rotary base, so that a copy is needed",
            "" if bare.rope_theta == 10000.0 else f"it reads {bare.rope_theta}: the copy is no longer needed",
        )
        with mock.patch.object(checkpoints, "MODELS", Path(folder) / "models"):
            path = copies.for_transformers_4(model, dtype="bfloat16")
        config = AutoConfig.from_pretrained(path)
        wrong = [
            f"{name} is {found}"
            for name, found, expected in (
                ("rope_theta", config.rope_theta, 100000.0),
                ("dtype", str(effective.of_config(config.to_dict())["dtype"]), "bfloat16"),
                ("vocab_size", config.vocab_size, 512),
            )
            if found != expected
        ]
        yield "it reads rotary base, number format and vocabulary of the copy", ", ".join(wrong)
        yield tried(
            "it reads the copy's tokenizer",
            lambda: (
                ""
                if AutoTokenizer.from_pretrained(path)("ab").input_ids == model.encode("ab")
                else "other ids"
            ),
        )


def huggingface_hub(package: Package) -> Iterator[Finding]:
    import huggingface_hub as library

    names = {"name", "namespace", "token"}
    yield (
        "get_inference_endpoint takes the adapter's arguments",
        absent(library.get_inference_endpoint, names),
    )
    status = getattr(library.InferenceEndpointStatus, "RUNNING", None)
    yield "a running endpoint is called running", "" if status == "running" else f"it is called {status}"


# Source only


def functions(file: Path) -> dict[str, set[str]]:
    """Arguments of every function and class constructor in a file, by name (`Class.method`)."""
    found = {}
    for node in ast.walk(ast.parse(file.read_text())):
        inside = node.body if isinstance(node, ast.ClassDef) else [node]
        for one in inside:
            if isinstance(one, ast.FunctionDef):
                of = f"{node.name}." if one is not node else ""
                words = one.args.posonlyargs + one.args.args + one.args.kwonlyargs
                found[of + one.name] = {word.arg for word in words}
            elif isinstance(one, ast.AnnAssign) and isinstance(node, ast.ClassDef):
                found.setdefault(f"{node.name}.fields", set()).add(getattr(one.target, "id", ""))
    return found


def gptqmodel(package: Package) -> Iterator[Finding]:
    (folder,) = package.folder.iterdir()
    config = functions(folder / "gptqmodel/quantization/config.py")
    fields = set().union(*(names for key, names in config.items() if key.endswith(".fields")))
    for name in ("bits", "group_size"):
        yield f"a quantisation has {name}", "" if name in fields else "no configuration has such a field"
    model = functions(folder / "gptqmodel/models/auto.py")
    left = sorted({"model_id_or_path", "quantize_config", "device"} - model.get("GPTQModel.load", set()))
    yield "GPTQModel.load takes the adapter's arguments", f"no {', '.join(left)}" if left else ""


def onnxruntime_genai(package: Package) -> Iterator[Finding]:
    builder = next(package.folder.glob("*/models/builder.py"), None)
    if builder is None:
        yield "its model builder is there", "onnxruntime_genai/models/builder.py is gone"
        return
    source = builder.read_text()
    for flag in ("-i", "-o", "-p", "-e", "-c"):
        yield f"its model builder takes {flag}", "" if f'"{flag}"' in source else "no such flag"
    for word in ("cuda", "fp16", "bf16", "int4"):
        yield f"its model builder knows {word}", "" if f'"{word}"' in source else "no such value"


def ctranslate2(package: Package) -> Iterator[Finding]:
    converters = package.folder / "ctranslate2/converters"
    made = functions(converters / "transformers.py").get("TransformersConverter.__init__", set())
    yield "its converter takes a folder", "" if "model_name_or_path" in made else "no such argument"
    convert = functions(converters / "converter.py").get("Converter.convert", set())
    left = sorted({"output_dir", "quantization"} - convert)
    yield "converting takes the adapter's arguments", f"no {', '.join(left)}" if left else ""
    named = any(name.startswith("ctranslate2.libs/libctranslate2") for name in package.binaries)
    yield (
        "its library lies where cuBLAS is looked for",
        "" if named else "no libctranslate2 in ctranslate2.libs",
    )


def bitsandbytes(package: Package) -> Iterator[Finding]:
    built = [name for name in package.binaries if "cuda13" in name]
    yield "it has kernels for CUDA 13", "" if built else "no library for CUDA 13 in the wheel"


def no_program(package: Package, module: str) -> str:
    """What is wrong where `python -m module` runs nothing of the package."""
    path = package.folder / f"{module.replace('.', '/')}.py"
    return "" if path.exists() and "__main__" in path.read_text() else f"{module} is no program"


def main(name: str, of: str, about: str) -> None:
    """Print the findings of one engine as JSON lines; `about` is its Package as JSON."""
    said = json.loads(about)
    package = Package(**said | {"folder": Path(said["folder"])}) if said else None
    finder = None
    if package:
        sys.path.insert(0, str(package.folder))
        if of != "transformers":  # it brings what it needs
            finder = stand_ins.installed(of, package.compiled)
    check = recorded(name) if of == "recorded" else globals()[of](package)
    try:
        for what, fault in check:
            print(json.dumps([what, fault]), flush=True)
    except (Exception, SystemExit) as failure:
        traceback.print_exc()
        print(json.dumps(["it imports on a machine without a GPU", why(failure)]), flush=True)
    if finder:
        print(json.dumps({"stand_ins": len({name.partition(".")[0] for name in finder.made})}), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
