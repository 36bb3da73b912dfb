"""The load of serving.ipynb that takes the steps of a server apart: decoding alone, so many requests at once,
and prompts that come while another request decodes."""

from collections.abc import Iterator

import pandas as pd

from bench import naming
from bench.analysis import steps
from bench.experiments import parameters
from bench.experiments.serving import LARGE, OWN, SMALL, USUAL_CONTEXT, Load
from bench.experiments.session import Setup
from bench.instrument.load import schedule
from bench.observations import schema

ANSWER_TOKENS = 96  # of a request that decodes, in the mean
# As under a load, answers of a closed loop end at different times: *Plan* shows what comes of loops in which
# they end together.
SPREAD_TOKENS = 64  # by which an answer is shorter or longer, at most
GOLDEN = (5**0.5 - 1) / 2  # multiples of it, less their whole parts, spread evenly however many there are
START_TOKENS, LONG_TOKENS = 64, 512  # of its prompt; the longer one tells what reading the KV cache takes
LONG_PLACES = 4  # requests at once with the longer prompt, at most
LATE_TOKENS = (64, 256, 1024)  # of the prompts that come in the middle of an answer
WAVES, PAIRS = 3, 5  # of each closed loop; of each late prompt
BEGUN = 0.3  # share of the answer's time after which the prompt comes


def answers(number: int) -> list[int]:
    """Tokens of the answers of a closed loop of so many requests."""
    return [round(ANSWER_TOKENS + SPREAD_TOKENS * (2 * (k * GOLDEN % 1) - 1)) for k in range(1, number + 1)]


class Steps(Load):
    """The levels of one run: closed loops of requests with equal prompts, then for each late prompt pairs of
    a request that decodes and one that comes in its middle, each pair when the one before it has ended."""

    def __init__(self, setup: Setup) -> None:
        self._begin(setup)
        values = setup.parameters
        usual = (SMALL if setup.device == "cpu" and not values["url"] else LARGE)[0]
        places = parameters.or_auto(values["concurrency"], parameters.numbers, "concurrency", usual)
        self.places = sorted({1, *places})
        self.most = setup.checkpoint.config.get("max_position_embeddings", USUAL_CONTEXT)
        decoding = [(at_once, START_TOKENS) for at_once in self.places]
        decoding.append((min(LONG_PLACES, self.places[-1]), LONG_TOKENS))
        longest = ANSWER_TOKENS + SPREAD_TOKENS
        self.decoding = [pair for pair in decoding if pair[1] + longest <= self.most]
        self.late = [tokens for tokens in LATE_TOKENS if tokens + 2 <= self.most]
        if (1, START_TOKENS) not in self.decoding or not self.late:
            raise ValueError(
                f"The context of {setup.checkpoint.name} has no room for {START_TOKENS} tokens and an answer "
                f"of {longest}: its steps cannot be measured."
            )
        self.room = max([prompt + longest for _, prompt in self.decoding] + [max(self.late) + 2])
        self.sent, self.alone = 0, pd.DataFrame()

    def __str__(self) -> str:
        loops = ", ".join(f"{at_once} x {tokens}+{ANSWER_TOKENS}" for at_once, tokens in self.decoding)
        return (
            f"requests at once x prompt tokens + mean new tokens: {loops}; prompts of "
            f"{naming.listed(map(str, self.late))} tokens while another request decodes"
        )

    def servers(self) -> list[tuple]:
        """One server, with a place for each request of the largest closed loop."""
        return [
            (OWN if self.setup.parameters["url"] else self.places[-1], None, [*self.decoding, *self.late])
        ]

    def each(self, pairs: list) -> Iterator[tuple]:
        """(level, its prompts) of every closed loop and every late prompt."""
        for what in self.setup.progress(pairs, len(pairs)):
            if isinstance(what, tuple):
                at_once, tokens = what
                self.now = schedule.Level("closed", at_once, WAVES * at_once)
                sizes = [(tokens, answer) for answer in answers(self.now.requests)]
            else:
                self.now = self._pairs(what)
                sizes = [(START_TOKENS, ANSWER_TOKENS), (what, 2)] * PAIRS
            yield self.now, schedule.prompts(self.setup.checkpoint, sizes, self.source, self.sent)
            self.sent += self.now.requests

    def _pairs(self, tokens):
        """The level whose every second request, of `tokens`, comes while the one before it decodes."""
        good = self.alone[self.alone["error"] == ""]
        if good.empty:
            raise RuntimeError(f"No request alone was answered: {self.alone['error'].iloc[0]}")
        first_s, whole_s = good["ttft_s"].median(), good["e2e_s"].median()
        cycle_s = 2 * whole_s + 2 * first_s * tokens / START_TOKENS
        after_s = first_s + BEGUN * (whole_s - first_s)
        due_s = [k * cycle_s + later for k in range(PAIRS) for later in (0.0, after_s)]
        return schedule.Level("open", round(2 / cycle_s, 4), len(due_s), due_s)

    def note(self, rows: list) -> list:
        """`rows`, as failed where the client was late with them; no load saturates here."""
        if self.now.kind == "closed" and self.now.value == 1 and self.alone.empty:
            self.alone = schema.frame(rows)
        return self.punctual(rows)

    def table(self, requests: pd.DataFrame) -> pd.DataFrame:
        """What the notebook shows of the run `requests` (`store.load`): one row per step."""
        return steps.steps(requests)[steps.SHOWN]
