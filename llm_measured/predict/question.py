"""Read what somebody asks: names and numbers as people write them, as the setup that a step is computed of.

A question names an accelerator or states its bandwidth, names a model or states its size, names a format
or states its bits. What is missing is guessed and said (`guessed`), and nonsense is refused in a sentence."""

from collections.abc import Hashable
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

import numpy as np
import pandas as pd

from llm_measured.core import hardware, names
from llm_measured.predict import machines

ASKED = ["accelerator", "model", "weights_format", "engine"]
# Numbers that may be stated: a row each with the least and the most that a question may say, what is taken
# where nobody states it, and the unit.
_TABLE = pd.read_csv(Path(__file__).with_name("limits.csv"))
LIMITS = {limit.name: limit for limit in _TABLE.itertuples(index=False, name="Limit")}
SPLITS = {"": "", "tensor": "tensor", "tp": "tensor", "row": "tensor", "layer": "layers", "layers": "layers"}
OPTIONAL = [*LIMITS, "split", "host"]
USUAL_CONTEXT = 512.0  # tokens in the cache where nobody states them: a short prompt and half an answer
USUAL_PROMPT = 1000.0  # tokens of each prompt, likewise
USUAL_ANSWER = 500.0  # and of each answer
MOST_USERS = 256  # requests in flight: what engines serve at once where nobody told them otherwise
TODAY = 2026.0  # year of an engine whose version nobody states


@dataclass(frozen=True)
class Setup:
    """One question read. Bandwidths in bytes/s of one accelerator (of the host's memory as stated,
    `host_bandwidth`, and as its processor is sold with, `host_sold`; NaN where nobody says), memory in bytes,
    counts of parameters (`always`: those that every token passes); `variants`: ids of
    other accelerators that the name may mean; `guessed`: what nobody stated, in short sentences; `refused`:
    one sentence, or empty."""

    refused: str = ""
    machine: str = ""
    family: str = ""
    architecture: str = ""
    accelerator_class: str = ""
    vendor: str = ""
    variants: tuple[str, ...] = ()
    bandwidth_low: float = np.nan
    bandwidth: float = np.nan
    bandwidth_most: float = np.nan
    memory_bytes: float = np.nan
    peak_flops: float = np.nan
    reached_flops: float = np.nan
    model: str = ""
    known_model: str | None = None
    model_kind: str = ""
    parameters: float = np.nan
    active: float = np.nan
    read_parameters: float = np.nan
    layers: float = np.nan
    hidden: float = np.nan
    cache_bytes_per_token: float = np.nan
    kv_bits: float = 16.0
    always: float = np.nan
    mixture: str = ""
    format: str = ""
    scheme: str = ""
    bits: float = np.nan
    least_bits: float = np.nan
    engine: str = ""
    engine_family: str = ""
    engine_kind: str = ""
    accelerators: float = 1.0
    split: str = "one"
    users: float = 1.0
    context: float = USUAL_CONTEXT
    prompt: float = USUAL_PROMPT
    answer: float = USUAL_ANSWER
    year: float = TODAY
    era: str = ""
    host_bandwidth: float = np.nan
    host_sold: float = np.nan
    host_share: float = np.nan
    usd_per_gpu_hour: float = np.nan
    guessed: tuple[str, ...] = ()


class Refused(ValueError):
    """A question that cannot be answered; its text is one sentence that says why."""


def read(questions: pd.DataFrame) -> pd.DataFrame:
    """One row per question, same index: the fields of `Setup`. Columns ASKED, and OPTIONAL where they are."""
    taken = [name for name in (*ASKED, *OPTIONAL) if name in questions]
    filled = questions[taken].astype(object).where(questions[taken].notna(), "")
    words = {name: [" ".join(str(value).split()) for value in filled[name]] for name in taken}
    pairs = ([(name, text) for text in words[name]] for name in taken)
    setups = [setup(asked) for asked in zip(*pairs)] if taken else [setup(())] * len(questions)
    fields = {name: [getattr(one, name) for one in setups] for name in Setup.__dataclass_fields__}
    return pd.DataFrame(fields, index=questions.index)


