"""Read accelerators, models, number formats and engines as people write them.

One parser for the audit, the published rows, the predictor and the study. Tables come first
(accelerators.csv, devices.csv, models.csv, model_tags.csv, formats.csv, engines.csv), rules second, a size in
the name last. What a text may mean besides is returned too: two candidates are two candidates. A text that
names nothing known is an `UnknownName`, which lists the nearest names.
"""

from __future__ import annotations

import difflib
import re
from dataclasses import dataclass, replace
from functools import cache

import pandas as pd

from llm_measured.core import hardware, naming

NAME_CHARS = 300  # of a text that are looked at: patterns must not take long on a hostile one


class UnknownName(ValueError):
    """No table has what `text` names; `nearest` are the names in the table that come closest."""

    def __init__(self, kind: str, text: str, nearest: list[str], why: str = "") -> None:
        self.kind, self.text, self.nearest = kind, str(text)[:60], nearest
        reason = why or f"No {kind} is called {self.text!r}."
        super().__init__(f"{reason} Nearest: {', '.join(nearest)}." if nearest else reason)


@dataclass(frozen=True)
class Accelerator:
    """An accelerator that a text names.

    `candidates`: ids of accelerators.csv, one where the variant is certain; `family`: what they have in
    common; `count`: how many, None where the text does not say; `memory_gb`: of one, as the text states it;
    `modified`: the text states more memory than the maker sells; `mixed`: it lists several kinds.
    """

    candidates: tuple[str, ...]
    family: str
    count: int | None = None
    memory_gb: float | None = None
    modified: bool = False
    mixed: bool = False


@dataclass(frozen=True)
class Model:
    """A model that a text names.

    `candidates`: ids of models.csv, none where only a size was read; `parameters_b`, `active_b`: 10⁹
    parameters in all and those that a token passes, None where nobody states them; `mixture`: whether it is
    one of experts; `estimated`: read from a size in the name, or of the model that it was fine-tuned from;
    `or_parameters_b`: the other reading of a size such as 1-5b, which may be 5 or 1.5.
    """

    candidates: tuple[str, ...]
    parameters_b: float | None
    active_b: float | None
    mixture: bool
    estimated: bool = False
    or_parameters_b: float | None = None


@dataclass(frozen=True)
class Format:
    """A number format: `bits` per weight of the file, `least_bits` of its smallest block, the `block_types`
    that a GGUF file of that name holds, `scheme` (the kind of its kernels), weights per scale (`group_size`)
    where stated, and whether the format was `assumed` from the engine or the maker."""

    name: str
    bits: float
    least_bits: float
    scheme: str
    block_types: tuple[str, ...] = ()
    group_size: int | None = None
    assumed: bool = False


@dataclass(frozen=True)
class Engine:
    """An engine, the `family` whose kernels it runs, its `backend` where it has several, its `version`."""

    name: str
    family: str
    backend: str | None = None
    version: str | None = None


def slug(text: str) -> str:
    """`text` in small letters, its other signs as single hyphens, as much of it as a name has."""
    return naming.slug(str(text)[:NAME_CHARS])


def _nearest(text: str, names: list[str]) -> list[str]:
    by_slug = {slug(name): name for name in names}
    return [by_slug[near] for near in difflib.get_close_matches(slug(text), by_slug, n=3, cutoff=0.5)]


# --- accelerators ---------------------------------------------------------------------------------------

