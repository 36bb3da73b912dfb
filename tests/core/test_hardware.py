"""Two tables: one row per id, every figure with its source, no name that two rows of a table claim."""

import re

from bench import inputs
from llm_measured.core import hardware


def test_the_tables_have_one_row_per_id_and_every_figure_its_source():
    cards, models = hardware.accelerators(), hardware.models()
    assert cards["accelerator"].is_unique and models["model"].is_unique
    figures = cards[[c for c in cards if c.endswith(("_tflops", "_tops", "_s", "_w"))]].notna().any(axis=1)
    assert cards.loc[figures, "source"].str.contains("name only").sum() == 0 and cards["source"].notna().all()
    assert models.loc[models["parameters_b"].notna(), "parameters_source"].notna().all()
    assert (models["active_b"].dropna() < models.loc[models["active_b"].notna(), "parameters_b"]).all()


def test_models_that_can_be_run_here_are_those_with_a_checkpoint():
    assert set(inputs.table("models")["model"]) < set(hardware.models()["model"])
    assert inputs.table("models")["source"].notna().all() and len(inputs.table("models")) == 8


def test_no_id_of_a_model_is_claimed_by_another_row():
    table = hardware.models()
    table = table[table["pattern"].notna()]
    for name in table["model"]:
        slug = re.sub(r"[^a-z0-9]+", "-", name)
        claims = [row.model for row in table.itertuples() if re.fullmatch(row.pattern, slug)]
        assert claims in ([name], []), (name, claims)
