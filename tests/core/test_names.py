"""Names as people write them: read right, read as several, or refused with the nearest that there are."""

import csv
from pathlib import Path

import pytest

from llm_measured.core import hardware, names

READ = {
    "accelerator": names.accelerator,
    "model": names.model,
    "format": names.number_format,
    "engine": names.engine,
}
WRITTEN = [
    (row["kind"], row["written"])
    for row in csv.DictReader(Path(__file__).with_name("names.csv").open(encoding="utf-8"))
]
# What each of names.csv is: (ids, count, memory in GB) of accelerators, (ids or none, 10⁹ parameters, active) of
# models, (bits, scheme) of formats, (engine, family) of engines.
MEANT = {
    "8xH100": (("h100-nvl", "h100-pcie", "h100-sxm"), 8, None),
    "H100-80GB-HBM3": (("h100-sxm",), None, 80),
    "A100-SXM4-80GB": (("a100-sxm-80gb",), None, 80),
    "A100-PCIE-40GB": (("a100-pcie-40gb",), None, 40),
    "8x A10G 24GB": (("a10g",), 8, 24),
    "g5.48xlarge": (("a10g",), 8, None),
    "RTX 3060 12G": (("rtx-3060-12gb",), None, 12),
    "RTX 4090 48GB": (("rtx-4090",), None, 48),
    "4080 16GB": (("rtx-4080",), None, 16),
    "RTX 4080 Laptop GPU 12GB": (("rtx-4080-laptop",), None, 12),
    "RTX 5090 24GB laptop": (("rtx-5090-laptop",), None, 24),
    "5060 Ti 16GB": (("rtx-5060-ti-16gb",), None, 16),
    "RTX A6000": (("rtx-a6000",), None, None),
    "RTX 6000 Ada 48GB": (("rtx-6000-ada",), None, 48),
    "RTX PRO 6000 Blackwell Max-Q": (("rtx-pro-6000-max-q",), None, None),
    "Nvidia Spark GB10": (("dgx-spark",), None, None),
    "Framework Desktop AI Max+ 395": (("ryzen-ai-max-395",), None, None),
    "AMD Strix Halo": (("ryzen-ai-max-395",), None, None),
    "Radeon AI Pro R9700": (("ai-pro-r9700",), None, None),
    "RX 9070 XT": (("rx-9070-xt",), None, None),
    "MI50 32GB": (("mi50",), None, 32),
    "Arc Pro B70": (("arc-pro-b70",), None, None),
    "M3 Ultra 512GB": (("m3-ultra-60c", "m3-ultra-80c"), None, 512),
    "M4 Mac mini": (("m4-8c", "m4-10c"), None, None),
    "MacBook Pro M4 Pro 24 GB": (("m4-pro-16c", "m4-pro-20c"), None, 24),
    "iPhone 17 Pro": (("a19-pro",), 1, None),
    "Galaxy S24": (("snapdragon-8-gen-3", "exynos-2400"), 1, None),
    "OnePlus 12": (("snapdragon-8-gen-3",), 1, None),
    "2x EPYC 9554": (("epyc-genoa",), 2, None),
    "i5-1135G7": (("core-11-mobile-ddr4", "core-11-mobile-lpddr4x"), None, None),
    "Raspberry Pi 5 16GB": (("raspberry-pi-5",), None, 16),
    "Jetson Orin Nano Super": (("jetson-orin-nano-super",), None, None),
    "qwen3:30b": (("qwen3-30b-a3b",), 30.5, 3.3),
    "qwen3-coder:30b": (("qwen3-30b-a3b",), 30.5, 3.3),
    "qwen3:32b": (("qwen3-32b",), 32.8, 32.8),
    "gemma4:26b": (("gemma-4-26b-a4b",), 25.2, 3.8),
    "gemma4:31b": (("gemma-4-31b",), 31, 31),
    "deepseek-r1:8b": (("qwen3-8b", "llama-3.1-8b"), 8.1, 8.1),
    "deepseek-r1:14b": (("deepseek-r1-distill-qwen-14b",), 14.8, 14.8),
    "deepseek-r1:671b": (("deepseek-v3",), 671, 37.6),
    "Qwen3.6-27B": (("qwen3.6-27b",), 27, 27),
    "exaone-4.0-32b": (("exaone-4.0-32b",), 32, 32),
    "Mistral-Small-3.2-24B-Instruct-2506": (("mistral-small-3.1-24b",), 23.6, 23.6),
    "Yi-1.5-34B-Chat": (("yi-34b",), 34.4, 34.4),
    "granite-3.3-8b-instruct": (("granite-3.1-8b",), 8.2, 8.2),
    "Qwen2.5-Coder-1.5B-Instruct": (("qwen2.5-coder-1.5b",), 1.54, 1.54),
    "gpt-oss-20b": (("gpt-oss-20b",), 20.9, 3.6),
    "MiniMax-M2.5": (("minimax-m2.5",), 230, 10),
    "GLM-4.7-Flash": (("glm-4.7-flash",), 30, 3),
    "Kimi-K2.6": (("kimi-k2.6",), 1000, 32),
    "Llama-2-70B-GPTQ": (("llama-2-70b",), 69, 69),
    "llama3.1": (("llama-3.1-8b",), 8, 8),
    "Q4_K_M": (4.89, "k-quants"),
    "Q2_K": (3.16, "k-quants"),
    "GPTQ-Int8": (8, "integers"),
    "INT4 AWQ": (4, "integers"),
    "int4wo-64": (4, "integers"),
    "4bpw exl2": (4, "exl"),
    "1-bit": None,
    "MXFP4": (4.25, "microscaling"),
    "torchao": ("torchao", "gpt-fast"),
    "LM Studio MLX": ("lm studio mlx", "mlx"),
    "LM Studio": ("lm studio", "llama.cpp"),
}


