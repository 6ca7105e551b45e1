"""
What the lines of Claude mean for our turns. Pure.

Claude works in rounds: one begins with `init` and ends with `result`, one at a time, and
its lines name no turn. So a round belongs to the turn whose input it took, by the id that
we gave that input; the lines up to its `result` are that turn's. Lines of a sub-agent
name the call they come from, and belong to the turn that made it.

| input of ours is | since                                            | cut now, it is     |
|------------------|--------------------------------------------------|--------------------|
| sent             | we wrote it                                      | dropped            |
| taken            | Claude began with it, or repeated it             | carried            |
| asked            | a model request that names it is on its way      | carried            |
| surfaced         | and the model has begun to answer that request   |                    |

Neither acceptance, nor the beginning, nor the repetition proves that the model has it.
Older versions name no input in a request: there it is `asked` once it is repeated, and
the repetition may come a moment after the answer began. They also keep only the last id
of inputs that they join, so they are given one at a time.

What was taken and not surfaced stays in Claude's record and is in its next request:
`carried`, and surfaced with the next answer, also of a later process.

A turn ends with the round that took the last of its inputs. An input that came too late
for a round begins one of its own, which still belongs to the turn.
"""

from __future__ import annotations

import enum
from collections import OrderedDict
from typing import TYPE_CHECKING, TypeVar

from attrs import define, field

