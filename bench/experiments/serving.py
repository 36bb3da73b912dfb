"""The levels of load of serving.ipynb."""

from bench.analysis import levels
from bench.experiments import parameters
from bench.instrument.load import schedule
from bench.observations import gates, schema

OPEN_PLACES = 16  # requests at once that a server is prepared for where only arrivals are scheduled


class Load:
    """The levels of load of one run of serving.ipynb: (level, its prompts), the closed loops first, each kind until the server is saturated."""

    def __init__(self, setup):
        given, small = setup.parameters, setup.device == "cpu" and not setup.parameters["url"]
        self.setup = setup
        places = parameters.or_auto(
            given["concurrency"],
            parameters.numbers,
            "concurrency",
            "1 2 4 8 16" if small else "1 4 8 10 16 20 30 64",
        )
        offered = parameters.or_auto(
            given["request_rates"],
            parameters.rates,
            "request_rates",
            "0.5 1 2 4 8" if small else "1 2 4 8 16",
        )
        requests = given["requests"] or (0 if small else 500)
        if given["arrivals"] == "trace":
            self.levels = schedule.plan(places, [], requests, "poisson") + schedule.replay(given["lengths"])
        else:
            self.levels = schedule.plan(places, offered, requests, given["arrivals"])
        if not self.levels:
            raise ValueError(
                "There is nothing to do: give concurrency, such as '1 4 8', or request_rates, such as '1 2 4'."
            )
        self.scale = given["scale"] = given["scale"] or (
            0.25 if small else 1.0
        )  # the sidecar keeps what was chosen
        self.most = setup.checkpoint.config.get("max_position_embeddings", 4096)
        self.sizes = [
            schedule.lengths(given["lengths"], level.requests, self.scale, self.most) for level in self.levels
        ]
        self.room = max(prompt + new for sizes in self.sizes for prompt, new in sizes)
        self.places = max([level.value for level in self.levels if level.kind == "closed"] or [OPEN_PLACES])
        self.before, self.done = {}, set()

    def __str__(self):
        words = ", ".join(str(level) for level in self.levels)
        return f"{self.setup.parameters['lengths']} lengths x {self.scale:g}, up to {self.room} tokens a request; levels: {words}"

    def warm_up(self, served):
        """Requests of the first level's kind that are dropped: enough to have every place used once."""
        sizes = [(64, 16)] * min(self.places, OPEN_PLACES)
        level = schedule.Level("closed", len(sizes), len(sizes))
        failed = [
            row["error"]
            for row in self.setup.drive(
                served, level, schedule.prompts(self.setup.checkpoint, sizes, first=10**6)
            )
            if row["error"]
        ]
        self.setup.client.clear()
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
        """Look whether the level that gave `rows` saturated the server; returns them, as failed where the client was late with them."""
        table = schema.frame(rows)
        why = gates.late(table) if self.now.kind != "closed" else ""
        if why:
            print(why)
            return [row | {"error": why, "output_tokens": 0} for row in rows]
        self.before.setdefault(self.now.kind, []).append(table)
        if levels.saturated(self.before[self.now.kind]):
            left = [
                str(level)
                for level in self.levels
                if level.kind == self.now.kind and level.value > self.now.value
            ]
            print(
                f"Saturated at {self.now}: more load gives hardly more tokens/s."
                + (f" Left out: {', '.join(left)}." if left else "")
            )
            self.done.add(self.now.kind)
        return rows
