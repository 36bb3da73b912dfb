"""Tables of the planner."""

import pandas as pd

from bench import inputs, registry
from llm_measured.core import columns
from llm_measured.core.columns import Column
from llm_planner import accuracy, check, page, studies, tradeoffs, worlds

SHARES = {
    "tpot_ms_median": Column("TPOT off by, median", "%", 100),
    "tpot_ms_p90": Column("90th percentile", "%", 100),
    "tpot_ms_coverage": Column("TPOT inside its interval", "%", 100),
    "tpot_ms_curves": Column("curves wholly inside, TPOT", "%", 100),
    "tpot_ms_half_width": Column("interval of TPOT ±", "%", 100),
    "ttft_ms_median": Column("TTFT off by, median", "%", 100),
    "ttft_ms_p90": Column("90th percentile, TTFT", "%", 100),
    "ttft_ms_coverage": Column("TTFT inside its interval", "%", 100),
    "ttft_ms_curves": Column("curves wholly inside, TTFT", "%", 100),
    "ttft_ms_half_width": Column("interval of TTFT ±", "%", 100),
}


def _without(ending):
    return {name: column for name, column in SHARES.items() if not name.endswith(ending)}


@registry.table
def plan_answers() -> pd.DataFrame:
    """What holds the page's question, cheapest first: one row per GPU, precision and GPUs of a replica."""
    ends = {f"{q}_p99_{end}_s": f"{q}_{end}" for q in ("ttft", "tpot") for end in ("low", "high")}
    return columns.shown(
        page.answers()[0].rename(columns=ends),
        "gpu weights tensor_parallel replicas gpus usd_per_hour futures_held ttft_p99_s ttft_low ttft_high "
        "tpot_p99_s tpot_low tpot_high utilisation batch kv_gb_per_replica goodput_per_s "
        "usd_per_million_input usd_per_million_output price nearest_measured",
        gpus=Column("GPUs"),
        usd_per_hour=Column("dollars per hour"),
        usd_per_million_input=Column("dollars per million input tokens"),
        usd_per_million_output=Column("dollars per million output tokens"),
        batch=Column("at once"),
        ttft_low=Column("TTFT p99 from", "ms", 1e3),
        ttft_high=Column("to", "ms", 1e3),
        tpot_low=Column("TPOT p99 from", "ms", 1e3),
        tpot_high=Column("TPOT p99 to", "ms", 1e3),
        goodput_per_s=Column("goodput", "1/s"),
        kv_gb_per_replica=Column("KV cache", "GB"),
        futures_held=Column("futures that meet the goal", "%", 100),
        utilisation=Column("utilisation", "%", 100),
        nearest_measured=Column("nearest that was measured"),
    )


@registry.table
def plan_accuracy() -> pd.DataFrame:
    """How far predictions of the published points were off: one row per way to predict them."""
    shown = {"predicted by": Column("predicted by"), "rows": Column("points"), **SHARES}
    return columns.renamed(accuracy.overview(), shown)


@registry.table
def plan_left_out() -> pd.DataFrame:
    """How far predictions were off for every GPU, engine and model that was left out: one row per each."""
    shown = {
        "kind": Column("left out"),
        "name": Column("which"),
        "rows": Column("points"),
        **_without("_p90"),
    }
    return columns.renamed(accuracy.by_left_out(), shown)


@registry.table
def plan_rules() -> pd.DataFrame:
    """The ten folds with every rule that was set by hand, and with each of them undone: one row per rules."""
    shown = {"rules": Column("rules"), "rows": Column("points")}
    shown |= _without("_half_width")
    return columns.renamed(accuracy.rules(), shown)


@registry.table
def plan_worlds() -> pd.DataFrame:
    """The page's question in drawn worlds: one row per recommended row and kind of world."""
    return columns.shown(
        inputs.table(worlds.TABLE),
        "drawn gpu weights tensor_parallel replicas worlds met least most more tpot_half_width "
        "ttft_half_width",
        drawn=Column("what is drawn"),
        met=Column("worlds that meet the goal"),
        least=Column("least true number, median"),
        most=Column("largest"),
        more=Column("replicas more than that, median"),
        tpot_half_width=Column("interval of TPOT ± (log)"),
        ttft_half_width=Column("of TTFT"),
    )


