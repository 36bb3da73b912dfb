"""Options that draft tokens which the model then checks (speculative decoding)."""

import re

from bench import backends
from llm_measured.core import naming


def drafts(backend: str, option: str) -> bool:
    """Whether `option` of an engine drafts tokens, as its adapter declares; False without an adapter here."""
    try:
        return backends.get(backend).drafts(naming.plain_option(option))
    except Exception:  # whatever a contributed adapter does wrong, the observations stay readable
        return False


def undrafted(option: str) -> str:
    """Name of the same option without drafts: `Q8_0-ngram` -> `Q8_0`, `Q8_0-ngram (2.0)` -> `Q8_0 (2.0)`."""
    own, space, more = option.partition(" ")
    return re.sub(r"-[^-]*$", "", own) + space + more