# How many, before the name ("8x", "2 ×"), after it ("x8", "* 2", "(2x)", "(8 GPUs)"), or in a pod's name.
COUNTS = [
    re.compile(r"^(\d{1,3}) ?[x×*] ?(?=\D|\d{4}(?!\d))"),
    re.compile(r"^(\d{1,2}) (?=(?:nvidia|amd|intel|rtx|gtx|radeon|tesla|[ahbl]\d))"),
    re.compile(r" ?\((?:[x×] ?)?(\d{1,3})(?: ?[x×]| ?gpus?| ?cards?)?\)$"),
    re.compile(r"[ -]?(?<![a-z])[x×*] ?(\d{1,3})$"),
    re.compile(r"(?<=v5e|v6e)-(\d{1,3})$|(?<=v5lite)-(\d{1,3})$"),
]
COUNT_WORDS = {
    **dict.fromkeys(("single", "one"), 1),
    **dict.fromkeys(("dual", "two", "twin", "double", "both", "pair of", "a pair of"), 2),
    **dict.fromkeys(("triple", "three"), 3),
    **dict.fromkeys(("quad", "quadruple", "four"), 4),
    **{"five": 5, "six": 6, "seven": 7, "eight": 8, "octo": 8, "ten": 10, "twelve": 12, "a dozen": 12},
    "sixteen": 16,
}
IN_WORDS = re.compile(rf"^({'|'.join(sorted(COUNT_WORDS, key=len, reverse=True))})[ -](?=[a-z]|\d{{4}})")
PART = re.compile(r"(^|-)(mig|vgpu)(-|$)|(?<![a-z0-9])\dg-\d+gb")
VENDOR_WORDS = re.compile(r"(^|-)(nvidia|amd|intel|geforce|tesla|radeon|instinct|gpus?|graphics|card)(?=-|$)")
MEMORY = re.compile(r"(?<![a-z0-9.])(\d{1,3})[ -]?gi?b?(?![a-z0-9])")
# Behind a pattern that fits: the name of a variant that the table does not have (RTX 4090 Ti).
OTHER_VARIANT = re.compile(r"-?(ti|super|xtx?|gre|ultra|[xs])(?![a-z0-9])")
CORES = re.compile(r"(?<!\d)(\d{1,2})-?(?:gpu-?)?c(?:ores?)?(?:-gpu)?(?![a-z])")


def accelerator(text: str, memory_gb: float | None = None) -> Accelerator:
    """The accelerator that `text` names; `memory_gb`, as drivers report it (up to a tenth less), tells
    variants apart where the text does not. Raises UnknownName."""
    return _accelerator(str(text)[:NAME_CHARS], None if memory_gb != memory_gb else memory_gb)


@cache
def _accelerator(text: str, memory_gb: float | None) -> Accelerator:
    plain = " ".join(re.sub(r"\((r|tm|c)\)", " ", text.lower().replace("_", " ")).split())
    ids = hardware.by_accelerator()
    if slug(text) in ids.index:
        return Accelerator((slug(text),), ids.at[slug(text), "family"], memory_gb=_stated_memory(plain))
    device = _device(plain)
    if device:
        return device
    parts = [part for part in re.split(r", | \+ | and ", plain) if part.strip()]
    if len(parts) > 1:
        listed = _listed(parts, memory_gb)
        if listed:
            return listed
    count, rest = split_count(plain)
    if PART.search(slug(rest)):
        why = f"{text[:60]!r} is a part of an accelerator (MIG, vGPU), whose bandwidth is not stated."
        raise UnknownName("accelerator", text, [], why)
    if IN_WORDS.match(plain):  # "two RTX 4080s" are no 4080 Super
        rest = re.sub(r"(?<=\d{4})s(?!\w)", "", rest)
    family, variant = _accelerator_rule(rest)
    if family is None:
        raise UnknownName("accelerator", text, _nearest(rest, sorted(ids["name"])))
    stated = _stated_memory(rest)
    candidates = (variant,) if variant else _variants(family, slug(rest), stated or memory_gb)
    sold = ids.loc[list(candidates), "memory_gb"].max() if candidates else float("nan")
    discrete = candidates and set(ids.loc[list(candidates), "kind"]) == {"GPU"}
    modified = bool(discrete and stated and stated > 1.2 * sold)
    return Accelerator(candidates, family, count, stated, modified)


def _device(plain: str) -> Accelerator | None:
    """What is in a rented machine, phone or computer that is called by its own name; None for all others."""
    count, rest = split_count(plain)
    for pattern, ids, of_device in _devices():
        if pattern.search(rest):
            families = hardware.by_accelerator().loc[list(ids), "family"].unique()
            times = of_device if count is None else count * (of_device or 1)
            return Accelerator(ids, " or ".join(sorted(families)), times, _stated_memory(rest))
    return None


@cache
def _devices() -> list[tuple[re.Pattern, tuple[str, ...], int | None]]:
    return [
        (
            re.compile(row.pattern),
            tuple(row.accelerators.split()),
            None if pd.isna(row.count) else int(row.count),
        )
        for row in hardware.table("devices").itertuples(index=False)
    ]