@pytest.mark.parametrize("kind, written", WRITTEN)
def test_a_name_as_users_wrote_it_is_what_it_means(kind, written):
    meant = MEANT[written]
    if meant is None:
        with pytest.raises(names.UnknownName):
            READ[kind](written)
        return
    read = READ[kind](written)
    if kind == "accelerator":
        assert (read.candidates, read.count, read.memory_gb) == meant
    elif kind == "model":
        assert read.candidates == meant[0]
        assert (read.parameters_b, read.active_b) == pytest.approx(meant[1:], rel=0.02)
    elif kind == "format":
        assert read.bits == pytest.approx(meant[0], abs=0.01) and read.scheme == meant[1]
    else:
        assert (read.name, read.family) == meant


def test_a_card_with_more_memory_than_its_maker_sells_was_modified():
    assert names.accelerator("RTX 4090 48GB").modified and not names.accelerator("RTX 4090 24GB").modified


@pytest.mark.parametrize(
    "kind, made_up",
    [
        *(
            ("accelerator", name)
            for name in ("RTX 5091", "RTX 4090Ti", "RTX 3080 Super", "H100X", "H900", "Radeon RX 9999", "M9 Ultra",
                         "Voodoo 2", "Groq LPU", "hal 9000", "EPYC-X", "Arc Z99", "GPU")
        ),
        *(("model", name) for name in ("gpt-5-nano", "qwen99", "Mystery-8x3B", "llama", "Foo")),
        *(("format", name) for name in ("Q9_Z", "purple", "modelopt")),
    ],
)  # fmt: skip
def test_a_made_up_name_is_refused(kind, made_up):
    with pytest.raises(names.UnknownName):
        READ[kind](made_up)


def test_a_refused_accelerator_lists_the_nearest():
    with pytest.raises(names.UnknownName, match="RTX 5090"):
        names.accelerator("RTX 5091")


