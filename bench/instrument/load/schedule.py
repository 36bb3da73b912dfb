"""The schedule of a load test: lengths, arrivals, prompts, levels, calls."""

import functools
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from bench import inputs
from bench.instrument.load import protocols, records
from bench.workloads import traces, words
from llm_measured.core import naming

if TYPE_CHECKING:
    from bench.backends.common.checkpoints import Checkpoint
    from bench.backends.common.servers import RunningServer

GAPS = 1  # the stream of random numbers of a seed that arrivals take; lengths take the seed's own


def poisson(rate: float, requests: int, seed: int = 0) -> np.ndarray:
    """Arrival times, s, of `requests` requests at `rate` per second: exponential gaps, fixed by `seed`, and
    independent of the lengths of the same seed."""
    return np.cumsum(np.random.default_rng([seed, GAPS]).exponential(1 / rate, requests))


def constant(rate: float, requests: int) -> np.ndarray:
    """Arrival times, s, of `requests` requests, one every 1 / `rate` seconds."""
    return np.arange(requests) / rate


HEAD_TOKENS = 8  # random tokens that begin a prompt: no two prompts share a prefix that a cache could answer


def lengths(
    which: str, requests: int, scale: float = 1.0, most: int | None = None, seed: int = 0
) -> list[tuple[int, int]]:
    """[(prompt tokens, new tokens)] of `requests` requests.

    `which` is a row of data/lengths.csv, or a trace (`traces.read`), whose requests are taken in their order,
    from the start again where it ends. `scale` multiplies every length; prompt and answer together keep below
    `most` tokens. The same for the same seed. ValueError naming what exists.
    """
    if str(which).endswith(".csv"):
        rows = traces.read(which).requests[["prompt_tokens", "new_tokens"]].to_numpy(dtype=float)
        drawn = rows[np.arange(requests) % len(rows)]
    else:
        known = inputs.table("lengths").set_index("lengths")
        row = known.loc[naming.choose("distribution of lengths (or a .csv file of them)", which, known.index)]
        means = row[["prompt_tokens", "new_tokens"]].to_numpy(dtype=float)
        drawn = np.tile(means, (requests, 1))
        if row["spread"] == "exponential":
            drawn *= np.random.default_rng(seed).exponential(1.0, (requests, 2))
    pairs = np.maximum(np.rint(drawn * scale), (HEAD_TOKENS, 2)).astype(int)
    if most:
        pairs = np.minimum(pairs, most // 2)
    return [(int(prompt), int(new)) for prompt, new in pairs]


def heads(checkpoint: "Checkpoint", source: Sequence[object], numbers: Iterable[int]) -> list[list[int]]:
    """Return the HEAD_TOKENS random tokens before each prompt of `numbers`: no server can have seen them.

    They follow from `source`, the checkout's id and the number of the run, and from the prompt's number: the
    same for every engine with the same tokenizer, others in every repeat and on every machine. Of a server
    that runs already `source` has a random number of the attempt as well (`session.Setup.source`). They are
    tokens of the study's text, so that their text has about as many.
    """
    ordinary, seed = np.array(sorted(set(checkpoint.encode(inputs.text())))), words.seed_of(source)
    drawn = (np.random.default_rng([seed, number]) for number in numbers)
    return [generator.choice(ordinary, HEAD_TOKENS).tolist() for generator in drawn]


def prompts(
    checkpoint: "Checkpoint", sizes: Sequence[tuple[int, int]], source: Sequence[object], first: int = 0
) -> list[protocols.Prompt]:
    """One `protocols.Prompt` per (prompt tokens, new tokens): a head of `heads`, then the study's text.

    `source` is (the checkout's id, the number of the run); `first` is the number of the first of them:
    numbers make prompts differ, in one level and between levels.
    """
    text, made = checkpoint.encode(inputs.text()), []
    before = heads(checkpoint, source, range(first, first + len(sizes)))
    for number, (prompt_tokens, new_tokens) in enumerate(sizes, start=first):
        start = (number * 37) % len(text)
        body = (text[start:] + text * (prompt_tokens // len(text) + 1))[: max(0, prompt_tokens - HEAD_TOKENS)]
        ids = (before[number - first] + body)[:prompt_tokens]
        made.append(protocols.Prompt(tuple(ids), checkpoint.decode(ids), new_tokens))
    return made


class Level:
    """One load: its kind (`closed`, `open`), its value, its requests, and when they are due, s."""

    def __init__(
        self, kind: str, value: float, requests: int, at_s: Sequence[float] | np.ndarray | None = None
    ) -> None:
        self.kind, self.value, self.requests, self.at_s = kind, value, requests, at_s

    @property
    def condition(self) -> dict[str, float]:
        """The columns that say what the load was."""
        return {"concurrency": self.value} if self.kind == "closed" else {"request_rate": self.value}

    def __str__(self) -> str:
        return f"{self.value:g} at once" if self.kind == "closed" else f"{self.value:g} requests/s"


def plan(
    concurrency: Sequence[int],
    rates: Sequence[float],
    requests: Callable[[str, float], int],
    arrivals: str,
    seed: int,
) -> list[Level]:
    """The levels of a run: the closed loop, then the open one, each from little load to much.

    `requests` is a function of the kind of a level and its value: how many it has. `seed` fixes the arrivals:
    the number of the run, so that repeats differ.
    """
    closed = [Level("closed", places, requests("closed", places)) for places in sorted(concurrency)]
    schedules = {"poisson": lambda rate, count: poisson(rate, count, seed), "constant": constant}
    schedule = schedules[naming.choose("kind of arrivals", arrivals, schedules)]
    opened = []
    for rate in sorted(rates):
        count = requests("open", rate)
        opened.append(Level("open", rate, count, schedule(rate, count)))
    return closed + opened


def recipe(
    served: "RunningServer", new_tokens: int, headers: Mapping[str, str] | None = None
) -> Callable[[protocols.Prompt], bytes]:
    """What makes the bytes of a request to `served` of its prompt, with further `headers`."""
    return functools.partial(
        protocols.request,
        served.dialect,
        served.url,
        model=served.model,
        more=served.body(new_tokens),
        token=served.token,
        fields={**served.headers, **(headers or {})},
        changes=served.changes,
        own_path=served.path,
    )


def calls(
    served: "RunningServer", level: Level, prompts: Sequence[protocols.Prompt], first: int = 1
) -> list[records.Call]:
    """The requests of a level as `records.Call`s, numbered from `first`: one per `protocols.Prompt`."""
    made = []
    exact = "length" not in protocols.uncertain(served.dialect, served.changes)
    for k, prompt in enumerate(prompts):
        at_s = None if level.at_s is None else float(level.at_s[k])
        tokens = len(prompt.ids) if served.dialect in protocols.BY_IDS else None
        payload = recipe(served, prompt.new_tokens)(prompt)
        made.append(records.Call(first + k, payload, at_s, tokens, prompt.new_tokens, exact=exact))
    return made
