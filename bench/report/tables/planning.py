"""Tables of the page Plan."""

import pandas as pd

from bench import inputs
from bench.analysis.planning import accuracy, check, own, studies, tradeoffs
from bench.report import columns, planning, tables
from bench.report.columns import Column

SHARES = {
    "tpot_ms_median": Column("TPOT off by, median", "%", 100),
    "tpot_ms_p90": Column("90th percentile", "%", 100),
    "tpot_ms_coverage": Column("TPOT inside its interval", "%", 100),
    "tpot_ms_half_width": Column("interval of TPOT ±", "%", 100),
    "ttft_ms_median": Column("TTFT off by, median", "%", 100),
    "ttft_ms_p90": Column("90th percentile, TTFT", "%", 100),
    "ttft_ms_coverage": Column("TTFT inside its interval", "%", 100),
    "ttft_ms_half_width": Column("interval of TTFT ±", "%", 100),
}


@tables.listed
def plan_answers():
    """What holds the page's question, cheapest first: one row per GPU, precision and GPUs of a replica."""
    shown = columns.of(
        "gpu weights tensor_parallel replicas gpus usd_per_hour usd_per_million_input "
        "usd_per_million_output "
        "batch ttft_p99_s ttft_low ttft_high tpot_p99_s tpot_low tpot_high goodput_per_s kv_gb_per_replica "
        "price holds nearest_measured",
        replicas=Column("replicas"),
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
        price=Column("price"),
        holds=Column("holds"),
        nearest_measured=Column("nearest that was measured"),
    )
    ends = {f"{q}_p99_{end}_s": f"{q}_{end}" for q in ("ttft", "tpot") for end in ("low", "high")}
    return columns.renamed(planning.answers()[0].rename(columns=ends), shown)


@tables.listed
def plan_accuracy():
    """How far predictions of the published points were off: one row per way to predict them."""
    shown = {"predicted by": Column("predicted by"), "rows": Column("points"), **SHARES}
    return columns.renamed(accuracy.overview(), shown)


@tables.listed
def plan_groups():
    """How far the ten folds were off: one row per engine and GPU."""
    table = accuracy.by_group()
    shown = {"engine": Column("engine"), "gpu": Column("GPU"), "rows": Column("points"), **SHARES}
    return columns.renamed(table, shown)


@tables.listed
def plan_worst():
    """The published points whose prediction is furthest off, with what the row itself shows about it."""
    shown = columns.of(
        "quantity model gpu engine weights tensor_parallel concurrency input_tokens output_tokens "
        "measured_ms "
        "predicted_ms times why",
        quantity=Column("what"),
        engine=Column("engine"),
        input_tokens=Column("tokens in"),
        output_tokens=Column("tokens out"),
        measured_ms=Column("measured", "ms"),
        predicted_ms=Column("predicted", "ms"),
        times=Column("times off"),
        why=Column("why"),
    )
    return columns.renamed(accuracy.worst(), shown)


@tables.listed
def plan_coefficients():
    """The fitted coefficients: one row per engine, GPU and coefficient, with its 95 % interval."""
    table = inputs.table(check.COMMITTED)
    table = table[~table["coefficient"].str.endswith("half_width")]
    shown = columns.of(
        "engine gpu coefficient value low high unit rows",
        engine=Column("engine"),
        coefficient=Column("coefficient"),
        value=Column("value"),
        low=Column("from"),
        high=Column("to"),
        unit=Column("unit"),
        rows=Column("points"),
    )
    return columns.renamed(table, shown)


@tables.listed
def plan_own(requests):
    """Own serving levels predicted from batching runs: one row per engine, option and kind of loop, errors of
    medians, and the levels that hold the objectives, measured and predicted."""
    shown = columns.of(
        "backend option gpu loop levels tpot tpot_bias ttft ttft_bias held predicted_held within",
        levels=Column("levels"),
        tpot=Column("TPOT off by, median", "%", 100),
        tpot_bias=Column("signed", "%", 100),
        ttft=Column("TTFT off by, median", "%", 100),
        ttft_bias=Column("TTFT signed", "%", 100),
        held=Column("levels that hold, measured"),
        predicted_held=Column("predicted"),
        within=Column("runs within one level", "%", 100),
    )
    table = own.summary(requests)
    return columns.renamed(table if len(table) else pd.DataFrame(columns=list(shown)), shown)


@tables.listed
def plan_mlc():
    """MLC's curves predicted: one row per model, engine, GPUs and assumption on lengths; errors of TPOT and
    TTFT."""
    table = studies.errors(planning.mlc(), ["model", "engine", "tensor_parallel", "lengths"])
    shown = columns.of(
        "model engine tensor_parallel lengths levels tpot tpot_bias ttft",
        engine=Column("engine"),
        lengths=Column("lengths"),
        levels=Column("levels"),
        tpot=Column("TPOT off by, median", "%", 100),
        tpot_bias=Column("signed", "%", 100),
        ttft=Column("TTFT off by, median", "%", 100),
    )
    return columns.renamed(table, shown)


@tables.listed
def plan_mosaicml():
    """MosaicML's static batches on A10 and A100 predicted, all estimated from other devices: one row per
    published point."""
    table = studies.mosaicml()
    table = table.assign(off=table["predicted_requests_per_s"] / table["requests_per_s"] - 1)
    shown = columns.of(
        "model gpu gpus batch_size requests_per_s predicted_requests_per_s off note",
        gpus=Column("GPUs"),
        requests_per_s=Column("published", "requests/s"),
        predicted_requests_per_s=Column("predicted", "requests/s"),
        off=Column("off by", "%", 100),
        note=Column("note"),
    )
    return columns.renamed(table, shown)


@tables.listed
def plan_crossover():
    """Eight H100 as replicas of 1, 2, 4 or 8 GPUs: at each load the way that is fastest for a user and the
    one that yields most."""
    table = tradeoffs.crossover(tradeoffs.parallelism(planning.loops("h100_sxm", "bf16")))
    shown = columns.of(
        "load fastest fastest_tpot_s most most_output_tokens_per_s",
        load=Column("requests at once"),
        fastest=Column("fastest: TP"),
        fastest_tpot_s=Column("its TPOT", "ms", 1e3),
        most=Column("yields most: TP"),
        most_output_tokens_per_s=Column("its output tokens/s"),
    )
    return columns.renamed(table, shown)


@tables.listed
def plan_speed():
    """Time and memory of the simulator: one row per load that was timed."""
    shown = columns.of(
        "requests replicas cpu_s peak_bytes machine date",
        replicas=Column("replicas"),
        cpu_s=Column("CPU time", "s"),
        peak_bytes=Column("memory of the process", "MB", 1e-6),
        machine=Column("machine"),
        date=Column("date"),
    )
    return columns.renamed(inputs.table("planner_speed"), shown)


@tables.listed
def plan_predictions(requests):
    """Levels that were predicted before any run had them, beside what was measured afterwards."""
    shown = columns.of(
        "backend option model gpu concurrency date predicted_tpot_s predicted_tpot_s_low "
        "predicted_tpot_s_high "
        "measured_tpot_s predicted_ttft_s predicted_ttft_s_low predicted_ttft_s_high measured_ttft_s",
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
    table = own.predictions(requests)
    return columns.renamed(table.assign(date=table["date"].str[:10]), shown)
