"""What tokens cost: dollars per hour of an accelerator from a dated price list, over tokens/s.

prices.csv has a row per accelerator and provider, with the day on which the price was read; nobody's price
is estimated, so what no row and no question states has none."""

from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TypeVar

import numpy as np
import pandas as pd

STATED = "stated in the question"
PER_MILLION = "usd_per_million_output_tokens"
COLUMNS = [PER_MILLION, f"{PER_MILLION}_low", f"{PER_MILLION}_high", "price_usd_per_gpu_hour", "price_source"]


@dataclass(frozen=True)
class Price:
    """Dollars per hour of one accelerator, and who asks them: provider, kind of rental, day of the list."""

    usd_per_gpu_hour: float
    source: str


@cache
def table() -> pd.DataFrame:
    """One row per accelerator and provider; columns accelerator (an id of core/accelerators.csv), vendor,
    usd_per_gpu_hour, kind, date, source."""
    return pd.read_csv(Path(__file__).with_name("prices.csv"))


@cache
def listed(accelerator: str) -> Price | None:
    """The lowest listed price of an accelerator's id; None where no row has it."""
    rows = table()[table()["accelerator"] == accelerator].sort_values("usd_per_gpu_hour")
    if rows.empty:
        return None
    row = rows.iloc[0]
    return Price(float(row["usd_per_gpu_hour"]), f"{row['vendor']}, {row['kind']}, {row['date']}")


def of(setup: pd.Series) -> Price | None:
    """The price that a question states, else the lowest in the list; None where there is neither."""
    if setup["usd_per_gpu_hour"] == setup["usd_per_gpu_hour"]:
        return Price(float(setup["usd_per_gpu_hour"]), STATED)
    return listed(setup["machine"])


Rate = TypeVar("Rate", float, pd.Series)


def per_million(usd_per_gpu_hour: Rate, setup: pd.Series | pd.DataFrame, rate: Rate) -> Rate:
    """Return dollars per million output tokens where each user gets `rate` tokens/s, of one setup or of a
    table of them: the hour of all accelerators over the tokens of all users, without the time of prompts."""
    return usd_per_gpu_hour * setup["accelerators"] / (3600 * rate * setup["users"]) * 1e6


def costs(setups: pd.DataFrame, rates: pd.DataFrame) -> pd.DataFrame:
    """COLUMNS of setups, same index, from columns rate, low, high (tokens/s of each user); a row without
    rate or price is empty."""
    priced = [of(setup) for _, setup in setups[["machine", "usd_per_gpu_hour"]].iterrows()]
    hour = pd.Series([price.usd_per_gpu_hour if price else np.nan for price in priced], setups.index)
    rates = rates.reindex(setups.index).astype(float)
    paid = rates["rate"].notna() & hour.notna()
    out = pd.DataFrame(index=setups.index, columns=COLUMNS, dtype=float)
    # The slowest rate is the dearest.
    for end, rate in (("", "rate"), ("_low", "high"), ("_high", "low")):
        out[PER_MILLION + end] = per_million(hour, setups, rates[rate])
    out["price_usd_per_gpu_hour"] = hour.where(paid)
    out["price_source"] = [price.source if price and here else "" for price, here in zip(priced, paid)]
    return out
