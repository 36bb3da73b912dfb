"""Names of machines, models, formats and engines as people write them, as what a prediction needs to know."""

import re
from dataclasses import dataclass
from functools import cache

import pandas as pd

from bench import hardware

# The first pattern that a name fits decides: (engine, family of engines whose kernels it runs, pattern).
ENGINES = [
    ("ollama", "llama.cpp", r"ollama"),
    ("lm studio mlx", "mlx", r"lm-?studio.*mlx"),
    ("lm studio", "llama.cpp", r"lm-?studio"),
    ("llamafile", "llama.cpp", r"llamafile|localscore"),
    ("vllm-mlx", "mlx", r"vllm-mlx"),
    ("mlx", "mlx", r"mlx"),
    ("mlc", "mlc", r"(^|-)mlc"),
    ("llama.rn", "llama.cpp", r"llama-rn"),
    ("ctransformers", "llama.cpp", r"ctransformers"),
    (
        "llama.cpp",
        "llama.cpp",
        r"llama-?cpp|llama-(bench|server|cli)|ggml|gguf|kobold|lemonade|unsloth-studio|docker-model-runner|"
        r"jan-ai",
    ),
    ("fastertransformer", "fastertransformer", r"faster-?transformer|megatron"),
    ("ctranslate2", "ctranslate2", r"ctranslate"),
    ("neuronx", "neuronx", r"neuron"),
    ("tensorrt-llm", "tensorrt-llm", r"tensorrt|trt-?llm|optimum-nvidia|(^|-)trt"),
    ("sglang", "sglang", r"sglang"),
    ("vllm", "vllm", r"vllm|aphrodite"),
    ("lmdeploy", "lmdeploy", r"lmdeploy|turbomind"),
    ("tgi", "tgi", r"(^|-)tgi|text-generation-inference"),
    ("exllama", "exllama", r"ex-?llama|exl[23]|tabby"),
    ("autoawq", "autoawq", r"auto-?awq"),
    ("deepspeed", "deepspeed", r"deep-?speed|^ds-"),
    ("gpt-fast", "gpt-fast", r"gpt-?fast"),
    ("onnxruntime", "onnxruntime", r"onnx|(^|-)ort(-|$)"),
    ("openvino", "openvino", r"openvino"),
    ("litert-lm", "litert-lm", r"lite-?rt"),
    ("core ml", "core ml", r"core-?(ml|ai)|apple-fm"),
    ("autogptq", "transformers", r"auto-?gptq"),
    ("bitsandbytes", "transformers", r"bitsandbytes|(^|-)bnb"),
    (
        "transformers",
        "transformers",
        r"transformers|(^|-)hf(-|$)|hugging|fastchat|accelerate|torch|pipelines|lightning",
    ),
]
# Backends of llama.cpp that are another set of kernels than a vendor's own.
BACKENDS = [
    ("vulkan", r"vulkan|radv|amdvlk"),
    ("rocm", r"rocm|hip\b|hipblas"),
    ("sycl", r"sycl"),
    ("opencl", r"opencl"),
]
# Engines that take a checkpoint as it is published, in 16 bits, where nobody says otherwise.
SIXTEEN = {
    "vllm",
    "transformers",
    "tensorrt-llm",
    "sglang",
    "tgi",
    "deepspeed",
    "gpt-fast",
    "lmdeploy",
    "fastertransformer",
}
# Generations of one vendor's memory controllers and kernels, by the accelerator's id.
ARCHITECTURES = [
    ("Hopper", r"gh200|h[12]00|h800|h20-"),
    ("Blackwell server", r"g?b[23]00"),
    ("Blackwell", r"rtx-pro-|rtx-50"),
    ("DGX Spark", r"dgx-spark|jetson-agx-thor"),
    ("Ampere server", r"a100|a800|a30$|cmp-170"),
    ("Ada", r"l40|l20|l4$|rtx-40|.*-ada$"),
    ("Ampere", r"rtx-30|rtx-a\d|a10g?$|a16|a2$|a40"),
    ("Jetson", r"jetson"),
    ("Turing", r"t4$|rtx-20|gtx-16|titan-rtx|quadro-rtx"),
    ("Volta", r"v100|titan-v"),
    ("Pascal", r"p100|p40|p4$|gtx-10|titan-xp|quadro-p"),
    ("GCN", r"mi[56]0$|radeon-vii|rx-vega"),
    ("CDNA", r"mi\d"),
    ("RDNA 4", r"rx-9|ai-pro-r9"),
    ("RDNA 3", r"rx-7|pro-w7"),
    ("RDNA 2", r"rx-[56]|pro-[vw]6"),
    ("Strix Halo", r"ryzen-ai-max"),
    ("Arc", r"arc-"),
    *(
        (f"Apple {word}", rf"{n}($|-\d+c|-(pro|max|ultra))")
        for n, word in (("m1", "M1"), ("m2", "M2"), ("m3", "M3"), ("m4", "M4"), ("m5", "M5"))
    ),
]
FORMAT_WORDS = re.compile(
    r"(^|-)(mostly|gguf|ggml|gptq|awq|exl[23]|mlx|hf|chat|instruct|it|bnb|ud|dynamic|quantized|weights|model|"
    r"base|i?q\d(-[k01])?(-(xxs|xs|s|m|l|xl|nl))?|f(p)?(16|32|8|4)|bf16|int[48]|[2-8]-?bit|w\da\d+|mxfp4|nvfp4|medium|small|"
    r"large|v0-\d|\d-\d+-?bpw|group-?size-?\d+|g\d+|\d+g)(?=-|$)"
)


