"""What an experiment needs of a server, and what a server that answers is."""

from dataclasses import dataclass, field
from pathlib import Path


@dataclass(frozen=True)
class Wanted:
    """What a study needs of a server.

    `requests` at once (0: as many as the engine takes of itself) with `tokens` each (prompt and answer), CPU
    `threads`, how many devices share the model (`tensor_parallel`), where it logs and how long it may take to
    start (s); `url` where one runs already; how many replicas of the model stand behind its address
    (`data_parallel`).
    """

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
    """A server that answers.

    `dialect` is a name in `bench.instrument.load.protocols`, `model` the name that it has for the model,
    `body` a function of the number of new tokens that returns what goes into the body of every request (some
    servers need that number), `token` the access token, if it needs one. Which bytes a step reads is unknown,
    because how many requests a step serves is the server's own affair: there is no MBU.
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
