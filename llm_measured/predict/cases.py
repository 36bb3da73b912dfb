"""Published rows as cases that a fit learns from: what a question cannot tell apart is one case of a source.

Which rows enter is decided from what was set and never from the rate."""

import re

import numpy as np
import pandas as pd

from llm_measured.core import hardware, names
from llm_measured.predict import question, step
from llm_measured.published import checks, comparable, derived

# Runs that strangers sent in, over several lengths together, hold shared and partly offloaded machines: of
# these a case is the median of at least so many.
FEWEST_SENT_IN = 4
SHORTEST_ANSWER = 32  # tokens, below which a rate is mostly its start
TAKEN = 0.9  # of the memory: what engines take of it where nobody told them otherwise
FEW_USERS = 8  # up to which a source may say less of how they were served
# What a case of a source is made of.
CASE = ["source", "machine", "accelerators", "split", "model", "format", "engine", "era", "users", "depth"]
CASE += ["cache_bytes_per_token", "ratio", "host_share", "host_sold"]


def eligible(rows: pd.DataFrame) -> pd.Series:
    """Which rows say how fast tokens come to each user: whole answers, no speculation, not MLPerf, no
    objection of the importer, everything on the accelerator, and one model on all of them; of many users
    also no queue, and prompts on the same accelerators."""
    users = derived.in_flight(rows)
    rate = derived.derived(rows)["output_tokens_per_s_per_request"].notna()
    parallel = rows["tp"].fillna(1) * rows["pp"].fillna(1)
    replicas = rows["accelerators_prefill"].notna() | (
        rows["tp"].notna() & (parallel != rows["accelerators"])
    )
    queue = rows["max_num_seqs"] < users
    backend = (rows["backend"].fillna("") + " " + rows["engine"].fillna("")).str.lower()
    kinds = hardware.by_accelerator()["kind"]
    beside = backend.str.contains(r"\bcpu\b|xnnpack") & ~rows["accelerator"].map(kinds).isin(["CPU", "phone"])
    return (
        users.between(1, question.MOST_USERS)
        & (users % 1 == 0)
        & ~((users > FEW_USERS) & (replicas | queue))
        & rate
        & ~beside
        & rows["comparable_within"].isna()
        & ~(rows["speculative"].notna() & (rows["speculative"] != "none"))
        & ~(rows["output_tokens"] < SHORTEST_ANSWER)
        & ~(rows["prefill_chunk"] < 64)
        & ~(rows["dp"] > 1)
        & ~rows["flags"].fillna("").str.contains(r"n_gpu_layers=0\b")
        & rows["caveat"].isna()
        & rows["duplicate_of"].isna()
    )


def asked(rows: pd.DataFrame) -> pd.DataFrame:
    """The published `rows` as questions, same index: what a reader would write to ask for them."""
    unknown = rows["accelerator"].fillna("").isin(comparable.NO_VARIANT)
    date = rows["measured_on"].fillna(rows["published_on"])
    when = date.str[:4].astype(float) + (date.str[5:7].replace("", None).astype(float) - 0.5).fillna(6) / 12
    # A version says more than the day on which somebody ran it.
    of_version = [
        question.version_year(names.engine(engine).family, version)
        for engine, version in zip(rows["engine"].fillna("any"), rows["version_name"].astype(object))
    ]
    kinds = rows["accelerator"].map(hardware.by_accelerator()["kind"])
    by_rows = rows["flags"].fillna("").str.contains(r"split[-_]mode=row|-sm row")
    tensor = (rows["tp"] > 1) & (rows["tp"] == rows["accelerators"]) | by_rows
    return pd.DataFrame(
        {
            # "CPU" names no processor.
            "accelerator": rows["accelerator"].where(~unknown, rows["accelerator_raw"].replace("CPU", "")),
            "accelerator_memory_gb": rows["accelerator_memory_gb"],
            "model": rows["model"].fillna(rows["checkpoint_raw"]),
            "weights_format": rows["weights_format"].fillna(""),
            "engine": rows["engine"].fillna("any") + " " + rows["backend"].fillna(""),
            "accelerators": rows["accelerators"].fillna(1),
            "split": np.where(tensor, "tensor", np.where(rows["pp"] == rows["accelerators"], "layers", "")),
            "host": rows["host_cpu"].where(kinds == "GPU"),
            "year": pd.Series(of_version, rows.index, dtype=float).fillna(when),
            "kv_bits": rows["kv_format_name"].map(
                {name: _kv_bits(name) for name in rows["kv_format_name"].dropna().unique()}
            ),
        }
    )


