"""The inputs: data/, each table read through `table`, study.yaml, and the parameters of notebooks."""

import ast
import copy
import functools
import hashlib
import json

import pandas as pd
import yaml

from bench.paths import DATA, ROOT
from llm_measured.core import hardware, metrics, naming
from llm_measured.core.definitions import Fields

CHUNK_TOKENS = 512  # the fixed text is scored in pieces of so many tokens


def table(name: str) -> pd.DataFrame:
    """data/<name>.csv, e.g. `prompts` or `published/husain_llama2_7b_latency`, or of `models` those that can
    be run here; ValueError naming what exists."""
    if name == "models":  # one table of models for everything; what can be run names its checkpoint
        whole = hardware.models()
        runnable = whole[whole["source"].notna()].infer_objects()
        # Beside models whose shape nobody states, whole numbers were read as floats: no configuration takes
        # these.
        return runnable.astype(dict.fromkeys([*metrics.SHAPE, "context_tokens"], int))
    known = sorted(p.relative_to(DATA).with_suffix("").as_posix() for p in DATA.rglob("*.csv"))
    return pd.read_csv(DATA / f"{naming.choose('table', name, known)}.csv")


def digest(name: str) -> str:
    """SHA-256 of data/<name>.csv: which inputs a run used."""
    return hashlib.sha256((DATA / f"{name}.csv").read_bytes()).hexdigest()


def prompts(which: str = "latency") -> pd.Series:
    """Texts of the prompt set `which`, indexed by prompt number."""
    every = table("prompts")
    naming.choose("prompt set", which, every["set"].unique())
    return every[every["set"] == which].set_index("prompt")["text"]


def study() -> Fields:
    """study.yaml; the caller's own copy."""
    return copy.deepcopy(_parsed((ROOT / "study.yaml").read_text(encoding="utf-8")))


@functools.lru_cache(maxsize=4)
def _parsed(text: str) -> Fields:
    """`text` as YAML: reading it takes tens of milliseconds, and a plan asks for it hundreds of times."""
    return yaml.safe_load(text)


@functools.cache
def defaults(name: str) -> Fields:
    """{parameter: value} as notebooks/<name>.ipynb has them; empty where there is no such notebook.

    Papermill's inspection says the same of a file, but not of cells that ran in a live notebook, and is not
    there on Colab, where notebooks run without papermill.
    """
    path = ROOT / "notebooks" / f"{name}.ipynb"
    if not path.exists():
        return {}
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    source = next((c["source"] for c in cells if "parameters" in c["metadata"].get("tags", [])), "")
    return declared("".join(source))


def declared(source: str) -> Fields:
    """Return name -> value of a cell that does nothing but set names to literals; empty for every other
    cell."""
    values: Fields = {}
    try:
        for node in ast.parse(source).body:
            if not isinstance(node, ast.Assign):
                return {}
            for target in node.targets:
                if not isinstance(target, ast.Name):  # `a, b = 1, 2`
                    return {}
                values[target.id] = ast.literal_eval(node.value)
    except (SyntaxError, ValueError, TypeError):  # a magic, an expression
        return {}
    return values


def shape(model: str) -> dict[str, int]:
    """Shape of a row of core/models.csv: `metrics.matrices` of it, kv_values_per_token, weight_parameters,
    and those of one step.

    A decode step reads all layers and the head once; the embedding rows are looked up, and are weights of
    their own unless tied.
    """
    known = table("models").set_index("model")
    row = known.loc[naming.choose("model", model, known.index)]
    sizes = metrics.matrices(**{name: int(row[name]) for name in metrics.SHAPE})
    step = sizes["block_parameters"] + sizes["head_parameters"]
    embedding = 0 if row["tied_embeddings"] else sizes["head_parameters"]
    kv_values = metrics.kv_values_per_token(*(int(row[name]) for name in ("layers", "kv_heads", "head_dim")))
    return sizes | {
        "kv_values_per_token": kv_values,
        "step_parameters": step,
        "weight_parameters": step + embedding,
    }


def numbers(model: str) -> int | None:
    """How many numbers the weights of `model` have here, about; None for one that is no row of
    core/models.csv, with or without `shape:`."""
    known, name = table("models").set_index("model"), model.removeprefix("shape:")
    if name not in known.index:
        return None
    sizes = shape(name)
    # Such a file holds the head apart from the embedding, whatever the published configuration says.
    apart = sizes["head_parameters"] if known.loc[name, "source"].startswith("hub-file:") else 0
    return max(sizes["weight_parameters"], sizes["step_parameters"] + apart)


def text() -> str:
    """The fixed text of this project's own writing: what perplexity is measured on and uniform prompts are
    cut from."""
    return (DATA / "text.txt").read_text(encoding="utf-8")


def judged_text() -> str:
    """The prompt that every engine answers before a run: the beginning of a story that may go on in many
    ways, so that an answer has many places at which a wrong computation chooses otherwise."""
    return (DATA / "judge.txt").read_text(encoding="utf-8").rstrip("\n")


def windows(ids: list[int], requests: int, tokens: int) -> list[list[int]]:
    """`requests` prompts of exactly `tokens` token ids, each beginning at another place of `ids`, which is
    repeated as often as needed.

    The beginnings are spread evenly, so no two prompts share a prefix that a cache could answer; ValueError
    for more requests than places.
    """
    if requests > len(ids):
        raise ValueError(
            f"There are {len(ids)} places to begin a prompt in data/text.txt, not {requests}; ask for "
            "smaller batches."
        )
    endless = ids * (tokens // len(ids) + 2)
    starts = [len(ids) * k // requests for k in range(requests)]
    return [endless[start : start + tokens] for start in starts]
