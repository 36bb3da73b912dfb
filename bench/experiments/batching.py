"""The sweep of batching.ipynb."""

from collections.abc import Iterator
from dataclasses import dataclass, replace

from bench import inputs
from bench.experiments import notebook, target
from bench.experiments.session import Setup
from bench.instrument import in_process


@dataclass(frozen=True)
class Shape:
    """One batch: how many requests, and the tokens of each."""

    requests: int
    prompt_tokens: int
    new_tokens: int

    @property
    def tokens(self) -> int:
        """Tokens of one request, prompt and answer."""
        return self.prompt_tokens + self.new_tokens

    def __str__(self) -> str:
        return f"{self.requests} x {self.prompt_tokens}+{self.new_tokens}"


@dataclass(frozen=True)
class Batch:
    """One batch as it was measured: its shape, and a row of measured columns for each of its prompts."""

    shape: Shape
    first: int  # number of its first prompt among those of its shape
    prompts: list
    rows: list

    @property
    def failed(self) -> bool:
        """Whether one of its requests failed."""
        return any(row["error"] for row in self.rows)


class Sweep:
    """The batches of one run of batching.ipynb, a list per shape, measured as the cells iterate: first the
    prompt lengths, then the batches.

    Each shape is warmed up by a batch of its own, which is dropped, and then timed `timed` times, every time
    with other prompts. One that is timed once has no such batch: a long prompt would take twice its time, and
    its room is made before it. A batch that fails ends its shape, and its rows stay. With a budget it ends
    before a shape that would not fit in what is left of it, and says so: twice the requests take at most
    twice the time of the batch before. A budget is spent by the timed batches themselves: what an engine
    compiles for a new shape, warm-ups and windows of energy are not charged to it. A limit is one on
    everything. An engine that takes one prompt at a time gets no larger batch. Prompt lengths beyond the
    model's context are left out; ValueError where the batches exceed it, or all of the lengths.
    """

    def __init__(self, setup: Setup) -> None:
        values = setup.parameters
        notebook.at_least(1, timed=values["timed"])
        lengths = notebook.numbers("prompt_lengths", values["prompt_lengths"])
        sizes = notebook.or_auto(values["batch_sizes"], notebook.numbers, "batch_sizes", "1")
        self.timed, self.setup = values["timed"], setup
        self.budget_s, self.limit_s = values["budget_s"], values["limit_s"]
        self.batches, self.room = setup.backend.batches(setup.option), target.room(setup.checkpoint)
        by_length = [Shape(1, length, values["short_tokens"]) for length in lengths]
        by_size = [
            Shape(size, values["input_tokens"], values["max_new_tokens"])
            for size in sizes
            if size == 1 or self.batches
        ]
        self.shapes = [shape for shape in by_length if shape.tokens <= self.room] + by_size
        self.left_out = [shape for shape in by_length if shape.tokens > self.room]
        _fits(setup.checkpoint.name, self.room, by_size, len(self.left_out) == len(by_length))

    def __str__(self) -> str:
        words = f"requests x prompt tokens + new tokens: {_listed(self.shapes)}"
        if not self.batches:
            words += ". This engine's adapter takes one prompt at a time."
        if self.left_out:
            words += f"; beyond the context of {self.room} tokens: {_listed(self.left_out)}"
        return words

    def __iter__(self) -> Iterator[list[Batch]]:
        watch, before, spent_s = in_process.Stopwatch(), None, 0.0
        for done, shape in enumerate(self.setup.progress(self.shapes, len(self.shapes))):
            started = watch.seconds()
            why = self._over(shape, before, spent_s, started)
            if why:
                print(f"{why} would not do for what is left: {_listed(self.shapes[done:])}.")
                return
            batches, timed_s = self._measured(shape)
            yield batches
            spent_s += timed_s
            before = shape, timed_s, watch.seconds() - started - timed_s

    def _measured(self, shape):
        """(the timed Batches of one shape with the joules of their requests, the seconds that they took).

        Where one fails, even if it was the warm-up, it is the last.
        """
        ids = self.setup.checkpoint.encode(inputs.text())
        sets = max(1, min(self.timed + 1, len(ids) // shape.requests))
        prompts = inputs.windows(ids, sets * shape.requests, shape.prompt_tokens)
        batches, timed_s = [], 0.0
        for k in range(self.timed == 1, self.timed + 1):
            own, watch = prompts[k % sets :: sets], in_process.Stopwatch()
            batch = Batch(shape, k * shape.requests + 1, own, self.setup.generate(own, shape.new_tokens))
            if k or batch.failed:
                batches.append(batch)
                timed_s += watch.seconds()
            if batch.failed:
                break
        return self._with_energy(shape, batches), timed_s

    def _with_energy(self, shape, batches):
        """`batches` with the joules of their requests, measured in a window of their own."""
        rows = [row for batch in batches for row in batch.rows]
        rows = iter(self.setup.with_energy(rows, [batch.prompts for batch in batches], shape.new_tokens))
        return [replace(batch, rows=[next(rows) for _ in batch.rows]) for batch in batches]

    def _over(self, shape, before, spent_s, passed_s):
        """Which of the two bounds the next `shape` would exceed, in words; empty where it fits, and for the
        first.

        `before` is the shape before it, the seconds of its timed batches and those of all around them: what
        an engine compiles, its warm-up, the window of energy.
        """
        if before is None:
            return ""
        last, timed_s, around_s = before
        forecast_s = timed_s * max(1.0, shape.requests * shape.tokens / (last.requests * last.tokens))
        if self.budget_s and spent_s + forecast_s > self.budget_s:
            return f"The budget of {self.budget_s:.0f} s"
        if self.limit_s and passed_s + forecast_s + around_s > self.limit_s:
            return f"The limit of {self.limit_s:.0f} s"
        return ""


def _listed(shapes):
    return ", ".join(map(str, shapes))


def _fits(model, room, batches, no_length):
    """ValueError where the batches exceed the model's context, or no prompt length keeps within it."""
    if no_length:
        raise ValueError(
            f"Every one of prompt_lengths with short_tokens exceeds the context of {model}, {room} tokens: "
            "ask for shorter ones."
        )
    if batches and batches[0].tokens > room:
        raise ValueError(
            f"input_tokens {batches[0].prompt_tokens} and max_new_tokens {batches[0].new_tokens} exceed the "
            f"context of {model}, {room} tokens: ask for fewer."
        )