def split_count(plain: str) -> tuple[int | None, str]:
    """How many accelerators a text in small letters states (None: it does not) and the text without it."""
    in_words = IN_WORDS.match(plain)
    if in_words:
        return COUNT_WORDS[in_words[1]], plain[in_words.end() :]
    for pattern in COUNTS:
        match = pattern.search(plain)
        if match:
            number = next(int(group) for group in match.groups() if group)
            rest = (plain[: match.start()] + " " + plain[match.end() :]).strip(" -")
            if number and re.search(r"[a-z]|\d{4}", rest):
                return number, rest
    return None, plain


def _listed(parts: list[str], memory_gb: float | None) -> Accelerator | None:
    """Several accelerators in one text ("RTX 4090 + RTX 3090", "H100, H100"); None where parts are none."""
    try:
        read = [_accelerator(part, memory_gb) for part in parts]
    except UnknownName:
        return None
    families = {each.family for each in read}
    candidates = tuple(dict.fromkeys(name for each in read for name in each.candidates))
    count = sum(each.count or 1 for each in read)
    if len(families) > 1:
        return Accelerator(candidates, " + ".join(sorted(families)), count, mixed=True)
    return Accelerator(candidates, read[0].family, count, read[0].memory_gb)


def bandwidth(text: str) -> float | None:
    """The datasheet's bytes/s of the accelerator that `text` names; None where no table knows it, or where
    the variants that it may mean differ."""
    try:
        ids = list(accelerator(text).candidates)
    except UnknownName:
        return None
    rows = hardware.by_accelerator().loc[ids, "bandwidth_gb_per_s"].unique()
    return float(rows[0]) * 1e9 if len(rows) == 1 and rows[0] == rows[0] else None


def _accelerator_rule(rest: str) -> tuple[str | None, str | None]:
    """(family, id or None where the text does not say which variant) by the first pattern that fits."""
    plain = slug(rest)
    bare = VENDOR_WORDS.sub("-", plain).strip("-")
    for form in (plain, bare, re.sub(r"^r([tx]x)?-?(?=\d{4})", "", bare)):
        for pattern, variant, family in hardware.accelerator_rules():
            match = pattern.search(form)
            if match and not OTHER_VARIANT.match(form[match.end() :]):
                return family, variant if isinstance(variant, str) else None
    return None, None


def _stated_memory(rest: str) -> float | None:
    match = MEMORY.search(rest.replace("-", " "))
    return float(match[1]) if match else None


def _variants(family: str, plain: str, memory_gb: float | None) -> tuple[str, ...]:
    """Ids of the variants of `family`: those with the stated number of cores, else the memory, else all."""
    table = hardware.by_accelerator()
    table = table[table["family"] == family]
    cores = CORES.findall(plain)
    by_cores = [name for name in table.index if any(name.endswith(f"-{n}c") for n in cores)]
    if by_cores:
        return tuple(by_cores)
    sure = not table["unsure"].fillna("").str.contains("memory").any()
    if memory_gb and sure and table["memory_gb"].notna().any():
        by_memory = table.index[table["memory_gb"].between(memory_gb * 0.99, memory_gb / 0.9)]
        if len(by_memory):
            return tuple(by_memory)
    return tuple(table.index)


# --- models ---------------------------------------------------------------------------------------------

MAKERS = re.compile(
    r"^(meta|qwen|google|microsoft|mistralai|nvidia|ibm|unsloth|deepseek-ai|openai|lgai|zai-org"
    r"|moonshotai)-(?=\w)"
)
FORMAT_WORDS = re.compile(
    r"(^|-)(mostly|gguf|ggml|gptq|awq|exl[23]|mlx|hf|chat|instruct|it|bnb|ud|dynamic|quantized|weights|model|"
    r"base|i?q\d(-[k01])?(-(xxs|xs|s|m|l|xl|nl))?|f(p)?(16|32|8|4)|bf16|int[48]|[2-8]-?bit|w\da\d+|latest|"
    r"qat|mxfp4|nvfp4|medium|small|large|v0-\d|\d-\d+-?bpw|group-?size-?\d+|g\d+|\d+g)(?=-|$)"
)
SIZE = re.compile(r"(?<![\da-z.,])(\d{1,4}(?:[.,]\d{1,3})?) ?b(?![a-z0-9])")
ACTIVE = re.compile(r"(?<![a-z0-9])a(\d{1,3}(?:[.-]\d)?)([bm])(?![a-z0-9])")
EXPERTS = re.compile(r"(?<![a-z0-9])\d+x\d+(?:[.-]\d+)?[be]?(?![a-z0-9])|moe|experts")


