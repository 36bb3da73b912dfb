"""Check one engine of engines.yaml in a process of its own: `python -m contracts.checks ENGINE PACKAGE`.

A check is a generator of (what was checked, what is wrong or ""). Of a server whose package imports on a machine
without a GPU, with stand-ins for its kernels, its own parser takes the adapter's command and its own models the
adapter's body; what a package has else is read in its source.
"""

import argparse
import ast
import contextlib
import importlib
import io
import json
import os
import sys
import traceback
import typing
from collections.abc import Callable, Iterator
from pathlib import Path

import yaml

from bench import backends
from contracts import adapters, stand_ins
from contracts.packages import Package

Finding = tuple[str, str]
ENGINES = yaml.safe_load((Path(__file__).parent / "engines.yaml").read_text())


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


def served(name: str, parse: Callable, accept: Callable, device: str = "cuda") -> Iterator[Finding]:
    """Findings on a server's adapter, option by option: `parse(words, variables)` its command and environment,
    `accept(body)` the body of a request."""
    engine = backends.get(name)
    cases = [(option, {}) for option in engine.options(device)]
    if "data" in engine.parallel("serve"):
        cache = 4096 if engine.prefix_cache else None
        cases.append((cases[0][0], {"data_parallel": 2, "cache_tokens": cache}))
    with adapters.scratch() as folder:
        for option, more in cases:
            what = f"{option}, with replicas" if more else option
            with adapters.launched(name, option, Path(folder), device, **more) as (words, variables, server):
                body = adapters.body(server)
                yield tried(f"{what}: its parser takes the arguments", lambda: parse(words, variables))
                yield tried(f"{what}: its models take the body and have what is read", lambda: accept(body))


def own_parser(name: str, package: Package) -> Callable:
    """The parser of the engine's own package, as a function of the words of a command."""
    if name == "lmdeploy":
        from lmdeploy.cli.cli import CLI
        from lmdeploy.cli.serve import SubCliServe

        SubCliServe.add_parsers()
        return lambda words: CLI.parser.parse_args(words[1:]) and None
    if name == "sglang":
        from sglang.srt.server_args import ServerArgs

        parser = argparse.ArgumentParser()
        ServerArgs.add_cli_args(parser)
    else:
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

    return parse


def imported(name: str, about: dict, package: Package) -> Iterator[Finding]:
    """Findings on a server whose package imports here."""
    own = own_parser(name, package)
    protocol = importlib.import_module(about["protocol"])
    chunk = protocol.CompletionStreamResponse.model_fields
    (choice,) = typing.get_args(chunk["choices"].annotation)
    usage = typing.get_args(chunk["usage"].annotation)[0]
    known = (package.folder / about["variables"]).read_text() if "variables" in about else ""

    def parse(words, variables):
        prefix = f"{name.upper()}_"
        left = [one for one in variables if one.startswith(prefix) and f'"{one}"' not in known]
        return own(words) or (f"no variable {', '.join(left)}" if left else "")

    def accept(body):
        protocol.CompletionRequest(**body)
        read = ["text", "token_ids"] if body.get("return_token_ids") else ["text"]
        return (
            lacking(protocol.CompletionRequest, body)
            or lacking(choice, read)
            or lacking(usage, ["prompt_tokens", "completion_tokens"])
        )

    yield from served(name, parse, accept, about["device"])


def lacking(model, names) -> str:
    """Names that a pydantic model does not declare: it would ignore them."""
    known = {name for name, field in model.model_fields.items()}
    known |= {field.alias for field in model.model_fields.values() if field.alias}
    left = sorted(set(names) - known)
    return f"{model.__name__} has no {', '.join(left)}" if left else ""


def no_program(package: Package, module: str) -> str:
    """What is wrong where `python -m module` runs nothing of the package."""
    path = package.folder / f"{module.replace('.', '/')}.py"
    return "" if path.exists() and "__main__" in path.read_text() else f"{module} is no program"


def recorded(name: str) -> Iterator[Finding]:
    """Findings on a server whose package is on no index, against what was read in its repository."""
    about = ENGINES[name]
    parser = argparse.ArgumentParser(allow_abbrev=False)
    together = parser.add_mutually_exclusive_group()
    for flag in about["flags"]["any value"]:
        parser.add_argument(flag, nargs="?")
    for flag, allowed in about["flags"].items():
        if flag != "any value":
            group = together if flag in about.get("never_together", []) else parser
            group.add_argument(flag, choices=allowed)

    def parse(words, variables):
        image = [k for k, word in enumerate(words) if "text-generation-inference" in word]
        first = next(k for k, word in enumerate(words) if word.startswith("--") and "=" not in word)
        given = parser.parse_args(words[image[0] + 1 if image else first :])
        parts = (getattr(given, "overrides", "") or "").split(";") if "overrides" in about else []
        wrong = [part for part in parts if part.partition("=")[0] not in about["overrides"]]
        return f"no override {', '.join(wrong)}" if wrong else ""

    def accept(body):
        left = sorted(set(body) - set(about["fields"]))
        return f"no field {', '.join(left)}" if left else ""

    yield from served(name, parse, accept)


