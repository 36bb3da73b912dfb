"""How fast one user's answer comes: of each device, model and number of bits what every source measured, and
the one number that pages, README and commands say.

A number is a row that somebody measured: the middle one (of two the lower) of the source with most rows in
the reference setup. That is the variant of the device that most sources have, of any load, at its full
power, llama.cpp or MLX (no front end), the bits' commonest format, a KV cache in 16 bits or of which nothing
is said. Where nobody measured in it `number` is empty, and the middle row of whatever was measured is
`number_in_another_setup`. Where sources lie FACTOR apart, the crowd among them, the lowest and the highest of
the others are the number together: a row more makes no source the right one. Sources are never averaged."""

import pandas as pd

from llm_measured.published import comparable

CELL = ["device", "model", "bits"]
FACTOR = 1.5
CROWD = "localscore"  # reads low: it is a number only where nobody else measured
ENGINES = {"llama.cpp", "MLX"}
# Of bits that have several usual formats, those that count as one; a model of the first years has its own.
FORMATS = {
    4: {"Q4_K_M", "Q4_K_S", "IQ4_XS", "IQ4_NL", "INT4", "4 bits"},
    8: {"Q8_0", "INT8", "8 bits"},
    16: {"F16", "BF16"},
}
AS_PUBLISHED = {*FORMATS[4], "MXFP4"}  # a GGUF file of gpt-oss keeps the experts, whatever it is called
OF_MODEL = {"llama-2-7b": {"Q4_0"}, "gpt-oss-20b": AS_PUBLISHED, "gpt-oss-120b": AS_PUBLISHED}
KV = {"", "F16", "BF16"}
FULL_POWER = 0.95
COLUMNS = [
    *(*CELL, "source", "median", "least", "most", "rows", "outside", "in_setup", "variants", "formats"),
    *(
        "engines",
        "number",
        "number_in_another_setup",
        "reference",
        "row_id",
        "variant",
        "format",
        "engine",
        "against_others",
    ),
]


def in_setup(rows: pd.DataFrame) -> pd.Series:
    """Return which of `rows` (of `comparable.one_user`) are of the reference setup."""
    unknown = rows["variant"].isin(comparable.NO_VARIANT)
    variant = unknown | (rows["variant"] == rows["device"].map(comparable.commonest_variants()))
    usual = rows["bits"].map(FORMATS)
    usual = rows["model"].map(OF_MODEL).where((rows["bits"] == 4) & rows["model"].isin(OF_MODEL), usual)
    formats = pd.Series(
        [not isinstance(of, set) or form in of for of, form in zip(usual, rows["format"])], rows.index
    )
    most = rows.groupby(["source", "device"])["power_limit_w"].transform("max")
    power = rows["power_limit_w"].isna() | (rows["power_limit_w"] >= FULL_POWER * most)
    return variant & formats & power & rows["engine"].isin(ENGINES) & rows["kv"].isin(KV) & ~rows["outside"]


def numbers(rows: pd.DataFrame) -> pd.DataFrame:
    """Return those of `rows` (with the column setup) that are a cell's number: of each cell none, one, or
    the lowest and highest where sources lie FACTOR apart. Where nobody has one in the setup, any stands."""
    votes = rows[~rows["outside"]]
    others = votes["source"] != CROWD
    alone = ~others.groupby(_keys(votes)).transform("any")
    # The setup's rows, of the crowd only beside another's; without one in it, what there is.
    told = (votes["setup"] & (others | alone)).groupby(_keys(votes)).transform("any")
    votes = votes[(votes["setup"] & told) | (~told & (others | alone))]
    # Of each source the row with the middle rate, of two the lower.
    votes = votes.sort_values([*CELL, "source", "rate", "row_id"])
    by_source = votes.groupby([*CELL, "source"])
    size = by_source["rate"].transform("size")
    middles = votes.assign(size=size)[by_source.cumcount() == (size - 1) // 2]
    rates = middles.groupby(CELL)["rate"]
    apart = rates.transform("max") >= FACTOR * rates.transform("min")
    middles = middles[(middles["source"] != CROWD) | alone.reindex(middles.index)]
    apart = apart.reindex(middles.index)
    most = ~middles.sort_values(["size", "source"]).duplicated(CELL, keep="last")
    ordered = middles.sort_values(["rate", "source"])
    ends = ~ordered.duplicated(CELL) | ~ordered.duplicated(CELL, keep="last")
    return middles[(apart & ends.reindex(middles.index)) | (~apart & most.reindex(middles.index))]


def _keys(rows: pd.DataFrame) -> list[pd.Series]:
    return [rows[name] for name in CELL]


def table(rows: pd.DataFrame | None = None) -> pd.DataFrame:
    """Return a row per cell and source of `rows` (of `comparable.one_user`); COLUMNS. `number` and the row
    that it is stand with the source that measured it; `against_others` is the source's median over the median
    of the others' medians in the cell."""
    rows = comparable.one_user() if rows is None else rows
    rows = rows[rows["model"] != ""]
    rows = rows.assign(setup=in_setup(rows), inside=rows["rate"].mask(rows["outside"]))
    keys = [*CELL, "source"]
    found = rows.groupby(keys).agg(
        median=("inside", "median"),
        least=("inside", "min"),
        most=("inside", "max"),
        rows=("inside", "count"),
        outside=("outside", "sum"),
        in_setup=("setup", "sum"),
        variants=("variant", _listed),
        formats=("format", _listed),
        engines=("engine", _listed),
    )
    chosen = numbers(rows).set_index(keys)
    named = ["rate", "row_id", "variant", "format", "engine"]
    found = found.join(chosen[named].rename(columns={"rate": "number"}))
    found["reference"] = chosen["setup"].map({True: "yes", False: "no"})
    found["number_in_another_setup"] = found["number"].where(found["reference"] == "no")
    found["number"] = found["number"].mask(found["reference"] == "no")
    found = found.reset_index()
    for _, part in found.groupby(CELL):
        if len(part) > 1:
            for line in part.index:
                others = part["median"].drop(line).median()
                found.loc[line, "against_others"] = part.loc[line, "median"] / others
    return found.reindex(columns=COLUMNS)


def cell(device: str, model: str, bits: float) -> pd.DataFrame:
    """Return the rows of `table` whose number, or number in another setup, is that of one cell, the lowest
    first, with it as rate; `bits` per weight."""
    rows = comparable.one_user()
    found = table(rows[rows["device"] == device])
    bucket = [name for name, (low, high) in comparable.BITS.items() if low <= bits < high]
    found = found[(found["model"] == model) & found["bits"].isin(bucket)]
    found = found.assign(rate=found["number"].fillna(found["number_in_another_setup"]))
    return found.dropna(subset=["rate"]).sort_values("rate")


def written(rate: float) -> str:
    """Return a rate as pages and commands write it: two digits below 10, else none after the point."""
    return f"{rate:,.0f}" if rate >= 10 else f"{float(f'{rate:.2g}'):.3g}"


def _listed(values: pd.Series) -> str:
    return ", ".join(sorted(set(values) - {""}))


def bias(found: pd.DataFrame, source: str = CROWD) -> tuple[float, int]:
    """Return (the median of what `source` measured over what the others did in the same cell, cells)."""
    ratios = found.loc[found["source"] == source, "against_others"].dropna()
    return float(ratios.median()), len(ratios)
