"""Raw names as people write them: each is placed right, or refused with a sentence that says what is missing."""

import pandas as pd
import pytest

from llm_measured.core import names
from llm_measured.predict import machines, question, step

# (as written, id or family, GB/s of the slowest and of the fastest variant that it may mean, how many)
ACCELERATORS = [
    ("NVIDIA H100 80GB HBM3", "h100-sxm", 3350, 3350, 1),
    ("NVIDIA H100 PCIe", "h100-pcie", 2039, 2039, 1),
    ("NVIDIA H100 NVL", "h100-nvl", 3938, 3938, 1),
    ("H100", "h100-sxm", 3350, 3350, 1),
    ("h100_sxm", "h100-sxm", 3350, 3350, 1),
    ("8x H100 SXM", "h100-sxm", 3350, 3350, 8),
    ("8xH100 SXM5", "h100-sxm", 3350, 3350, 8),
    ("8×H100", "h100-sxm", 3350, 3350, 8),
    ("h100-sxm5-80gb-x8", "h100-sxm", 3350, 3350, 8),
    ("p5.48xlarge", "h100-sxm", 3350, 3350, 8),
    ("Arc Pro B70", "arc-pro-b70", 608, 608, 1),
    ("NVIDIA H200", "h200-sxm", 4800, 4800, 1),
    ("B200 180GB HBM3e", "b200-sxm", 8000, 8000, 1),
    ("NVIDIA GB200 NVL72", "gb200", 8000, 8000, 1),
    ("GH200 480GB", "gh200-96gb", 4000, 4000, 1),
    ("NVIDIA A100-SXM4-40GB", "a100-sxm-40gb", 1555, 1555, 1),
    ("A100-SXM4-80GB", "a100-sxm-80gb", 2039, 2039, 1),
    ("A100 80G", "a100-sxm-80gb", 2039, 2039, 1),
    ("A100 x8", "a100-sxm-80gb", 2039, 2039, 8),
    ("4xA100-80GB-SXM", "a100-sxm-80gb", 2039, 2039, 4),
    ("NVIDIA L40S", "l40s", 864, 864, 1),
    ("g5.xlarge", "a10g", 600, 600, 1),
    ("g5.48xlarge", "a10g", 600, 600, 8),
    ("Tesla V100-SXM2-32GB", "v100-sxm2-32gb", 900, 900, 1),
    ("RTX4090", "rtx-4090", 1008, 1008, 1),
    ("RTX 4090 24GB", "rtx-4090", 1008, 1008, 1),
    ("RTX 4090 24GB * 4", "rtx-4090", 1008, 1008, 4),
    ("NVIDIA GeForce RTX 4090", "rtx-4090", 1008, 1008, 1),
    ("2x3090", "rtx-3090", 936, 936, 2),
    ("2 x RTX 3090", "rtx-3090", 936, 936, 2),
    ("RTX 3090 24GB", "rtx-3090", 936, 936, 1),
    ("RTX 3090 (2x)", "rtx-3090", 936, 936, 2),
    ("3080 10G", "rtx-3080-10gb", 760, 760, 1),
    ("NVIDIA GeForce RTX 3060 12GB", "rtx-3060-12gb", 360, 360, 1),
    ("RTX4060Ti 16GB", "rtx-4060-ti-16gb", 288, 288, 1),
    ("NVIDIA GeForce RTX 5090 D", "rtx-5090-d", 1792, 1792, 1),
    ("RTX PRO 6000 Blackwell Workstation Edition", "rtx-pro-6000-workstation", 1792, 1792, 1),
    ("RTX A5000 x2", "rtx-a5000", 768, 768, 2),
    ("Apple M4 Max 40-core", "m4-max-40c", 546, 546, 1),
    ("M3 Max (40-core GPU)", "m3-max-40c", 400, 400, 1),
    ("Apple M2 Ultra 76c", "m2-ultra-76c", 800, 800, 1),
    ("MacBook Pro M3 Max 128GB", "m3-max-40c", 400, 400, 1),
    ("Mac Studio M2 Ultra", "m2-ultra-76c", 800, 800, 1),
    ("MI300X OAM", "mi300x", 5300, 5300, 1),
    ("AMD Instinct MI325X", "mi325x", 6000, 6000, 1),
    ("7900XTX", "rx-7900-xtx", 960, 960, 1),
    ("AMD Radeon RX 7900 XTX", "rx-7900-xtx", 960, 960, 1),
    ("Radeon 8060S", "ryzen-ai-max-395", 256, 256, 1),
    ("HL-225H", "gaudi-2", 2450, 2450, 1),
    ("Intel Data Center GPU Max 1550", "max-1550", 3276.8, 3276.8, 1),
    ("Cloud TPU v6e-8", "tpu-v6e", 1640, 1640, 8),
    ("inf2.48xlarge", "inferentia2", 820, 820, 12),
    ("trn1.32xlarge", "trainium1", 820, 820, 16),
    ("Jetson Thor", "jetson-agx-thor", 273, 273, 1),
    ("NVIDIA DGX Spark", "dgx-spark", 273, 273, 1),
]