def model(text: str, sized: bool = False) -> Model:
    """The model that `text` names (an organisation before a slash left out). Raises UnknownName, with `sized`
    not for a new version of a known model whose name states its size: whoever needs that alone."""
    return _model(str(text)[:NAME_CHARS], sized)


@cache
def _model(text: str, sized: bool) -> Model:
    bare = re.sub(r"^(?:[\w.-]+/)+", "", text.strip())
    tag = _tags().get(bare.lower().removesuffix(":latest"))
    if tag:
        return _of_table(tag)
    plain = slug(bare)
    stripped = _without_format(plain)
    forms = dict.fromkeys(
        [plain, stripped, MAKERS.sub("", stripped), re.sub(r"(?<=[a-z])(?=\d)", "-", stripped, count=1)]
    )
    for form in forms:
        matches = _by_pattern(form)
        if matches and (lacking := _lacking(form, matches[0])):
            why = f"No model is called {text[:60]!r}: {matches[0]} is known, of {lacking!r} nothing is."
            raise UnknownName("model", text, _nearest(form, sorted(hardware.models()["model"])), why)
        if matches:
            return _of_table(matches)
    stated = _stated_size(bare, plain)
    active = ACTIVE.search(bare.lower())
    passed = float(active[1].replace("-", ".")) / (1e3 if active[2] == "m" else 1) if active else None
    alike = _of_family(stripped, stated, passed)
    if alike:
        return _of_table(alike)
    base = _fine_tuned_from(stripped, stated)
    if base:
        return _of_table((base,), estimated=True)
    known = sorted(hardware.models()["model"])
    if near := _mistyped(stripped):
        why = f"No model is called {text[:60]!r}: is {near!r} meant?"
        raise UnknownName("model", text, _nearest(stripped, known), why)
    if stated is None or (EXPERTS.search(plain) and not active):
        why = f"No model is called {text[:60]!r}, and its name states no size such as 8B."
        raise UnknownName("model", text, _nearest(stripped or plain, known), why)
    if not sized and (lacking := _new_version(bare)):
        why = f"No model is called {text[:60]!r}: of {lacking} nothing is known."
        raise UnknownName("model", text, _nearest(stripped, known), why)
    other = (
        re.search(r"(?<![\da-z])([1-9])-(\d)b(?![a-z0-9])", plain)
        if not re.search(r"\d[.,]\d", bare)
        else None
    )
    or_stated = float(f"{other[1]}.{other[2]}") if other and not active else None
    return Model((), stated, stated if passed is None else passed, bool(active), True, or_stated)


def _of_family(stripped: str, stated: float | None, active: float | None) -> tuple[str, ...]:
    """Return the known models of a family that have the stated size, for a name that is a family and a size:
    what people write ("llama 8b") and what llama-bench prints (its architecture, "qwen3moe 30B.A3B")."""
    if stated is None:
        return ()
    size = f"{stated:g}".replace(".", "-")
    read = re.fullmatch(rf"([a-z][a-z0-9-]*?)-?{size}b(?:-a\d+(?:-\d+)?b)?", stripped)
    if read is None:
        return ()
    architectures = hardware.table("architectures").set_index("architecture")["models"]
    pattern = architectures.get(read[1], rf"{read[1]}-?v?\d.*")
    if not isinstance(pattern, str) or (read[1] not in architectures and re.search(r"\d", read[1])):
        return ()
    table = hardware.by_model()
    table = table[[re.fullmatch(pattern, name) is not None for name in table.index]]
    # The size in the name is a round figure of what the model has: 1B of Llama 3.2 is 1.24.
    nominal = table.index.str.extract(r"-(\d+(?:\.\d+)?)b(?:-a[\d.]+b)?$", expand=False).astype(float)
    of_size = (abs(nominal / stated - 1) < 0.05) | (abs(table["parameters_b"] / stated - 1) < 0.05)
    if active is not None:
        return tuple(table.index[of_size & (abs(table["active_b"] / active - 1) < 0.25)])
    dense = of_size & table["active_b"].isna()
    return tuple(table.index[dense if dense.any() else of_size])


