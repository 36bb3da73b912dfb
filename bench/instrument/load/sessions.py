"""Sessions as a load: their calls, turn after turn, with the history that each prompt has.

With `history` given, every payload is there before the clock runs. With `history` own, a prompt is made
when the answer before it has come: of the prompt that was sent, the answer, and what the user adds. What
that takes counts: the turn may begin when the answer before is there, and is late by it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from bench.instrument.load import protocols, records, schedule
from llm_measured.core.definitions import Fields

if TYPE_CHECKING:
    from bench import prefix_cache
    from bench.backends.common.servers import RunningServer
    from bench.workloads import Turn, Workload


class SessionLevel:
    """A load of sessions: `workload` at `value` sessions per second.

    `declared` is the cache, None where nothing is declared; `before` how
    many sessions earlier levels of the run had; `arrivals` says how they arrive; `until_s` after its
    start it ends.
    """

    kind, at_s = "sessions", None

    def __init__(
        self,
        workload: Workload,
        declared: prefix_cache.Declared | None,
        name: str,
        arrivals: str,
        before: int = 0,
        until_s: float | None = None,
    ) -> None:
        self.workload, self.declared, self.name, self.arrivals = workload, declared, name, arrivals
        self.before, self.until_s = before, until_s
        self.value, self.requests = workload.session_rate, workload.requests

    @property
    def turns(self) -> list[tuple[int, int, Turn]]:
        """[(number of the session within the run, number of the turn from 1, `workloads.Turn`)]."""
        return [
            (self.before + session.number, number, turn)
            for session in self.workload.sessions
            for number, turn in enumerate(session.turns, start=1)
        ]

    @property
    def prompts(self) -> list[protocols.Prompt]:
        """The planned prompts of the turns, as ids."""
        return [protocols.Prompt(turn.prompt, "", turn.new_tokens) for _, _, turn in self.turns]

    @property
    def condition(self) -> Fields:
        """The columns that say what the load was."""
        capacity = None if self.declared is None else self.declared.capacity_tokens
        off = self.declared is not None and self.declared.kind == "off"
        return {
            "workload": self.name,
            "arrivals": self.arrivals,
            "history": self.workload.history,
            "session_rate": self.value,
            "cache_capacity_tokens": 0 if off else capacity,
        }

    def __str__(self) -> str:
        size = self.condition["cache_capacity_tokens"]
        cache = "cache off" if size == 0 else "a cache" if size is None else f"a cache of {size} tokens"
        return f"{self.value:.3g} sessions/s ({self.arrivals}), {cache}"


class Own:
    """A turn whose prompt has the server's own answers for history: `prompt` (None until it can be
    known), and `added`, what the user adds to the answer before."""

    def __init__(
        self,
        recipe: Callable[[protocols.Prompt], bytes],
        prompt: protocols.Prompt | None,
        added: protocols.Prompt,
    ) -> None:
        self.recipe, self.added = recipe, added
        self.prompt: Any = prompt  # a Prompt once it is known, and then for good

    @property
    def ids(self) -> tuple[int, ...] | None:
        """The prompt's token ids, None while it is not known."""
        return None if self.prompt is None else self.prompt.ids

    def follow(
        self, call: records.Call, answer: records.Answer, row: Fields, encode: Callable[[str], Sequence[int]]
    ) -> None:
        """Make the request of `call` after `answer`, whose measured columns are `row`."""
        before, text = answer.call.own.prompt, row["content"]  # no client sends a model its thoughts back
        ids = row["output_ids"]
        if call.prompt_tokens and (len(ids) != row["output_tokens"] or text != row["text"]):
            ids = encode(text)
        history = (*before.messages, ("assistant", text), ("user", self.added.text))
        self.prompt = protocols.Prompt(
            (*before.ids, *ids, *self.added.ids),
            before.text + text + self.added.text,
            self.added.new_tokens,
            history if before.messages else (),
        )
        call.payload = self.recipe(self.prompt)
        call.prompt_tokens = len(self.prompt.ids) if call.prompt_tokens else None


def calls(
    served: RunningServer, level: SessionLevel, decode: Callable[[Sequence[int]], str], first: int = 1
) -> list[records.Call]:
    """Return the requests of a level, numbered from `first`, session by session; in a chat the
    planned answers stand between its turns.

    `decode` makes text of token ids, for servers that take text, whose prompts nobody counts before they are
    sent. With the history `own` a later turn repeats the answers that the server gave: its payload is made
    when the answer before it has come (`Own`).
    """
    made: list[records.Call] = []
    last: int | None = None
    messages: tuple[tuple[str, str], ...] = ()
    by_ids, chat = served.dialect in protocols.BY_IDS, served.dialect == "chat"
    own = level.workload.history == "own"
    for number, (session, turn, planned) in enumerate(level.turns, start=first):
        text = "" if by_ids else decode(planned.prompt)
        new_text = "" if by_ids else decode(planned.added)
        if turn == 1:
            messages = ()
        messages = (*messages, ("user", new_text)) if chat else ()
        prompt = protocols.Prompt(planned.prompt, text, planned.new_tokens, messages)
        headers = {"X-Session-ID": str(session), "X-Turn": str(turn)}
        recipe = schedule.recipe(served, planned.new_tokens, headers)
        call = records.Call(
            number=number,
            payload=b"" if own and turn > 1 else recipe(prompt),
            at_s=planned.at_s,
            prompt_tokens=len(planned.prompt) if by_ids else None,
            new_tokens=planned.new_tokens,
            session=session,
            turn=turn,
            after=last if turn > 1 else None,
            gap_s=planned.gap_s or 0.0,
            exact="length" not in protocols.uncertain(served.dialect, served.changes),
        )
        if own:
            added = protocols.Prompt(planned.added, new_text, planned.new_tokens)
            call.own = Own(recipe, prompt if turn == 1 else None, added)
        elif chat:
            text = decode(_answer(level, session, turn))
            messages = (*messages, ("assistant", text)) if text else messages
        made.append(call)
        last = number
    return made


def _answer(level: SessionLevel, session: int, turn: int) -> tuple[int, ...]:
    """The token ids of the workload's answer to a turn: what stands between its prompt and what is
    added next."""
    turns = level.workload.sessions[session - level.before - 1].turns
    if turn == len(turns):
        return ()
    before, after = turns[turn - 1], turns[turn]
    return after.prompt[len(before.prompt) : len(after.prompt) - len(after.added)]