@pytest.mark.parametrize(
    "name, memory_gb, ids",
    [
        ("NVIDIA H100 80GB HBM3", None, "h100-sxm"),
        ("NVIDIA H100-PCIe-80GB", None, "h100-pcie"),
        ("NVIDIA H100 NVL", None, "h100-nvl"),
        ("Nvidia H100 GPU", None, None),
        ("NVIDIA H200-NVL-141GB", None, "h200-nvl"),
        ("A100-80GB", None, None),
        ("NVIDIA A100-SXM4-80GB", None, "a100-sxm-80gb"),
        ("NVIDIA A100 80GB PCIe", None, "a100-pcie-80gb"),
        ("NVIDIA GeForce RTX 3080", 10, "rtx-3080-10gb"),
        ("NVIDIA GeForce RTX 3080", None, None),
        ("NVIDIA GeForce RTX 3080 Ti", None, "rtx-3080-ti"),
        ("NVIDIA GeForce RTX 3080 Laptop GPU", 16, "rtx-3080-laptop"),
        ("RTX 4090 D", None, "rtx-4090-d"),
        ("NVIDIA GeForce RTX 4060 Ti", 16, "rtx-4060-ti-16gb"),
        ("NVIDIA RTX A4000", None, "rtx-a4000"),
        ("NVIDIA RTX 4000 SFF Ada Generation", None, "rtx-4000-sff-ada"),
        ("NVIDIA L40S", None, "l40s"),
        ("NVIDIA L4", 22, "l4"),
        ("Apple M4 Max 12P+4E+40GPU", 128, "m4-max-40c"),
        ("Apple M4 Max 10P+4E+32GPU", 36, "m4-max-32c"),
        ("Apple M4 Max", None, None),
        ("Apple M1 4P+4E+8GPU", 8, "m1-8c"),
        ("AMD Instinct MI300X-NPS1-SPX-192GB-750W", None, "mi300x"),
        ("AMD MI250 GPU", None, None),
        ("AMD RYZEN AI MAX+ 395 w/ Radeon 8060S", None, "ryzen-ai-max-395"),
        ("h100_sxm", None, "h100-sxm"),
    ],
)
def test_a_variant_is_told_by_name_or_memory_or_left_open(name, memory_gb, ids):
    read = names.accelerator(name, memory_gb)
    assert read.candidates == (ids,) if ids else len(read.candidates) != 1


def test_several_accelerators_in_one_text():
    assert names.accelerator("H100 SXM, H100 SXM").count == 2
    mixed = names.accelerator("RTX 4090 + RTX 3090")
    assert mixed.mixed and mixed.count == 2 and mixed.candidates == ("rtx-4090", "rtx-3090")


def test_a_part_of_an_accelerator_is_refused():
    with pytest.raises(names.UnknownName, match="part of an accelerator"):
        names.accelerator("NVIDIA-A100-SXM4-80GB-MIG-3g.40gb")


def test_a_hostile_name_takes_no_time():
    for read in (names.accelerator, names.model, names.number_format):
        with pytest.raises(names.UnknownName):
            read("a" * 10**6)
    assert names.engine("v" * 10**6).version is None


@pytest.mark.parametrize(
    "name, model",
    [
        ("meta-llama/Llama-2-7b-hf", "llama-2-7b"),
        ("LLaMA 70B", "llama-2-70b"),
        ("llama2-70b-99.9", "llama-2-70b"),
        ("Meta Llama 3.1 8B Instruct", "llama-3.1-8b"),
        ("DeepSeek-R1-Distill-Llama-8B", "llama-3.1-8b"),
        ("Qwen/Qwen3-30B-A3B-Instruct-2507", "qwen3-30b-a3b"),
        ("Qwen3.6-35B-A3B-UD-Q4_K_XL-00001-of-00003.gguf", "qwen3.6-35b-a3b"),
        ("mistralai/Mixtral-8x7B-Instruct-v0.1", "mixtral-8x7b"),
        ("Phi 4 Mini 3.8B", "phi-4-mini"),
        ("DeepSeek-R1", "deepseek-v3"),
    ],
)
def test_a_raw_name_finds_its_model(name, model):
    assert names.model(name).candidates == (model,)


@pytest.mark.parametrize(
    "name, parameters_b, active_b",
    [
        ("Thing-4.0-32B", 32, 32),  # a number before the size is a version
        ("somebody/Thing-30B-A3B-Q4_K_M", 30, 3),
        ("thing-1-5b", 5, 5),
    ],
)
def test_a_size_in_the_name_comes_last(name, parameters_b, active_b):
    read = names.model(name)
    assert (read.candidates, read.parameters_b, read.active_b) == ((), parameters_b, active_b)
    assert read.estimated


