"""The passes of passes.ipynb: a prefix that an engine keeps, and a few new tokens after it."""

import random

from bench import backends, inputs
from bench.backends.common import contract
from bench.experiments import notebook
from bench.experiments.session import Setup


def sequences(setup: Setup) -> tuple[list[int], list[list[int]]]:
    """Return (token ids of the prefix, token ids of every pass with the prefix before its new tokens).

    First a pass of each number of new tokens for the warm-up, then `timed` of each, shuffled by the run's
    number. The first new token of a pass is that of no other: a cache keeps the prefix alone. ValueError for
    an engine that keeps no prefix, and for more passes than the fixed text has different tokens.
    """
    values = setup.parameters
    notebook.at_least(1, prefix_tokens=values["prefix_tokens"], timed=values["timed"])
    counts = notebook.numbers("new_tokens", values["new_tokens"])
    if not setup.backend.can("keep_prefix"):
        able = ", ".join(other.name for other in backends.usable() if other.can("keep_prefix"))
        raise ValueError(
            f"The adapter of {setup.backend.name} keeps no prefix between calls. These do: {able}."
        )
    if max(counts) >= contract.AFTER_PREFIX:
        raise ValueError(f"new_tokens must be below {contract.AFTER_PREFIX}, not {max(counts)}.")
    ids = setup.checkpoint.encode(inputs.text())
    prefix, different = ids[: values["prefix_tokens"]], sorted(set(ids))
    shuffle = random.Random(setup.run_id.rpartition("-")[2])
    lengths = counts * values["timed"]
    shuffle.shuffle(lengths)
    lengths = counts + lengths
    if len(lengths) > len(different):
        raise ValueError(
            f"The text has {len(different)} different tokens, too few for {len(lengths)} passes."
        )
    first = shuffle.sample(different, len(lengths))
    rest = [shuffle.choices(different, k=length - 1) for length in lengths]
    return prefix, [[*prefix, token, *more] for token, more in zip(first, rest)]