def _kv_bits(text: str) -> float:
    """Bits of a value in the cache of a format as rows name it; NaN where it names none."""
    number = re.search(r"\d+(\.\d+)?", text)
    return names.bits(text) or (float(number[0]) if number else np.nan)


def setups(rows: pd.DataFrame) -> pd.DataFrame:
    """The setups of published `rows`, their users and the tokens in their cache as measured."""
    questions = asked(rows)
    questions.loc[rows["accelerators"].fillna(1) == 1, "split"] = ""
    table = question.read(questions)
    # A format that only the model's name makes likely is enough for an answer, and not to learn from.
    likely = (questions["weights_format"] == "") & table["engine_family"].isin(["llama.cpp", "any", "mlx"])
    assumed = table["guessed"].map(lambda said: any("most checkpoints" in sentence for sentence in said))
    table.loc[likely & assumed, "refused"] = "The row states no number format."
    known = rows["context_depth"].notna() | rows["input_tokens"].notna()
    given, made = derived.lengths(rows)
    cached = rows["context_depth"].fillna(0) + given.fillna(0) + made.fillna(128) / 2
    table["users"] = derived.in_flight(rows).fillna(1)
    table["context"] = cached.where(known, question.USUAL_CONTEXT)
    table["depth"] = depth(table["context"])
    table["host_share"] = on_host(rows, table)
    # A batch that starts at once has no prompts in its steps where the time of a token is stated apart.
    apart = (rows["workload"] == "static_batch") & (
        rows["tpot_mean_ms"].notna() | rows["tpot_p50_ms"].notna()
    )
    table["prompt"] = given.fillna(0).mask(apart, 0)
    table["answer"] = made.fillna(question.USUAL_ANSWER).clip(lower=1)
    proportion = np.round(np.log2((table["prompt"] + 1) / table["answer"]) / 2)
    table["ratio"] = np.where(table["users"] > 1, proportion, 0)
    return table


def on_host(rows: pd.DataFrame, table: pd.DataFrame) -> pd.Series:
    """Share of the weights in the host's memory as `rows` state it, `table` their setups: bytes of a log,
    layers' experts (-ot exps=CPU, --n-cpu-moe), layers beyond -ngl; NaN where they state none of these."""
    told = rows["offload"].astype("string").fillna("")
    experts = 1 - table["always"] / table["parameters"]
    some = told.str.extract(r"(?:ncmoe|n-cpu-moe) (\d+)")[0].astype(float) / table["layers"]
    every = told.str.fullmatch(r"(?:ot |override-tensor )?(?:\W*(?:\w+_)?exps\.?=CPU)+|cpu-moe")
    layers = table["layers"].where(table["known_model"].notna())
    on_card = rows["flags"].astype("string").str.extract(r"ngl=(\d+)")[0].astype(float) / layers
    looked_up = (table["active"] - table["read_parameters"]) * table["bits"] / 8  # lies there always
    share = (rows["host_weights_bytes"] - looked_up).clip(lower=0) / step.weight_bytes(table)
    share = share.fillna(experts * some.mask(every.astype(bool), 1.0).clip(upper=1))
    return share.fillna((1 - on_card).where(on_card < 1)).clip(upper=1)


