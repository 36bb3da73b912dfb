"""The shortest notebook: sixty lines of plain transformers that count as the instrument does."""

import nbformat
import pytest
from commands import run_cells

from bench.backends.common import checkpoints, torch_models
from bench.inputs import prompts
from bench.paths import ROOT
from llm_measured.core import metrics

MOST_LINES = 60


def test_it_is_short_and_needs_nothing_of_this_repository_but_its_prompts():
    cells = nbformat.read(ROOT / "notebooks/minimal.ipynb", as_version=4).cells
    lines = [line for c in cells if c.cell_type == "code" for line in c.source.splitlines() if line.strip()]
    assert len(lines) <= MOST_LINES
    assert not [line for line in lines if "import bench" in line or "from bench" in line]


@pytest.mark.check
def test_its_numbers_are_those_of_the_definitions():
    checkpoint, tokens = checkpoints.checkpoint("smollm2-135m"), 12
    names = run_cells("minimal", {"max_new_tokens": tokens, "warmup_tokens": 2, "requests": 3})
    rows, model = names["rows"], names["model"]
    texts = list(prompts("latency"))[:3]
    assert rows["prompt_tokens"].tolist() == [len(checkpoint.encode(text)) for text in texts]
    assert (rows["output_tokens"] == tokens).all() and (rows["ttft_s"] > 0).all()
    assert rows["tpot_s"].tolist() == pytest.approx(
        metrics.tpot_s(rows["ttft_s"], rows["e2e_s"], rows["output_tokens"]).tolist()
    )
    assert rows["output_tokens_per_s"].tolist() == pytest.approx((tokens / rows["e2e_s"]).tolist())
    assert names["weights"] == torch_models.step_bytes(model)
    context = metrics.mean_context_tokens(rows["prompt_tokens"], rows["output_tokens"])
    cache = metrics.kv_cache_bytes(context, checkpoint.kv_values_per_token, 4)
    share = metrics.mbu(names["weights"], cache, rows["tpot_s"], names["bandwidth"])
    assert rows["mbu"].tolist() == pytest.approx(share.tolist(), rel=0.001)
