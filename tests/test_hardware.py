"""One table of accelerators, one of models: a raw name finds its row by rule, or is one of several."""

import pytest

from bench import hardware, inputs


@pytest.mark.parametrize(
    "name, memory_gb, accelerator",
    [
        ("NVIDIA H100 80GB HBM3", None, "h100-sxm"),
        ("NVIDIA H100-PCIe-80GB", None, "h100-pcie"),
        ("NVIDIA H100 NVL", None, "h100-nvl"),
        ("Nvidia H100 GPU", None, hardware.UNKNOWN_VARIANT),
        ("NVIDIA H200-NVL-141GB", None, "h200-nvl"),
        ("A100-80GB", None, hardware.UNKNOWN_VARIANT),
        ("NVIDIA A100-SXM4-80GB", None, "a100-sxm-80gb"),
        ("NVIDIA A100 80GB PCIe", None, "a100-pcie-80gb"),
        ("NVIDIA GeForce RTX 3080", 10, "rtx-3080-10gb"),
        ("NVIDIA GeForce RTX 3080", None, hardware.UNKNOWN_VARIANT),
        ("NVIDIA GeForce RTX 3080 Ti", None, "rtx-3080-ti"),
        ("NVIDIA GeForce RTX 3080 Laptop GPU", 16, hardware.UNKNOWN_VARIANT),
        ("RTX 4090 D", None, "rtx-4090-d"),
        ("NVIDIA GeForce RTX 4060 Ti", 16, "rtx-4060-ti-16gb"),
        ("NVIDIA RTX A4000", None, "rtx-a4000"),
        ("NVIDIA RTX 4000 SFF Ada Generation", None, "rtx-4000-sff-ada"),
        ("NVIDIA L40S", None, "l40s"),
        ("NVIDIA L4", 22, "l4"),
        ("Apple M4 Max 12P+4E+40GPU", 128, "m4-max-40c"),
        ("Apple M4 Max 10P+4E+32GPU", 36, "m4-max-32c"),
        ("Apple M4 Max", None, hardware.UNKNOWN_VARIANT),
        ("Apple M1 4P+4E+8GPU", 8, "m1-8c"),
        ("AMD Instinct MI300X-NPS1-SPX-192GB-750W", None, "mi300x"),
        ("AMD MI250 GPU", None, hardware.UNKNOWN_VARIANT),
        ("AMD RYZEN AI MAX+ 395 w/ Radeon 8060S", None, "ryzen-ai-max-395"),
        ("h100_sxm", None, "h100-sxm"),
    ],
)
def test_a_raw_name_finds_its_variant_or_is_one_of_several(name, memory_gb, accelerator):
    assert hardware.accelerator(name, memory_gb).accelerator == accelerator


def test_an_unknown_name_is_none_however_long():
    assert hardware.accelerator("Voodoo 2") is None and hardware.accelerator("a" * 10**6) is None
    assert hardware.model("gpt-5") is None


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
    ],
)
def test_a_raw_name_finds_its_model(name, model):
    assert hardware.model(name) == model


@pytest.mark.parametrize(
    "name, bits",
    [("Q4_K - Medium", 4.5), ("EXL2 3.0 bpw", 3.0), ("w4a16", 4.0), ("bfloat16", 16.0), ("fp8", 8.0), ("float32", 32.0),
     ("Q8_0", 8.5), ("mxfp4", 4.25), ("AWQ int4", 4.0), ("", None)],
)  # fmt: skip
def test_a_format_has_its_bits(name, bits):
    assert hardware.bits(name) == bits


def test_the_tables_have_one_row_per_id_and_every_figure_its_source():
    cards, models = hardware.accelerators(), hardware.models()
    assert cards["accelerator"].is_unique and models["model"].is_unique
    figures = cards[[c for c in cards if c.endswith(("_tflops", "_tops", "_s", "_w"))]].notna().any(axis=1)
    assert cards.loc[figures, "source"].str.contains("name only").sum() == 0 and cards["source"].notna().all()
    assert models.loc[models["parameters_b"].notna(), "parameters_source"].notna().all()
    assert (models["active_b"].dropna() < models.loc[models["active_b"].notna(), "parameters_b"]).all()


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
    found = hardware.bandwidth(name)
    assert found == bandwidth if bandwidth else found != found


def test_models_that_can_be_run_here_are_those_with_a_checkpoint():
    assert set(inputs.table("models")["model"]) < set(hardware.models()["model"])
    assert inputs.table("models")["source"].notna().all() and len(inputs.table("models")) == 6