@registry.table
def plan_groups() -> pd.DataFrame:
    """How far the ten folds were off: one row per engine and GPU."""
    table = accuracy.by_group()
    shown = {
        "engine": Column("engine"),
        "gpu": Column("GPU"),
        "rows": Column("points"),
        **_without("_curves"),
    }
    return columns.renamed(table, shown)


@registry.table
def plan_worst() -> pd.DataFrame:
    """The published points whose prediction is furthest off, with what the row itself shows about it."""
    return columns.shown(
        accuracy.worst(),
        "quantity model gpu engine weights tensor_parallel concurrency input_tokens output_tokens "
        "measured_ms predicted_ms times why",
        quantity=Column("what"),
        input_tokens=Column("tokens in"),
        output_tokens=Column("tokens out"),
        measured_ms=Column("measured", "ms"),
        predicted_ms=Column("predicted", "ms"),
        times=Column("times off"),
    )


@registry.table
def plan_coefficients() -> pd.DataFrame:
    """The fitted coefficients: one row per engine, GPU and coefficient, with its 95 % interval."""
    table = inputs.table(check.COMMITTED)
    table = table[~table["coefficient"].str.endswith("half_width")]
    return columns.shown(
        table,
        "engine gpu coefficient value low high unit rows",
        low=Column("from"),
        high=Column("to"),
        rows=Column("points"),
    )


@registry.table
def plan_mlc() -> pd.DataFrame:
    """MLC's curves predicted: one row per model, engine, GPUs and assumption on lengths; errors of TPOT and
    TTFT."""
    table = studies.errors(page.mlc(), ["model", "engine", "tensor_parallel", "lengths"])
    return columns.shown(
        table,
        "model engine tensor_parallel lengths levels tpot tpot_bias ttft",
        tpot=Column("TPOT off by, median", "%", 100),
        tpot_bias=Column("signed", "%", 100),
        ttft=Column("TTFT off by, median", "%", 100),
    )


@registry.table
def plan_mosaicml() -> pd.DataFrame:
    """MosaicML's static batches on A10 and A100 predicted, all estimated from other devices: one row per
    published point."""
    table = studies.mosaicml()
    table = table.assign(off=table["predicted_requests_per_s"] / table["requests_per_s"] - 1)
    return columns.shown(
        table,
        "model gpu gpus batch_size requests_per_s predicted_requests_per_s off note",
        gpus=Column("GPUs"),
        requests_per_s=Column("published", "requests/s"),
        predicted_requests_per_s=Column("predicted", "requests/s"),
        off=Column("off by", "%", 100),
    )


@registry.table
def plan_crossover() -> pd.DataFrame:
    """Eight H100 as replicas of 1, 2, 4 or 8 GPUs: at each load the way that is fastest for a user and the
    one that yields most."""
    table = tradeoffs.crossover(tradeoffs.parallelism(page.loops("h100_sxm", "bf16")))
    return columns.shown(
        table,
        "load fastest fastest_tpot_s most most_output_tokens_per_s",
        load=Column("requests at once"),
        fastest=Column("fastest: TP"),
        fastest_tpot_s=Column("its TPOT", "ms", 1e3),
        most=Column("yields most: TP"),
        most_output_tokens_per_s=Column("its output tokens/s"),
    )


@registry.table
def plan_speed() -> pd.DataFrame:
    """Time and memory of the simulator: one row per load that was timed."""
    return columns.shown(
        inputs.table("planner_speed"),
        "requests replicas cpu_s peak_bytes machine date",
        cpu_s=Column("CPU time", "s"),
        peak_bytes=Column("memory of the process", "MB", 1e-6),
    )


@registry.table
def plan_predictions(requests: pd.DataFrame) -> pd.DataFrame:
    """Levels that were predicted before any run had them, beside what was measured afterwards."""
    table = accuracy.predictions(requests)
    return columns.shown(
        table.assign(date=table["date"].str[:10]),
        "backend option model gpu concurrency date predicted_tpot_s predicted_tpot_s_low "
        "predicted_tpot_s_high measured_tpot_s predicted_ttft_s predicted_ttft_s_low predicted_ttft_s_high "
        "measured_ttft_s",
        date=Column("predicted on"),
        **{
            f"{kind}{name}_s{end}": Column(f"{name.upper()} {word}", "ms", 1e3)
            for name in ("tpot", "ttft")
            for kind, end, word in (
                ("predicted_", "", "predicted"),
                ("predicted_", "_low", "from"),
                ("predicted_", "_high", "to"),
                ("measured_", "", "measured"),
            )
        },
    )