@dataclass(frozen=True)
class Machine:
    """An accelerator as a prediction sees it: `bandwidth_gb_per_s` is the middle (on a logarithmic scale) of
    the variants that the name may mean, from `low` to `high`; `name` is a variant's id or, where it may be
    several, the family."""

    name: str
    family: str
    architecture: str
    low: float
    high: float
    memory_gb: float

    @property
    def bandwidth_gb_per_s(self) -> float:
        return (self.low * self.high) ** 0.5


@dataclass(frozen=True)
class Weights:
    """A model as a prediction sees it: `estimated` where its size was read from its name."""

    name: str
    known: str | None
    parameters_b: float | None
    active_b: float | None
    estimated: bool


@cache
def _cards() -> pd.DataFrame:
    return hardware.accelerators().set_index("accelerator")


def architecture(accelerator: str, family: str) -> str:
    """The generation of an accelerator's id; its family where no rule knows it."""
    return next((name for name, pattern in ARCHITECTURES if re.match(pattern, accelerator)), family)


@cache
def machine(name: str, memory_gb: float | None = None) -> Machine | str:
    """What `name` says of an accelerator, or one sentence why nothing can be predicted for it."""
    cards = _cards()
    if name in cards.index:
        found = [name]
        family = cards.at[name, "family"]
    else:
        looked = _looked_up(name, memory_gb)
        if looked is None:
            return f"No accelerator of data/accelerators.csv is called {name[:60]!r}; give vendor and model."
        family = looked.family
        found = _variants(looked, name, memory_gb)
    known = cards.loc[found]
    if family == "CPU" or not len(known) or known["bandwidth_gb_per_s"].isna().any():
        return (
            f"The memory bandwidth of {name[:60]!r} is not known: it differs by machine, or nobody states it."
        )
    width = known["bandwidth_gb_per_s"]
    return Machine(
        found[0] if len(found) == 1 else family,
        family,
        architecture(found[0], family),
        float(width.min()),
        float(width.max()),
        float(known["memory_gb"].max()),
    )


def _looked_up(name: str, memory_gb: float | None) -> hardware.Accelerator | None:
    plain = hardware.slug(name)
    stated = memory_gb or _memory(plain)
    # Counts of boards, and words between a chip's name and its memory, say nothing of the chip.
    bare = re.sub(
        r"^\d+x(?=[a-z])|(^|-)\d+-?x-|-x-?\d+$|-\d+x$|"
        r"(^|-)(nvidia|amd|intel|geforce|tesla|radeon|instinct|gpus?)(?=-|$)",
        "-",
        plain,
    )
    for text in (
        name,
        plain.replace("-", " "),
        bare.strip("-"),
        re.sub(r"^r([tx]x)?-?(?=\d{4})", "", bare.strip("-")),
    ):
        found = hardware.accelerator(text, stated)
        if found:
            return found
    return None


def count(name: str) -> int:
    """How many accelerators a name itself says ("2x RTX 3090", "H100 x8", "4090 24GB * 2"), else 1."""
    found = re.match(r"(\d{1,3}) ?[x×*] ?(?=\D)", name.strip()) or re.search(
        r" ?(?<![a-z])[x×*] ?(\d{1,3})$", name.strip().lower()
    )
    return max(1, int(found[1])) if found else 1


def _memory(plain: str) -> float | None:
    found = re.search(r"(?<!\d)(\d{1,3})-?gi?b?(?![a-z0-9])", plain)
    return float(found[1]) if found else None