VERSION_OF = re.compile(r"([a-z]+(?:-[a-z]+)*?)-?([a-z]?\d{1,2}(?:\.\d{1,2})?)(?![\d.]*(?:[bmx]|e\d)|\d)")


def _new_version(bare: str) -> str:
    """Return the family and version, or family and variant, of a name whose family is known and that version
    is not; empty where the family is new or the version known."""
    plain = MAKERS.sub("", re.sub(r"[\s_]+", "-", bare.lower()))
    read = VERSION_OF.match(plain)
    versions = _versions()
    if read and read[1] in versions and read[2] not in versions[read[1]]:
        return f"{read[1]} {read[2]}"
    variant = VARIANT.search(plain)
    family = re.match(r"[a-z]*", plain)
    if variant and family and family[0] in versions:
        told = {found[0] for name in hardware.by_model().index for found in VARIANT.finditer(name)
                if name.startswith(family[0])}  # fmt: skip
        return "" if variant[0] in told else f"{family[0]} {variant[0]}"
    return ""


@cache
def _versions() -> dict[str, set[str]]:
    """Return the versions of each family that the table has: {"llama": {"2", "3", "3.1", …}}."""
    found: dict[str, set[str]] = {}
    for name in hardware.models()["model"]:
        read = VERSION_OF.match(name)
        if read:
            found.setdefault(read[1], set()).update({read[2], read[2].split(".")[0]})
    return found


def _mistyped(stripped: str) -> str:
    """Return the first word of a known name from which the first word of `stripped` is one slip away; empty
    where it is one itself or near none: a new name with a size is read by that."""
    found = re.match(r"[a-z]*", stripped)
    word = found[0] if found else ""
    known = _first_words()
    if len(word) < 4 or word in known:
        return ""
    return next((name for name in sorted(known) if _one_slip(word, name)), "")


def _one_slip(word: str, other: str) -> bool:
    """Return whether one letter is another, missing or too many, or two are swapped."""
    if len(word) == len(other):
        unlike = [place for place in range(len(word)) if word[place] != other[place]]
        swapped = len(unlike) == 2 and [word[p] for p in unlike] == [other[p] for p in reversed(unlike)]
        return len(unlike) == 1 or swapped
    short, long = sorted((word, other), key=len)
    return any(long[:place] + long[place + 1 :] == short for place in range(len(long)))


@cache
def _first_words() -> set[str]:
    """Return the letters with which known models' and architectures' names begin, of four letters or more."""
    architectures = hardware.table("architectures")["architecture"]
    words = (re.match(r"[a-z]*", name) for name in [*hardware.models()["model"], *_tags(), *architectures])
    return {word[0] for word in words if word and len(word[0]) >= 4}


@cache
def _tags() -> dict[str, tuple[str, ...]]:
    """{tag of a model library: ids of the models that it has meant}."""
    table = hardware.table("model_tags")
    return {row.tag: tuple(row.models.split()) for row in table.itertuples()}


@cache
def _model_patterns() -> list[tuple[re.Pattern, str]]:
    """Each model's pattern; of a mixture also its name without the active part ("qwen3-30b"), unless a dense
    model has that name."""
    table = hardware.models()
    patterns = [
        (re.compile(row.pattern), row.model) for row in table.itertuples() if isinstance(row.pattern, str)
    ]
    names = set(table["model"])
    for name in table.loc[table["active_b"].notna(), "model"]:
        short = re.sub(r"-a\d+(\.\d+)?b$", "", name)
        if short != name and short not in names:
            loose = re.escape(slug(short)).replace("\\-", "-?")
            patterns.append((re.compile(loose + r"(-.*)?"), name))
    return patterns


def _by_pattern(form: str) -> tuple[str, ...]:
    matches = dict.fromkeys(name for pattern, name in _model_patterns() if pattern.fullmatch(form))
    return tuple(matches)[:1]


# "glm-5-3": letters, a version, and a second number that is no size and no date.
SECOND_NUMBER = re.compile(r"^((?:[a-z]+-)*?[a-z]+-?v?)(\d{1,2})-(\d{1,2})(?=-|$)")
VARIANT = re.compile(r"(?<![a-z])(flash|next|mini)(?![a-z])")


