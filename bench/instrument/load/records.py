"""One request of a load: as it is sent, and as its answer was recorded."""

import math
from dataclasses import dataclass, field
from typing import Any

READ_COST_BYTES = 400  # what Python keeps beside the bytes of one read


@dataclass
class Call:
    """One request as bytes, its schedule, and the token counts that its answer must have.

    `at_s` is when it is due, s after the start; None: as soon as a place is free. `prompt_tokens` is None
    where the prompt goes as text, of which the server makes tokens.

    The turn `turn` (from 1) of the session `session` begins when call number `after` has been answered:
    at `at_s`, where that is later, or without it `gap_s` after the answer. `own` (None: the payload is whole)
    makes the request of the answer before it.
    """

    number: int
    payload: bytes = field(repr=False)  # it may carry an access token
    at_s: float | None
    prompt_tokens: int | None
    new_tokens: int
    session: int | None = None
    turn: int | None = None
    after: int | None = None
    gap_s: float = 0.0
    exact: bool = True  # whether the answer must have `new_tokens`, or at most so many
    own: Any = field(default=None, repr=False)  # a `sessions.Own`, which imports this module

    @property
    def scheduled(self) -> bool:
        """Whether its times count from the moment at which it was due."""
        return self.at_s is not None or self.after is not None


@dataclass
class Answer:
    """Moments (s, monotonic clock) and bytes of one request as they were recorded; `error` where it failed.

    `reads` has one (moment after the read, ancillary data with the kernel's stamp, bytes) per read.
    """

    call: Call
    due: float
    begun: float = math.nan  # the client takes it up
    connected: float = math.nan  # NaN where an open connection served
    sent: float = math.nan
    reads: list = field(default_factory=list)
    error: str = ""
    ended: float = math.nan
    stream: Any = None  # the `connection.Stream` that carries it, which imports this module
    dialled: float = math.nan  # the connection that served was begun, where that is set-up of nothing else
    head: Any = None  # the `http1.Head` of a complete answer
    retries: int = 0  # connections that failed before the server had begun to work
    free: float = math.nan  # from then on it may begin: when due, or when the answer before it has come

    def __post_init__(self) -> None:
        if math.isnan(self.free):
            self.free = self.due

    @property
    def bytes_held(self) -> int:
        """Bytes of memory that the reads take."""
        return sum(len(read[2]) + READ_COST_BYTES for read in self.reads)
