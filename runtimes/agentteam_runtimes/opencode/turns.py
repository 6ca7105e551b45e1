"""
What the messages of an OpenCode session mean for our turns. Pure.

A turn of ours is one prompt, and its id is that of the message it sends. OpenCode tells
the same things twice, as events and in its record, and late ones after newer: so each
message and part is taken as a whole, and what was said of it is not said again.

| the event names                       | it belongs to                                  |
|---------------------------------------|------------------------------------------------|
| a message of ours                     | the turn that it was sent in                   |
| an assistant message                  | the turn of its `parentID`                     |
| a user message that OpenCode wrote    | the running turn, if it is younger (compaction |
|                                       | does that)                                     |
| the session of a sub-agent            | the turn whose `task` call names that session  |
| anything else                         | nobody                                         |

An entry surfaces with the first `step-start` of an answer to its message, or to a later
message: what is stored unanswered is folded into the next request. Neither the answer
to the prompt, nor the stored message, nor an assistant message proves that: those are
there before the model is asked.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING, TypeVar

from attrs import define, field

from agentteam_protocol.delivery import Evidence
from agentteam_runtimes import jsonfields, logins
from agentteam_runtimes.driver import (
    Batch,
    InputItem,
    ItemOutcome,
    Output,
    RuntimeEvent,
    Said,
    Surfaced,
    TurnEnded,
    TurnRef,
    TurnStarted,
    TurnStatus,
)
from agentteam_runtimes.jsonlines import JsonObject
from agentteam_runtimes.opencode import wire
from agentteam_runtimes.opencode.tools import tool_event
from agentteam_runtimes.opencode.usage import add_up, read_tokens

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from agentteam_protocol.ids import ItemId

V = TypeVar("V")

LOG_IN = (
    "set the key of the model's provider in the agent's environment, or log in to"
    " OpenCode (opencode auth login)"
)
EVIDENCE = "step-start of the answer"
MOST_REMEMBERED = 1024  # messages, entries, parts: a long session stays small


@define
class _Message:
    """An assistant message, as far as it is known."""

    id: str
    parent: str
    started: bool = False
    completed: bool = False
    finish: str = ""
    error: JsonObject = field(factory=dict[str, object])
    tokens: dict[str, int] = field(factory=dict[str, int])
    texts: dict[str, str] = field(factory=dict[str, str])


@define
class _Entry:
    """What we sent with one message."""

    items: tuple[InputItem, ...]
    turn: str
    accepted: bool = False
    surfaced: bool = False
    withdrawn: bool = False


@define
class _Turn:
    id: str
    batch: str
    announced: bool = False
    ended: bool = False
    cut: bool = False
    problem: str = ""
    last: str = ""  # its newest assistant message


class Turns:
    """The turns of one session, and what was sent to them."""

    def __init__(self, session: str) -> None:
        self.session = session
        self.active: str | None = None
        self._turns: OrderedDict[str, _Turn] = OrderedDict()
        self._entries: OrderedDict[str, _Entry] = OrderedDict()
        self._written: OrderedDict[str, str] = OrderedDict()  # by OpenCode itself
        self._messages: OrderedDict[str, _Message] = OrderedDict()
        self._parts: OrderedDict[str, str] = OrderedDict()  # what was said of them
        self._children: OrderedDict[str, str] = OrderedDict()

    # What we send.

    def knows(self, turn: str) -> bool:
        return turn in self._turns

    def has_ended(self, turn: str) -> bool:
        return turn in self._turns and self._turns[turn].ended

    def is_cut(self, turn: str) -> bool:
        return turn in self._turns and self._turns[turn].cut

    def start(self, message: str, batch: Batch) -> None:
        """Note that a batch goes out as a turn of its own."""
        _remember(self._turns, message, _Turn(message, batch.id))
        _remember(self._entries, message, _Entry(batch.items, message))
        self.active = message

    def not_started(self, message: str) -> None:
        """Take it that the batch did not become a turn."""
        self._turns.pop(message, None)
        self._entries.pop(message, None)
        if self.active == message:
            self.active = None

    def steer(self, turn: str, message: str, item: InputItem) -> None:
        """Note that an entry goes to a running turn."""
        _remember(self._entries, message, _Entry((item,), turn))

    def not_steered(self, message: str) -> None:
        self._entries.pop(message, None)

    def accepted(self, message: str) -> list[RuntimeEvent]:
        """Take it that OpenCode has stored a message of ours."""
        entry = self._entries.get(message)
        if entry is None:
            return []
        entry.accepted = True
        turn = self._turns.get(message)
        if turn is None or turn.announced:
            return []
        turn.announced = True
        return [TurnStarted(TurnRef(turn.id), turn.batch)]

    def carry(self, message: str, keys: Mapping[str, ItemId]) -> None:
        """Remember what an earlier process left unanswered: it surfaces later."""
        if message not in self._entries:
            items = tuple(InputItem(id, key, "") for key, id in keys.items())
            _remember(self._entries, message, _Entry(items, "", accepted=True))

    def items(self, turn: str) -> list[ItemId]:
        """Name the entries that the turn began with."""
        entry = self._entries.get(turn)
        return [item.id for item in entry.items] if entry else []

    def was_accepted(self, message: str) -> bool:
        return message in self._entries and self._entries[message].accepted

    def waits(self, turn: str) -> bool:
        """Tell whether something of the turn was accepted and not surfaced."""
        return any(self._unread(turn))

    def to_withdraw(self, turn: str) -> list[str]:
        """
        Name the messages of an ending turn that are to be taken back.

        The prompt of a turn that failed by itself stays: it is part of the talk.
        """
        failed = not self._turns[turn].cut
        return [m for m, _ in self._unread(turn) if not (failed and m == turn)]

    def unstarted(self, message: str) -> list[str]:
        """Name the answers to a message that the model has said nothing of."""
        known = self._messages.values()
        return [m.id for m in known if m.parent == message and not m.started]

    def withdrawn(self, message: str) -> None:
        """Take it that OpenCode has the message no longer."""
        if entry := self._entries.get(message):
            entry.withdrawn = True

    # What comes back.

    def root(self, session: str, message: str) -> TurnRef | None:
        """Name the turn of ours that a call in a message belongs to."""
        if session != self.session:
            turn = self._children.get(session)
        else:
            known = self._messages.get(message)
            turn = self._owner(known.parent) if known else None
        return TurnRef(turn) if turn else None

    def message(self, info: JsonObject) -> list[RuntimeEvent]:
        """Take what is told of a message."""
        id = jsonfields.text(info, "id")
        if jsonfields.text(info, "sessionID") != self.session or not id:
            return []
        if jsonfields.text(info, "role") == "user":
            self._notice_user(id)
            return self.accepted(id)
        known = self._messages.get(id)
        if known is None:
            known = _Message(id, jsonfields.text(info, "parentID"))
            _remember(self._messages, id, known)
            if turn := self._turns.get(self._owner(known.parent)):
                turn.last = max(turn.last, id)
        known.completed |= (
            jsonfields.number(jsonfields.mapping(info, "time"), "completed") is not None
        )
        known.finish = jsonfields.text(info, "finish") or known.finish
        known.error = jsonfields.mapping(info, "error") or known.error
        known.tokens = read_tokens(jsonfields.mapping(info, "tokens")) or known.tokens
        return []

    def part(self, part: JsonObject) -> list[RuntimeEvent]:
        """Take what is told of a part of a message."""
        session = jsonfields.text(part, "sessionID") or self.session
        message = self._messages.get(jsonfields.text(part, "messageID"))
        if session == self.session and message is None:
            return []
        turn = self.root(session, message.id if message else "")
        if jsonfields.text(part, "type") == "tool":
            return self._tool(turn, session, part)
        if message is None or session != self.session:
            return []
        match jsonfields.text(part, "type"):
            case "step-start" if not message.started:
                message.started = True
                return self._surfaced(message, turn)
            case "text":
                return self._text(message, turn, part)
            case _:
                return []

    def delta(self, piece: JsonObject) -> list[RuntimeEvent]:
        """Take a piece of a text that is being said."""
        message = self._messages.get(jsonfields.text(piece, "messageID"))
        part = jsonfields.text(piece, "partID")
        if message is None or self._parts.get(part) != "text":
            return []
        turn = self.root(self.session, message.id)
        return [Output(turn, jsonfields.text(piece, "delta"))]

    def failed(self, problem: str) -> None:
        """Keep what the session says went wrong, in case no message tells it."""
        if self.active is not None:
            self._turns[self.active].problem = problem

    def cut(self, turn: str) -> None:
        """Note that the turn is being interrupted."""
        self._turns[turn].cut = True

    def was_answered(self, turn: str) -> bool:
        """Tell whether it has an assistant message, be it empty."""
        return bool(self._turns[turn].last)

    def is_settled(self, turn: str) -> bool:
        """Tell whether its last message is closed, in whatever way."""
        last = self._messages.get(self._turns[turn].last)
        return last is not None and last.completed

    def is_done(self, turn: str) -> bool:
        """Tell whether the turn's last message says that nothing follows."""
        last = self._messages.get(self._turns[turn].last)
        if last is None or not last.completed:
            return False
        return bool(last.error) or last.finish not in ("", "tool-calls", "unknown")

    def end(self, turn_id: str) -> list[RuntimeEvent]:
        """End a turn; what is stored and not answered stays with OpenCode."""
        turn = self._turns[turn_id]
        if turn.ended:
            return []
        turn.ended = True
        if self.active == turn_id:
            self.active = None
        status, detail = self._outcome(turn)
        answers = self._answers(turn_id)
        said = [text for m in answers if (text := "".join(m.texts.values()))]
        return [
            TurnEnded(
                TurnRef(turn_id),
                status,
                detail=detail,
                items=self._left(turn_id),
                text=said[-1] if said else "",
                usage=add_up(m.tokens for m in answers),
                advice=logins.advice(detail, LOG_IN),
            )
        ]

    # Inside.

    def _owner(self, message: str) -> str:
        entry = self._entries.get(message)
        return entry.turn if entry is not None else self._written.get(message, "")

    def _notice_user(self, id: str) -> None:
        """A message that is not ours and younger than the running turn is part of it."""
        if id in self._entries or id in self._written or self.active is None:
            return
        if id > self.active:
            _remember(self._written, id, self.active)

    def _surfaced(self, answer: _Message, turn: TurnRef | None) -> list[RuntimeEvent]:
        if turn is None:
            return []
        evidence = Evidence(EVIDENCE, detail=f"{self.session} {answer.id}")
        events: list[RuntimeEvent] = []
        for message, entry in self._entries.items():
            gone = entry.surfaced or entry.withdrawn
            if gone or message > answer.parent:
                continue
            events += self.accepted(message)
            entry.surfaced = True
            events += [Surfaced(turn, i.id, i.key, evidence) for i in entry.items]
        return events

    def _text(
        self, message: _Message, turn: TurnRef | None, part: JsonObject
    ) -> list[RuntimeEvent]:
        id, said = jsonfields.text(part, "id"), jsonfields.text(part, "text")
        if self._parts.get(id) == "said":
            return []
        final = jsonfields.number(jsonfields.mapping(part, "time"), "end") is not None
        _remember(self._parts, id, "said" if final else "text")
        message.texts[id] = said or message.texts.get(id, "")
        return [Said(turn, said)] if final and said.strip() else []

    def _tool(
        self, turn: TurnRef | None, session: str, part: JsonObject
    ) -> list[RuntimeEvent]:
        child = jsonfields.text(
            jsonfields.mapping(part, "state", "metadata"), "sessionId"
        )
        if child and turn is not None:
            _remember(self._children, child, turn.id)
        id = jsonfields.text(part, "id")
        status = jsonfields.text(jsonfields.mapping(part, "state"), "status")
        before = self._parts.get(id, "")
        if status in ("", "pending", before) or before in ("completed", "error"):
            return []
        _remember(self._parts, id, status)
        foreign = "" if session == self.session else session
        return tool_event(turn, part, foreign, begun=before == "running")

    def _outcome(self, turn: _Turn) -> tuple[TurnStatus, str]:
        last = self._messages.get(turn.last)
        if last is None:
            if turn.cut:
                return TurnStatus.interrupted, ""
            return TurnStatus.failed, turn.problem or "OpenCode did not answer it"
        if name := jsonfields.text(last.error, "name"):
            if name == wire.ABORTED:
                return TurnStatus.interrupted, ""
            if name == wire.TOO_LONG:
                return TurnStatus.max_tokens, ""
            return TurnStatus.failed, _in_words(last.error)
        if last.finish == "length":
            return TurnStatus.max_tokens, ""
        if self.is_done(turn.id):
            return TurnStatus.completed, ""
        if turn.cut:
            return TurnStatus.interrupted, ""
        # A rejected call ends a turn where it stands.
        if last.finish == "tool-calls":
            return TurnStatus.completed, ""
        return TurnStatus.failed, turn.problem or "OpenCode stopped without an answer"

    def _answers(self, turn: str) -> list[_Message]:
        return [m for m in self._messages.values() if self._owner(m.parent) == turn]

    def _unread(self, turn: str) -> Iterator[tuple[str, _Entry]]:
        for message, entry in self._entries.items():
            if entry.turn == turn and entry.accepted and not entry.surfaced:
                yield message, entry

    def _left(self, turn: str) -> dict[ItemId, ItemOutcome]:
        """Say what became of what was not read: taken back, or kept by OpenCode."""
        dropped, carried = ItemOutcome.dropped, ItemOutcome.carried
        return {
            item.id: dropped if entry.withdrawn else carried
            for _, entry in self._unread(turn)
            for item in entry.items
        }


def _in_words(error: JsonObject) -> str:
    data = jsonfields.mapping(error, "data")
    told = jsonfields.text(data, "message") or jsonfields.text(error, "name")
    status = jsonfields.number(data, "statusCode")
    return told if status is None else f"{told} (HTTP {status})"


def _remember(kept: OrderedDict[str, V], key: str, value: V) -> None:
    kept[key] = value
    if len(kept) > MOST_REMEMBERED:
        kept.popitem(last=False)