def test_a_size_with_two_readings_has_both():
    assert (
        names.model("thing-1-5b").or_parameters_b == 1.5 and names.model("thing-3-8b").or_parameters_b == 3.8
    )
    assert names.model("Thing-1.5-34B").or_parameters_b is None


@pytest.mark.parametrize(
    "name, bits",
    [("Q4_K - Medium", 4.89), ("EXL2 3.0 bpw", 3.0), ("w4a16", 4.0), ("bfloat16", 16.0), ("fp8", 8.0),
     ("float32", 32.0), ("Q8_0", 8.5), ("mxfp4", 4.25), ("AWQ int4", 4.0), ("Qwen2.5-7B-GPTQ-Int8", 8.0), ("", None)],
)  # fmt: skip
def test_a_format_has_the_bits_of_its_file(name, bits):
    assert names.bits(name) == (None if bits is None else pytest.approx(bits, abs=0.01))


def test_a_format_that_nobody_chose_is_the_makers_or_the_engines():
    assert names.number_format("auto", "openai/gpt-oss-20b", "vllm").bits == 4.25
    assert names.number_format("", "Llama-2-7b-hf", "vllm").assumed
    with pytest.raises(names.UnknownName, match="No number format"):
        names.number_format("", "Llama-2-7b", "llama.cpp")


@pytest.mark.parametrize(
    "text, version",
    [("vLLM 0.10.1", "0.10.1"), ("vllm==0.6.3", "0.6.3"), ("llama.cpp b4567", "b4567"), ("SGLang", None)],
)
def test_an_engine_has_the_version_that_it_states(text, version):
    assert names.engine(text).version == version


@pytest.mark.parametrize(
    "name, bandwidth",
    [
        ("h100-80gb-hbm3", 3.35e12),
        ("A100-40GB", 1.555e12),  # SXM and PCIe alike
        ("H200", 4.8e12),
        ("A100-80GB", None),  # SXM 2039 GB/s, PCIe 1935
        ("H100", None),  # NVL 3938 GB/s
        ("epyc-zen4-2c", None),
    ],
)
def test_a_name_of_two_variants_has_a_bandwidth_only_where_they_agree(name, bandwidth):
    assert names.bandwidth(name) == bandwidth


def test_every_accelerator_is_read_by_its_own_id():
    for name in hardware.accelerators()["accelerator"]:
        assert names.accelerator(name).candidates == (name,)


@pytest.mark.parametrize(
    "text", ["GLM-5.2-FP8", "phi-3.5-mini", "OLMo-2-1124-13B", "Devstral-24B", "CodeLlama-9B"]
)
def test_a_known_version_and_a_new_name_with_a_size_are_read(text):
    assert names.model(text).parameters_b


@pytest.mark.parametrize(
    "written, ids, count",
    [
        # A count in words is a count.
        *(("dual 3090", "rtx-3090", 2), ("pair of 3090s", "rtx-3090", 2), ("twin RTX 4090", "rtx-4090", 2)),
        *(("two RTX 4080s", "rtx-4080", 2), ("a dozen 3090", "rtx-3090", 12), ("both 3090s", "rtx-3090", 2)),
        # A memory size in a name chooses the variant.
        *(("GTX 1060 3GB", "gtx-1060-3gb", None), ("RTX 3080 12GB", "rtx-3080-12gb", None)),
        *(("4x RTX 2060 12GB", "rtx-2060-12gb", 4), ("P100 12GB", "p100-pcie-12gb", None)),
        # What was refused without need.
        *(("Quadro P6000", "quadro-p6000", None), ("RTX 2050", "rtx-2050-laptop", None)),
        *(("CMP 170HX", "cmp-170hx", None), ("iPhone 15 Pro", "a17-pro", 1), ("iPad Pro M5", "m5-10c", 1)),
    ],
)
def test_counts_in_words_memory_and_cards_that_were_refused(written, ids, count):
    read = names.accelerator(written)
    assert (read.candidates, read.count) == ((ids,), count)


