"""
What the program's lines mean to the session. Pure: lines in, events and replies out.

| line of a turn                  | becomes                                          |
|---------------------------------|--------------------------------------------------|
| begun here, ended or not        | an event with that turn: nothing is dropped here |
| that never began                | an event without a turn, or only a notice        |
| that ended already, ended again | a notice                                         |
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from attrs import define, field, frozen

from agentteam_protocol.delivery import Evidence
from agentteam_protocol.ids import ItemId
from agentteam_runtimes.driver import (
    AskClosed,
    Asked,
    AskRef,
    CallRef,
    ItemOutcome,
    Noticed,
    Output,
    ReadCalled,
    RuntimeEvent,
    Said,
    SendCalled,
    Surfaced,
    ToolEnded,
    ToolStarted,
    TurnEnded,
    TurnRef,
    TurnStarted,
    TurnStatus,
)
from agentteam_runtimes.jsonlines import Noise, decode_line, noise
from agentteam_runtimes.noise import NoiseCount
from agentteam_runtimes.rehearsal import wire

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from agentteam_runtimes.driver import InputItem
    from agentteam_runtimes.jsonlines import JsonObject

KEYS_KEPT = 4096
TURNS_KEPT = 1024


@frozen
class Reply:
    """The answer to a request of ours; `ready` answers `hello`, whose id is 0."""

    id: int
    message: dict[str, Any]


@define
class Reading:
    """What was read so far of one process."""

    active: TurnRef | None = None
    noise: NoiseCount = field(factory=NoiseCount)
    _items: dict[str, ItemId] = field(factory=dict[str, ItemId])
    _ended: dict[str, bool] = field(factory=dict[str, bool])

    def expect(self, items: Iterable[InputItem]) -> None:
        """Remember which entries the keys stand for, the newest few thousand."""
        self._items.update((item.key, item.id) for item in items)
        _trim(self._items, KEYS_KEPT)

    def read(self, lines: Sequence[bytes]) -> list[RuntimeEvent | Reply]:
        """
        Read the lines of one chunk, in order.

        Nearly all lines of a busy turn are its text: those take a short way, and
        pieces that follow each other become one `Output`.
        """
        found: list[RuntimeEvent | Reply] = []
        pieces: list[str] = []
        swallow, active = self.noise.swallow, self.active
        for line in lines:
            if swallow(line):
                continue
            message = decode_line(line)
            if (
                active is not None
                and not isinstance(message, Noise)
                and message.get("turn") == active.id
                and isinstance(text := message.get("text"), str)
            ):
                kind = message.get("type")
                if kind == "delta":
                    pieces.append(text)
                    continue
                if kind == "said":
                    _join(found, active, pieces)
                    found.append(Said(active, text))
                    continue
            _join(found, active, pieces)
            found += self._read_message(message, line)
            active = self.active
        _join(found, active, pieces)
        return found

    def has_ended(self, turn: TurnRef) -> bool:
        """Tell whether the end of the turn was seen."""
        return self._ended.get(turn.id, False)

    def _read_message(
        self, message: JsonObject | Noise, line: bytes
    ) -> list[RuntimeEvent | Reply]:
        if isinstance(message, Noise):
            return [*self.noise.notice(message)]
        if (problem := wire.misfit(message)) is not None:
            return [*self.noise.notice(noise(problem, line))]
        match message["type"]:
            case "ready":
                return [Reply(0, message)]
            case "reply":
                return [Reply(message["id"], message)]
            case "ask_closed":
                return [AskClosed(AskRef(message["ask"]))]
            case "turn_started":
                return self._started(message)
            case "turn_ended":
                return self._over(message)
            case "surfaced":
                return self._surfaced(message)
            case _:
                return _told(message, self._turn_of(message))

    def _turn_of(self, message: JsonObject) -> TurnRef | None:
        return TurnRef(message["turn"]) if message["turn"] in self._ended else None

    def _started(self, message: JsonObject) -> list[RuntimeEvent | Reply]:
        if message["turn"] in self._ended:
            return [Noticed("a turn was started twice", message["turn"])]
        self.active = TurnRef(message["turn"])
        self._ended[self.active.id] = False
        _trim(self._ended, TURNS_KEPT)
        return [TurnStarted(self.active, message["batch"])]

    def _over(self, message: JsonObject) -> list[RuntimeEvent | Reply]:
        turn = self._turn_of(message)
        if turn is None:
            return [Noticed("a turn ended that never began", message["turn"])]
        if self._ended[turn.id]:
            return [Noticed("a turn ended a second time", turn.id)]
        self._ended[turn.id] = True
        if self.active == turn:
            self.active = None
        return [_ended(turn, message, self._outcomes(message["items"]))]

    def _outcomes(self, items: dict[str, Any]) -> dict[ItemId, ItemOutcome]:
        return {
            self._items[key]: outcome_of(value)
            for key, value in items.items()
            if key in self._items
        }

    def _surfaced(self, message: JsonObject) -> list[RuntimeEvent | Reply]:
        key, turn = message["key"], self._turn_of(message)
        if turn is None or key not in self._items:
            return [Noticed("an entry surfaced that nobody sent", key)]
        evidence = Evidence("recorded", detail=f"{turn.id} has {key} in its record")
        return [Surfaced(turn, self._items[key], key, evidence)]


def _join(
    found: list[RuntimeEvent | Reply], turn: TurnRef | None, pieces: list[str]
) -> None:
    """Let the pieces of text so far become one event."""
    if pieces:
        found.append(Output(turn, "".join(pieces)))
        pieces.clear()


def outcome_of(value: object) -> ItemOutcome:
    """Read an outcome; a word that we do not know is no decision."""
    known = {outcome.value: outcome for outcome in ItemOutcome}
    return known.get(str(value), ItemOutcome.unknown)


def _ended(
    turn: TurnRef, message: JsonObject, items: dict[ItemId, ItemOutcome]
) -> TurnEnded:
    status, detail = message["status"], message["detail"]
    if status not in set(TurnStatus):
        status, detail = TurnStatus.failed, f"ended as {status}: {detail}"
    return TurnEnded(turn, TurnStatus(status), detail, items, message["text"])


def _told(message: JsonObject, turn: TurnRef | None) -> list[RuntimeEvent | Reply]:
    match message["type"]:
        case "delta":
            return [Output(turn, message["text"])]
        case "said":
            return [Said(turn, message["text"])]
        case "tool_started":
            name, given = message["name"], message["input"]
            return [ToolStarted(turn, message["call"], name, given)]
        case "tool_ended":
            output, error = message["output"], message["error"]
            return [ToolEnded(turn, message["call"], output, error)]
        case "asked":
            return [_asked(message, turn)]
        case "send":
            call, target = CallRef(message["call"]), message["target"]
            return [SendCalled(turn, call, target, message["text"])]
        case "read":
            call, target = CallRef(message["call"]), message["target"]
            return [ReadCalled(turn, call, target, message["after"])]
        case _:  # tool_output: the whole of it comes with the tool's end
            return []


def _asked(message: JsonObject, turn: TurnRef | None) -> Asked:
    return Asked(
        turn,
        AskRef(message["ask"]),
        message["tool"],
        message["input"],
        reason=message["reason"],
    )


def _trim(entries: dict[str, Any], kept: int) -> None:
    while len(entries) > kept:
        del entries[next(iter(entries))]