from agentteam_protocol.delivery import Evidence
from agentteam_protocol.ids import ItemId, mint
from agentteam_runtimes import jsonfields, logins
from agentteam_runtimes.claude import wire
from agentteam_runtimes.claude.content import tool_results, tools_used
from agentteam_runtimes.driver import (
    Batch,
    InputItem,
    ItemOutcome,
    Noticed,
    Output,
    RuntimeEvent,
    Said,
    SessionNamed,
    Surfaced,
    ToolEnded,
    ToolStarted,
    TurnEnded,
    TurnRef,
    TurnStarted,
    TurnStatus,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

    from agentteam_runtimes.jsonlines import JsonObject

V = TypeVar("V")

LOG_IN = (
    "log in to Claude Code (run `claude`, then /login) or set ANTHROPIC_API_KEY in the"
    " agent's environment"
)
NAMED = "requesting user_message_uuids, message_start"
REPEATED = "isReplay, message_start"
MOST_REMEMBERED = 256  # turns and calls: a long session stays small

NOTICES = {
    "compact_boundary": "claude compacted its history",
    "permission_denied": "claude denied a call by its own rules",
}


class Stage(enum.Enum):
    sent = enum.auto()
    taken = enum.auto()
    asked = enum.auto()


@define
class _Entry:
    """What we sent under one id."""

    items: tuple[InputItem, ...]
    turn: str
    stage: Stage = Stage.sent


@define
class _Turn:
    id: str
    batch: str
    told: bool = False
    cut: bool = False
    ended: bool = False
    answer: str = ""
    usage: dict[str, int] = field(factory=dict[str, int])
    dropped: dict[ItemId, ItemOutcome] = field(factory=dict[ItemId, ItemOutcome])


@define
class _Round:
    """One round of Claude; `owner` is the turn whose input it took."""

    number: int = 0
    open: bool = False
    owner: str | None = None
    answered: bool = False  # the model has begun to answer its first request
    spoken: bool = False  # a whole message of it has come
    retried: bool = False  # and people were told so


def uuid_of(items: Iterable[InputItem]) -> str:
    """Make the id of one input: the keys of its entries, to be found in the record."""
    return "+".join(item.key for item in items)


def keys_of(uuid: str) -> list[str]:
    """Read the keys back out of an id."""
    return uuid.split("+") if uuid else []


class Turns:
    """The turns of one session, and what was sent to them."""

    def __init__(self, session: str, *, named: bool = False) -> None:
        self.session = session
        self.named = named  # its record exists, so it can be resumed
        self.lists = False  # requests name their inputs
        self.receipts = False  # an interrupt drops what waits, and says so
        self.carried: dict[str, ItemId] = {}
        self.active: str | None = None
        self._turns: OrderedDict[str, _Turn] = OrderedDict()
        self._calls: OrderedDict[str, str] = OrderedDict()
        self._entries: dict[str, _Entry] = {}
        self._surfaced: OrderedDict[str, None] = OrderedDict()  # keys
        self._round = _Round()

    def greeted(self, version: str) -> None:
        """Take the version that it is; the first round tells what it can do."""
        self.lists = self.receipts = wire.version(version) >= wire.SAYS_SO

    # What we send.

    @property
    def round(self) -> int:
        """The number of the round that is open, or was last."""
        return self._round.number

    @property
    def idle(self) -> bool:
        """Nothing of ours is with Claude, nor is it at work."""
        return self.active is None and not self._round.open

    @property
    def unanswered(self) -> tuple[str, ...]:
        """The keys that Claude has and that did not surface."""
        entries = self._entries.values()
        return tuple(item.key for entry in entries for item in entry.items)

    def has_surfaced(self, key: str) -> bool:
        """Tell whether it did here: the record may lag a moment behind."""
        return key in self._surfaced

    def has_ended(self, turn: str) -> bool:
        return turn in self._turns and self._turns[turn].ended

    def takes_steers(self, turn: str) -> bool:
        """Tell whether an entry may go to this turn now."""
        if turn != self.active or self._turns[turn].cut:
            return False
        return self.lists or not self.waiting(turn)

    def start(self, batch: Batch) -> tuple[str, str]:
        """Note that a batch goes out as a turn of its own; the turn, the input's id."""
        turn = _Turn(mint("turn"), batch.id)
        _remember(self._turns, turn.id, turn)
        self.active = turn.id
        uuid = uuid_of(batch.items)
        self._entries[uuid] = _Entry(batch.items, turn.id)
        return turn.id, uuid

    def steer(self, turn: str, item: InputItem) -> str:
        """Note that an entry goes to the running turn; the input's id."""
        uuid = uuid_of([item])
        self._entries[uuid] = _Entry((item,), turn)
        return uuid

    def not_written(self, uuid: str) -> None:
        """Take it that not a byte of an input left; a turn that was to begin is none."""
        entry = self._entries.pop(uuid, None)
        turn = self._turns.get(entry.turn) if entry else None
        if turn is not None and turn.id == self.active and not turn.told:
            turn.ended = True
            self.active = None

    def waiting(self, turn: str) -> list[str]:
        """Name the inputs of a turn that Claude has not taken yet."""
        return [
            uuid
            for uuid, entry in self._entries.items()
            if entry.turn == turn and entry.stage is Stage.sent
        ]

    def cut(self, turn: str) -> None:
        """Note that the turn is to end: what it still calls is denied."""
        self._turns[turn].cut = True

    def is_cut(self, turn: TurnRef | None) -> bool:
        known = self._turns.get(turn.id) if turn else None
        return known is not None and (known.cut or known.ended)

    # What comes back.

    def owner(self, call: str) -> TurnRef | None:
        """Name the turn that made a call; of an unknown one, whoever is at work."""
        turn = self._calls.get(call, self._round.owner)
        return TurnRef(turn) if turn else None

    def withdrawn(self, uuids: Iterable[str]) -> list[RuntimeEvent]:
        """Take it that Claude dropped these inputs, as far as they waited."""
        for uuid in uuids:
            entry = self._entries.get(uuid)
            if entry is not None and entry.stage is Stage.sent:
                del self._entries[uuid]
                turn = self._turns[entry.turn]
                turn.dropped |= {i.id: ItemOutcome.dropped for i in entry.items}
        active = self._turns.get(self.active or "")
        if active is None or not active.cut or self.waiting(active.id):
            return []
        if self._round.open and self._round.owner == active.id:
            return []  # its result is still to come
        return self._end(active, TurnStatus.interrupted, "")

    def carry(self, keys: Iterable[tuple[str, ItemId]]) -> None:
        """Note entries that are in the record and in no answered request."""
        self.carried |= dict(keys)

    def receive(self, line: JsonObject) -> list[RuntimeEvent]:
        """Say what a line means."""
        match line.get("type"):
            case wire.STREAM:
                return self._streamed(line)
            case wire.ASSISTANT:
                return self._said(line)
            case wire.USER:
                return self._user(line)
            case wire.LIFECYCLE:
                return self._lifecycle(line)
            case wire.SYSTEM:
                return self._system(line)
            case wire.RESULT:
                return self._result(line)
            case _:
                return []

    def _lifecycle(self, line: JsonObject) -> list[RuntimeEvent]:
        uuid = jsonfields.text(line, "command_uuid")
        match line.get("state"):
            case "started":
                return self._take(uuid)
            case "cancelled":
                return self.withdrawn([uuid])
            case _:
                return []

    def _system(self, line: JsonObject) -> list[RuntimeEvent]:
        subtype = jsonfields.text(line, "subtype")
        if subtype == "init":
            said = frozenset(jsonfields.strings(line, "capabilities"))
            self.lists = said >= {wire.NAMES_IN_REQUESTS, wire.NAMES_IN_LIFECYCLE}
            self.receipts = wire.CANCELS_QUEUED in said
            return self._begin()
        if subtype == "status":
            for uuid in jsonfields.strings(line, "user_message_uuids"):
                if entry := self._entries.get(uuid):
                    entry.stage = Stage.asked
        elif subtype == "api_retry":
            return self._retried(jsonfields.text(line, "error", "message"))
        elif what := NOTICES.get(subtype):
            detail = jsonfields.text(line, "error", "message", "tool_name")
            return [Noticed(what, detail)]
        return []

    def _retried(self, why: str) -> list[RuntimeEvent]:
        """Tell people of the first retry of a round; the rest is the same again."""
        first, self._round.retried = not self._round.retried, True
        what = "the model failed, claude retries"
        return [Noticed(f"{what}: {why}" if why else what, why, told=first)]

    def _begin(self) -> list[RuntimeEvent]:
        """A round begins, or the one that began with its input says so."""
        if not self._round.open or self._round.owner is None:
            owner = self._round.owner if self._round.open else None
            self._round = _Round(self._round.number + 1, True, owner)
        if self._round.owner is None and not self.lists:
            self._presume()
        if self._round.owner is None:
            return [Noticed("claude works on what nobody asked for")]
        return self._told(self._turns[self._round.owner])

    def _presume(self) -> None:
        """Presume whose input a round took: one repeats it only when it is answered."""
        waiting = self.waiting(self.active) if self.active else []
        if waiting:
            self._entries[waiting[0]].stage = Stage.taken
            self._round.owner = self.active

    def _take(self, uuid: str) -> list[RuntimeEvent]:
        """Claude begins with an input, or puts it into the round that is open."""
        entry = self._entries.get(uuid)
        if entry is None:
            return []
        if entry.stage is Stage.sent:
            entry.stage = Stage.taken
        if not self._round.open:
            self._round = _Round(self._round.number + 1, True)
        self._round.owner = entry.turn
        return self._told(self._turns[entry.turn])

    def _user(self, line: JsonObject) -> list[RuntimeEvent]:
        if line.get("isReplay") is True:
            return self._repeated(jsonfields.text(line, "uuid"))
        return [
            ToolEnded(self.owner(call), call, output, error)
            for call, output, error in tool_results(line)
        ]

    def _repeated(self, uuid: str) -> list[RuntimeEvent]:
        entry = self._entries.get(uuid)
        if entry is None:
            return []
        if self.lists:
            return [*self._take(uuid), *self._name()]
        first = self._round.answered and not self._round.spoken
        events = [*self._take(uuid), *self._name()]
        entry.stage = Stage.asked
        # The input that the round began with: its answer was quicker than its echo.
        return events + (self._surface() if first else [])

    def _name(self) -> list[RuntimeEvent]:
        """Claude keeps a record of the session from its first input on."""
        if self.named:
            return []
        self.named = True
        return [SessionNamed(self.session)]

    def _streamed(self, line: JsonObject) -> list[RuntimeEvent]:
        if line.get("parent_tool_use_id") is not None:
            return []
        event = jsonfields.mapping(line, "event")
        match event.get("type"):
            case "content_block_delta":
                text = jsonfields.text(jsonfields.mapping(event, "delta"), "text")
                return [Output(self._working, text)] if text else []
            case "message_start":
                self._round.answered = True
                return [*self._name(), *self._surface()]
            case _:
                return []

    def _surface(self) -> list[RuntimeEvent]:
        """The model answers a request: what that request held is surfaced."""
        turn = self._round.owner
        if turn is None:
            return []
        ref, kind = TurnRef(turn), NAMED if self.lists else REPEATED
        found = [(id, key) for key, id in self.carried.items()]
        self.carried = {}
        for uuid, entry in tuple(self._entries.items()):
            if entry.stage is Stage.asked:
                del self._entries[uuid]
                found += [(item.id, item.key) for item in entry.items]
        for _, key in found:
            _remember(self._surfaced, key, None)
        return [
            Surfaced(ref, id, key, Evidence(kind, detail=f"{self.session} {key}"))
            for id, key in found
        ]

    @property
    def _working(self) -> TurnRef | None:
        return TurnRef(self._round.owner) if self._round.owner else None

    def _said(self, line: JsonObject) -> list[RuntimeEvent]:
        message = jsonfields.mapping(line, "message")
        parent = jsonfields.text(line, "parent_tool_use_id")
        turn = self.owner(parent) if parent else self._working
        events: list[RuntimeEvent] = []
        for call, name, given in tools_used(message):
            if turn is not None:
                _remember(self._calls, call, turn.id)
            events.append(ToolStarted(turn, call, name, given))
        if parent:
            return events
        said = "".join(
            jsonfields.text(p, "text") for p in jsonfields.objects(message, "content")
        )
        if message.get("model") == wire.SYNTHETIC:
            return [Noticed("claude says", said)]
        self._round.spoken = True
        return ([Said(turn, said)] if said else []) + events

    def _result(self, line: JsonObject) -> list[RuntimeEvent]:
        turn = self._turns.get(self._round.owner or "")
        self._round = _Round(self._round.number)
        if turn is None or turn.ended:
            return []
        if not self.lists:
            self._not_repeated()
        turn.answer = jsonfields.text(line, "result")
        for name, count in jsonfields.mapping(line, "usage").items():
            if isinstance(count, int) and not isinstance(count, bool):
                turn.usage[name] = turn.usage.get(name, 0) + count
        if self.waiting(turn.id):
            return []  # it goes on with what came too late for this round
        return self._end(turn, *_judge(line))

    def _not_repeated(self) -> None:
        """A round repeats what it took before it ends: the rest still waits."""
        for entry in self._entries.values():
            if entry.stage is Stage.taken:
                entry.stage = Stage.sent

    def _end(self, turn: _Turn, status: TurnStatus, detail: str) -> list[RuntimeEvent]:
        turn.ended = True
        self.active = None
        kept = {
            uuid: entry
            for uuid, entry in self._entries.items()
            if entry.turn == turn.id
        }
        items = [item for entry in kept.values() for item in entry.items]
        self._entries = {k: e for k, e in self._entries.items() if k not in kept}
        self.carry((item.key, item.id) for item in items)
        outcomes = turn.dropped | {item.id: ItemOutcome.carried for item in items}
        failed = status is TurnStatus.failed
        ended = TurnEnded(
            TurnRef(turn.id),
            status,
            detail,
            outcomes,
            text=turn.answer if status is TurnStatus.completed else "",
            usage=turn.usage,
            advice=logins.advice(detail, LOG_IN) if failed else "",
        )
        return [*self._told(turn), ended]

    def _told(self, turn: _Turn) -> list[RuntimeEvent]:
        """Tell that a turn started, before anything else of it."""
        if turn.told:
            return []
        turn.told = True
        return [TurnStarted(TurnRef(turn.id), turn.batch)]


def _judge(line: JsonObject) -> tuple[TurnStatus, str]:
    """Say how a round ended; one that failed may call itself a success."""
    if jsonfields.text(line, "terminal_reason").startswith("aborted"):
        return TurnStatus.interrupted, ""
    if line.get("is_error") is True or line.get("subtype") != "success":
        why = "; ".join(jsonfields.strings(line, "errors"))
        return TurnStatus.failed, jsonfields.text(line, "result") or why
    if line.get("stop_reason") == "max_tokens":
        return TurnStatus.max_tokens, ""
    return TurnStatus.completed, ""


def _remember(kept: OrderedDict[str, V], key: str, value: V) -> None:
    kept[key] = value
    if len(kept) > MOST_REMEMBERED:
        kept.popitem(last=False)