BESIDE = {"model": "llama-3.2-1b", "weights_format": "int4", "engine": "any"}


@pytest.mark.parametrize("raw, name, low, high, count", ACCELERATORS)
def test_an_accelerator_is_placed(raw, name, low, high, count):
    found = machines.machine(raw)
    assert (found.name, found.low / 1e9, found.high / 1e9, found.count) == (name, low, high, count)
    # Of several variants the middle of the bandwidths, as a factor.
    setup = question.read(pd.DataFrame([BESIDE | {"accelerator": raw}])).iloc[0]
    assert setup["bandwidth"] / 1e9 == pytest.approx((low * high) ** 0.5)


@pytest.mark.parametrize(
    "raw, missing",
    [
        ("GTX 1650 Mobile", "differs by machine"),
        ("NVIDIA-A100-SXM4-80GB-MIG-3g.40gb", "a part of an accelerator"),
        ("Framework Desktop", "No accelerator is called"),
        ("Groq LPU", "No accelerator is called"),
        ("GPU", "No accelerator is called"),
    ],
)
def test_an_accelerator_that_cannot_be_placed_is_refused_with_what_is_missing(raw, missing):
    said = machines.machine(raw)
    assert isinstance(said, str) and missing in said and said.endswith(".")


# (as written, id of core/models.csv or None, 10⁹ parameters where only the name says them, active)
MODELS = [
    ("meta-llama/Meta-Llama-3.1-8B-Instruct-FP8", "llama-3.1-8b", None, None),
    ("RedHatAI/Llama-3.3-70B-Instruct-quantized.w4a16", "llama-3.3-70b", None, None),
    ("Qwen2.5-7B-Instruct-AWQ", "qwen2.5-7b", None, None),
    ("Qwen/Qwen2.5-7B-Instruct-GPTQ-Int4", "qwen2.5-7b", None, None),
    ("gemma-3-12b-it-Q4_K_M.gguf", "gemma-3-12b", None, None),
    ("unsloth/gemma-3-27b-it-qat-GGUF", "gemma-3-27b", None, None),
    ("gemma2:9b", "gemma-2-9b", None, None),
    ("llama3.1:8b", "llama-3.1-8b", None, None),
    ("llama 7B mostly Q4_0", "llama-7b", None, None),
    ("meta-llama/Llama-2-7b-hf", "llama-2-7b", None, None),
    ("TheBloke/Llama-2-13B-chat-GPTQ", "llama-2-13b", None, None),
    ("llama3.1:70b-instruct-q4_K_M", "llama-3.1-70b", None, None),
    ("mlx-community/Meta-Llama-3-8B-Instruct-4bit", "llama-3-8b", None, None),
    ("Qwen/Qwen2.5-32B-Instruct-AWQ", "qwen2.5-32b", None, None),
    ("amd/Llama-3.1-70B-Instruct-FP8-KV", "llama-3.1-70b", None, None),
    ("mlx-community/Llama-3.2-1B-Instruct-4bit", "llama-3.2-1b", None, None),
    ("Hermes-3-Llama-3.1-8B", "llama-3.1-8b", None, None),
    ("Nous-Hermes-2-Mixtral-8x7B-DPO", "mixtral-8x7b", None, None),
    ("mistral-nemo", "mistral-nemo-12b", None, None),
    ("Mistral-Small-24B-Instruct-2501", "mistral-small-3.1-24b", None, None),
    ("Qwen3-30B-A3B-Instruct-2507", "qwen3-30b-a3b", None, None),
    ("openai/gpt-oss-120b", "gpt-oss-120b", None, None),
    ("deepseek-ai/DeepSeek-V3-0324", "deepseek-v3", None, None),
    ("DeepSeek-R1-Distill-Llama-70B", "llama-3.3-70b", None, None),
    ("deepseek-r1:14b", "deepseek-r1-distill-qwen-14b", None, None),
    ("TinyLlama-1.1B-Chat-v1.0", "tinyllama-1.1b", None, None),
    ("casperhansen/llama-3-70b-instruct-awq", "llama-3-70b", None, None),
    ("Qwen1.5-14B-Chat", "qwen1.5-14b", None, None),
    ("01-ai/Yi-1.5-34B-Chat", "yi-34b", None, None),
    # A version before the size is no part of it.
    ("OLMo-2-13B", None, 13, 13),
    ("nvidia/Llama-3_3-Nemotron-Super-49B-v1", None, 49, 49),
    ("LFM2-1.2B", None, 1.2, 1.2),
    ("somebody/Thing-30B-A3B-Q4_K_M", None, 30, 3),
]


