"""What published points near a case were off by: a smooth correction of the step-time model's predictions.

The model knows nothing of a client, a launch script or a kernel that is slow at one shape; points of the same
engine, GPU, model and collection share these. A Gaussian process over their logarithmic errors, one for each
such family, says what a case near them is off by, and nothing where no such point was fitted (Rasmussen and
Williams, Gaussian Processes for Machine Learning, 2006, chapters 2 and 5).
"""

import itertools
from collections.abc import Sequence

import numpy as np

from llm_planner import engines, fit

FAMILY = "engine gpu model collection".split()
AT = "concurrency input_tokens output_tokens tensor_parallel".split()
LENGTHS = 1.0, 2.0  # doublings of a load, a length or the GPUs after which errors have little in common
SIZES = 0.1, 0.2, 0.4  # standard deviation of what is smooth, and
NOISE = 0.1, 0.2  # of what is not; all in logarithms of a time
WAYS = list(itertools.product(LENGTHS, SIZES, NOISE))
CLIPPED = 5 * fit.SCALE  # of an error, so that one that is no neighbour's does not pull


def family(case: engines.Case) -> tuple:
    """What a case has in common with the points that it may be corrected by."""
    return *(getattr(case, name) for name in FAMILY), engines.later_client(case)


def places(cases: Sequence[engines.Case]) -> np.ndarray:
    """Where the cases lie: base-2 logarithms of concurrency, lengths and GPUs of a replica, a row each."""
    return np.log2(np.array([[getattr(case, name) for name in AT] for case in cases], dtype=float))


def kernel(one: np.ndarray, other: np.ndarray, length: float, size: float) -> np.ndarray:
    """Covariances of the errors at `places`: half of what is smooth depends on the concurrency alone."""
    squares = ((one[:, None] - other[None]) / length) ** 2
    return size**2 / 2 * (np.exp(-squares[:, :, 0] / 2) + np.exp(-squares.sum(axis=2) / 2))


def likelihoods(at: np.ndarray, errors: np.ndarray) -> np.ndarray:
    """Logarithms of the marginal likelihoods of the columns of `errors` at `at`, without their constant: one
    row for each of `WAYS`."""
    of_size_one = {length: kernel(at, at, length, 1.0) for length in LENGTHS}
    diagonal = np.eye(len(at))
    covariances = [size**2 * of_size_one[length] + noise**2 * diagonal for length, size, noise in WAYS]
    roots = np.linalg.cholesky(np.array(covariances))
    scaled = np.linalg.solve(roots, errors)
    return -0.5 * np.sum(scaled**2, axis=1) - np.log(np.diagonal(roots, 0, 1, 2)).sum(axis=1)[:, None]


class Errors:
    """The errors of fitted points: `cases`, and logarithms of measured over predicted (TTFT, TPOT), a row
    each. How smooth they are is taken from the points themselves, where their likelihood is largest."""

    def __init__(self, cases: Sequence[engines.Case], errors: np.ndarray) -> None:
        errors = np.clip(errors, -CLIPPED, CLIPPED)
        names = [family(case) for case in cases]
        self.points = {}
        for name in dict.fromkeys(names):
            here = [k for k, one in enumerate(names) if one == name]
            self.points[name] = places([cases[k] for k in here]), errors[here]
        likely = np.zeros((len(WAYS), errors.shape[1]))  # of no points every way is as likely: the first
        for at, own in self.points.values():
            likely += likelihoods(at, own)
        self.smooth = [WAYS[best] for best in np.argmax(likely, axis=0)]

    def of(self, cases: Sequence[engines.Case]) -> np.ndarray:
        """Logarithms by which the predictions of `cases` are to be lengthened (TTFT, TPOT), a row each;
        zeros for a case that is in no family of the points."""
        found = np.zeros((len(cases), len(self.smooth)))
        names = [family(case) for case in cases]
        for name in dict.fromkeys(names):
            if name not in self.points:
                continue
            here = [k for k, one in enumerate(names) if one == name]
            (at, errors), new = self.points[name], places([cases[k] for k in here])
            for quantity, (length, size, noise) in enumerate(self.smooth):
                covariance = kernel(at, at, length, size) + noise**2 * np.eye(len(at))
                weights = np.linalg.solve(covariance, errors[:, quantity])
                found[here, quantity] = kernel(new, at, length, size) @ weights
        return found
