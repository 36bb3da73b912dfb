"""Half widths of 95 % prediction intervals, as logarithms, from the errors of rows that no fit saw.

Errors are tables: one row per predicted row; columns engine, gpu, error_group (`engines.error_group`), unit
(the engine, GPU and model that were left out together), ttft and tpot, logarithms of predicted over measured.
"""

import numpy as np
import pandas as pd

NAMES = ["ttft_half_width", "tpot_half_width"]
ERRORS = ["ttft", "tpot"]
LEVEL, NORMAL = 0.95, 1.96
# Weight of an error of the same engine and device in another group, beside 1 of the case's own.
KIN = 0.1
POOLED = 2.0  # rows that all errors together count for, and all of the error group on other devices
UNKNOWN = ("model", "gpu", "engine")  # what a fit may never have seen


def known(errors: pd.DataFrame, engine: str, gpu: str, error_group: str = "") -> np.ndarray:
    """(TTFT, TPOT) where engine, device and model were fitted: weighted quantiles of absolute errors.

    Errors of the case's own engine, device and error group count fully, others of the engine and device
    `KIN`, those of the error group elsewhere and of everything as `POOLED` rows together.
    """
    own = ((errors["engine"] == engine) & (errors["gpu"] == gpu)).to_numpy()
    like = (errors["error_group"] == error_group).to_numpy() | (error_group == "")
    weights = np.where(own & like, 1.0, np.where(own, KIN, 0.0)) + POOLED / len(errors)
    if error_group and like.any():
        weights = weights + np.where(like, POOLED / like.sum(), 0.0)
    every, found = np.abs(errors[ERRORS].to_numpy()), []
    for column in every.T:
        order = np.argsort(column)
        share = np.cumsum(weights[order]) / weights.sum()
        found.append(column[order][min(np.searchsorted(share, LEVEL), len(order) - 1)])
    return np.array(found)


def unknown(errors: pd.DataFrame) -> np.ndarray:
    """(TTFT, TPOT) where one kind of thing was never fitted, from the errors of leaving such ones out: the
    normal prediction interval around no error, whose variance is itself known from so many units only.
    """
    squares = (errors[ERRORS] ** 2).mean().to_numpy()
    return NORMAL * np.sqrt(squares * (1 + 1 / errors["unit"].nunique()))


def together(parts: list[np.ndarray]) -> np.ndarray:
    """The half width where several things are unknown at once: their errors are taken as independent."""
    return np.sqrt(np.sum(np.square(parts), axis=0))
