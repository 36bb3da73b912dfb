"""How fast hardware and engines pass what a step has, estimated from published cases.

Each part of a step has a factor, whose logarithm is a sum of effects (engine, class and generation of the
accelerator, format, year …). The widths of effects are estimated from the cases themselves (empirical
Bayes; Efron and Morris 1975), effects of sources among them: of a source to come they are unknown and widen
the interval. Noise has Student's tails, so single cases that are far off weigh little."""

from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
import pandas as pd
from scipy import linalg, sparse

from llm_measured.predict import step
from llm_measured.predict.effects import STEP, Model, factors, levels

FOLDER = Path(__file__).parent
STUDENT = 4.0  # degrees of freedom of the noise: single cases may be far off
ALIKE = 8.0  # cases that speak for every source having the same noise, against its own
NOISE = 0.02  # variance of the noise, before the rows have said it
BELIEVED = 4.0  # levels that speak for an effect's width before the rows, against its own
PROMPT_TOKENS = 1000.0  # of the prompt whose operations per second are taken for those of others
SHARP = 3.0  # of the maximum of parts that run at the same time
STEPS = (6, 3, 3)  # towards the likeliest effects, before and after each estimate of the widths


def total(logs: np.ndarray, hidden: tuple[int, ...] = ()) -> tuple[np.ndarray, np.ndarray]:
    """(logarithm of the sum of the parts, share of each part in it) of logarithms, a row per setup. Of the
    parts `hidden` the longest hides the others: they count as the root of their powers' sum."""
    logs = logs.copy()
    inner = np.ones_like(logs)
    if hidden:
        at = list(hidden)
        power = SHARP * (logs[:, at] - logs[:, at].max(axis=1, keepdims=True))
        weight = np.exp(power)
        sums = weight.sum(axis=1, keepdims=True)
        inner[:, at] = weight / sums
        logs[:, at] = logs[:, at].max(axis=1, keepdims=True) + np.log(sums) / SHARP
    most = logs.max(axis=1, keepdims=True)
    parts = np.exp(logs - most) * inner
    whole = parts.sum(axis=1, keepdims=True)
    return (most + np.log(whole))[:, 0], parts / whole


@dataclass(frozen=True)
class Fit:
    """The fitted model. `index` maps (effect, level) to its place in `effects`; `variances`: how far the
    levels of an effect differ, and the noise."""

    model: Model
    index: dict[tuple[str, str], int]
    effects: np.ndarray
    variances: dict[str, float]

    def places(self, table: pd.DataFrame) -> np.ndarray:
        """Where each of the model's askable effects has the level of each setup; -1 where no case had it."""
        used = sorted({column for effect in self.model.askable for column in effect.columns})
        alike = table.groupby(used, sort=False, dropna=False).ngroup().to_numpy()
        _, first, group = np.unique(alike, return_index=True, return_inverse=True)
        kinds = table.iloc[first]
        found = [
            [self.index.get((effect.name, level), -1) for level in levels(kinds, effect.columns)]
            for effect in self.model.askable
        ]
        return np.array(found).T[group]

    def seconds(
        self, table: pd.DataFrame, offloaded: np.ndarray | None = None
    ) -> tuple[np.ndarray, np.ndarray]:
        """(logarithm of a step's seconds, share of each of the model's parts in it) of setups."""
        scale = factors(table)
        factor = np.column_stack([scale[effect.factor] for effect in self.model.askable])
        signs = np.array([self.model.on[effect.on] for effect in self.model.askable], dtype=float)
        added = np.append(self.effects, 0.0)[self.places(table)] * factor
        return total(self.model.parts(table, offloaded) + added @ signs, self.model.hidden)


def reached(table: pd.DataFrame, prompts: Fit) -> pd.DataFrame:
    """Setups with reached_flops: operations per second of an accelerator that `prompts`, a fit of PROMPT,
    expects of a prompt alone."""
    alone = table.assign(prompt=PROMPT_TOKENS)
    whole, shares = prompts.seconds(alone)
    seconds = np.exp(whole) * shares[:, 0] * step.width(table)
    return table.assign(reached_flops=step.prompt_operations(alone) / seconds)


def design(model: Model, table: pd.DataFrame) -> tuple[sparse.csr_array, list[tuple[str, str]]]:
    """(factor of each case by effect and level, the effects and levels) of cases."""
    scale, keys, entries = factors(table), [], []
    for effect in model.effects:
        factor = scale[effect.factor]
        here = np.flatnonzero(factor)
        codes, found = pd.factorize(np.array(levels(table, effect.columns), dtype=object)[here])
        entries.append((factor[here], here, codes + len(keys)))
        keys += [(effect.name, str(level)) for level in found]
    values, rows, columns = (np.concatenate(each) for each in zip(*entries))
    return sparse.csr_array((values, (rows, columns)), shape=(len(table), len(keys))), keys