def _lacking(form: str, name: str) -> str:
    """Return the version or variant in `form` that the pattern of `name` takes as it takes any word: what is
    called so is another model. Empty where there is none."""
    pattern = next(pattern for pattern, of in _model_patterns() if of == name and pattern.fullmatch(form))
    first = re.match(r"([a-z]+-?)(\d{1,2})(?=-|$)", form)
    numbers = re.findall(r"\d+(?:\.\d+)?(?=-|$)", name)
    if first and numbers and name.startswith(first[1].rstrip("-")) and ".x-" not in name:
        if pattern.fullmatch(f"{first[1]}97{form[first.end() :]}") and first[2] != numbers[0].split(".")[0]:
            return f"{first[1]}{first[2]}"
    second = SECOND_NUMBER.search(form)
    if second and ".x-" not in name and second[3] != "0":
        version = f"{second[2]}-{second[3]}"
        told = version in re.sub(r"[()?]", "", pattern.pattern) or version.replace("-", ".") in name
        if not told and pattern.fullmatch(f"{second[1]}{second[2]}-9{second[3]}{form[second.end() :]}"):
            return f"{second[1]}{version.replace('-', '.')}"
    for found in VARIANT.finditer(form):
        other = form[: found.start()] + "zz" + form[found.end() :]
        if found[1] not in name and pattern.fullmatch(other):
            return found[1]
    return ""


def _of_table(ids: tuple[str, ...], estimated: bool = False) -> Model:
    rows = hardware.by_model().loc[list(ids)]
    total, active = rows["parameters_b"], rows["active_b"].fillna(rows["parameters_b"])
    return Model(tuple(ids), _agreed(total), _agreed(active), bool(rows["active_b"].notna().any()), estimated)


def _agreed(sizes: pd.Series) -> float | None:
    """The mean of sizes of several candidates, None where one is unknown or they differ by over a tenth."""
    if sizes.isna().any() or sizes.max() > 1.1 * sizes.min():
        return None
    return float(sizes.mean())


def _without_format(plain: str) -> str:
    before = None
    while before != plain:
        before, plain = plain, re.sub(r"-+", "-", FORMAT_WORDS.sub("", plain)).strip("-")
    return plain


def _stated_size(bare: str, plain: str) -> float | None:
    """10⁹ parameters as the name states them, the last size in it; a number before it is a version."""
    sizes = SIZE.findall(bare.lower().replace("_", "-").replace(":", "-"))
    if sizes:
        return float(sizes[-1].replace(",", "."))
    if re.search(r"\d[.,_]\d", bare):
        sizes = re.findall(r"(?<![\da-z])(\d{1,4})b(?![a-z0-9])", plain)
        return float(sizes[-1]) if sizes else None
    sizes = re.findall(r"(?<![\da-z])(0-\d|\d{1,4})b(?![a-z0-9])", plain)
    return float(sizes[-1].replace("-", ".")) if sizes else None


def _fine_tuned_from(stripped: str, stated: float | None) -> str | None:
    """The model whose name ends the name ("Hermes-3-Llama-3.1-8B"), if it has the stated size."""
    sizes = hardware.by_model()["parameters_b"]
    words = stripped.split("-")
    for first in range(1, len(words) - 1):
        base = _by_pattern("-".join(words[first:]))
        if base and (stated is None or abs(sizes[base[0]] / stated - 1) < 0.1):
            return base[0]
    return None


# --- number formats -------------------------------------------------------------------------------------

# The cache's own format says nothing of the weights.
NAMED = r"[a-z]*\d+(?:_e\dm\d|_\d)?"
OF_CACHE = re.compile(
    rf"\bkv[-_ ]?(cache)?[-_ =:]*(dtype|type)?[-_ =:]*{NAMED}|"
    rf"{NAMED}[-_]?kv\b(?![-_=:])|{NAMED} kv\b(?![-_ =:]*(cache)?[-_ =:]*(dtype|type)?[-_ =:]*[a-z]*\d)|"
    rf"\b(?:ct|cache[-_]type[-_])[kv][-_ =:]+{NAMED}",
    re.I,
)
UNCHOSEN = {"", "-", "auto", "none", "default", "original", "native", "n/a", "unknown", "unset"}
BITS_PER_WEIGHT = re.compile(r"(?:^|[^\d.])(\d{1,2}(?:\.\d+)?)[- ]?bpw")
EXL = re.compile(r"exl(?:v?[23])[-_ ]?(\d\.\d+|[2-8](?!\d))")
NAMED_BITS = re.compile(
    r"(?:^|[^\w.])([2-8])[- _]?bits?\b|"
    r"(?:gptq|awq|bnb|hqq|aqlm|quip\W?|mlx|int|w|q)[-_ ]?([2-8])(?:[-_ ]?bits?|wo)"
)
GROUP = re.compile(
    r"(?:group[-_ ]?size|gs|groups of|(?<![a-z])g|int[48]wo-)[-_ =]?(\d{2,4})\b|(?<![\w.])(\d{2,3})g\b"
)
# Models that their makers publish in other than 16 bits.
PUBLISHED_IN = [
    (re.compile(r"gpt-oss"), "MXFP4"),
    (
        re.compile(r"deepseek-(v3|r1)(?!.*(distill|qwen|llama))|kimi-k2(?!-5)|minimax-m2|ministral-3"),
        "FP8",
    ),
]


