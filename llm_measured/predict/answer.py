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
    table = fit.reached(table, fitted(effects.PROMPT))
    mean, spread, shares = np.empty(len(table)), np.empty(len(table)), np.empty((len(table), len(step.PARTS)))
    for model, here in _by_model(table):
        part, away = table[here], None if offloaded is None else offloaded[here]
        mean[here], spread[here], shares[here] = fitted(model).seconds(part, away)
        users, at = part["users"].to_numpy(), fitted(model).places(part)
        # A step of several users takes at least as long as that of fewer of them.
        fewer = 1.0
        while (users > fewer).any():
            least = fitted(model).middle(part.assign(users=fewer), away, at)[0]
            mean[here] = np.where(users > fewer, np.maximum(mean[here], least), mean[here])
            fewer *= 2
    return mean, spread, shares


def _by_model(table: pd.DataFrame) -> list[tuple[effects.Model, np.ndarray]]:
    """The models that answer setups, each with which of them."""
    small = effects.is_small(table).to_numpy()
    both = ((effects.STEP, ~small), (effects.SMALL, small))
    return [(model, here) for model, here in both if here.any()]


def users_at(table: pd.DataFrame, rate: float) -> np.ndarray:
    """How many users at once are each expected to get `rate` tokens/s, as each of any fewer, and fit: 0 to
    question.MOST_USERS, NaN where nobody says how much memory there is. `table`: setups, whatever their
    users."""
    table = fit.reached(table.assign(users=1.0), fit.committed(effects.PROMPT))
    held = step.most_users(table, question.ROOM)
    most = np.zeros(len(table))
    for model, here in _by_model(table):
        part, fitted = table[here], fit.committed(model)
        at, room = fitted.places(part), held[here]

        def enough(users: np.ndarray) -> np.ndarray:
            """Whether each of so many of `part` gets the rate, apart from what fewer get."""
            many = part.assign(users=users)
            seconds_ = np.maximum(np.exp(fitted.middle(many, None, at)[0]), step.least(many))
            return (seconds_ * rate <= 1) & (users <= room)

        # The last power of two that reaches the rate as all before it do; then halves of what lies above.
        low, yet, power = np.zeros(len(part)), np.ones(len(part), dtype=bool), 1.0
        while power <= question.MOST_USERS:
            yet &= enough(np.full(len(part), power))
            low = np.where(yet, power, low)
            power *= 2
        high = np.minimum(np.maximum(2 * low, 1), question.MOST_USERS + 1)
        while (high - low > 1).any():
            middle = np.floor((low + high) / 2)
            reach = (high - low > 1) & enough(np.maximum(middle, 1))
            low, high = np.where(reach, middle, low), np.where(reach | (high - low <= 1), high, middle)
        most[here] = low
    return np.where(np.isinf(held), np.nan, most)


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


def estimated(table: pd.DataFrame) -> np.ndarray:
    """Whether something was guessed, or engine, generation or format were never seen, of setups."""
    seen = np.ones(len(table), dtype=bool)
    for model, here in _by_model(table):
        known = fit.committed(model).index
        for name, column in (
            ("efficiency by engine family", "engine_family"),
            ("efficiency by generation", "architecture"),
            ("efficiency by format", "format"),
        ):
            seen[here] &= [(name, level) in known for level in table.loc[here, column]]
    return ~seen | (table["guessed"].str.len() > 0).to_numpy()


def expected(table: pd.DataFrame) -> pd.DataFrame:
    """What is expected of setups that are not refused: rate, low, high, bound (tokens/s of each user; of what
    does not run as if it fitted), outside (share of the weights), runs (all fits, or the engine leaves the
    rest in the host's memory), weights_gb, cache_gb, held_gb, users_fit, and the share of each of
    step.PARTS."""
    outside, told = fits(table), offloads(table)
    away = np.where(told, outside, 0.0)
    found = interval(table, away)
    return found[list(step.PARTS)].assign(
        rate=1 / found["seconds"],
        low=1 / found["high"],
        high=1 / found["low"],
        bound=1 / step.least(table, away),
        outside=outside,
        runs=(outside == 0) | told,
        weights_gb=step.weight_bytes(table) / 1e9,
        cache_gb=step.cache_bytes(table) / 1e9,
        held_gb=step.capacity(table) / 1e9,
        users_fit=step.most_users(table, question.ROOM),
    )


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
    if len(part):
        found = expected(part)
        table.loc[part.index, "refused"] = too_large(part, found)
        part, found = part[found["runs"]], found[found["runs"]]
        for end, name in (("", "rate"), ("_low", "low"), ("_high", "high")):
            out.loc[part.index, PREDICTED + end] = found[name]
        out.loc[part.index, "bound_output_tokens_per_s"] = found["bound"]
        out.loc[part.index, "estimated"] = estimated(part) | (found["outside"] > 0)
    out["refused"] = table["refused"]
    return out


def too_large(table: pd.DataFrame, found: pd.DataFrame) -> list[str]:
    """One sentence for each setup that does not run: how much it needs, how much there is, and the rate if it
    fitted; empty for the others. `found`: what is `expected` of them."""
    said = []
    for users, row in zip(table["users"], found.itertuples()):
        fewer = f" of {users:g} users; {row.users_fit:,.0f} would fit" if users > 1 else ""
        said.append(
            f"The weights have {row.weights_gb:.3g} GB and the cache {row.cache_gb:.3g}{fewer}, the "
            f"accelerators hold {row.held_gb:.4g}: it does not fit; if it did, {row.rate:.3g} tokens/s would "
            f"be expected{' of each' if users > 1 else ''}."
            if not row.runs
            else ""
        )
    return said


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


NUMBERS = ["rate", "low", "high", "bound", "weights_gb", "cache_gb", "held_gb", "users_fit", "outside"]


def one(asked: Mapping[str, object]) -> Answer:
    """The answer to one question; question.Refused where there is none."""
    table = question.read(pd.DataFrame([asked], dtype=object))
    setup = table.iloc[0]
    if setup["refused"]:
        raise question.Refused(setup["refused"])
    found = expected(table).iloc[0]
    return Answer(
        setup=setup,
        shares={name: float(found[name]) for name in step.PARTS},
        first_token_s=first_token(table),
        exact=nearest.exact(setup),
        near=nearest.of(setup, 5),
        price=prices.of(setup),
        **{name: float(found[name]) for name in NUMBERS},
        offloads=bool(found["runs"] and found["outside"] > 0),
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
