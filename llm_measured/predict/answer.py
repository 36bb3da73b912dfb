"""What a reader gets: whether it fits, tokens/s with an interval, the time of a prompt, who measured the
setup, the published rows that come nearest, and what was guessed."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache

import numpy as np
import pandas as pd

from llm_measured.predict import effects, fit, nearest, prices, question, step

PREDICTED = "predicted_output_tokens_per_s"
OFFLOAD_WIDE = 0.6  # of the logarithm: half an interval for what a host reads, of which few rows tell
LOADS = {1.0: "one user", 8.0: "2 to 8 users", float(question.MOST_USERS): "more users"}
LONG_TOKENS = 16384
# Families of engines whose intervals are counted apart.
COUNTED = ("llama.cpp", "mlx", "vllm", "sglang", "tensorrt-llm", "transformers")


@dataclass(frozen=True)
class Fitted:
    """What answers are made of: the fit of each model, and published cases with what they are off."""

    fits: Mapping[effects.Model, fit.Fit]
    known: pd.DataFrame


@cache
def committed() -> Fitted:
    """What `make predict-fit` has written."""
    models = (effects.ONE, effects.STEP, effects.SMALL, effects.PROMPT)
    return Fitted({model: fit.committed(model) for model in models}, nearest.published())


def seconds(table: pd.DataFrame, offloaded: np.ndarray, fitted: Fitted) -> tuple[np.ndarray, np.ndarray]:
    """(logarithm of a step's seconds, share of each of step.PARTS in it) of setups; `offloaded`: share of the
    weights that is read from the host's memory."""
    table = fit.reached(table, fitted.fits[effects.PROMPT])
    mean, shares = _middle(table, offloaded, fitted)
    # A step of several users takes at least as long as that of fewer of them.
    fewer = 1.0
    while (more := (table["users"] > fewer).to_numpy()).any():
        least, _ = _middle(table[more].assign(users=fewer), offloaded[more], fitted)
        mean[more] = np.maximum(mean[more], least)
        fewer *= 2
    return mean, shares


def _middle(table: pd.DataFrame, offloaded: np.ndarray, fitted: Fitted) -> tuple[np.ndarray, np.ndarray]:
    """`seconds` apart from what fewer users get; `table` has reached_flops."""
    mean, shares = np.empty(len(table)), np.empty((len(table), len(step.PARTS)))
    for model, here in effects.answered_by(table).items():
        if here.any():
            mean[here], shares[here] = fitted.fits[model].seconds(table[here], offloaded[here])
    # Of one user both fits know something where the engine serves: each is off by 28 %, their mean by 19.
    both = (table["users"] == 1).to_numpy() & effects.learnt_by(table)[effects.STEP]
    if both.any():
        mean[both] += fitted.fits[effects.STEP].seconds(table[both], offloaded[both])[0]
        mean[both] /= 2
    # What measured curves are off says something of several users; of one it was no gain.
    many = (table["users"] > 1).to_numpy()
    mean[many] += nearest.shift(table[many], fitted.known)
    return mean, shares


def users_at(table: pd.DataFrame, rate: float) -> np.ndarray:
    """How many users at once are each expected to get `rate` tokens/s, as each of any fewer, and fit: 0 to
    question.MOST_USERS, NaN where nobody says how much memory there is. `table`: setups, whatever their
    users."""
    fitted, nothing = committed(), np.zeros(len(table))
    table = fit.reached(table, fitted.fits[effects.PROMPT])
    held = step.most_users(table)

    def enough(users: np.ndarray) -> np.ndarray:
        """Whether each of so many users gets the rate, apart from what fewer get."""
        many = table.assign(users=users)
        taken = np.maximum(np.exp(_middle(many, nothing, fitted)[0]), step.least(many, nothing))
        return (taken * rate <= 1) & (users <= held)

    # The last power of two that reaches the rate as all before it do; then halves of what lies above.
    low, yet, power = nothing, np.ones(len(table), dtype=bool), 1.0
    while power <= question.MOST_USERS:
        yet &= enough(np.full(len(table), power))
        low = np.where(yet, power, low)
        power *= 2
    high = np.minimum(np.maximum(2 * low, 1), question.MOST_USERS + 1)
    while (high - low > 1).any():
        middle = np.floor((low + high) / 2)
        reach = (high - low > 1) & enough(np.maximum(middle, 1))
        low, high = np.where(reach, middle, low), np.where(reach | (high - low <= 1), high, middle)
    return np.where(np.isinf(held), np.nan, low)


def group(table: pd.DataFrame) -> pd.Series:
    """The kind of setup whose intervals are counted together: family of engines and load; apart one user's
    long contexts with what a host reads (column away, a share), and phones and processors."""
    family = table["engine_family"].where(table["engine_family"].isin(COUNTED), "other engines")
    deep = (table["users"] == 1) & ((table["context"] > LONG_TOKENS) | (table["away"] > 0))
    family = family.mask(deep, "long contexts and hosts")
    family = family.mask(effects.is_small(table), "phones and processors")
    load = pd.cut(table["users"], [0.0, *LOADS], labels=list(LOADS.values())).astype(str)
    return family + ", " + load


@cache
def widths() -> pd.DataFrame:
    """Per group (and per load, where a group has too few sources) wide and likely: how far, as a logarithm,
    92 of 100 and two of three sources are off that were left out."""
    return pd.read_csv(fit.FOLDER / "intervals.csv").set_index("group")


def half_widths(table: pd.DataFrame, known: pd.DataFrame, new: np.ndarray) -> np.ndarray:
    """Columns wide and likely of `known` (as `widths`) for each setup, wider where it is `new` (as `unseen`),
    where the memory may be one of two, and where a host reads a share (column away)."""
    groups = group(table)
    alone = groups.where(groups.isin(known.index), groups.str.split(", ").str[1])
    half = known.loc[alone, ["wide", "likely"]].to_numpy()
    half = half * np.where(new, UNSEEN, 1.0)[:, None]
    spread = np.log(table["bandwidth_most"] / table["bandwidth_low"]).to_numpy(dtype=float) / 2
    spread = np.hypot(half, spread[:, None])
    return np.hypot(spread, (table["away"] > 0).to_numpy()[:, None] * [OFFLOAD_WIDE, OFFLOAD_WIDE / 2])


def interval(table: pd.DataFrame, offloaded: np.ndarray | None = None) -> pd.DataFrame:
    """Columns seconds, low, high (of a step, 92 of 100 sources), likely_low, likely_high (two of three) and a
    column for each of step.PARTS (its share of the time)."""
    away = np.zeros(len(table)) if offloaded is None else offloaded
    mean, shares = seconds(table, away, committed())
    half = half_widths(table.assign(away=away), widths(), unseen(table))
    least = step.least(table, away)
    out = pd.DataFrame(shares, columns=list(step.PARTS), index=table.index)
    out["seconds"] = np.maximum(np.exp(mean), least)
    for name, wide in (("", half[:, 0]), ("likely_", half[:, 1])):
        out[f"{name}low"] = np.maximum(np.exp(mean - wide), least)
        out[f"{name}high"] = np.maximum(np.exp(mean + wide), least)
    return out


UNSEEN = 1.3  # times wider is an interval where no case had the engine, the generation or the format


def unseen(table: pd.DataFrame, fitted: Fitted | None = None) -> np.ndarray:
    """Whether no case had the engine, the generation or the format, of setups."""
    fits = (fitted or committed()).fits
    found = np.zeros(len(table), dtype=bool)
    for name, column in (
        ("efficiency by engine family", "engine_family"),
        ("efficiency by generation", "architecture"),
        ("efficiency by format", "format"),
    ):
        for model, here in effects.answered_by(table).items():
            levels = {level for effect, level in fits[model].index if effect == name}
            found |= here & ~table[column].isin(levels).to_numpy()
    return found


def expected(table: pd.DataFrame) -> pd.DataFrame:
    """What is expected of setups that are not refused: RATES and bound (tokens/s of each user; of what does
    not run as if it fitted), outside and away (shares of the weights), host_gb_per_s, runs (all fits, or the
    engine leaves the rest in the host's memory), weights_gb, cache_gb, held_gb, users_fit, and the share of
    each of step.PARTS."""
    outside, told = step.outside(table), step.offloads(table)
    away = step.away_share(table, outside)
    found = interval(table, away)
    return found[list(step.PARTS)].assign(
        **rates(found),
        away=away,
        host_gb_per_s=step.host_rate(table, away) / 1e9,
        bound=1 / step.least(table, away),
        outside=outside,
        runs=(outside == 0) | told,
        weights_gb=step.weight_bytes(table) / 1e9,
        cache_gb=step.cache_bytes(table) / 1e9,
        held_gb=step.capacity(table) / 1e9,
        users_fit=step.most_users(table),
    )


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
    """What is expected for one question: tokens/s with its intervals (92 of 100 sources; likely: two of
    three) and bound (None where it hangs on a guess), seconds to the first token of a prompt alone on the
    machine, gigabytes needed and held, how many users fit, the share of the weights that does not (outside)
    and that stays on the host (away), who measured this setup, what comes nearest, the price of an
    accelerator (None where nobody states one), and the answers for the other variants that the name may mean.
    Rates are those of each user."""

    setup: pd.Series
    rate: float
    low: float
    high: float
    likely_low: float
    likely_high: float
    bound: float | None
    shares: dict[str, float]
    first_token_s: tuple[float, float, float]
    weights_gb: float
    cache_gb: float
    held_gb: float
    users_fit: float
    outside: float
    away: float
    host_gb_per_s: float
    exact: pd.DataFrame
    near: pd.DataFrame
    price: prices.Price | None
    variants: tuple["Answer", ...] = ()

    @property
    def answered(self) -> bool:
        """Whether the setup runs at all: all fits, or the engine leaves the rest in the host's memory."""
        return not self.outside or self.away > 0

    @property
    def usd_per_million(self) -> tuple[float, float, float] | None:
        """(dollars per million output tokens, low, high); None without a price, or of what does not run."""
        if self.price is None or not self.answered:
            return None
        hour, rates = self.price.usd_per_gpu_hour, (self.rate, self.high, self.low)
        middle, low, high = (prices.per_million(hour, self.setup, rate) for rate in rates)
        return middle, low, high


RATES = ["rate", "low", "high", "likely_low", "likely_high"]
NUMBERS = [*RATES, "weights_gb", "cache_gb", "held_gb", "users_fit", "outside", "away", "host_gb_per_s"]


def rates(found: pd.DataFrame) -> pd.DataFrame:
    """Tokens/s of `interval`'s seconds, columns RATES."""
    slow = {"rate": "seconds", "low": "high", "high": "low"}
    slow |= {"likely_low": "likely_high", "likely_high": "likely_low"}
    return pd.DataFrame({rate: 1 / found[name] for rate, name in slow.items()})


def one(asked: Mapping[str, object]) -> Answer:
    """The answer to one question; question.Refused where there is none."""
    table = question.read(pd.DataFrame([asked], dtype=object))
    setup = table.iloc[0]
    if setup["refused"]:
        raise question.Refused(setup["refused"])
    found = expected(table).iloc[0]
    plain = question.whole({name: str(value) for name, value in asked.items() if value is not None})
    guessed_host = found["away"] > 0 and setup["host_bandwidth"] != setup["host_bandwidth"]
    return Answer(
        setup=setup,
        bound=None if guessed_host else float(found["bound"]),
        shares={name: float(found[name]) for name in step.PARTS},
        first_token_s=first_token(table, np.array([found["away"]])),
        exact=nearest.exact(setup),
        near=nearest.of(setup, 5),
        price=prices.of(setup),
        **{name: float(found[name]) for name in NUMBERS},
        variants=tuple(
            one({**plain, "accelerator": other, "accelerators": f"{setup['accelerators']:g}"})
            for other in setup["variants"]
        ),
    )


SCHEMA = "llm-measured expect 3"  # of every JSON: kind, then the answer, or a list of answers


def as_json(kind: str, shown: Mapping[str, object] | pd.DataFrame) -> str:
    """`shown`, one answer or a row each, as the JSON that schema.json describes; unknown is null."""
    if isinstance(shown, pd.DataFrame):
        cells = shown.astype(object).where(shown.notna(), None).to_dict("records")
        shown = {"answers": [{name: _plain(value) for name, value in row.items()} for row in cells]}
    plain = {name: _plain(value) for name, value in shown.items()}
    head = {"schema": SCHEMA, "kind": kind}
    return json.dumps(head | plain, indent=2, ensure_ascii=False, allow_nan=False, default=float)


def _plain(value: object) -> object:
    infinite = isinstance(value, float) and not np.isfinite(value)
    return None if infinite else value


def short(number: float) -> str:
    """`number` with three digits, in full from a thousand on."""
    return f"{number:,.0f}" if number >= 1000 else f"{number:.3g}"


def first_token(table: pd.DataFrame, away: np.ndarray) -> tuple[float, float, float]:
    """(seconds to the first token of a prompt, low, high) of the one setup in `table` (column prompt), alone
    on its machine; never less than reading the weights once. `away`: share of the weights on the host."""
    mean, _ = committed().fits[effects.PROMPT].seconds(table)
    half = float(widths().at["prompts", "wide"])
    least = np.exp(step.parts(table)[0, 0])
    middle = np.log(np.exp(mean[0]) + step.prompt_away_seconds(table, away)[0])
    low, seconds_, high = (max(float(np.exp(at)), least) for at in (middle - half, middle, middle + half))
    return seconds_, low, high
