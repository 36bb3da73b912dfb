"""The levels of load of serving.ipynb."""

import math
from collections.abc import Iterable, Iterator

import pandas as pd

from bench.backends.common.servers import RunningServer
from bench.experiments import notebook
from bench.experiments.session import Setup
from bench.instrument.load import prefix_cache, schedule
from bench.observations import checks, schema
from bench.topics import levels
from llm_measured.core import naming
from llm_measured.core.definitions import Fields

WARM_PLACES = 16  # warm-up requests at once, at most
WARM_TOKENS = 128  # of each of them on a GPU: a round of a second shows a change of 3 %
NOT_SENT = "Not sent: "  # how the error of a request begins that a level's end left unsent
OWN = 0  # requests at once: as many as the engine takes of itself
USUAL_CONTEXT = 4096  # where a model does not say how much its context has room for
BUDGET_S = 600.0  # of the levels of a server that runs already, unless more is asked for
LONE = 3  # requests at one place, however slow
FEW = 12  # requests of a level, and three for each place, where all that were planned take longer
BURST = 1.5  # tokens per arrival, in the middle answer: more is said
REGULAR = 0.75  # of the largest arrival: bursts of one size are a proxy's, an engine's that drafts differ
OWN_WISH = "continuous_usage_stats"  # a field of the body that nobody but this client asked for
SMALL = ("1 2 4 8 16", "1 2 4 8", 0.25)  # on a CPU: places, rates, scale
LARGE = ("1 4 8 10 16 20 30 64", "1 2 4 8 16", 1.0)