def fit(table: pd.DataFrame, like: Fit | None = None, model: Model = STEP) -> Fit:
    """The model of `cases`; `like`, a fit of more or fewer of them, gives the widths of effects and where to
    start from, which spares the search for both."""
    whole, keys = design(model, table)
    place = {effect.name: k for k, effect in enumerate(model.effects)}
    which = np.array([place[name] for name, _ in keys])
    widths = np.array([effect.width for effect in model.effects]) ** 2
    given = np.array([like.variances[e.name] for e in model.effects]) if like else widths
    noise = like.variances["noise"] if like else NOISE
    single = np.array([not effect.columns for effect in model.effects])
    known = [like.index.get(key, -1) if like else -1 for key in keys]
    effects = np.array([like.effects[at] if like and at >= 0 else 0.0 for at in known])
    turns = [STEPS[0]] if like else list(STEPS)
    for turn, count in enumerate(turns, start=1):
        effects, covariance, left, weights = _likeliest(
            model, table, whole, which, given[which], noise, effects, count
        )
        if turn == len(turns):
            break
        square = effects**2 + np.diag(covariance)
        many = np.bincount(which, minlength=len(given))
        sums = np.bincount(which, square, minlength=len(given))
        given = np.where(single, widths, (sums + BELIEVED * widths) / (many + BELIEVED))
        noise = float(np.average(left, weights=weights))
    found = {effect.name: float(given[k]) for k, effect in enumerate(model.effects)} | {"noise": noise}
    return Fit(model, dict(zip(keys, range(len(keys)))), effects, found)


def _likeliest(
    model: Model,
    table: pd.DataFrame,
    whole: sparse.csr_array,
    which: np.ndarray,
    prior: np.ndarray,
    noise: float,
    effects: np.ndarray,
    count: int,
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """(effects, their covariance, squares of what cases are off, weights): Gauss and Newton's `count` steps
    from `effects` to the likeliest, each of which weighs cases by what they are off at it."""
    sign = np.array([model.on[model.effects[k].on] for k in which], dtype=float)
    time = np.log(table["seconds"].to_numpy(dtype=float))
    bare = model.parts(table, None)
    sources, _ = pd.factorize(table["source"])
    counts = np.bincount(sources)
    scale = np.ones(len(counts))

    on = list(model.on)
    kinds = np.array([on.index(model.effects[k].on) for k in which])[
        whole.indices
    ]  # of each entry of `whole`
    rows = np.repeat(np.arange(whole.shape[0]), np.diff(whole.indptr))

    def off(effects: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """(what the logarithm of each time is off, the shares of its parts)."""
        seconds, shares = total(bare + whole @ (effects[:, None] * sign), model.hidden)
        return time - seconds, shares

    for _ in range(count):
        residual, shares = off(effects)
        by_kind = shares @ np.array([model.on[name] for name in on], dtype=float).T
        slopes = sparse.csr_array(
            (whole.data * by_kind[rows, kinds], whole.indices, whole.indptr), whole.shape
        )
        weights = (STUDENT + 1) / (STUDENT + residual**2 / noise / scale[sources])
        scale = (ALIKE + np.bincount(sources, weights * residual**2 / noise)) / (ALIKE + counts)
        precision = weights / scale[sources] / noise
        precise = (slopes.T @ sparse.diags_array(precision) @ slopes).toarray() + np.diag(1 / prior)
        move = linalg.solve(precise, slopes.T @ (precision * residual) - effects / prior, assume_a="pos")
        effects = effects + move * min(1.0, 2 / np.abs(move).max())
    return effects, linalg.inv(precise), off(effects)[0] ** 2, weights


def write(found: Fit, folder: Path = FOLDER) -> None:
    """Write what an answer needs of a fit: effects without those of sources."""
    asked = {effect.name for effect in found.model.askable}
    rows = [(*key, found.effects[at]) for key, at in found.index.items() if key[0] in asked]
    table = pd.DataFrame(rows, columns=["effect", "level", "value"])
    name = f"{found.model.name}_effects.csv"
    table.to_csv(folder / name, index=False, float_format="%.5g", lineterminator="\n")


@cache
def committed(model: Model = STEP) -> Fit:
    """The fit of all committed rows, as `make predict-fit` has written it."""
    table = pd.read_csv(FOLDER / f"{model.name}_effects.csv", keep_default_na=False)
    keys = list(zip(table["effect"], table["level"]))
    return Fit(model, dict(zip(keys, range(len(keys)))), table["value"].to_numpy(dtype=float), {})
