"""
What the updates of an agent mean for the turns of our session. Pure.

A turn is one `session/prompt`, from its writing to its answer, and there is one at a
time. An update names no turn, but most name a message or a call, and so their turn:

| the update names                | it belongs to                                        |
|---------------------------------|------------------------------------------------------|
| a message or call seen before   | the turn where that was first seen, ended or not     |
| a new message or call           | the turn that runs, if one does                      |
| nothing                         | the turn that runs: an agent must have said all of   |
|                                 | a turn before it answers the prompt. One that has    |
|                                 | spoken later is not believed any more after a cut,   |
|                                 | until it repeats the new prompt: it belongs to none  |

An entry surfaces when the agent's model answers: with the first words, thought or call
of its turn. Updates that name nothing are no evidence after a cut, for they could be
late; with the end of the turn they are. The end alone proves nothing, nor do the tokens
that it tells of: OpenCode ends the turn of an unknown /command so, which no model has
seen (measured). An agent's echo of the prompt only shows that it was accepted.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING

from attrs import define, field

from agentteam_protocol.delivery import Evidence
from agentteam_protocol.ids import mint
from agentteam_runtimes import jsonfields, logins
from agentteam_runtimes.acp import wire
from agentteam_runtimes.acp.calls import (
    call_failure,
    call_input,
    call_output,
    tokens,
)
from agentteam_runtimes.acp.record import Record
from agentteam_runtimes.driver import (
    Batch,
    ItemOutcome,
    Noticed,
    Output,
    RuntimeEvent,
    Said,
    Surfaced,
    ToolEnded,
    ToolStarted,
    TurnEnded,
    TurnRef,
    TurnStarted,
    TurnStatus,
)

if TYPE_CHECKING:
    from agentteam_protocol.ids import ItemId
    from agentteam_runtimes.jsonlines import JsonObject

MOST_REMEMBERED = 1024  # messages and calls: a long session stays small

STATUSES = {
    "end_turn": TurnStatus.completed,
    "cancelled": TurnStatus.interrupted,
    "max_tokens": TurnStatus.max_tokens,
    "max_turn_requests": TurnStatus.max_tokens,
}
ANSWERED = (TurnStatus.completed, TurnStatus.max_tokens)


@define
class Turn:
    """The turn that runs."""

    ref: TurnRef
    batch: Batch
    after_a_cut: bool
    started: bool = False
    surfaced: bool = False
    cut: bool = False
    refused: bool = False  # what it asked, by the cut
    spoke: bool = False  # words without a name
    message: str = ""  # the id of the one that its words belong to
    words: list[str] = field(factory=list[str])
    answer: str = ""

    @property
    def is_broken_off(self) -> bool:
        """
        Tell whether it was cut, though the agent calls it an end of the turn's own.

        OpenCode does when its ask was cancelled, and when it is cut before its model
        was asked: it then tells the tokens of the answer before, too (measured).
        """
        return self.refused or (self.cut and not (self.surfaced or self.spoke))


@define
class _Call:
    turn: TurnRef | None
    name: str = "tool"
    input: str = ""
    started: bool = False
    ended: bool = False


@define
class Turns:
    """The turns of one session, and what of them is known by name."""

    record: Record = field(factory=Record)
    how_to_log_in: str = "log in to the agent, with its own command"
    active: Turn | None = None
    _has_ended_one: bool = False
    _after_a_cut: bool = False
    _speaks_late: bool = False
    _messages: OrderedDict[str, TurnRef | None] = field(
        factory=OrderedDict[str, "TurnRef | None"]
    )
    _calls: OrderedDict[str, _Call] = field(factory=OrderedDict[str, _Call])

    def begin(self, batch: Batch) -> TurnRef:
        """Take it that a prompt is written now."""
        self.active = Turn(TurnRef(mint("turn")), batch, self._after_a_cut)
        self.record.submit(batch)
        return self.active.ref

    def not_begun(self) -> None:
        self.active = None
        self.record.take_back()

    def start(self) -> list[RuntimeEvent]:
        """Say that the turn has started, once."""
        turn = self.active
        if turn is None or turn.started:
            return []
        turn.started = True
        return [TurnStarted(turn.ref, turn.batch.id)]

    def failed(self, why: str) -> list[RuntimeEvent]:
        """Take a refusal of the prompt; one that was cut may end so, too."""
        turn = self.active
        if turn is None:
            return []
        cut = turn.cut or turn.refused
        status = TurnStatus.interrupted if cut else TurnStatus.failed
        return self._end(turn, status, why or "the agent failed", {})

    def stopped(self, answer: object) -> list[RuntimeEvent]:
        """Take the answer to the prompt: why the agent stopped."""
        turn = self.active
        if turn is None:
            return []
        stop = jsonfields.text(answer, "stopReason")
        status = STATUSES.get(stop, TurnStatus.failed)
        if status is TurnStatus.completed and turn.is_broken_off:
            status = TurnStatus.interrupted
        usage = tokens(jsonfields.mapping(answer, "usage"))
        why = "" if stop in STATUSES else f"the agent says {stop!r}"
        return self._end(turn, status, why, usage)

    def _end(
        self, turn: Turn, status: TurnStatus, detail: str, usage: dict[str, int]
    ) -> list[RuntimeEvent]:
        events = self.start()
        if status in ANSWERED and turn.spoke:
            events += self._surface(turn, "answer to the prompt")
        events += _flush(turn)
        items: dict[ItemId, ItemOutcome] = {}
        if status in ANSWERED and not turn.surfaced:
            # A command of the agent, maybe: it is done, and must not be done again.
            self.record.give_up()
            items = {item.id: ItemOutcome.unknown for item in turn.batch.items}
        # A turn that was cut, whatever its answer says, may still speak.
        self._after_a_cut = turn.cut or status is TurnStatus.interrupted
        self.active, self._has_ended_one = None, True
        return [
            *events,
            TurnEnded(
                turn.ref,
                status,
                detail,
                items,
                turn.answer,
                usage,
                advice=logins.advice(detail, self.how_to_log_in),
            ),
        ]

    def receive(self, update: JsonObject) -> list[RuntimeEvent]:
        """Say what an update means."""
        match jsonfields.text(update, "sessionUpdate"):
            case wire.MESSAGE_CHUNK:
                return self._chunk(update)
            case wire.THOUGHT_CHUNK:
                return self._sign(
                    self._owner_of_message(update), update, wire.THOUGHT_CHUNK
                )
            case wire.TOOL_CALL | wire.TOOL_CALL_UPDATE as kind:
                return self._tool(update, kind)
            case wire.USER_CHUNK:
                self._echo(wire.chunk_text(update))
                return []
            case _:
                return []

    def asks(self, call: JsonObject) -> tuple[TurnRef | None, list[RuntimeEvent]]:
        """Say which turn a permission request belongs to, and what that shows."""
        events = self._tool(call, wire.ASK_PERMISSION)
        known = self._calls.get(jsonfields.text(call, "toolCallId"))
        return (known.turn if known else self._nameless()), events

    def shown(self, call: JsonObject) -> str:
        """Show what the call was given that a request is about."""
        known = self._calls.get(jsonfields.text(call, "toolCallId"))
        return call_input(call) or (known.input if known else "")

    # Whose it is.

    def _nameless(self) -> TurnRef | None:
        turn = self.active
        if turn is None:
            self._speaks_late = self._has_ended_one
            return None
        return None if turn.after_a_cut and self._speaks_late else turn.ref

    def _owner_of_message(self, update: JsonObject) -> TurnRef | None:
        message = jsonfields.text(update, "messageId")
        if not message:
            return self._nameless()
        if message not in self._messages:
            self._messages[message] = self.active.ref if self.active else None
            if len(self._messages) > MOST_REMEMBERED:
                self._messages.popitem(last=False)
        return self._messages[message]

    def _call(self, id: str) -> _Call:
        if id not in self._calls:
            self._calls[id] = _Call(self.active.ref if self.active else None)
            if len(self._calls) > MOST_REMEMBERED:
                self._calls.popitem(last=False)
        return self._calls[id]

    def _echo(self, text: str) -> None:
        """Take a repetition of the prompt: what follows cannot be late."""
        turn = self.active
        if turn is not None and text in {item.text for item in turn.batch.items}:
            turn.after_a_cut = False

    # What it means.

    def _sign(
        self, owner: TurnRef | None, update: JsonObject, kind: str
    ) -> list[RuntimeEvent]:
        """Take a sign of life of the model in a turn."""
        turn = self.active
        if turn is None or owner != turn.ref:
            return []
        named = jsonfields.text(update, "messageId", "toolCallId")
        if not named and turn.after_a_cut:
            turn.spoke = True
            return self.start()
        return [*self.start(), *self._surface(turn, kind)]

    def _surface(self, turn: Turn, kind: str) -> list[RuntimeEvent]:
        if turn.surfaced:
            return []
        turn.surfaced = True
        evidence = Evidence(kind, detail=turn.ref.id)
        read = self.record.answered().items()
        return [Surfaced(turn.ref, item, key, evidence) for key, item in read]

    def _chunk(self, update: JsonObject) -> list[RuntimeEvent]:
        words = wire.chunk_text(update)
        owner, turn = self._owner_of_message(update), self.active
        events = self._sign(owner, update, wire.MESSAGE_CHUNK)
        if turn is not None and owner == turn.ref:
            message = jsonfields.text(update, "messageId")
            if message != turn.message:
                events += _flush(turn)
                turn.message = message
            turn.words.append(words)
        return [*events, Output(owner, words)] if words else events

    def _tool(self, update: JsonObject, kind: str) -> list[RuntimeEvent]:
        id = jsonfields.text(update, "toolCallId")
        if not id:
            return []
        call = self._call(id)
        events = self._sign(call.turn, update, wire.TOOL_CALL)
        if self.active is not None and call.turn == self.active.ref:
            events += _flush(self.active)
        call.name = jsonfields.text(update, "kind") or call.name
        call.input = call_input(update) or call.input
        status = jsonfields.text(update, "status")
        # A call that is pending is still being written: its input comes later.
        if not call.started and (kind != wire.TOOL_CALL or status != "pending"):
            call.started = True
            events.append(ToolStarted(call.turn, id, call.name, call.input))
        if status in ("completed", "failed") and not call.ended:
            call.ended = True
            error = call_failure(update) if status == "failed" else None
            events.append(ToolEnded(call.turn, id, call_output(update), error))
        return events


def late(turn: TurnRef | None) -> Noticed:
    """Tell of a request that came when its turn was over, or was being cut."""
    name = turn.id if turn else ""
    return Noticed("the agent asked for a turn that is cut or over", name)


def _flush(turn: Turn) -> list[RuntimeEvent]:
    """Say the message that has come to its end."""
    words, turn.words = "".join(turn.words), []
    if not words:
        return []
    turn.answer = words
    return [Said(turn.ref, words)]