@pytest.mark.parametrize("raw, known, size, active", MODELS)
def test_a_model_is_placed(raw, known, size, active):
    found = names.model(raw)
    assert found.candidates[:1] == ((known,) if known else ())
    if not known:
        assert (found.parameters_b, found.active_b) == (size, active)
    # What Hermes fine-tuned is as large as the model that its name says.
    assert found.estimated == (known is None or "Hermes" in raw)


@pytest.mark.parametrize("raw", ["llama", "my-model", "Mystery-8x3B", "v0.3"])
def test_a_model_without_a_size_is_refused(raw):
    with pytest.raises(names.UnknownName, match="no size"):
        names.model(raw)


# (as written, bits, kind)
FORMATS = [
    ("Q4_K_M", 4.5, "k-quants"),
    ("Q4_K - Medium", 4.5, "k-quants"),
    ("UD-Q4_K_XL", 4.5, "k-quants"),
    ("Q4_0", 4.5, "legacy quants"),
    ("mostly Q4_0", 4.5, "legacy quants"),
    ("q8_0", 8.5, "legacy quants"),
    ("IQ4_XS", 4.25, "importance quants"),
    ("AWQ", 4, "integers"),
    ("awq_marlin", 4, "integers"),
    ("GPTQ-8bit", 8, "integers"),
    ("gptq-int4", 4, "integers"),
    ("GPTQ-4bit-128g", 4, "integers"),
    ("W4A16", 4, "integers"),
    ("W8A8-INT8", 8, "integers"),
    ("4bit", 4, "integers"),
    ("8 bit", 8, "integers"),
    ("MLX 6-bit", 6, "integers"),
    ("bnb-4bit", 4, "integers"),
    ("nf4", 4, "integers"),
    ("AQLM 2bit", 2, "integers"),
    ("fp8", 8, "floating point"),
    ("FP8-dynamic", 8, "floating point"),
    ("float8_e4m3fn", 8, "floating point"),
    ("fp6", 6, "floating point"),
    ("BF16", 16, "floating point"),
    ("half", 16, "floating point"),
    ("torch.float16", 16, "floating point"),
    ("MXFP4", 4.25, "microscaling"),
    ("NVFP4", 4.5, "microscaling"),
    ("EXL2 4.65bpw", 4.65, "exl"),
    ("exl3 3.5", 3.5, "exl"),
    ("1.58bit", 1.69, "ternary"),
    ("TQ1_0", 1.69, "ternary"),
]