def number_format(text: str, model: str = "", engine: str = "") -> Format:
    """The number format that `text` names; where nobody chose one, that of the model's own name, of its
    maker, or 16 bits of an engine that takes checkpoints as they are (`assumed`). Raises UnknownName."""
    return _number_format(str(text)[:NAME_CHARS], str(model)[:NAME_CHARS], engine)


@cache
def _number_format(text: str, model: str, engine: str) -> Format:
    """What the user states, else what the model's name states, else (assumed) what its maker publishes or
    what such an engine loads; UnknownName where none of them says it. Words of the cache's format are no
    statement on the weights."""
    chosen = OF_CACHE.sub(" ", text).strip().lower()
    if chosen in UNCHOSEN:
        chosen = ""
    if chosen:
        read = _read_format(chosen)
        if read is None:
            names = sorted(hardware.table("formats")["name"])
            why = f"{text[:40]!r} names no number format; write Q4_K_M, int4, fp8, bf16 or the like."
            raise UnknownName("number format", text, _nearest(text, names), why)
        # A GGUF file of more bits keeps the experts of gpt-oss, nearly all of it, as they are published.
        if read.bits > 4.25 and "gpt-oss" in model.lower() and engine.startswith(("llama.cpp", "ollama")):
            return _format_named("MXFP4")
        return read
    of_name = _read_format(OF_CACHE.sub(" ", model).lower()) if model else None
    if of_name:
        return of_name
    published_in = next((name for pattern, name in PUBLISHED_IN if pattern.search(slug(model))), None)
    if published_in or engine in _taking_16_bits():
        return replace(_format_named(published_in or "BF16"), assumed=True)
    why = "No number format of the weights is stated; write Q4_K_M, int4, fp8, bf16 or the like."
    raise UnknownName("number format", text, [], why)


def bits(text: str) -> float | None:
    """Bits per weight of the file in a format that `text` names; None where it names none."""
    try:
        return number_format(text).bits
    except UnknownName:
        return None


@cache
def _format_rules() -> list[tuple[re.Pattern, Format]]:
    return [
        (
            re.compile(row.pattern),
            Format(
                row.name,
                float(row.bits),
                float(row.least_bits),
                row.scheme,
                tuple(str(row.block_types).split()),
            )
            if isinstance(row.block_types, str)
            else Format(row.name, float(row.bits), float(row.least_bits), row.scheme),
        )
        for row in hardware.table("formats").itertuples(index=False)
    ]


def _read_format(text: str) -> Format | None:
    """The format that a text in small letters names, None where it names none."""
    group = GROUP.search(text)
    size = int(next(g for g in group.groups() if g)) if group else None
    stated = BITS_PER_WEIGHT.search(text) or EXL.search(text)
    if stated:
        bits = float(stated[1])
        return Format(f"{bits:g} bits", bits, bits, "exl", (), size)
    named = NAMED_BITS.search(text)
    if named and not re.search(r"[qk]\d_[k01]", text):
        number = int(next(g for g in named.groups() if g))
        return Format(f"INT{number}", number, number, "integers", (), size)
    for form in (text, text.replace("-", "_"), text.replace("_", "-")):
        for pattern, format_ in _format_rules():
            if pattern.search(form):
                return replace(format_, group_size=size)
    return None


