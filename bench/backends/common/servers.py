"""What an experiment asks of a server, and what a server that answers is."""

from dataclasses import dataclass, field
from pathlib import Path


@dataclass(frozen=True)
class Wanted:
    """What a study wants of a server: how many requests at once and how many tokens each (prompt and answer), CPU threads, how many devices
    share the model, where it logs; `url` where one runs already; how many replicas of the model stand behind its address."""

    requests: int
    tokens: int
    threads: int
    tensor_parallel: int = 1
    log: Path = Path("logs/server.txt")
    patience_s: float = 600
    url: str = ""
    data_parallel: int = 1


@dataclass
class Served:
    """A server that answers: where, in which of `bench.instrument.load.protocols`, under which model name, and what goes into the body of every request.

    `body` is a function of the number of new tokens, because some servers are told to go on that long. `token` is the access token, if it
    wants one. How many bytes a step reads is not said: how many requests a step serves is the server's own affair, so there is no MBU.
    """

    url: str
    dialect: str
    model: str
    settings: dict
    body: object = lambda new_tokens: {}
    token: str = field(default="", repr=False)
    weight_bytes: None = None
    kv_value_bytes: None = None

    def close(self):
        """Nothing: whoever started it stops it."""