def _variants(looked: hardware.Accelerator, name: str, memory_gb: float | None) -> list[str]:
    """Ids of the variants that `name` may mean: those with its number of cores, its memory, else all."""
    if looked.accelerator != hardware.UNKNOWN_VARIANT:
        return [looked.accelerator]
    cards = _cards()
    family = cards[cards["family"] == looked.family]
    plain = hardware.slug(name)
    cores = re.findall(r"(?<!\d)(\d{1,2})-?(?:gpu-?)?c(?:ores?)?(?:-gpu)?(?![a-z])", plain)
    fits = [card for card in family.index if any(card.endswith(f"-{n}c") for n in cores)]
    if fits:
        return fits
    memory = memory_gb or _memory(plain)
    if memory and family["memory_gb"].notna().any():
        fits = list(family.index[family["memory_gb"].between(memory * 0.99, memory / 0.9)])
    return fits or list(family.index)


@cache
def weights(name: str) -> Weights | str:
    """What `name` says of a model: of data/models.csv, else by the size that stands in the name."""
    plain = hardware.slug(re.sub(r"^[\w.-]+/", "", name))
    stripped = _settled(plain)
    for text in (
        name,
        plain,
        stripped,
        re.sub(r"^(meta|qwen|google|microsoft|mistralai|nvidia|ibm|unsloth)-(?=\w)", "", stripped),
    ):
        known = hardware.model(text)
        if known:
            return Weights(known, known, None, None, False)
    size = re.search(r"(?<![\da-z])(\d{1,4}(?:-\d{1,2})?)b(?![a-z0-9])", plain)
    if size is None or re.search(r"\dx\d", plain):
        return f"No model of data/models.csv is called {name[:60]!r}, and its name states no size such as 8B."
    active = re.search(r"-a(\d{1,3}(?:-\d)?)b(?![a-z0-9])", plain)
    return Weights(
        stripped or plain,
        None,
        float(size[1].replace("-", ".")),
        float((active or size)[1].replace("-", ".")),
        True,
    )


def _settled(plain: str) -> str:
    before = None
    while before != plain:
        before, plain = plain, re.sub(r"-+", "-", FORMAT_WORDS.sub("", plain)).strip("-")
    return plain


# Kinds of formats whose kernels differ where the bits do not; the first pattern that fits decides.
SCHEMES = [
    ("importance quants", r"iq\d"),
    ("k-quants", r"q\d_k"),
    ("legacy quants", r"q\d_[01]"),
    ("microscaling", r"mxfp|nvfp|\bfp4"),
    ("floating point", r"fp8|e4m3|bf16|fp16|float|\bf16|fp32|\bf32"),
    ("exl", r"exl|bpw"),
]


@dataclass(frozen=True)
class Format:
    """A number format: bits per weight, the kind of its kernels, and whether it was assumed."""

    bits: float
    scheme: str
    assumed: bool = False

    @property
    def name(self) -> str:
        """Kind and bits, as effects are named."""
        return f"{self.scheme} {self.bits:g}"


@cache
def weights_format(name: str, model: str, engine: str) -> Format | str:
    """A format as people write it, of the model's own name where `name` is empty, 16 bits for an engine that
    takes a checkpoint as it is; one sentence where none is known."""
    plain = name.strip().lower()
    if found := re.fullmatch(r"([2-8])[- _]?bits?(?: .*)?|q([23])", plain):
        return Format(float(found[1] or found[2]), "integers")
    for text in (plain, plain.replace("-", "_"), plain.replace("_", "-")):
        known = hardware.bits(text) if text else None
        if known:
            return Format(known, _scheme(text, known))
    if re.search(r"nf4|\bfour", plain):
        return Format(4.0, "integers")
    if re.fullmatch(r"half|half precision|auto|none|original|unquantized|16|16.?bits?|float", plain):
        return Format(16.0, "floating point", plain in ("auto", "none"))
    if plain:
        return (
            f"{name[:40]!r} names no number format that is known; write Q4_K_M, int4, fp8, bf16 or the like."
        )
    for text in (hardware.slug(model).replace("-", "_"), model.lower()):
        known = hardware.bits(text)
        if known:
            return Format(known, _scheme(text, known))
    if engine in SIXTEEN:
        return Format(16.0, "floating point", True)
    return "The row states no number format of the weights; write Q4_K_M, int4, fp8, bf16 or the like."


def _scheme(text: str, bits: float) -> str:
    found = next((scheme for scheme, pattern in SCHEMES if re.search(pattern, text)), "integers")
    return "floating point" if bits >= 16 else found


@cache
def engine(name: str) -> tuple[str, str]:
    """(engine, family of engines) of a name as people write it; ("any", "any") where it is empty or any, and
    its own name twice where no rule knows it."""
    plain = hardware.slug(name)
    if plain in ("", "any", "unknown", "other", "none"):
        return "any", "any"
    for own, family, pattern in ENGINES:
        if re.search(pattern, plain):
            backend = next((b for b, p in BACKENDS if re.search(p, plain)), None)
            return (f"{own} {backend}" if backend and family == "llama.cpp" else own), family
    return plain, plain
