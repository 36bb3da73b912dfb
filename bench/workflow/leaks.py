"""What may not leave a contributor's machine inside a run: tokens, paths, names."""

import csv
import getpass
import json
import os
import re
import socket
from collections.abc import Iterator
from pathlib import Path

# Detectors of detect-secrets that look for the shape of one service's tokens. Those left out guess from
# words or from randomness, and hashes are random.
GUESSES = {
    "KeywordDetector",
    "Base64HighEntropyString",
    "HexHighEntropyString",
    "IPPublicDetector",
    "BasicAuthDetector",
}
# Shapes that detect-secrets does not know.
SHAPES = {
    "Hugging Face token": r"\bhf_[A-Za-z0-9]{30,}",
    "GitHub token": r"\bgithub_pat_[A-Za-z0-9_]{40,}",
    "Anthropic key": r"\bsk-ant-[A-Za-z0-9_-]{20,}",
    "OpenAI key": r"\bsk-(?:proj-)?[A-Za-z0-9_-]{32,}",
    "NVIDIA key": r"\bnvapi-[A-Za-z0-9_-]{30,}",
    "Google key": r"\bAIza[0-9A-Za-z_-]{35}",
    "bearer token": r"\b[Bb]earer\s+[A-Za-z0-9._~+/-]{20,}=*",
}
PATHS = re.compile(
    r"(?<![\w.:/~-])(?:/(?:home|Users|root|tmp|mnt|scratch|workspace|work|lustre|gpfs|private|var/folders)"
    r"(?:/[^\s\"'<>)\],;]*|(?=[\s\"'<>)\],;]|$))|[A-Za-z]:\\+Users\\+[^\s\"'<>\\]+)"
)
MAIL = re.compile(r"\b[\w.+-]+@[\w-]+(?:\.[\w-]+)*\.[A-Za-z]{2,}\b")
NUMBER = re.compile(r"[\d.eE+-]*")  # most cells of a CSV, which name nobody
SHORTEST = 12  # characters of the shortest token that is looked for
# Names that say nothing about anybody.
NOBODY = set(
    "root user ubuntu debian admin runner jovyan vscode codespace ec2-user localhost "
    "data model python docker".split()
)


def found(file: Path) -> list[str]:
    """One sentence for each token, path and name in `file`, with the place; none is quoted whole.

    What a model answered may hold any path, so answers are searched for tokens and for this machine's own
    paths only.
    """
    sentences, detectors, names, secrets = {}, _detectors(), _names(), _secrets()
    own = {str(Path.home()), os.getcwd()} - {"/", "/root"}
    for where, text, is_answer in texts(file):
        if NUMBER.fullmatch(text):
            continue
        for kind, secret in _tokens(text, detectors, secrets):
            sentence = (
                f"{where} holds what looks like a {kind} ({secret[:4]}…): revoke it, and measure without it."
            )
            sentences[sentence] = None
        for kind, name in _personal(text, is_answer, names, own):
            sentences[f"{where} holds {kind}, {name}: measure where it is not written down."] = None
    return list(sentences)


def texts(file: Path) -> Iterator[tuple[str, str, bool]]:
    """(where, text, whether a model answered it) of every text in a CSV, a JSON file or a notebook.

    Pictures are left out: their letters are chance.
    """
    if file.suffix == ".csv":
        with open(file, newline="", encoding="utf-8") as source:
            for number, row in enumerate(csv.DictReader(source), start=1):
                for column, value in row.items():
                    yield f"Row {number}, {column}", str(value or ""), column == "answer"
    else:
        whole = json.loads(file.read_text(encoding="utf-8"))
        yield from _leaves(whole, "")


def _leaves(value, where):
    if isinstance(value, dict):
        for key, each in value.items():
            if not str(key).startswith("image/"):
                yield from _leaves(each, f"{where}.{key}" if where else str(key))
    elif isinstance(value, list) and all(isinstance(line, str) for line in value):
        yield where, "".join(value), False
    elif isinstance(value, list):
        for number, each in enumerate(value, start=1):
            yield from _leaves(each, f"{where} {number}")
    elif isinstance(value, str):
        yield where, value, False


def _detectors():
    from detect_secrets.core.plugins.util import get_mapping_from_secret_type_to_class

    return [
        kind() for kind in get_mapping_from_secret_type_to_class().values() if kind.__name__ not in GUESSES
    ]


def _secrets():
    """{name: value} of this shell's own tokens."""
    named = ((name, value) for name, value in os.environ.items() if len(value) >= SHORTEST)
    return {name: value for name, value in named if re.search("TOKEN|SECRET|PASSWORD|KEY", name)}


def _tokens(text, detectors, secrets):
    """(kind, token) of each token in `text`, this shell's own `secrets` first."""
    if len(text) < SHORTEST:
        return
    for name, value in secrets.items():
        if value in text:
            yield f"value of {name}", value
    for kind, shape in SHAPES.items():
        for match in re.findall(shape, text):
            yield kind, match
    for detector in detectors:
        for secret in detector.analyze_string(text):
            yield detector.secret_type, secret


def _personal(text, is_answer, names, own):
    """(what it is, the text) of paths, `names` and addresses of a person or a machine; `own`: this one's."""
    for path in own:
        if path in text:
            yield "a path of this machine", path
    if is_answer:
        return
    for path in PATHS.findall(text):
        yield "a machine's path", path
    for address in MAIL.findall(text):
        yield "an e-mail address", address
    for name in names:
        if re.search(rf"(?<![\w-]){re.escape(name)}(?![\w-])", text):
            yield "the name of a user or a machine", name


def _names():
    try:
        names = {getpass.getuser(), socket.gethostname()}
    except (KeyError, OSError):  # a container's user may have no name
        names = {socket.gethostname()}
    return {name for name in names if len(name) > 3 and name not in NOBODY}