@cache
def setup(question: tuple[tuple[Hashable, str], ...]) -> Setup:
    """`question` (pairs of column and text) read; what cannot be has `refused` and nothing else."""
    try:
        return _setup({str(name): value for name, value in question})
    except Refused as refused:
        return Setup(refused=str(refused))


def whole(q: dict[str, str]) -> dict[str, str]:
    """A question whose accelerator is a whole title ("2x3090 70B exl2 4.0bpw"), as its parts."""
    alone = len(q.get("accelerator", "").split()) > 1
    stated = any(q.get(name, "") for name in ("model", "parameters_b", "bandwidth_gb_per_s"))
    return q | names.title(q["accelerator"]) if alone and not stated else q


def _setup(q: dict[str, str]) -> Setup:
    q = whole(q)
    numbers = {name: _number(q, name) for name in LIMITS}
    cards, users = numbers["accelerators"] or 1.0, numbers["concurrency"] or 1.0
    if users > MOST_USERS:
        raise Refused(
            f"concurrency is {users:,.0f}; published rows reach {MOST_USERS} users at once: divide them "
            "among copies of the model (llm-measured expect --how-many does)."
        )
    stated = q.get("split", "").strip().lower()
    if stated not in SPLITS:
        raise Refused(f"split is {stated[:40]!r}; say tensor or layers.")
    memories = (numbers["memory_gb"], numbers["accelerator_memory_gb"])
    machine = _machine(q.get("accelerator", ""), numbers["bandwidth_gb_per_s"], *memories)
    own, family, version = _engine(q.get("engine", ""))
    _seen_by(machine.vendor, family, q.get("engine", ""))
    model = _model(q.get("model", ""), numbers["parameters_b"], numbers["active_b"])
    form, assumed_format = _format(q, numbers, own)
    cards = float(machine.count) if cards == 1 else cards
    year = numbers["year"] or version or TODAY
    way = split(SPLITS[stated], cards, family, machine.kind, year)
    if users > 1 and numbers["host_share"]:
        raise Refused("What is read from the host's memory is predicted of one user, not of several.")
    sold, guessed_host = _host(q.get("host", ""))
    context, prompt, made = _lengths(numbers, users)
    longest = longest_context(model.known_model)
    if longest and context > longest:
        raise Refused(
            f"{model.model} was made for {longest:,.0f} tokens, and the context asked for is {context:,.0f}."
        )
    kv_bits = numbers["kv_bits"] or 16.0
    per_token = model.cache_bytes_per_token * kv_bits / 16
    return replace(
        model,
        cache_bytes_per_token=per_token,
        kv_bits=kv_bits,
        machine=machine.name,
        family=machine.family,
        architecture=machine.architecture,
        accelerator_class=machine.kind,
        vendor=machine.vendor,
        variants=machine.others,
        bandwidth_low=machine.low,
        bandwidth=(machine.low * machine.high) ** 0.5,
        bandwidth_most=machine.high,
        memory_bytes=machine.memory_bytes,
        peak_flops=machine.peak_flops,
        format=f"{form.scheme} {form.least_bits:g}",
        scheme=form.scheme,
        bits=form.bits,
        least_bits=form.least_bits,
        engine=own,
        engine_family=family,
        engine_kind=machines.engine_kind(family),
        accelerators=cards,
        split=way,
        users=users,
        context=context,
        prompt=prompt,
        answer=made,
        year=year,
        era=era(family, year),
        host_bandwidth=(numbers["host_bandwidth_gb_per_s"] or np.nan) * 1e9,
        host_sold=sold,
        host_share=np.nan if numbers["host_share"] is None else numbers["host_share"],
        usd_per_gpu_hour=numbers["usd_per_gpu_hour"] or np.nan,
        guessed=tuple(filter(None, (*machine.guessed, *model.guessed, assumed_format, guessed_host))),
    )


