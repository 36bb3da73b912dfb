"""The published table of serving points on GPUs, and what the model predicts for a row of it: columns known
before a measurement only.
"""

from collections.abc import Sequence

import numpy as np
import pandas as pd

from bench import inputs
from llm_planner import engines, simulator, state, step_time

TABLE = "published/gpu_serving_measured"
CONFIGURATION = (
    "model checkpoint gpu engine engine_version weights tensor_parallel input_tokens output_tokens collection"
).split()
GROUP = ["engine", "gpu"]
MEASURED = ["ttft_ms", "tpot_ms"]
WAVES = 10  # requests per place that both collections' clients send
SIMULATED = (
    3  # of them that are simulated: the first, in which all arrive at once, and enough of the later ones
)


def table() -> pd.DataFrame:
    """The committed table: one row per measured point; TTFT and TPOT in ms."""
    return inputs.table(TABLE)


def curves(rows: pd.DataFrame) -> np.ndarray:
    """The number of each row's configuration: all concurrencies of one together."""
    return rows[CONFIGURATION].fillna("").astype(str).groupby(CONFIGURATION, sort=False).ngroup().to_numpy()


def cases(rows: pd.DataFrame) -> list[engines.Case]:
    """`engines.Case` of every row; measured columns are not read. ValueError for a column that is lacking or
    a value that cannot be.
    """
    lacking = [name for name in engines.Case._fields if name not in rows]
    if lacking:
        raise ValueError(
            f"The table lacks the columns {', '.join(lacking)}; it needs those of "
            f"data/{TABLE}.csv, measured ones aside."
        )
    numbers = rows[["tensor_parallel", "concurrency", "input_tokens", "output_tokens"]].apply(
        pd.to_numeric, errors="coerce"
    )
    bad = rows.index[~(numbers >= 1).all(axis=1)]
    if len(bad):
        raise ValueError(
            f"Line {bad[0] + 2} has a tensor_parallel, concurrency or length that is no number of "
            f"at least one; correct it."
        )
    plain = rows.assign(**numbers.astype(int), weights=rows["weights"].fillna("unstated"))
    return [engines.Case(*row) for row in plain[list(engines.Case._fields)].itertuples(index=False)]


class Load:
    """A case's requests and scheduler, which do not depend on coefficients: made once, predicted often."""

    def __init__(
        self, case: engines.Case, waves: int = SIMULATED, rules: engines.Rules = engines.RULES
    ) -> None:
        self.case, self.places, self.rules = case, int(case.concurrency), rules
        self.prompt, self.output = engines.lengths(case, waves * self.places)
        self.policy = engines.policy(case, slots=self.places, rules=rules)
        self.setting = engines.setting(case, rules)

    def predict(self, coefficients: np.ndarray) -> tuple[float, float]:
        """(TTFT ms, TPOT ms): means over the requests of a closed loop, the first wave with its share of all
        ten.
        """
        size, request_s = len(self.prompt), coefficients[step_time.NAMES.index("request_s")]
        requests, replica = (
            state.new_requests(self.prompt, self.output),
            state.new_state(1, self.places, logged=0),
        )
        due = np.full(size, request_s)
        due[: self.places] += np.arange(self.places) * self.rules.arrival_s
        cost = step_time.cost(self.setting, coefficients)
        if not self.rules.front:
            cost[state.SENT_TOKEN] = 0.0
        simulator.run(
            replica, requests, due, self.places, request_s, cost, self.policy, simulator.ROUND_ROBIN
        )
        ttft = requests.first - due + request_s
        tpot = (requests.end - requests.first) / np.maximum(self.output - 1, 1)
        return 1e3 * self._mean(ttft), 1e3 * self._mean(tpot)

    def _mean(self, seconds):
        if len(seconds) == self.places:
            return seconds.mean()
        first, later = seconds[: self.places].mean(), seconds[self.places :].mean()
        return (first + (WAVES - 1) * later) / WAVES


def loads(rows: pd.DataFrame, rules: engines.Rules = engines.RULES) -> np.ndarray:
    """Array of the `Load` of every row."""
    return np.array([Load(case, rules=rules) for case in cases(rows)], dtype=object)


def predict(loads: Sequence, coefficients: np.ndarray) -> np.ndarray:
    """Array of (TTFT ms, TPOT ms), one row per load."""
    return np.array([load.predict(coefficients) for load in loads])
