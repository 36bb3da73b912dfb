"""The sweep of batching.ipynb."""

import math

from bench import backends
from bench.experiments import parameters
from bench.instrument import in_process


class Sweep:
    """The batches of one run of batching.ipynb, in order: (requests, prompt tokens, new tokens); first the prompt lengths, then the batches.

    With a budget it ends before a batch that would not fit in what is left of it, and says so: twice the requests take at most twice
    the time of the batch before. An engine that takes one prompt at a time gets no larger batch.
    """

    def __init__(self, setup):
        given = setup.parameters
        sizes, lengths = (parameters.numbers(name, given[name]) for name in ("batch_sizes", "prompt_lengths"))
        self.batches = backends.batches(setup.module, setup.option)
        self.setup, self.budget_s = setup, given["budget_s"]
        shapes = [(1, length, given["short_tokens"]) for length in lengths]
        shapes += [
            (size, given["input_tokens"], given["max_new_tokens"])
            for size in sizes
            if size == 1 or self.batches
        ]
        room = setup.checkpoint.config.get("max_position_embeddings", math.inf)
        self.shapes = [shape for shape in shapes if shape[1] + shape[2] <= room]

    def __str__(self):
        words = ", ".join(f"{size} x {prompt}+{new}" for size, prompt, new in self.shapes)
        return f"requests x prompt tokens + new tokens: {words}" + (
            "" if self.batches else ". This engine's adapter takes one prompt at a time."
        )

    def __iter__(self):
        watch, before = in_process.Stopwatch(), (0, 0.0)
        for done, (size, prompt, new) in enumerate(self.setup.progress(self.shapes, len(self.shapes))):
            work, seconds = before
            started, mine = watch.seconds(), size * (prompt + new)
            if self.budget_s and work and started + seconds * max(1.0, mine / work) > self.budget_s:
                left = [f"{b} x {p}+{n}" for b, p, n in self.shapes[done:]]
                print(
                    f"The budget of {self.budget_s:.0f} s would not do for what is left: {', '.join(left)}."
                )
                return
            yield size, prompt, new
            before = mine, watch.seconds() - started
