"""Comparisons that the audit's page shows: three pairs of published files, and one of our own runs."""

import tarfile
import tempfile
from pathlib import Path

from bench.paths import COMMITTED, DATA
from llm_measured.compare import compare, render

RAW = DATA / "observatory" / "raw" / "iog-vllm" / "iog-vllm.tar.xz"
FORM = "results__vllm_200prompts{rate}qps_{model}_sharegpt_{devices}.json"
OWN = "latency-smollm2-135m-{option}-epyc-zen5-2c-096e72-{run}.csv"
RUNS = 1, 2, 3
# (rate, model, devices, line of the file) of A and of B.
BETTER = (
    (8, "DeepSeek-R1-Distill-Llama-8B", "2xNVIDIA-GeForce-RTX-4090", 0),
    (8, "DeepSeek-R1-Distill-Llama-8B", "1xNVIDIA-H100-PCIe", 0),
)
UNDECIDED = tuple((16, "DeepSeek-R1-Distill-Qwen-14B", "1xNVIDIA-H100-PCIe", line) for line in (0, 1))
NOT_COMPARABLE = (
    (8, "DeepSeek-R1-Distill-Qwen-7B", "1xNVIDIA-H100-PCIe", 0),
    (8, "DeepSeek-R1-Distill-Llama-8B", "1xNVIDIA-H100-PCIe", 0),
)


def published(pair: tuple[tuple[int, str, str, int], ...]) -> str:
    """The comparison of two published files as Markdown, as `--markdown` writes it."""
    with tarfile.open(RAW) as archive, tempfile.TemporaryDirectory() as folder:
        names = {Path(member.name).name: member for member in archive.getmembers()}
        sides = []
        for side, (rate, model, devices, line) in zip("ab", pair):
            name = FORM.format(rate=rate, model=model, devices=devices)
            stream = archive.extractfile(names[name])
            assert stream is not None
            path = Path(folder) / side / name
            path.parent.mkdir()
            path.write_bytes([one for one in stream.read().splitlines() if one.strip()][line])
            sides.append([path])
        return render.markdown(compare(sides[0], sides[1]))


def own(a: str = "F16", b: str = "Q4_0") -> str:
    """The comparison of three of our own runs of each of two formats as Markdown."""
    folder = COMMITTED / "llamacpp"
    sides = [[folder / OWN.format(option=option, run=run) for run in RUNS] for option in (a, b)]
    return render.markdown(compare(sides[0], sides[1]))