def _number(q: dict[str, str], name: str) -> float | None:
    text, limit = q.get(name, "").strip(), LIMITS[name]
    try:
        number = float(text or "nan")
    except ValueError:
        number = None
    if number is not None and number != number:
        return float(limit.usual) if limit.usual == limit.usual else None
    if limit.whole == "yes" and not (number and number.is_integer() and 1 <= number <= limit.most):
        raise Refused(f"{name} is {text[:40]!r}, which is no whole number of at least 1.")
    if number is None:
        raise Refused(f"{name} is {text[:40]!r}, which is no number.")
    if not limit.least <= number <= limit.most:
        raise Refused(
            f"{name} is {text[:40]!r}; it is {limit.unit}, from {limit.least:g} to {limit.most:,.0f}."
        )
    return number


def _lengths(numbers: dict[str, float | None], users: float) -> tuple[float, float, float]:
    """(tokens in the cache, of each prompt, of each answer). A prompt that somebody states is in the cache,
    as that of each of several users; where nobody states how long it is, it is no longer than the cache."""
    stated, prompt = numbers["context"], numbers["prompt_tokens"]
    made = numbers["answer_tokens"] or USUAL_ANSWER
    if users == 1 and prompt is None:
        return USUAL_CONTEXT if stated is None else stated, USUAL_PROMPT, made
    if prompt is None:
        prompt = USUAL_PROMPT if stated is None else max(1.0, min(stated, USUAL_PROMPT))
    return prompt + made / 2 if stated is None else max(stated, prompt), prompt, made


@cache
def _machine(
    name: str, rate: float | None, memory_gb: float | None, sold_gb: float | None
) -> machines.Machine:
    gib = memory_gb or sold_gb
    if not name and not rate:
        raise Refused("The row names no accelerator; name one, or state bandwidth_gb_per_s and memory_gb.")
    found = machines.machine(name, gib) if name else None
    if rate and (found is None or isinstance(found, str)):
        found = machines.stated(rate, gib or np.nan)
    if found is None or isinstance(found, str):
        raise Refused(str(found))
    low, high = (rate * 1e9, rate * 1e9) if rate else (found.low, found.high)
    memory = memory_gb * 2**30 if memory_gb else found.memory_bytes
    guessed = () if rate and found.name != "stated" else found.guessed
    return replace(found, low=low, high=high, memory_bytes=memory, guessed=guessed)


@cache
def _host(name: str) -> tuple[float, str]:
    """(bytes/s of the memory that a host's processor is sold with, what is guessed of it)."""
    found = machines.machine(name) if name else ""
    if isinstance(found, str) or found.others:
        return np.nan, f"{name[:40]} is sold with several memories, or none is known" if name else ""
    return found.high, f"{found.high / 1e9:.3g} GB/s of the host, the memory of {found.name}"


@cache
def _model(name: str, size: float | None, active: float | None) -> Setup:
    """The fields of a `Setup` that the model decides; a stated size goes before the table's."""
    if not name and not size:
        raise Refused("The row names no model; name one, or state parameters_b (and active_b of a mixture).")
    known, of_table, guessed = None, None, []
    try:
        of_table = names.model(name) if name else None
    except names.UnknownName as unknown:
        if not size:
            raise Refused(f"{unknown} Or state parameters_b.") from None
    if of_table and of_table.candidates:
        known = of_table.candidates[0]
        if len(of_table.candidates) > 1:
            guessed.append(f"{name} may be {' or '.join(of_table.candidates)}: the first was taken")
        if of_table.estimated:
            guessed.append(f"{name} was taken for a fine-tune of {known}")
    total = size or (of_table.parameters_b if of_table else None)
    if total is None and known:
        total = _shape(known, "parameters_b")
    passed = active or (None if size else of_table.active_b if of_table else None)
    if passed is None and known and not size:
        passed = _shape(known, "active_b")
    if total is None:
        raise Refused(f"The number of parameters of {name[:60]!r} is not known; state parameters_b.")
    passed = passed or total
    if passed > total:
        raise Refused(
            f"active_b is {passed:g} and parameters_b {total:g}: no token passes more than there is."
        )
    if known is None and not size:
        guessed.append(f"the name {name} says {total:g} · 10⁹ parameters and nothing else is known of it")
        mixed = _family_of_mixtures(name) if passed == total else ""
        if mixed:
            guessed.append(f"taken as dense; models of that name are mixtures too ({mixed}): state active_b")
    label = known or names.slug(name) or f"{total:g}b"
    return _of_size(label, None if size else known, total * 1e9, passed * 1e9, tuple(guessed))


