"""What a reader gets: whether it fits, tokens/s with an interval, the time of a prompt, who measured exactly
this, the published rows that come nearest, and what was guessed."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
import pandas as pd

from llm_measured.predict import effects, fit, nearest, prices, question, step

FOLDER = Path(__file__).parent
PREDICTED = "predicted_output_tokens_per_s"
QUANTILE = 1.959964  # of the normal distribution: 95 % lie within so many standard deviations
OFFLOAD_SPREAD = 0.5  # of the logarithm: nobody says how a host's memory is read, and few rows tell
# Users at once that a regime goes up to; phones, processors and one user have regimes of their own.
LOADS = {8.0: "2 to 8 users", 32.0: "9 to 32 users", float(question.MOST_USERS): "more than 32 users"}


def regime(table: pd.DataFrame) -> pd.Series:
    """The kind of setup that errors are counted for: what sources that were left out are alike in."""
    several = table["split"] != "one"
    mixed = table["mixture"] == "mixture"
    own = table["engine_family"].isin(["llama.cpp", "mlx"])
    made = table["accelerator_class"]
    users = table["users"]
    load = pd.Series(np.searchsorted(list(LOADS), users), index=table.index).clip(upper=len(LOADS) - 1)
    many = load.map(dict(enumerate(LOADS.values()))) + np.where(mixed, ", mixtures", ", dense")
    found = np.select(
        [
            (made.isin(["phone"]) | made.str.contains("NPU|ASIC")) & (users == 1),
            (made == "CPU") & (users == 1),
            users > 1,
            several & mixed,
            several & (table["split"] == "layers"),
            several,
            (table["engine_kind"] == "framework"),
            own & mixed,
            own & made.str.contains("NVIDIA|AMD card"),
            own,
            mixed,
        ],
        [
            "phones, NPUs, ASICs",
            "processors",
            many,
            "mixtures on several",
            "several, by layers",
            "several, side by side",
            "frameworks",
            "mixtures, llama.cpp and MLX",
            "dense, llama.cpp on a card",
            "dense, llama.cpp and MLX on shared memory",
            "mixtures, other engines",
        ],
        "dense, other engines",
    )
    return pd.Series(found, index=table.index)


@cache
def regimes() -> pd.DataFrame:
    """Per regime stretch: how many times wider than the model's own an interval has to be, from sources that
    were left out."""
    return pd.read_csv(FOLDER / "regimes.csv").set_index("regime")


def seconds(
    table: pd.DataFrame, offloaded: np.ndarray | None, fitted: Callable[[effects.Model], fit.Fit]
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """`fit.Fit.seconds` of setups, each by the model that answers it, as `fitted` has it."""
    found = _seconds(table, offloaded, fitted)
    # A step of several users takes at least as long as that of fewer of them.
    fewer = 1.0
    while (more := (table["users"] > fewer).to_numpy()).any():
        away = None if offloaded is None else offloaded[more]
        least = _seconds(table[more].assign(users=fewer), away, fitted)[0]
        found[0][more] = np.maximum(found[0][more], least)
        fewer *= 2
    return found


def _seconds(
    table: pd.DataFrame, offloaded: np.ndarray | None, fitted: Callable[[effects.Model], fit.Fit]
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    table = fit.reached(table, fitted(effects.PROMPT))
    mean, spread, shares = np.empty(len(table)), np.empty(len(table)), np.empty((len(table), len(step.PARTS)))
    small = effects.is_small(table).to_numpy()
    for model, here in ((effects.STEP, ~small), (effects.SMALL, small)):
        if here.any():
            away = None if offloaded is None else offloaded[here]
            mean[here], spread[here], shares[here] = fitted(model).seconds(table[here], away)
    return mean, spread, shares


def interval(table: pd.DataFrame, offloaded: np.ndarray | None = None) -> pd.DataFrame:
    """Columns seconds, low, high (of a step) and a column for each of step.PARTS (its share of the time)."""
    mean, spread, shares = seconds(table, offloaded, fit.committed)
    kind = regime(table)
    wide = kind.map(regimes()["stretch"]).fillna(regimes()["stretch"].max()).to_numpy()
    half = QUANTILE * wide * spread
    if offloaded is not None:
        half = np.hypot(half, QUANTILE * OFFLOAD_SPREAD * (offloaded > 0))
    least = step.least(table, offloaded)
    out = pd.DataFrame(shares, columns=list(step.PARTS), index=table.index)
    for name, logs in (("seconds", mean), ("low", mean - half), ("high", mean + half)):
        out[name] = np.maximum(np.exp(logs), least)
    return out


def fits(table: pd.DataFrame) -> np.ndarray:
    """Share of the weights that does not fit beside the cache, of setups; 0 where all does."""
    return step.outside(table, question.ROOM)


def offloads(table: pd.DataFrame) -> np.ndarray:
    """Whether what does not fit is read from the host's memory, of setups: one accelerator, one user, and an
    engine that leaves the rest there."""
    engines = table["engine_family"].isin(question.machines.OFFLOADING)
    return (engines & (table["accelerators"] == 1) & (table["users"] == 1)).to_numpy(dtype=bool)


def estimated(setup: pd.Series) -> bool:
    """Whether something was guessed, or engine, generation or format were never seen."""
    small = effects.is_small(setup.to_frame().T).iloc[0]
    known = fit.committed(effects.SMALL if small else effects.STEP)
    seen = [
        ("efficiency by engine family", setup["engine_family"]),
        ("efficiency by generation", setup["architecture"]),
        ("efficiency by format", setup["format"]),
    ]
    return bool(setup["guessed"]) or not all(known.seen(*level) for level in seen)


def predictions(questions: pd.DataFrame) -> pd.DataFrame:
    """One row per question, same index; columns predicted_output_tokens_per_s, `…_low`, `…_high` (of one
    user, 95 % of sources), bound_output_tokens_per_s, estimated (something of the question was guessed, or
    its engine, generation or format was never seen, or a part is read from the host's memory) and refused
    (one sentence; then the others are empty)."""
    table = question.read(questions)
    out = pd.DataFrame(np.nan, index=table.index, columns=[PREDICTED + end for end in ("", "_low", "_high")])
    out["bound_output_tokens_per_s"] = np.nan
    out["estimated"] = None
    part = table[table["refused"] == ""]
    outside = fits(part)
    told = offloads(part)
    for index, setup in part[(outside > 0) & ~told].iterrows():
        table.loc[index, "refused"] = too_large(setup)
    part, outside = part[(outside == 0) | told], outside[(outside == 0) | told]
    if len(part):
        found = interval(part, outside)
        for end, name in (("", "seconds"), ("_low", "high"), ("_high", "low")):
            out.loc[part.index, PREDICTED + end] = 1 / found[name]
        out.loc[part.index, "bound_output_tokens_per_s"] = 1 / step.least(part, outside)
        guessed = [estimated(setup) or away > 0 for (_, setup), away in zip(part.iterrows(), outside)]
        out.loc[part.index, "estimated"] = guessed
    out["refused"] = table["refused"]
    return out


def too_large(setup: pd.Series) -> str:
    """One sentence for what does not fit: how much it needs, how much there is, and the rate if it fitted."""
    row = setup.to_frame().T.infer_objects()
    weights, cache_, held = (
        float(f(row)[0]) / 1e9 for f in (step.weight_bytes, step.cache_bytes, step.capacity)
    )
    rate = 1 / interval(row)["seconds"].iloc[0]
    users, fitting = setup["users"], step.most_users(row, question.ROOM)[0]
    fewer = f" of {users:g} users; {fitting:,.0f} would fit" if users > 1 else ""
    return (
        f"The weights have {weights:.3g} GB and the cache {cache_:.3g}{fewer}, the accelerators hold "
        f"{held:.4g}: it does not fit; if it did, {rate:.3g} tokens/s would be expected"
        f"{' of each' if users > 1 else ''}."
    )


@dataclass(frozen=True)
class Answer:
    """What is expected for one question: tokens/s with its interval and bound, seconds to the first token of
    a prompt alone on the machine, gigabytes needed and held, how many users fit, who measured exactly this,
    what comes nearest, and the price of an accelerator (None where nobody states one). Rates are those of
    each user."""

    setup: pd.Series
    rate: float
    low: float
    high: float
    bound: float
    shares: dict[str, float]
    first_token_s: tuple[float, float, float]
    weights_gb: float
    cache_gb: float
    held_gb: float
    users_fit: float
    outside: float
    offloads: bool
    exact: pd.DataFrame
    near: pd.DataFrame
    price: prices.Price | None

    @property
    def answered(self) -> bool:
        """Whether the setup runs at all: all fits, or the engine leaves the rest in the host's memory."""
        return not self.outside or self.offloads

    @property
    def usd_per_million(self) -> tuple[float, float, float] | None:
        """(dollars per million output tokens, low, high); None without a price, or of what does not run."""
        if self.price is None or not self.answered:
            return None
        middle, low, high = (
            prices.per_million(self.price, self.setup, rate) for rate in (self.rate, self.high, self.low)
        )
        return middle, low, high


def one(asked: Mapping[str, object]) -> Answer:
    """The answer to one question; question.Refused where there is none."""
    table = question.read(pd.DataFrame([asked], dtype=object))
    setup = table.iloc[0]
    if setup["refused"]:
        raise question.Refused(setup["refused"])
    outside = fits(table)
    told = bool(offloads(table)[0])
    found = interval(table, outside if told else None).iloc[0]
    held = step.capacity(table)[0] / 1e9
    return Answer(
        setup,
        1 / found["seconds"],
        1 / found["high"],
        1 / found["low"],
        1 / step.least(table, outside if told else None)[0],
        {name: float(found[name]) for name in step.PARTS},
        first_token(table),
        step.weight_bytes(table)[0] / 1e9,
        step.cache_bytes(table)[0] / 1e9,
        held,
        float(step.most_users(table, question.ROOM)[0]),
        float(outside[0]),
        told,
        nearest.exact(setup),
        nearest.of(setup, 5),
        prices.of(setup),
    )


def short(number: float) -> str:
    """`number` with three digits, in full from a thousand on."""
    return f"{number:,.0f}" if number >= 1000 else f"{number:.3g}"


def first_token(table: pd.DataFrame) -> tuple[float, float, float]:
    """(seconds to the first token of a prompt, low, high) of the one setup in `table` (column prompt), alone
    on its machine; never less than reading the weights once."""
    mean, spread, _ = fit.committed(effects.PROMPT).seconds(table)
    wide = float(regimes().at["prompts", "stretch"])
    least = np.exp(step.parts(table)[0, 0])
    half = QUANTILE * wide * spread[0]
    middle = mean[0]
    low, seconds, high = (max(float(np.exp(at)), least) for at in (middle - half, middle, middle + half))
    return seconds, low, high
