"""Which of an engine's options a round measures: the words of study.yaml."""

from collections.abc import Sequence

from llm_measured.core import naming
from llm_measured.core.definitions import Fields


def _bits(option):
    """Bits per weight that the option's name states, 32 where it states none."""
    return naming.bits(option) or 32


# The words of study.yaml for the options of an engine. Of options with equally many bits the one offered
# first is taken.
CHOICES = {
    "all": list,
    "none": lambda offered: [],
    "default": lambda offered: offered[:1],
    "fewest_bits": lambda offered: [min(offered, key=_bits)],
    "default_and_fewest_bits": lambda offered: list(dict.fromkeys([offered[0], min(offered, key=_bits)])),
}


def measured_options(rounds: Fields, n: int, offered: Sequence[str]) -> Sequence[str]:
    """Those of the options `offered` that the n-th round measures; `rounds`: a word of CHOICES for
    first_round and for later_rounds."""
    word = rounds["first_round" if n == 1 else "later_rounds"]
    return CHOICES[naming.choose("choice of options in study.yaml", word, CHOICES)](offered)