def test_every_accelerator_that_is_no_processor_has_a_memory():
    table = hardware.accelerators()
    lacking = table[table["memory_gb"].isna() & (table["kind"] != "CPU")]
    assert lacking["accelerator"].to_list() == []
    assert hardware.by_accelerator().at["arc-pro-b70", "bandwidth_gb_per_s"] == 608
    # A figure that rests on nobody's page is marked, and only such a one.
    from_memory = table["source"].str.contains("from memory")
    assert table.loc[from_memory, "unsure"].str.contains("bandwidth").all()
    assert not table.loc[~from_memory, "unsure"].fillna("").str.contains("bandwidth").any()


@pytest.mark.parametrize(
    "written, ids",
    [
        ("R1 671B", ("deepseek-v3",)),
        # llama-bench's own names: an architecture and a size.
        *(("qwen3moe 32B.A3B", ("qwen3-30b-a3b",)), ("llama 8B Q4_K", ("llama-3-8b", "llama-3.1-8b"))),
        *(("mistral3 14B Q8_0", ("ministral-3-14b",)), ("llama4 17Bx16E (Scout) Q4_K", ("llama-4-scout",))),
        *(("qwen35moe 35B.A3B", ("qwen3.5-35b-a3b", "qwen3.6-35b-a3b")), ("phi3 3B", ("phi-3-mini",))),
        ("granite 8B", ("granite-4.1-8b", "granite-3.1-8b")),  # as people write it
    ],
)
def test_a_family_and_a_size_are_the_models_that_have_both(written, ids):
    assert names.model(written).candidates == ids


@pytest.mark.parametrize(
    "written, near",
    [
        # A version, Flash, Next, Mini that a known name lacks.
        *(("GLM-5.3", "glm-5"), ("MiMo-V2.6-Flash", "mimo-v2-flash"), ("Llama-3.4-8B", "llama-3.1-8b")),
        *(
            ("qwen3.7-27b", "qwen3.6-27b"),
            ("gemma-5-12b", "gemma-4-12b"),
            ("ERNIE-5-21B", "ernie-4.5-21b-a3b"),
        ),
        *(("Llama-3.1-8B-Flash", "llama-3.1-8b"), ("GLM-5.3-Flash", "glm-4.7-flash")),
        # One slip: never 8 · 10⁹ parameters of which nothing is known.
        *(("lama-3.1-8b", "llama-3.1-8b"), ("qwwen3-8b", "qwen3-8b"), ("codestrall-22b", "codestral-22b")),
        *(("mistra 7b", "mistral-7b"), ("qwne3 8B", "qwen3-8b"), ("kimi-k2.9", "kimi-k2.5")),
        ("deekseek-r1:14b", "deepseek-r1-distill-qwen-14b"),
    ],
)
def test_a_name_that_comes_near_a_known_one_is_refused_with_it(written, near):
    with pytest.raises(names.UnknownName, match=near):
        names.model(written)


def test_a_new_version_is_read_by_its_size_where_that_is_all_that_is_needed():
    assert names.model("Llama-3.4-8B", sized=True).parameters_b == 8
    assert names.model("olmo-7b").parameters_b == 7 and names.model("llava-7b").parameters_b == 7


@pytest.mark.parametrize(
    "line, parts",
    [
        ("2x3090 70B exl2 4.0bpw", ("2x3090", "70B", "4.0bpw", "exl2")),
        ("Qwen3-30B-A3B Q8_0 on 2 x RTX 5090 with llama.cpp", ("2 x RTX 5090", "Qwen3-30B-A3B", "Q8_0", "llama.cpp")),
        ("gpt-oss-120b MXFP4 Strix Halo Vulkan", ("Strix Halo", "gpt-oss-120b", "MXFP4", "llama.cpp Vulkan")),
        ("M3 Ultra 512GB DeepSeek-R1 Q4_K_M MLX", ("M3 Ultra 512GB", "DeepSeek-R1", "Q4_K_M", "MLX")),
    ],
)  # fmt: skip
def test_a_whole_title_is_read(line, parts):
    keys = ("accelerator", "model", "weights_format", "engine")
    assert names.title(line) == dict(zip(keys, parts))
