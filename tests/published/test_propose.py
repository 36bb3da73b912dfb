"""A clean result file becomes rows to be proposed; one with a figure that cannot be does not."""

import io

import pandas as pd
import pytest

from llm_measured.published import __main__ as door
from llm_measured.published import schema

SAMPLE = """\
gpu,model,engine,engine_version,num_gpus,request_rate,requests,isl,osl,output_tokens_per_s,ttft_p99_ms
H100 SXM,Llama-3.1-70B,vLLM,0.9.0,8,10,500,512,200,1923.0769,160.4
"""
TABLE = "gpu,model,precision,engine,num_gpus,concurrency,isl,osl,tpot_ms\n{}\n"
STATED = {
    "source_url": "https://example.org/runs",
    "licence": "MIT",
    "measured_by": "somebody",
    "kind": "community",
    "measured_on": "2026-03-02",
    "weights_format": "bfloat16",
    "lengths": "mean",
}


def proposed(capsys, *words):
    code = door.main(["propose", *words])
    out, err = capsys.readouterr()
    return code, out, err


@pytest.fixture
def sample(tmp_path):
    """A file with every figure of one level."""
    file = tmp_path / "level.csv"
    file.write_text(SAMPLE)
    return str(file)


def setting(**changes):
    return [word for name, value in changes.items() for word in ("--set", f"{name}={value}")]


def test_a_whole_row_has_the_columns_of_the_schema_and_lacks_nothing(capsys, sample):
    code, out, err = proposed(capsys, sample, *setting(**STATED))
    row = pd.read_csv(io.StringIO(out)).iloc[0]
    assert (code, err, list(row.index)) == (0, "", schema.STORED)
    assert row[list(STATED)].tolist() == list(STATED.values())
    assert (row["accelerator"], row["accelerators"], row["model"]) == ("h100-sxm", 8, "llama-3.1-70b")
    assert (row["throughput_raw"], row["ttft_p99_ms"], row["request_rate"]) == (1923.0769, 160.4, 10)


def test_what_is_missing_is_named(capsys, sample):
    code, out, err = proposed(capsys, sample, *setting(**{k: v for k, v in STATED.items() if k != "licence"}))
    assert code == 0 and len(out.splitlines()) == 2
    assert err.splitlines() == [
        line for line in err.splitlines() if line.startswith("Missing: licence, SPDX")
    ]


@pytest.mark.parametrize(
    ("row", "words", "said"),
    [
        ("H100 SXM,Llama-3.1-70B,bf16,vLLM,1,1,512,128,2", [], "refused, as it has a figure that cannot be"),
        # What is stated overrules the file, and with it there is no alarm: eight devices can.
        ("H100 SXM,Llama-3.1-8B,bf16,vLLM,1,1,512,128,1", setting(accelerators="8"), ""),
        ("H100 SXM,Llama-3.1-8B,bf16,vLLM,1,1,512,128,9", setting(lengths="long"), "'long' is none of exact"),
        ("H100 SXM,Llama-3.1-8B,bf16,vLLM,1,1,512,128,9", setting(audit="ok"), "no column 'audit'"),
        ("H100 SXM,Llama-3.1-8B,bf16,vLLM,1,1,512,128,9", setting(accelerators="few"), "no number"),
        ("H100 SXM,Llama-3.1-8B,bf16,vLLM,1,1,512,128,", [], "rows.csv"),
    ],
)
def test_a_file_with_an_alarm_and_nonsense_are_refused_in_a_sentence(tmp_path, capsys, row, words, said):
    file = tmp_path / "rows.csv"
    file.write_text(TABLE.format(row))
    code, out, err = proposed(capsys, str(file), *words)
    assert said in err and (code == 1) == bool(said) == (out == "")