@pytest.mark.parametrize("raw, bits, scheme", FORMATS)
def test_a_format_is_placed(raw, bits, scheme):
    found = names.number_format(raw, "Llama-3.1-8B", "any")
    assert (found.least_bits, found.scheme, found.assumed) == (bits, scheme, False)


@pytest.mark.parametrize("raw", ["bitsandbytes", "GGUF", "compressed-tensors", "HQQ", "modelopt", "purple"])
def test_a_format_that_names_no_bits_is_refused(raw):
    with pytest.raises(names.UnknownName, match="number format"):
        names.number_format(raw, "Llama-3.1-8B", "vllm")


@pytest.mark.parametrize(
    "raw, model, engine, bits",
    [
        ("auto", "Qwen2.5-7B-Instruct-AWQ", "vllm", 4),
        ("auto", "Llama-3.1-8B", "vllm", 16),
        ("none", "openai/gpt-oss-20b", "vllm", 4.25),
        ("", "DeepSeek-R1", "sglang", 8),
        ("", "DeepSeek-R1-Distill-Qwen-7B", "vllm", 16),
        ("", "gemma-3-12b-it-Q4_K_M.gguf", "llama.cpp", 4.5),
        # Files of gpt-oss "in F16" hold the experts as they are published.
        ("F16", "gpt-oss-20b", "llama.cpp vulkan", 4.25),
        ("bf16", "gpt-oss-20b", "vllm", 16),
    ],
)
def test_a_format_that_nobody_chose_is_the_checkpoint_s(raw, model, engine, bits):
    assert names.number_format(raw, model, engine).least_bits == bits


def test_a_format_that_the_engine_alone_says_is_assumed_or_refused():
    assert names.number_format("", "Llama-2-7b-hf", "vllm").assumed
    with pytest.raises(names.UnknownName):
        names.number_format("", "Llama-2-7b", "llama.cpp")


# (as written, engine, family)
ENGINES = [
    ("vLLM 0.10.1", "vllm", "vllm"),
    ("vllm==0.6.3", "vllm", "vllm"),
    ("llama.cpp b4567", "llama.cpp", "llama.cpp"),
    ("llama.cpp (Vulkan)", "llama.cpp vulkan", "llama.cpp"),
    ("llamacpp-rocm", "llama.cpp rocm", "llama.cpp"),
    ("ik_llama.cpp", "llama.cpp", "llama.cpp"),
    ("llamafile 0.9", "llamafile", "llama.cpp"),
    ("koboldcpp", "llama.cpp", "llama.cpp"),
    ("TRT-LLM", "tensorrt-llm", "tensorrt-llm"),
    ("TensorRT-LLM 0.17", "tensorrt-llm", "tensorrt-llm"),
    ("trtllm-serve", "tensorrt-llm", "tensorrt-llm"),
    ("trtllm", "tensorrt-llm", "tensorrt-llm"),
    ("ollama", "ollama", "llama.cpp"),
    ("Ollama 0.5", "ollama", "llama.cpp"),
    ("LM Studio (MLX)", "lm studio mlx", "mlx"),
    ("mlx_lm.server", "mlx", "mlx"),
    ("vllm-mlx", "vllm-mlx", "mlx"),
    ("ExLlamaV3", "exllama", "exllama"),
    ("SGLang v0.4", "sglang", "sglang"),
    ("text-generation-inference 2.0", "tgi", "tgi"),
    ("HF transformers", "transformers", "transformers"),
    ("DeepSpeed-MII", "deepspeed", "deepspeed"),
    ("MLC-LLM", "mlc", "mlc"),
    # Another engine's name in theirs, and none of its kernels.
    ("KTransformers", "ktransformers", "ktransformers"),
    ("xFasterTransformer", "xfastertransformer", "xfastertransformer"),
    ("ExecuTorch", "executorch", "executorch"),
    ("n/a", "any", "any"),
    ("", "any", "any"),
    ("my own", "my-own", "my-own"),
]