# What is read in the source


def read(about: dict, package: Package) -> Iterator[Finding]:
    """Findings on the functions, texts and compiled files that the table names."""
    for path, expected in about.get("takes", {}).items():
        known = functions(source(package, path))
        for name, names in expected.items():
            left = sorted(set(names) - known.get(name, set()))
            wrong = f"it takes no {', '.join(left)}" if left else ""
            yield f"{name} takes the adapter's arguments", wrong if name in known else "it is gone"
    for path, texts in about.get("says", {}).items():
        written = source(package, path)
        for text in texts:
            yield f"{path} says {text}", "" if text in written else "it does not"
    for start in about.get("built", []):
        built = any(name.startswith(start) for name in package.binaries)
        yield f"it has a compiled {start}", "" if built else "no such file in the wheel"


def source(package: Package, path: str) -> str:
    """Text of a file of the package; empty where it is gone."""
    file = next(package.folder.glob(path), None)
    return file.read_text() if file else ""


def functions(text: str) -> dict[str, set[str]]:
    """Arguments of every function and method in a file, by name (`Class.method`)."""
    found = {}
    for node in ast.parse(text).body:
        inside = node.body if isinstance(node, ast.ClassDef) else [node]
        of = f"{node.name}." if isinstance(node, ast.ClassDef) else ""
        for one in inside:
            if isinstance(one, ast.FunctionDef):
                words = one.args.posonlyargs + one.args.args + one.args.kwonlyargs
                found[of + one.name] = {word.arg for word in words}
    return found


# Engines whose code is run


def exllamav3() -> Iterator[Finding]:
    import torch.utils.cpp_extension

    from bench.backends.common import effective

    os.environ["EXL3_FUSED_SAMPLER"] = "0"  # its own steps in PyTorch instead of one kernel
    # It compiles its kernels when it is imported.
    torch.utils.cpp_extension.load = lambda *a, **k: stand_ins.Module("exllamav3_ext")
    import exllamav3 as library

    ban = library.CustomSampler([library.SS_BanTokens([2]), library.SS_Argmax()])
    logits = torch.tensor([[[0.0, 1.0, 9.0, 3.0]]], dtype=torch.float16)
    best = int(ban.forward(logits))
    yield "its sampler bans the end and takes the next best", "" if best == 3 else f"it takes {best}"
    with adapters.scratch() as folder:
        model = adapters.checkpoint(Path(folder) / "checkpoint")
        config = library.Config.from_directory(str(model.path))
        reported = backends.get("exllamav3").module._reported(config)
        found = effective.checked("It", model, reported)["read_back"]
        wrong = "" if len(found) == 3 else f"it tells only {found}"
        yield "its Config reads the rotary base of transformers 5, vocabulary and ends", wrong


def transformers() -> Iterator[Finding]:
    """What engines on transformers 4 read of a checkpoint, and of the copy that they get."""
    from unittest import mock

    from transformers import AutoConfig, AutoTokenizer

    from bench.backends.common import checkpoints, copies, effective

    with adapters.scratch() as folder:
        model = adapters.checkpoint(Path(folder) / "checkpoint")
        base = AutoConfig.from_pretrained(model.path).rope_theta
        wrong = "" if base == 10000.0 else f"it reads {base}: the copy is no longer needed"
        yield "the checkpoint itself would be read with another rotary base", wrong
        with mock.patch.object(checkpoints, "MODELS", Path(folder) / "models"):
            path = copies.for_transformers_4(model, dtype="bfloat16")
        found = effective.of_config(AutoConfig.from_pretrained(path).to_dict())
        found = found["rope_theta"], str(found["dtype"]).removeprefix("torch."), found["vocab_size"]
        wrong = "" if found == (100000.0, "bfloat16", 512) else f"it reads {found}"
        yield "it reads rotary base, number format and vocabulary of the copy", wrong
        same = AutoTokenizer.from_pretrained(path)("ab").input_ids == model.encode("ab")
        yield "it reads the copy's tokenizer", "" if same else "other ids"


CODE = {"exllamav3": exllamav3, "transformers": transformers}


def findings(name: str, package: Package | None) -> Iterator[Finding]:
    about = ENGINES[name]
    if package is None:
        yield from recorded(name)
        return
    yield from read(about, package)
    if "protocol" in about:
        yield from imported(about["backend"], about, package)
    if "check" in about:
        yield from CODE[about["check"]]()


def main(name: str, package: str) -> None:
    """Print the findings of one engine as JSON lines; `package` is its Package as JSON."""
    said = json.loads(package)
    found = Package(**said | {"folder": Path(said["folder"])}) if said else None
    if found:
        sys.path.insert(0, str(found.folder))
        if ENGINES[name].get("check") != "transformers":  # it brings what it needs
            stand_ins.installed(ENGINES[name].get("backend", name), found.compiled)
    try:
        for finding in findings(name, found):
            print(json.dumps(finding), flush=True)
    except (Exception, SystemExit) as failure:
        traceback.print_exc()
        print(json.dumps(["it imports on a machine without a GPU", why(failure)]), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