def waiting(rows: pd.DataFrame, table: pd.DataFrame) -> pd.Series:
    """Which of `rows`, of several users, start together and take turns in a pipeline, or do not fit whole,
    prompts and answers, in what engines take of the memory: how many run is not said; `table`: setups."""
    whole = table.assign(context=table["context"] + table["answer"] / 2)
    whole["memory_bytes"] *= TAKEN
    together = (rows["workload"] == "static_batch") & (table["users"] > 1)
    return together & ((step.outside(whole) > 0) | (table["split"] == "layers"))


def depth(context: pd.Series) -> pd.Series:
    """The step of a context (tokens): those within a factor of four of each other are one case."""
    return np.maximum(np.round(np.log(context.clip(lower=1)) / np.log(4)), 5)


def cases(rows: pd.DataFrame) -> pd.DataFrame:
    """One row per case: of the rows of one source that a question cannot tell from each other the median.
    Fields of a setup, source, row_id (of one), rows (their number), rate (tokens/s of one user)."""
    part = rows[eligible(rows)]
    table = setups(part)
    for name in ("source", "row_id", "source_url", "measured_by", "measured_on", "engine_version"):
        table[name] = part[name]
    table["mixed"] = (part["lengths"] == "mixed").to_numpy()
    table["fine"] = (part["audit"] != checks.EXCLUDED).to_numpy()
    # Strangers send in what their own machines do, shared and power-limited ones among them.
    table["crowd"] = part["measured_by"].fillna("").str.startswith("users of")
    table["rate"] = derived.derived(part)["output_tokens_per_s_per_request"]
    table = table[(table["refused"] == "") & ~waiting(part, table)]
    table["outside"] = step.outside(table)
    table = table[(table["outside"] == 0) | step.offloads(table)]
    table["away"] = step.away_share(table, table["outside"].to_numpy())
    table.loc[table["away"] == 0, ["host_share", "host_sold"]] = np.nan
    grouped = table.groupby(CASE, sort=True, dropna=False)
    one = grouped.first()
    for name in ("rate", "context", "year", "prompt", "answer"):
        one[name] = grouped[name].median()
    one["seconds"] = 1 / one["rate"]
    one["fine"] = grouped["fine"].all()
    one["rows"] = grouped.size()
    one = one[~one["mixed"] | (one["rows"] >= FEWEST_SENT_IN)].reset_index().drop(columns=["mixed"])
    return one


PROMPTS = ["source", "machine", "accelerators", "split", "model", "format", "engine", "prompt"]


def prompts(rows: pd.DataFrame) -> pd.DataFrame:
    """One row per case of the time of a prompt of one user (TTFT, or its tokens over their rate): fields of a
    setup, source, prompt (tokens) and seconds."""
    given, _ = derived.lengths(rows)
    ttft = rows["ttft_p50_ms"].fillna(rows["ttft_mean_ms"]) / 1e3
    seconds = ttft.fillna(given / rows["prompt_tokens_per_s"])
    part = rows[
        (derived.in_flight(rows) == 1)
        & seconds.between(1e-4, 3600)
        & (given >= 64)
        & (rows["audit"] != checks.EXCLUDED)
        & (rows["prefix_cached"] != "yes")
        & rows["comparable_within"].isna()
        & rows["caveat"].isna()
        & rows["duplicate_of"].isna()
    ]
    table = setups(part).assign(source=part["source"], prompt=given[part.index], seconds=seconds[part.index])
    table = table[table["refused"] == ""]
    outside = step.outside(table)
    table = table[(outside == 0) & (step.away_share(table, outside) == 0)]
    grouped = table.groupby(PROMPTS, sort=True, dropna=False)
    one = grouped.first()
    one["seconds"], one["year"] = grouped["seconds"].median(), grouped["year"].median()
    return one.reset_index()


def taught(table: pd.DataFrame) -> pd.Series:
    """Which `cases` a fit may learn from: everything is on the accelerator, no check excludes them, and they
    are not faster than the bound."""
    return table["fine"] & (table["away"] == 0) & (1 / table["rate"] >= step.least(table))
