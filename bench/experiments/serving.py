"""The levels of load of serving.ipynb."""

from bench.analysis import levels
from bench.experiments import parameters
from bench.instrument.load import schedule
from bench.observations import gates, schema

OPEN_PLACES = 16  # requests at once that a server is prepared for where only arrivals are scheduled
USUAL_CONTEXT = 4096  # where a model does not say how much its context has room for
SMALL = ("1 2 4 8 16", "0.5 1 2 4 8", 0, 0.25)  # on a CPU: places, rates, requests per level, scale
LARGE = ("1 4 8 10 16 20 30 64", "1 2 4 8 16", 500, 1.0)


class Load:
    """The levels of load of one run of serving.ipynb: (level, its prompts), the closed loops first, each kind
    until the server is saturated."""

    def __init__(self, setup):
        self.setup, values = setup, setup.parameters
        small = setup.device == "cpu" and not values["url"]
        places, offered, requests, scale = SMALL if small else LARGE
        self.levels = _levels(values, places, offered, values["requests"] or requests)
        self.scale = values["scale"] = values["scale"] or scale  # the sidecar keeps what was chosen
        self.most = setup.checkpoint.config.get("max_position_embeddings", USUAL_CONTEXT)
        lengths = values["lengths"]
        self.sizes = [
            schedule.lengths(lengths, level.requests, self.scale, self.most) for level in self.levels
        ]
        self.room = max(prompt + new for sizes in self.sizes for prompt, new in sizes)
        self.places = max([level.value for level in self.levels if level.kind == "closed"] or [OPEN_PLACES])
        self.before, self.done = {}, set()

    def __str__(self):
        words = ", ".join(str(level) for level in self.levels)
        lengths = self.setup.parameters["lengths"]
        return f"{lengths} lengths x {self.scale:g}, up to {self.room} tokens a request; levels: {words}"

    def warm_up(self, served):
        """Requests of the first level's kind that are dropped: enough to have every place used once.

        RuntimeError with the first failure where one failed.
        """
        sizes = [(64, 16)] * min(self.places, OPEN_PLACES)
        level = schedule.Level("closed", len(sizes), len(sizes))
        prompts = schedule.prompts(self.setup.checkpoint, sizes, first=10**6)
        failed = [row["error"] for row in self.setup.drive(served, level, prompts) if row["error"]]
        self.setup.recorder.client.clear()
        if failed:
            raise RuntimeError(f"The warm-up failed, so nothing was measured: {failed[0]}")

    def __iter__(self):
        number = 0
        for level, sizes in self.setup.progress(list(zip(self.levels, self.sizes)), len(self.levels)):
            if level.kind in self.done:
                continue
            self.now = level
            yield level, schedule.prompts(self.setup.checkpoint, sizes, first=number)
            number += level.requests

    def note(self, rows):
        """Look whether the level that gave `rows` saturated the server; returns them, as failed where the
        client was late with them."""
        table, kind = schema.frame(rows), self.now.kind
        why = gates.late(table) if kind != "closed" else ""
        if why:
            print(why)
            return [row | {"error": why, "output_tokens": 0} for row in rows]
        self.before.setdefault(kind, []).append(table)
        if levels.saturated(self.before[kind]):
            self.done.add(kind)
            rest = [str(one) for one in self.levels if one.kind == kind and one.value > self.now.value]
            left_out = f" Left out: {', '.join(rest)}." if rest else ""
            print(f"Saturated at {self.now}: more load gives hardly more tokens/s.{left_out}")
        return rows


def _levels(values, places, offered, requests):
    """The levels that the parameters name; ValueError where there are none."""
    closed = parameters.or_auto(values["concurrency"], parameters.numbers, "concurrency", places)
    opened = parameters.or_auto(values["request_rates"], parameters.rates, "request_rates", offered)
    parameters.at_least(0, requests=requests, scale=values["scale"])
    if values["arrivals"] == "trace":
        found = schedule.plan(closed, [], requests, "poisson") + schedule.replay(values["lengths"])
    else:
        found = schedule.plan(closed, opened, requests, values["arrivals"])
    if not found:
        raise ValueError(
            "There is nothing to do: give concurrency, such as '1 4 8', or request_rates, such as '1 2 4'."
        )
    return found