def _of_size(label: str, known: str | None, total: float, active: float, guessed: tuple[str, ...]) -> Setup:
    mixture = active < 0.95 * total
    layers = _shape(known, "layers") or _fact(known, "layers") or _layers(total, active)
    hidden = _shape(known, "hidden_size") or (active / layers / 12) ** 0.5
    heads, width = _shape(known, "kv_heads"), _shape(known, "head_dim")
    kind = machines.model_kind(label)
    plain = (
        2 * layers * heads * width if heads and width else 2 * layers * 1024.0 * CACHE_SHARE.get(kind, 1.0)
    )
    # The input embedding is looked up, not read; where it is tied to the head, all of it is read.
    vocabulary = (_shape(known, "vocab_size") or 0) * (_shape(known, "hidden_size") or 0)
    tied = known is not None and str(hardware.by_model().at[known, "tied_embeddings"]) == "True"
    unread = (0.0 if tied else vocabulary) if vocabulary else 0.07 * active
    always = (_fact(known, "always_b") or ALWAYS * active / 1e9) * 1e9 if mixture else active
    return Setup(
        model=label,
        known_model=known,
        model_kind=kind,
        parameters=total,
        active=active,
        read_parameters=active - unread,
        layers=layers,
        hidden=hidden,
        cache_bytes_per_token=2 * (_fact(known, "cache_values") or plain),
        always=always,
        mixture="mixture" if mixture else "dense",
        guessed=guessed,
    )


ALWAYS = 0.4  # of the parameters that a token of a mixture passes, those that every token passes
# Of a cache over all layers, how much models hold that keep it in some layers, in windows or as a latent.
CACHE_SHARE = {
    "linear attention": 0.25,
    "sliding windows, large vocabulary": 0.4,
    "sliding windows, experts": 0.5,
    "latent attention": 0.3,
}


@cache
def _facts() -> pd.DataFrame:
    return pd.read_csv(Path(__file__).with_name("shapes.csv")).set_index("model")


def _fact(known: str | None, column: str) -> float | None:
    """What shapes.csv says of a model, from memory of its makers' config.json: layers; cache_values that a
    token adds in all layers with attention over everything; always_b, 10⁹ parameters of a mixture that every
    token passes; context_tokens that it was made for, rope scaling included."""
    value = _facts()[column].get(known, np.nan) if known else np.nan
    return float(value) if value == value else None


def longest_context(known: str | None) -> float | None:
    """Return for how many tokens a model was made; None where shapes.csv does not say."""
    return _fact(known, "context_tokens")


@cache
def _shape(known: str | None, column: str) -> float | None:
    value = hardware.by_model().at[known, column] if known else np.nan
    return float(value) if value == value else None


def _layers(parameters: float, active: float) -> float:
    """About how many layers a model of that size has: 32 with 7 · 10⁹ parameters, 80 with 70 · 10⁹."""
    return float(np.clip(32 * (np.sqrt(parameters * active) / 7e9) ** 0.38, 12, 130))


@cache
def _family_of_mixtures(name: str) -> str:
    """A mixture of the table whose name begins as `name` does up to its size; empty where none."""
    word = names.slug(name).split("-")[0]
    table = hardware.by_model()
    mixed = [one for one in table.index[table["active_b"].notna()] if one.split("-")[0] == word]
    return mixed[-1] if mixed else ""


