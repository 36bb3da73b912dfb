"""Names of machines, models, formats and engines as people write them, as what a prediction needs to know."""

import re
from dataclasses import dataclass
from functools import cache

import pandas as pd

from bench import hardware

# The first pattern that a name fits decides: (engine, family of engines whose kernels it runs, pattern).
ENGINES = [
    # Engines that have the name of another in theirs and none of its kernels.
    ("ktransformers", "ktransformers", r"ktransformers"),
    ("xfastertransformer", "xfastertransformer", r"xfastertransformer"),
    ("executorch", "executorch", r"execu?torch"),
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
        r"(^|-)jan(-ai)?$|gpt4all",
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
# Models whose layers are other than attention over everything and a gated MLP.
MODEL_KINDS = [
    (
        "linear attention",
        r"qwen3(\.[5-9]|-[5-9]-)|qwen3-(coder-)?next|nemotron-(3|nano|cascade)|lfm|rwkv|"
        r"granite-4.0-h|.*mamba",
    ),
    ("sliding windows, large vocabulary", r"gemma"),
    ("sliding windows, experts", r"gpt-oss"),
]
# Cards and modules for servers, whatever their generation.
SERVER = (
    r"gh200|g?[bh][123]00|h20|[ahv]800|v100|a100|p(100|40|4)$|l(4|40|40s|20)$|a(2|10|10g|16|30|40)$|t4$|"
    r"mi\d|gaudi|max-\d"
)
# Engines of the general kind: they run any model, operation by operation.
FRAMEWORKS = {"transformers", "deepspeed", "onnxruntime"}
# Engines that give each of several accelerators its layers, so that they read one after the other.
BY_LAYERS = {"llama.cpp", "exllama", "autoawq", "transformers", "any"}
FORMAT_WORDS = re.compile(
    r"(^|-)(mostly|gguf|ggml|gptq|awq|exl[23]|mlx|hf|chat|instruct|it|bnb|ud|dynamic|quantized|weights|model|"
    r"base|i?q\d(-[k01])?(-(xxs|xs|s|m|l|xl|nl))?|f(p)?(16|32|8|4)|bf16|int[48]|[2-8]-?bit|w\da\d+|"
    r"mxfp4|nvfp4|medium|small|"
    r"large|v0-\d|\d-\d+-?bpw|group-?size-?\d+|g\d+|\d+g)(?=-|$)"
)


# Rented machines that are called by their type: what is in them, and how many.
INSTANCES = {
    **{f"inf2.{size}xlarge": ("Inferentia2", n) for size, n in (("", 1), ("8", 1), ("24", 6), ("48", 12))},
    **{
        name: ("Trainium1", n)
        for name, n in (("trn1.2xlarge", 1), ("trn1.32xlarge", 16), ("trn1n.32xlarge", 16))
    },
    **{
        f"{kind}.{size}xlarge": (card, n)
        for kind, card in (("g4dn", "T4"), ("g5", "A10G"), ("g6", "L4"), ("g6e", "L40S"))
        for size, n in (("", 1), ("2", 1), ("4", 1), ("8", 1), ("16", 1), ("12", 4), ("24", 4), ("48", 8))
    },
    "p3.2xlarge": ("V100-SXM2-16GB", 1),
    "p3.8xlarge": ("V100-SXM2-16GB", 4),
    "p3.16xlarge": ("V100-SXM2-16GB", 8),
    "p4d.24xlarge": ("A100-SXM4-40GB", 8),
    "p4de.24xlarge": ("A100-SXM4-80GB", 8),
    "p5.4xlarge": ("H100 SXM", 1),
    "p5.48xlarge": ("H100 SXM", 8),
    "p5e.48xlarge": ("H200 SXM", 8),
    "p5en.48xlarge": ("H200 SXM", 8),
}
PROCESSORS = r"(^|-)(xeon|epyc|threadripper|ryzen-\d|core-(i\d|ultra)|graviton\d?|i[3579]-\d{4,5})"


@dataclass(frozen=True)
class Machine:
    """An accelerator as a prediction sees it: `bandwidth_gb_per_s` is the middle (on a logarithmic scale) of
    the variants that the name may mean, from `low` to `high`; `name` is a variant's id or, where it may be
    several, the family."""

    name: str
    family: str
    architecture: str
    kind: str
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


def kind(accelerator: str, family: str) -> str:
    """The class of an accelerator: who makes it, and whether for servers, as a card or in a processor."""
    card = _cards().loc[accelerator]
    made = "server" if re.match(SERVER, accelerator) else {"GPU": "card"}.get(card["kind"], card["kind"])
    return f"{card['vendor']} {made}"


def model_kind(model: str) -> str:
    """The kind of layers that a model has; `plain` is attention in every layer."""
    return next((kind for kind, pattern in MODEL_KINDS if re.match(pattern, model)), "plain")


def engine_kind(family: str) -> str:
    """Whether a family of engines is a general framework or made for this; `any` where none is asked for."""
    return "any" if family == "any" else "framework" if family in FRAMEWORKS else "dedicated"


@cache
def machine(name: str, memory_gb: float | None = None) -> Machine | str:
    """What `name` says of an accelerator, or one sentence why nothing can be predicted for it."""
    cards = _cards()
    if name in cards.index:
        found = [name]
        family = cards.at[name, "family"]
    else:
        plain = hardware.slug(name)
        if re.search(r"(^|-)(mig|vgpu)(-|$)|\dg-\d+gb", plain):
            return f"{name[:60]!r} is a part of an accelerator (MIG, vGPU), and its bandwidth is missing."
        looked = _looked_up(INSTANCES.get(_instance(name), (name, 1))[0], memory_gb)
        if looked is None and re.search(PROCESSORS, plain):
            return f"{name[:60]!r} is a processor, whose memory differs by machine; name an accelerator."
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
    # Where memory is sold in several sizes, the name may say which.
    held = float(known["memory_gb"].max())
    return Machine(
        found[0] if len(found) == 1 else family,
        family,
        architecture(found[0], family),
        kind(found[0], family),
        float(width.min()),
        float(width.max()),
        held if held == held else (memory_gb or _memory(hardware.slug(name)) or held),
    )


def _looked_up(name: str, memory_gb: float | None) -> hardware.Accelerator | None:
    plain = hardware.slug(name)
    stated = memory_gb or _memory(plain)
    # Counts of boards, and words between a chip's name and its memory, say nothing of the chip.
    bare = re.sub(
        r"^\d+x(?=[a-z]|\d{4})|(^|-)\d+-?x-|-x-?\d+$|-\d+x$|"
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


def _instance(name: str) -> str:
    found = re.match(r"(?:aws |amazon |ec2 )?([a-z]\w*\.\d*xlarge)\b", name.strip().lower())
    return found[1] if found else ""


def count(name: str) -> int:
    """How many accelerators a name itself says ("2x RTX 3090", "H100 x8", "4090 24GB * 2", "p5.48xlarge",
    "TPU v5e-8"), else 1."""
    plain = name.strip().lower()
    if instance := INSTANCES.get(_instance(name)):
        return instance[1]
    found = (
        re.match(r"(\d{1,3}) ?[x×*] ?(?=\D|\d{4}(?!\d))", plain)
        or re.search(r"(?<![a-z])[x×*] ?(\d{1,3})$", plain)
        or re.search(r"v(?:5e|5lite|6e)-(\d{1,3})$", plain)
        or re.search(r" \((?:x ?)?(\d{1,2})(?: ?x| gpus?| cards?)\)$", plain)
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
    """What `name` says of a model: of data/models.csv, else of one whose name ends the name (a fine-tune),
    else by the size that stands in the name."""
    bare = re.sub(r"^[\w.-]+/", "", name)
    plain = hardware.slug(bare)
    stripped = _settled(plain)
    for text in (
        name,
        plain,
        stripped,
        re.sub(r"^(meta|qwen|google|microsoft|mistralai|nvidia|ibm|unsloth)-(?=\w)", "", stripped),
        re.sub(r"(?<=[a-z])(?=\d)", "-", stripped, count=1),
    ):
        known = hardware.model(text)
        if known:
            return Weights(known, known, None, None, False)
    # A version (3.1) is no size, and neither are the experts of a mixture (8x7B).
    size = re.search(
        r"(?<![\da-z.,])(\d{1,4}(?:[.,]\d{1,3})?) ?b(?![a-z0-9])", bare.lower().replace("_", "-")
    )
    if size is None and not re.search(r"\d[.,_]\d", bare):
        size = re.search(r"(?<![\da-z])(\d{1,4}(?:-\d{1,2})?)b(?![a-z0-9])", plain)
    stated = float(re.sub(r"[-,]", ".", size[1])) if size else None
    sizes = hardware.models().set_index("model")["parameters_b"]
    words = stripped.split("-")
    for first in range(1, len(words) - 1):
        known = hardware.model("-".join(words[first:]))
        # Another model may have been made of it (a smaller one, an adapter): then the sizes differ.
        if known and (stated is None or abs(sizes[known] / stated - 1) < 0.1):
            return Weights(known, known, None, None, True)
    if stated is None or re.search(r"\dx\d", plain):
        return f"No model of data/models.csv is called {name[:60]!r}, and its name states no size such as 8B."
    active = re.search(r"[-.]a(\d{1,3}(?:[.-]\d)?)b(?![a-z0-9])", bare.lower())
    return Weights(
        stripped or plain,
        None,
        stated,
        float(active[1].replace("-", ".")) if active else stated,
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


# What the repository's formats do not know, or would take for another: (pattern, bits or None where the
# pattern holds them, kind).
STATED = [
    (r"^([2-8])[- _]?bits?(?: .*)?$", None, "integers"),
    (r"^q([2-8])$", None, "integers"),
    (r"(?:gptq|awq|bnb|hqq|aqlm|quip\W?|mlx|int)[-_ ]?([2-8])[-_ ]?bits?", None, "integers"),
    (r"exl[23][-_ ]?(\d\.\d+|[2-8](?!\d))", None, "exl"),
    (r"tq1_0|1[.,]58|bitnet|b1\.58", 1.69, "ternary"),
    (r"tq2_0", 2.06, "ternary"),
    (r"\bfp6|float6|e3m2", 6.0, "floating point"),
    (r"float8|\bf8\b|e5m2", 8.0, "floating point"),
    (r"eetq", 8.0, "integers"),
    (r"nf4|\bfour|bnb[-_ ]?4", 4.0, "integers"),
]
# Models that are published in other than 16 bits.
PUBLISHED = [
    (r"gpt-oss", "mxfp4"),
    (r"deepseek-(v3|r1)(?!-distill)|kimi-k2(?!-5)|minimax-m2", "fp8"),
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
    if plain in ("auto", "none", "default", "original", "native", "n/a", "-", "unknown"):
        # Nobody chose: the checkpoint's own format.
        plain = ""
    for pattern, bits, scheme in STATED:
        if found := re.search(pattern, plain):
            return Format(bits or float(found[1]), scheme)
    for text in (plain, plain.replace("-", "_"), plain.replace("_", "-")):
        known = hardware.bits(text) if text else None
        if known and known >= 16 and "gpt-oss" in model.lower() and llama_cpp(engine):
            break  # a GGUF file "in F16" keeps the experts, nearly all of the model, as they are published
        if known:
            return Format(known, _scheme(text, known))
    if re.fullmatch(
        r"half|half precision|unquantized|not quantized|full precision|16|16.?bits?|float", plain
    ):
        return Format(16.0, "floating point")
    if plain and not known:
        return (
            f"{name[:40]!r} names no number format that is known; write Q4_K_M, int4, fp8, bf16 or the like."
        )
    for text in (hardware.slug(model).replace("-", "_"), model.lower()):
        known = hardware.bits(text)
        if known:
            return Format(known, _scheme(text, known))
    if own := next((f for pattern, f in PUBLISHED if re.search(pattern, hardware.slug(model))), None):
        published = hardware.bits(own) or 16.0
        return Format(published, _scheme(own, published), True)
    if engine in SIXTEEN:
        return Format(16.0, "floating point", True)
    return "The row states no number format of the weights; write Q4_K_M, int4, fp8, bf16 or the like."


def llama_cpp(own: str) -> bool:
    """Whether an engine (the first of what `engine` says) runs llama.cpp's kernels."""
    return any(
        own == name or own.startswith(f"{name} ") for name, family, _ in ENGINES if family == "llama.cpp"
    )


def _scheme(text: str, bits: float) -> str:
    found = next((scheme for scheme, pattern in SCHEMES if re.search(pattern, text)), "integers")
    return "floating point" if bits >= 16 else found


@cache
def engine(name: str) -> tuple[str, str]:
    """(engine, family of engines) of a name as people write it; ("any", "any") where it is empty or any, and
    its own name twice where no rule knows it."""
    plain = hardware.slug(name)
    if plain in ("", "any", "unknown", "other", "none", "n-a", "na", "nan"):
        return "any", "any"
    for own, family, pattern in ENGINES:
        if re.search(pattern, plain):
            backend = next((b for b, p in BACKENDS if re.search(p, plain)), None)
            return (f"{own} {backend}" if backend and family == "llama.cpp" else own), family
    return plain, plain