@cache
def _taking_16_bits() -> set[str]:
    """Engines that take a checkpoint as it is published, in 16 bits, where nobody says otherwise."""
    engines = hardware.table("engines")
    return {*engines.loc[engines["takes_16_bits"] == "yes", "engine"]}


def _format_named(name: str) -> Format:
    return next(format_ for _, format_ in _format_rules() if format_.name == name)


# --- engines --------------------------------------------------------------------------------------------

# Sets of kernels that llama.cpp has besides a vendor's own.
BACKENDS = [
    ("vulkan", r"vulkan|radv|amdvlk"),
    ("rocm", r"rocm|hip\b|hipblas"),
    ("sycl", r"sycl"),
    ("opencl", r"opencl"),
]
NO_ENGINE = {"", "any", "unknown", "other", "none", "n-a", "na", "nan"}
VERSION = re.compile(r"(?:^|[\s=v@/-])(\d+(?:\.\d+)+[\w.+]*)|\b(b\d{3,5})\b")


@cache
def engine(text: str) -> Engine:
    """The engine that `text` names; "any" where it names none, its own name where no rule knows it."""
    plain = slug(text)
    if plain in NO_ENGINE:
        return Engine("any", "any")
    version = VERSION.search(str(text)[:NAME_CHARS].lower())
    stated = next((group for group in version.groups() if group), None) if version else None
    for rule in hardware.table("engines").itertuples():
        if re.search(rule.pattern, plain):
            backends = BACKENDS if rule.family == "llama.cpp" else []
            backend = next((name for name, pattern in backends if re.search(pattern, plain)), None)
            return Engine(rule.engine, rule.family, backend, stated)
    return Engine(plain, plain, None, stated)


def is_engine(text: object) -> bool:
    """Return whether a text is the name of an engine of the table, as it stands there."""
    return slug(str(text)) in set(hardware.table("engines")["engine"].map(slug))


# --- a whole title --------------------------------------------------------------------------------------

FILLERS = {"on", "with", "using", "running", "in", "at", "and", "via", "of", "the", "a", "for", "under", "@"}


def title(text: str) -> dict[str, str]:
    """Return accelerator, model, weights_format and engine as a line such as "2x3090 70B exl2 4.0bpw" has
    them; a part that it lacks is left out."""
    words = str(text)[:NAME_CHARS].replace(",", " ").split()
    first, last = _of_accelerator(words)
    parts = {"accelerator": " ".join(words[first:last])}
    rest = words[:first] + words[last:]
    model_words = []
    for word in rest:
        read = engine(word)
        if "engine" not in parts and read.name in set(hardware.table("engines")["engine"]):
            parts["engine"] = word
        elif any(re.search(pattern, slug(word)) for _, pattern in BACKENDS):
            parts["engine"] = f"{parts.get('engine', 'llama.cpp')} {word}"
        elif "weights_format" not in parts and not SIZE.fullmatch(word.lower()) and bits(word) is not None:
            parts["weights_format"] = word
        elif word.lower() not in FILLERS:
            model_words.append(word)
    parts["model"] = " ".join(model_words)
    return {name: part for name, part in parts.items() if part}


def _of_accelerator(words: list[str]) -> tuple[int, int]:
    """Return the first place and the one after the last of the words that name an accelerator: the fewest
    that are read, and those beside them that change what is read; (0, 0) where none are."""

    def read(first: int, last: int) -> Accelerator | None:
        try:
            return accelerator(" ".join(words[first:last])) if 0 <= first < last <= len(words) else None
        except UnknownName:
            return None

    for length in range(1, 5):
        for first in range(len(words) - length + 1):
            last = first + length
            named = read(first, last)
            if named is None or named.mixed:
                continue
            grown = True
            while grown:
                grown = False
                for wider in ((first - 1, last), (first, last + 1), (first, last + 2)):
                    other = read(*wider)
                    if other and not other.mixed and other != named:
                        (first, last), named, grown = wider, other, True
                        break
            # What says once more what the accelerator is, and how many: "2 x RTX" before 3090.
            before = {word for name in hardware.by_accelerator()["name"] for word in slug(name).split("-")}
            while first > 0 and (
                slug(words[first - 1]) in before | {"nvidia", "geforce", "tesla", "x", ""}
                or re.fullmatch(r"\d{1,2}[x×]?", words[first - 1].lower())
            ):
                first -= 1
            return first, last
    return 0, 0