def _format(q: dict[str, str], numbers: dict[str, float | None], engine: str) -> tuple[names.Format, str]:
    text, bits = q.get("weights_format", ""), numbers["bits"]
    # What ollama fetches where nobody names a format.
    fetched = replace(names.number_format("Q4_K_M"), assumed=True), "Q4_K_M, ollama's usual format"
    try:
        form = names.number_format(text, q.get("model", ""), engine)
        if engine == "ollama" and form.assumed and form.name == "FP8" and not bits:
            return fetched
    except names.UnknownName as unknown:
        if not text and engine == "ollama" and not bits:
            return fetched
        if not text and not bits:
            form = replace(names.number_format("BF16"), assumed=True)
            return form, "BF16, as most checkpoints are published; state the format of the file"
        if not bits:
            raise Refused(f"{unknown} Or state bits.") from None
        kinds = "floating point" if bits in (8, 16, 32) else "integers"
        return names.Format(f"{bits:g} bits", bits, bits, kinds), ""
    if bits and not text:
        return names.Format(f"{bits:g} bits", bits, bits, form.scheme), ""
    if bits:
        form = replace(form, bits=bits)
    return form, f"{form.name}, as such a checkpoint is published" if form.assumed else ""


def _engine(text: str) -> tuple[str, str, float | None]:
    """(engine, its family, year of the version that the text states)."""
    found = names.engine(text)
    own = f"{found.name} {found.backend}" if found.backend else found.name
    return own, found.family, version_year(found.family, found.version)


# Years at which engines' generations end: before 2024; vLLM before 0.6; to 0.9; later.
ERAS = (2024.0, 2024.7, 2025.5)


def era(family: str, year: float) -> str:
    """The generation of an engine of a year: `2023`, `early`, `middle` or `late`."""
    return ("2023", "early", "middle", "late")[int(np.searchsorted(ERAS, year, side="right"))]


@cache
def _releases() -> list[tuple[str, int, int, float]]:
    """When versions came out, from their projects' release pages: (family, major, minor, year)."""
    file = Path(__file__).with_name("releases.csv")
    return list(pd.read_csv(file).itertuples(index=False, name=None))


def version_year(family: str, version: str | None) -> float | None:
    """About when `version` of a family of engines came out; None where its versions are not listed."""
    if not version:
        return None
    build = version.removeprefix("b")
    if family == "llama.cpp" and version.startswith("b") and build.isdigit():
        builds, years = [1000, 1700, 3000, 4400, 6300, 8000], [2023.6, 2024, 2024.45, 2025, 2025.65, 2026.1]
        return float(np.interp(int(build), builds, years))
    parts = tuple(int(part) for part in version.split(".")[:2] if part.isdigit())
    since = [year for name, *first, year in _releases() if name == family and parts >= tuple(first)]
    return since[-1] if since and len(parts) == 2 else None


@cache
def vendors() -> dict[str, set[str]]:
    """Family of engines -> vendors of accelerators that some published row has it on."""
    file = Path(__file__).with_name("engines.csv")
    table = pd.read_csv(file, keep_default_na=False)
    return {family: set(part["vendor"]) for family, part in table.groupby("engine_family")}


def _seen_by(vendor: str, family: str, engine: str) -> None:
    """Refuse an engine, or kernels that its text names, on another vendor's accelerators than rows have."""
    kernels = [name for name in names.slug(engine).split("-") if f"kernels {name}" in vendors()]
    for name, on in [(family, vendors().get(family)), *((k, vendors()[f"kernels {k}"]) for k in kernels)]:
        if vendor and on and vendor not in on:
            raise Refused(
                f"No published row has {name} on an accelerator of {vendor}; "
                f"it has it on {', '.join(sorted(on))}."
            )


def split(asked: str, cards: float, family: str, accelerator_class: str, year: float) -> str:
    """How several accelerators share a model: `one`, `tensor` (they read side by side) or `layers` (one
    after the other)."""
    if cards == 1:
        return "one"
    if asked:
        return asked
    if family == "any":
        return "tensor" if accelerator_class.endswith("server") else "layers"
    if family in machines.BY_LAYERS and not (family == "llama.cpp" and year < machines.LAYERS_SINCE):
        return "layers"
    return "tensor"
