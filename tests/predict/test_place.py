"""Where an audited file stands among the expected and the published."""

import subprocess
import sys

import pytest

from bench.paths import ROOT
from llm_measured import __main__ as door
from llm_measured.audit import importers
from llm_measured.predict import answer, place

SAMPLES = ROOT / "data" / "audits" / "samples"
TABLE = "gpu,model,precision,engine,num_gpus,concurrency,isl,osl,tpot_ms\n{rows}\n"


def lines(tmp_path, *rows):
    file = tmp_path / "rows.csv"
    file.write_text(TABLE.format(rows="\n".join(rows)))
    return list(place.lines(importers.read(file)))


@pytest.mark.parametrize(("factor", "where"), [(1, "inside"), (20, "above it"), (0.05, "below it")])
def test_a_rate_of_one_request_stands_inside_above_or_below_the_range(tmp_path, factor, where):
    expected = answer.one({"accelerator": "RTX 4090", "model": "Llama-3.1-8B", "weights_format": "Q4_K_M"})
    ms = 1e3 / (expected.rate * factor)
    said = lines(tmp_path, f"RTX 4090,Llama-3.1-8B,Q4_K_M,llama.cpp,1,1,512,128,{ms}")
    assert said[0].endswith(f"{where}.") and f"{1e3 / ms:.3g} tokens/s measured" in said[0]
    assert any("https://" in line for line in said[1:])


def test_a_rate_under_load_is_held_against_the_range_of_as_many(tmp_path):
    said = lines(tmp_path, *(f"RTX 4090,Llama-3.1-8B,fp16,vllm,1,{n},512,128,40" for n in (32, 16)))
    assert "25 tokens/s measured" in said[0] and "expected of each of 16 requests at once" in said[0]
    said = lines(tmp_path, *(f"RTX 4090,Llama-3.1-8B,fp16,vllm,1,{n},512,128,40" for n in (1, 16)))
    assert "expected of one request alone" in said[0]
    said = lines(tmp_path, "RTX 4090,Llama-3.1-8B,fp16,vllm,1,2000,512,128,40")
    assert "25 tokens/s of each request under load, which is not predicted" in said[0]


def test_what_cannot_be_placed_says_why_and_the_others_are_placed(tmp_path):
    rows = [f"{gpu},Llama-3.1-8B,Q4_K_M,llama.cpp,1,1,512,128,9" for gpu in ("a toaster", "RTX 4090")]
    said = [line for line in lines(tmp_path, *rows) if line.startswith("- ")]
    assert "no place. No accelerator is called" in said[0] and "tokens/s measured" in said[1]
    names = [f"Llama-{size}B" for size in range(1, place.SETUPS + 3)]
    said = lines(tmp_path, *[f"RTX 4090,{name},Q4_K_M,llama.cpp,1,1,512,128,9" for name in names])
    assert said[-1].startswith("- 2 more setups")


def test_place_follows_the_audit_and_keeps_its_exit_code(capsys):
    assert door.main(["audit", str(SAMPLES / "llmfit.json"), "--place"]) == 0
    shown = capsys.readouterr().out
    assert shown.index("1 file audited") < shown.index("PLACE") < shown.index("80 tokens/s measured")
    assert door.main(["audit", "no-such-file.json", "--place"]) == 2
    assert "PLACE" not in capsys.readouterr().out


def test_a_plain_audit_does_not_load_the_predictions():
    said = "import sys; from llm_measured.__main__ import main; main(sys.argv[1:]); print(*sys.modules)"
    words = [sys.executable, "-c", said, "audit", str(SAMPLES / "llmfit.json")]
    loaded = subprocess.run(words, capture_output=True, text=True, check=True).stdout.split()
    assert "llm_measured.audit.report" in loaded and "llm_measured.predict" not in loaded