class Load:
    """The levels of load of one run of serving.ipynb: (level, its prompts), the closed loops first, each kind
    until the server is saturated."""

    arrivals = "poisson"  # where nobody says

    def __init__(self, setup: Setup) -> None:
        self._begin(setup)
        values = setup.parameters
        places, offered, scale = SMALL if setup.device == "cpu" and not values["url"] else LARGE
        self.levels = _levels(values, places, offered, self.run)
        self.scale = values["scale"] = values["scale"] or scale  # the sidecar keeps what was chosen
        self.most = setup.checkpoint.config.get("max_position_embeddings", USUAL_CONTEXT)
        self.sizes = [
            schedule.lengths(values["lengths"], level.requests, self.scale, self.most, self.run)
            for level in self.levels
        ]
        self.room = max(prompt + new for sizes in self.sizes for prompt, new in sizes)
        self.before, self.done = {}, set()
        self.sent = 0  # prompts of earlier levels

    def _begin(self, setup: Setup) -> None:
        """Reset what a load of any workload records before a run of `setup`, and put the workload's own
        arrivals where the parameters say `auto`."""
        self.setup, self.levels = setup, []
        self.started_servers: list[Fields] = []  # settings and warm-up of each server that was started
        self.said_no_reuse = False
        self.left_out: list[schedule.Level] = []
        self.few = False  # whether levels were cut to FEW requests
        self.counted = 1.0  # share of a prompt's tokens that the server counts, by its own tokenizer
        self.run: int = int(naming.split_number(setup.run_id)[1])
        values = setup.parameters
        self.source = setup.source()
        values["arrivals"] = self.arrivals if values["arrivals"] == "auto" else values["arrivals"]

    def __str__(self) -> str:
        words = ", ".join(str(level) for level in self.levels)
        lengths = self.setup.parameters["lengths"]
        count = sum(level.requests for level in self.levels)
        return (
            f"{lengths} lengths x {self.scale:g}, up to {self.room} tokens a request; {count} requests; "
            f"levels: {words}"
        )

    def servers(self) -> Iterable[tuple]:
        """(requests at once, declared prefix cache: none here, levels and their sizes) for each server
        that is to be started, one after the other.

        Closed loops have a place for each of their requests. Arrivals have no such number: they meet the
        engine's own limits. A server that runs already has its own for both.
        """
        closed, opened = (
            [pair for pair in zip(self.levels, self.sizes) if (pair[0].kind == "closed") == kind]
            for kind in (True, False)
        )
        if self.setup.parameters["url"]:
            return [(OWN, None, closed + opened)]
        places = max((level.value for level, _ in closed), default=OWN)
        return [(at_once, None, pairs) for at_once, pairs in ((places, closed), (OWN, opened)) if pairs]

    def warm_up(self, served: RunningServer, places: int) -> None:
        """Requests that are dropped, enough to have every place used once, on a GPU again and again until
        two rounds took the same time at the same clocks; then the trial for a prefix cache.
        RuntimeError with the first failure where one failed, checks.Rejected where a GPU's server never
        settles or a cache answers.
        """
        self.started_servers.append(
            {"requests_at_once": places or "the engine's own limit"} | served.settings
        )
        self.setup.note(servers=self.started_servers)
        on_gpu = self.setup.device == "cuda"
        own = bool(self.setup.parameters["url"])
        new_tokens = 32 if own else 16  # the pace of an own server's tokens is taken from them
        if on_gpu:
            new_tokens = min(WARM_TOKENS, max(16, self.room - 64))
        widest = max((level.value for level in self.levels if level.kind == "closed"), default=WARM_PLACES)
        sizes = [(64, new_tokens)] * int(min(places or WARM_PLACES, WARM_PLACES, widest))
        warmup = self.setup.warmup = self.started_servers[-1]["warmup"] = []
        for turn in range(checks.WARMUPS if on_gpu else 1):
            warmup.append(self._round(served, sizes, first=10**6 + turn * WARM_PLACES))
            if checks.settled(warmup):
                break
        if on_gpu and not checks.settled(warmup):
            raise checks.Rejected(
                f"The server's warm-up had not settled: {warmup[-2:]} after {len(warmup)} rounds."
            )
        self._try_cache(served)
        if own and self.levels:
            alone_s = self._round(served, sizes[:1], first=3 * 10**6)["e2e_s"]
            self._fit(alone_s / new_tokens, len(sizes) * alone_s / warmup[-1]["e2e_s"])

    def _fit(self, token_s, gain):
        """Say how many minutes the levels take at `token_s` s per token of a request that is alone, and with
        others at `gain` times its tokens/s at most. Where nobody asked for them by number and they take
        longer than BUDGET_S, each has FEW requests, and those beyond it are left out."""
        values, trial = self.setup.parameters, self.setup.settings["prefix_cache_trial"]
        every = [size for sizes in self.sizes for size in sizes]
        prompt_tokens, new_tokens = (sum(one) / len(every) for one in zip(*every))
        ttft_s = max(trial["fresh_ttft_s"]) * prompt_tokens / self.longest_prompt()
        answer_s = ttft_s + token_s * new_tokens
        asked = {"closed": values["concurrency"] != "auto", "open": values["request_rates"] != "auto"}
        free = [not values["requests"] and not asked.get(level.kind, True) for level in self.levels]

        def takes_s(level):
            if level.kind == "closed":
                return level.requests * answer_s / min(level.value, max(1.0, gain))
            sent = level.requests
            if not values["requests"]:  # what `_long_enough` makes of it
                sent = max(sent, self._fewest(level, answer_s))
            return max(sent * answer_s / max(1.0, gain), sent / level.value) + answer_s

        if any(free) and sum(map(takes_s, self.levels)) > BUDGET_S:
            self.few, self.answer_s = True, answer_s
            for level, sizes, cut in zip(self.levels, self.sizes, free):
                if cut:
                    level.requests = min(level.requests, self._fewest(level, answer_s))
                    del sizes[level.requests :]
                    level.at_s = None if level.at_s is None else level.at_s[: level.requests]
        spent_s = 0.0
        for level, cut in sorted(zip(self.levels, free), key=lambda pair: pair[0].value):
            full = spent_s + takes_s(level) > BUDGET_S or level.kind in {one.kind for one in self.left_out}
            if cut and spent_s and full:
                self.left_out.append(level)
            else:
                spent_s += takes_s(level)
        minutes = max(1, round(spent_s / 60))
        print(f"The levels take about {minutes} minute{'s' if minutes > 1 else ''}.")
        if self.few:
            rest = f" Left out: {', '.join(map(str, self.left_out))}." if self.left_out else ""
            print(
                f"To stay below {BUDGET_S / 60:.0f} a level has {FEW} requests, or three for each place, too "
                f"few for its percentiles.{rest} -p concurrency, -p request_rates or -p requests ask for "
                "more."
            )

    def _fewest(self, level, answer_s):
        """The requests of a level that is cut: of the first, always measured, what BUDGET_S takes."""
        if level.kind == "open":
            return max(FEW, math.ceil(levels.lasts_s(level.value, answer_s) * level.value))
        if level.value == 1:
            return max(LONE, min(FEW, int(BUDGET_S / answer_s)))
        return max(FEW, 3 * int(level.value))

    def _round(self, served, sizes, first):
        """One round of the warm-up: {e2e_s: from the first request to the last token} and the GPUs' state."""
        rows = self._send(served, len(sizes), sizes, first)
        failed = [row["error"] for row in rows if row["error"]]
        without = {OWN_WISH: None}
        if failed and OWN_WISH in failed[0] and served.changes.get("stream_options") != without:
            print(f"The server rejects {OWN_WISH}, which is this client's own wish: it is asked without it.")
            served.changes["stream_options"] = without
            return self._round(served, sizes, first)
        if failed:
            raise RuntimeError(f"The warm-up failed, so nothing was measured: {failed[0]}")
        # A short prompt is never cut: as many of a long one's tokens are what this server counts of it.
        self.counted = min(1.0, rows[0]["prompt_tokens"] / sizes[0][0])
        began, ended = min(r["sent_s"] for r in rows), max(r["sent_s"] + r["e2e_s"] for r in rows)
        return {"e2e_s": ended - began} | self.setup.taken.gpu_state()

    def _try_cache(self, served, off=False):
        """Hold what the server says of itself against its times and texts; the sidecar keeps what came of it.
        checks.Rejected where a cache answers that nobody can see, or that is declared `off`."""
        trial = self._trial(served)
        self.setup.note(prefix_cache_trial=trial)
        if why := prefix_cache.why_not(trial, off):
            raise checks.Rejected(why)
        if unknown := prefix_cache.unknown(trial):
            print(unknown)

    def _trial(self, served):
        """The result of a trial with prompts as long as the longest of the levels."""
        sizes = [(self.longest_prompt(), 2)] * prefix_cache.PROMPTS
        rows = self._send(served, 1, sizes, first=2 * 10**6, prepare=prefix_cache.trial)
        trial = prefix_cache.result(rows)
        if self.setup.parameters["url"]:
            self._identify(served, rows)
            if why := prefix_cache.cut(rows, sizes[0][0], prefix_cache.CUT_SHARE * self.counted):
                raise checks.Rejected(why)
        self.answers_as = rows[0].get("answered_by", "")
        return trial

    def _identify(self, served, rows):
        """Raise checks.Rejected where the answers name another model than asked for and than `answers_as`."""
        named, values = rows[0].get("answered_by", ""), self.setup.parameters
        asked = values.get("answers_as") or served.model
        if named and not naming.same_model(named, asked):
            raise checks.Rejected(
                f"The server was asked for {asked} and answers as {named}. If that is the model to measure: "
                f"-p answers_as {named}."
            )
        self.setup.note(answers_as=named)

    def longest_prompt(self) -> int:
        """Return the tokens of the longest prompt of the levels, as far as the model's context takes it."""
        longest = max(prompt for sizes in self.sizes for prompt, _ in sizes)
        return max(schedule.HEAD_TOKENS, min(longest, self.most - 2))

    def _send(self, served, places, sizes, first, prepare=list):
        """Rows of requests that do not count."""
        prompts = prepare(schedule.prompts(self.setup.checkpoint, sizes, self.source, first))
        level = schedule.Level("closed", places, len(prompts))
        return self.setup.drive(served, level, prompts, counts=False)

    def each(self, pairs: list) -> Iterator[tuple]:
        """(level, its prompts) of the `pairs` of one server, until their kind is saturated."""
        pairs = [pair for pair in pairs if pair[0] not in self.left_out]
        for level, sizes in self.setup.progress(pairs, len(pairs)):
            if level.kind in self.done:
                continue
            if level.kind == "open" and not self.setup.parameters["requests"]:
                level = self._long_enough(level)
                sizes = [sizes[k % len(sizes)] for k in range(level.requests)]
            self.now = level
            yield level, schedule.prompts(self.setup.checkpoint, sizes, self.source, self.sent)
            self.sent += level.requests

    def _long_enough(self, level):
        """The open loop `level`, of more requests where the answers of the levels before it took long."""
        before = [rows for tables in self.before.values() for rows in tables]
        answer_s = max(map(levels.median_answer_s, before), default=0.0)
        values = self.setup.parameters
        if self.few:  # no more than were said before the first level
            count = self._fewest(level, self.answer_s)
        else:
            count = levels.requests_for("open", level.value, values["percentile"], answer_s)
        if count > level.requests:
            (level,) = schedule.plan([], [level.value], lambda *_: count, values["arrivals"], self.run)
        if level.requests / level.value > levels.LONG_S:
            print(
                f"{level} take {level.requests / level.value / 60:.0f} minutes: answers have taken "
                f"{answer_s:.0f} s, and an open loop lasts at least {levels.ANSWERS} times as long. A "
                "smaller `scale` or fewer `requests` shorten it."
            )
        return level

    def note(self, rows: list[Fields]) -> list[Fields]:
        """Look whether the level that gave `rows` saturated the server; returns them, as failed where the
        client was late with them."""
        whys = [row["error"].removeprefix(NOT_SENT) for row in rows if row["error"].startswith(NOT_SENT)]
        rows = [row for row in rows if not row["error"].startswith(NOT_SENT)]
        gone = rows[-1]["error"].startswith("ConnectionRefused")
        if gone:  # with requests under way, whose tokens a rate would lack
            whys.append("The server is gone.")
        ended = whys[0] if whys else ""
        rows = [self._of_one_model(row) | {"level_ended": ended} for row in rows]
        kept = self.punctual(rows)
        if kept is not rows:
            return kept
        table, kind = schema.frame(rows), self.now.kind
        self._tell(table)
        if ended:
            often = table.loc[table["error"] != "", "error"].mode().iloc[0]
            print(
                f"{self.now} ended after {len(rows)} of {self.now.requests} requests: {ended} Often: "
                f"{often.rstrip('.')}. It has no rate."
            )
        elif levels.short(table):
            edge = f"{len(rows)} requests at {self.now} are too few beside ramp and drain"
            print(f"Too short: {edge}, so this level is compared with nothing; leave `requests` at 0.")
        self.before.setdefault(kind, []).append(table)
        if gone:
            print(
                f"The server is gone since {self.now}: {rows[-1]['error']}. All further levels are left out."
            )
            self.done |= {level.kind for level in self.levels}
        elif (table["error"] != "").all():
            self._end(f"No request was answered at {self.now}: {rows[0]['error']}.")
        elif not ended and levels.saturated(self.before[kind]):
            self._end(f"Saturated at {self.now}: more load gives hardly more tokens/s.")
        return rows

    def _of_one_model(self, row):
        """`row`, as failed where its answer names another model than the trial's did."""
        named, before = row.get("answered_by", ""), getattr(self, "answers_as", "")
        if not (named and before) or named == before:
            return row
        return row | {"error": f"The answer names {named}, those before named {before}.", "output_tokens": 0}

    def _tell(self, table):
        """Say which times the good answers of a level do not have and why, what came together, and what the
        client had to do for the level."""
        good = table[table["error"] == ""]
        without, together = good[good["unmeasured"] != ""], good["arrival_tokens_mean"]
        if len(without):
            print(
                f"{len(without)} of {len(table)} answers at {self.now} have no TPOT, or no TTFT either. "
                f"The first: {without['unmeasured'].iloc[0]}"
            )
        if together.median() > BURST:
            late = good["late_arrivals"].sum() * together.median() / good["output_tokens"].sum()
            whose = "An engine that drafts, or one that sends several tokens at once, does so."
            if late > 0.5:
                whose = "The load client itself read them late: this machine is busy."
            elif (together >= REGULAR * good["arrival_tokens_max"]).mean() > 0.5:
                whose = "They come in bursts of one size: a proxy may keep them back."
            print(f"{together.median():.3g} tokens arrive together at {self.now}. {whose}")
        fared = self.setup.client[-1] if self.setup.client else {}
        if fared.get("paused_s"):
            waited = f"{fared['pauses']} times a place waited after a failure"
            print(f"{waited}, {fared['paused_s']:.3g} s in all.")
        if fared.get("away_s"):
            print(f"The server was away for {fared['away_s']:.3g} s, and is waited for.")
        if (
            not fared.get("reuses", True)
            and not self.setup.parameters["fresh_connections"]
            and not self.said_no_reuse
        ):
            print("The server closes connections that wait: from then on each request has one of its own.")
            self.said_no_reuse = True

    def punctual(self, rows: list[Fields]) -> list[Fields]:
        """`rows` of the level under way, as failed where the client was late with them."""
        why = checks.late(schema.frame(rows)) if self.now.kind != "closed" else ""
        if not why:
            return rows
        print(why)
        return [row | {"error": why, "output_tokens": 0} for row in rows]

    def table(self, requests: pd.DataFrame) -> pd.DataFrame:
        """What the notebook shows of the run `requests` (`store.load`): one row per level."""
        shown = "concurrency request_rate state backlog requests counted failed output_tokens_per_s "
        shown += (
            "goodput_per_s met ttft_p50_s ttft_p90_s ttft_max_s tpot_p50_s tpot_p90_s tpot_max_s late_max_s"
        )
        return levels.levels(requests)[shown.split()]

    def _end(self, why):
        """Leave out the further levels of this kind, and say why."""
        kind = self.now.kind
        self.done.add(kind)
        rest = [str(one) for one in self.levels if one.kind == kind and one.value > self.now.value]
        print(why + (f" Left out: {', '.join(rest)}." if rest else ""))


def _levels(values, places, offered, run):
    """The levels that the parameters name, with the arrivals of run number `run`; ValueError where there are
    none, or where the percentile is none that is shown."""
    closed = notebook.or_auto(values["concurrency"], notebook.numbers, "concurrency", places)
    opened = notebook.or_auto(values["request_rates"], notebook.rates, "request_rates", offered)
    notebook.at_least(0, requests=values["requests"], scale=values["scale"])
    if values["percentile"] not in levels.TAILS:
        raise ValueError(
            f"Parameter percentile must be one of {', '.join(map(str, levels.TAILS))}, not "
            f"{values['percentile']}."
        )

    def requests(kind, load):
        return values["requests"] or levels.requests_for(kind, load, values["percentile"])

    found = schedule.plan(closed, opened, requests, values["arrivals"], run)
    if not found:
        raise ValueError(
            "There is nothing to do: give concurrency, such as '1 4 8', or request_rates, such as '1 2 4'."
        )
    return found