@pytest.mark.parametrize("raw, engine, family", ENGINES)
def test_an_engine_is_placed(raw, engine, family):
    found = question.read(pd.DataFrame([{"bandwidth_gb_per_s": "900"} | BESIDE | {"engine": raw}])).iloc[0]
    assert (found["engine"], found["engine_family"]) == (engine, family)


def test_every_row_of_raw_names_has_a_bound_or_a_sentence():
    rows = [
        (card, model, form, engine)
        for (card, *_), (model, *_) in zip(ACCELERATORS * 2, MODELS * 3)
        for (form, *_), (engine, *_) in zip(FORMATS[::6], ENGINES[::5])
    ]
    table = question.read(pd.DataFrame(rows, columns=question.ASKED))
    refused = table["refused"] != ""
    assert table.loc[refused, "refused"].str.endswith(".").all()
    assert table.loc[refused, "refused"].str.contains("No published row has").all()
    assert (step.least(table[~refused]) > 0).all() and (~refused).sum() > 100


@pytest.mark.parametrize(
    "accelerator, kind",
    [
        ("h100-sxm", "NVIDIA server"),
        ("l40s", "NVIDIA server"),
        ("a40", "NVIDIA server"),
        ("t4", "NVIDIA server"),
        ("rtx-4090", "NVIDIA card"),
        ("rtx-a6000", "NVIDIA card"),
        ("dgx-spark", "NVIDIA integrated"),
        ("mi300x", "AMD server"),
        ("rx-7900-xtx", "AMD card"),
        ("ryzen-ai-max-395", "AMD integrated"),
        ("gaudi-2", "Intel server"),
        ("arc-b580", "Intel card"),
        ("m4-max-40c", "Apple integrated"),
        ("inferentia2", "AWS ASIC"),
    ],
)
def test_an_accelerator_has_a_class(accelerator, kind):
    assert machines.machine(accelerator).kind == kind


def test_models_have_kinds_of_layers_and_engines_kinds():
    kinds = {
        m: machines.model_kind(m) for m in ("qwen3.6-27b", "qwen3-next-80b-a3b", "qwen3-8b", "gemma-3-4b")
    }
    assert list(kinds.values()) == [
        "linear attention",
        "linear attention",
        "plain",
        "sliding windows, large vocabulary",
    ]
    assert [machines.engine_kind(f) for f in ("transformers", "vllm", "any")] == [
        "framework",
        "dedicated",
        "any",
    ]


def test_a_whole_title_as_one_argument_is_read_and_memory_that_nobody_stated_is_said():
    asked = pd.DataFrame(
        [
            {"accelerator": "2x3090 70B exl2 4.0bpw"},
            {"accelerator": "M3", "model": "gpt-oss-20b", "weights_format": "MXFP4"},
            {"accelerator": "M3 16GB", "model": "gpt-oss-20b", "weights_format": "MXFP4"},
            {"accelerator": "MI50 16GB", "model": "qwen3-14b", "weights_format": "Q4_K_M"},
        ]
    ).fillna("")
    found = question.read(asked)
    assert (found["refused"] == "").all()
    assert found[["machine", "accelerators", "parameters", "bits", "engine"]].iloc[0].to_list() == [
        "rtx-3090", 2, 70e9, 4, "exllama"
    ]  # fmt: skip
    told = found["guessed"].map("; ".join)
    assert "if it has 24 GB" in told[1] and "unsure" in told[1] and "if it has" not in told[2]
    assert found.loc[3, "memory_bytes"] == 16 * 2**30
