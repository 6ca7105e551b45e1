"""
What the app-server's notifications mean for the turns of our thread. Pure.

The connection is shared: the threads of sub-agents speak on it too. Which turn an event
belongs to is read from its ids, never guessed from what is running.

| the event names                     | it belongs to                                    |
|-------------------------------------|--------------------------------------------------|
| our thread and a known turn         | that turn                                        |
| our thread and an unknown turn      | the start that waits for its answer: held until  |
|                                     | the answer names the turn, then read again       |
| ... and no start waits              | nobody: noticed, nothing changes (B19)           |
| another thread                      | the turn of ours its `rootTurnId` leads to; only |
|                                     | its tools and asks count, its end ends nothing   |
| no thread                           | the turn it names, if known; else nobody         |

An entry surfaces with `item/completed` of the `userMessage` that carries our client id:
then it is in the thread's history and in the next model request, also after a kill.
Neither the answer to the request nor `item/started` proves that.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING, TypeVar

from attrs import define, field

from agentteam_protocol.delivery import Evidence
from agentteam_runtimes import jsonfields, logins
from agentteam_runtimes.codex import wire
from agentteam_runtimes.codex.children import Children
from agentteam_runtimes.codex.items import (
    call_id,
    error_notice,
    retries,
    tokens,
    tool_ended,
    tool_started,
)
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
    from agentteam_protocol.ids import ItemId
    from agentteam_runtimes.jsonlines import JsonObject
    from agentteam_runtimes.jsonrpc import Notification

V = TypeVar("V")

LOG_IN = (
    "log in to Codex (codex login) or set the key of its model provider in the agent's"
    " environment"
)
EVIDENCE = "item/completed userMessage clientId"
MOST_REMEMBERED = 256  # turns, entries and held events: a long session stays small

STATUSES = {
    "completed": TurnStatus.completed,
    "interrupted": TurnStatus.interrupted,
    "failed": TurnStatus.failed,
}


def client_id(items: tuple[InputItem, ...]) -> str:
    """
    Make the client id of one submission: the keys of its entries.

    One submission can carry one id, and a later process must find the keys in it.
    """
    return "+".join(item.key for item in items)


def keys_of(client: str) -> list[str]:
    """Read the keys back out of a client id."""
    return client.split("+") if client else []


@define
class _Turn:
    id: str
    batch: str
    started: bool = False
    ended: bool = False
    answer: str = ""
    retried: bool = False  # and people were told so
    before: dict[str, int] | None = None  # the thread's token totals when it began
    usage: dict[str, int] = field(factory=dict[str, int])


@define
class _Called:
    """A call of a tool. A command may run on in the background after it returned."""

    turn: TurnRef | None
    input: str
    ended: bool = False


@define
class _Entry:
    """What we sent under one client id."""

    items: tuple[InputItem, ...]
    turn: str | None
    accepted: bool = False


class Turns:
    """The turns of one thread, and what was sent to them."""

    def __init__(self, thread: str) -> None:
        self.thread = thread
        self.resumable = False
        self.active: str | None = None
        self._turns: OrderedDict[str, _Turn] = OrderedDict()
        self.children = Children()
        self._entries: OrderedDict[str, _Entry] = OrderedDict()
        self._calls: OrderedDict[str, _Called] = OrderedDict()
        self._starting: Batch | None = None
        self._held: list[Notification] = []
        self._totals: dict[str, int] | None = None

    # What we send.

    @property
    def starting(self) -> bool:
        """A turn was asked for, and nothing has named it yet."""
        return self._starting is not None

    def knows(self, turn: str) -> bool:
        return turn in self._turns

    def has_started(self, turn: str) -> bool:
        return turn in self._turns and self._turns[turn].started

    def has_ended(self, turn: str) -> bool:
        return turn in self._turns and self._turns[turn].ended

    def start(self, batch: Batch) -> str:
        """Note that a batch goes out as a turn of its own; its client id."""
        self._starting = batch
        client = client_id(batch.items)
        _remember(self._entries, client, _Entry(batch.items, None))
        return client

    def named(self, turn: str) -> tuple[bool, list[RuntimeEvent]]:
        """
        Take the answer that names the turn of the batch.

        False: the turn is not a new one. On a busy thread a start silently becomes a
        steer, so a turn that we know already is where the batch went instead.
        """
        batch, self._starting = self._starting, None
        if batch is None:
            return False, []
        entry = self._entries.get(client_id(batch.items))
        if entry is not None:
            entry.turn, entry.accepted = turn, True
        fresh = turn not in self._turns
        if fresh:
            _remember(self._turns, turn, _Turn(turn, batch.id))
            self.active = turn
        return fresh, self._read_held()

    def not_started(self) -> list[RuntimeEvent]:
        """Take it that the batch did not become a turn."""
        if self._starting is not None:
            self._entries.pop(client_id(self._starting.items), None)
        self._starting = None
        return self._read_held()

    def steer(self, turn: str, item: InputItem) -> None:
        """Note that an entry goes to a running turn."""
        _remember(self._entries, item.key, _Entry((item,), turn))

    def steered(self, key: str) -> bool:
        """
        Take it that the runtime accepted the entry.

        False: the turn is over and did not show it, so what became of it is open.
        """
        entry = self._entries.get(key)
        if entry is None:
            return True  # it has surfaced already
        entry.accepted = True
        return not (entry.turn and self.has_ended(entry.turn))

    def not_steered(self, key: str) -> None:
        self._entries.pop(key, None)

    # What comes back.

    def root(self, params: JsonObject) -> TurnRef | None:
        """Name the turn of ours that an event belongs to."""
        turn = wire.turn_id(params)
        root = turn if turn in self._turns else self.children.root(turn)
        return TurnRef(root) if root else None

    def shown(self, params: JsonObject) -> str:
        """Show what the call was given that a request is about."""
        called = self._calls.get(jsonfields.text(params, "itemId"))
        return called.input if called else ""

    def has_called(self, turn: str) -> bool:
        """Tell whether this turn, or a sub-agent's for it, made any call of a tool."""
        return any(called.turn == TurnRef(turn) for called in self._calls.values())

    def started_by(self, turn: str, thread: str, item: str) -> bool:
        """Tell whether this turn, or a sub-agent's for it, made the call."""
        called = self._calls.get(call_id({"id": item}, self._foreign(thread)))
        return called is not None and called.turn == TurnRef(turn)

    def has_returned(self, thread: str, item: str) -> bool:
        called = self._calls.get(call_id({"id": item}, self._foreign(thread)))
        return called is None or called.ended

    def outlived(self, ended: TurnEnded) -> list[RuntimeEvent]:
        """Say which sub-agents work on after a turn: its end does not end them."""
        return [
            Noticed("a sub-agent works on after the end of its run", thread, told=True)
            for thread, _ in self.children.running(ended.turn.id)
        ]

    def adopt(self, turn: str) -> None:
        """Take over a running turn that we only know from the runtime's record."""
        _remember(self._turns, turn, _Turn(turn, "", started=True))
        self.active = turn

    def receive(self, event: Notification) -> list[RuntimeEvent]:
        """Say what a notification means."""
        events = self._receive(event)
        for called in events:
            if isinstance(called, ToolStarted):
                _remember(
                    self._calls, called.call_id, _Called(called.turn, called.input)
                )
            elif isinstance(called, ToolEnded) and called.call_id in self._calls:
                self._calls[called.call_id].ended = True
        return events

    def _foreign(self, thread: str) -> str:
        return "" if thread == self.thread else thread

    def _receive(self, event: Notification) -> list[RuntimeEvent]:
        thread = jsonfields.text(event.params, "threadId")
        turn = wire.turn_id(event.params)
        if thread and thread != self.thread:
            return self.children.receive(event, self.knows)
        if turn and turn not in self._turns:
            return self._of_unknown(thread, turn, event)
        if event.method == wire.TOKEN_USAGE:
            self._count(turn, event.params)
        return self._of_turn(self._turns[turn], event) if turn else []

    def _of_unknown(
        self, thread: str, turn: str, event: Notification
    ) -> list[RuntimeEvent]:
        if self._starting is not None and thread == self.thread:
            if len(self._held) < MOST_REMEMBERED:
                self._held.append(event)
            return []
        if event.method == wire.TURN_STARTED and thread == self.thread:
            # Nobody here asked for it, but it runs: it must be known to be cut.
            self.adopt(turn)
            return [Noticed("a turn that nobody asked for", turn)]
        if event.method in (wire.TURN_STARTED, wire.TURN_COMPLETED):
            return [Noticed("an event of an unknown turn", f"{event.method} {turn}")]
        return []

    def _of_turn(self, turn: _Turn, event: Notification) -> list[RuntimeEvent]:
        events: list[RuntimeEvent] = []
        if not turn.started:
            turn.started, turn.before = True, self._totals
            events.append(TurnStarted(TurnRef(turn.id), turn.batch))
        match event.method:
            case wire.TURN_COMPLETED:
                events += self._end(turn, jsonfields.mapping(event.params, "turn"))
            case wire.MESSAGE_DELTA:
                if delta := jsonfields.text(event.params, "delta"):
                    events.append(Output(TurnRef(turn.id), delta))
            case wire.ITEM_STARTED | wire.ITEM_COMPLETED:
                done = event.method == wire.ITEM_COMPLETED
                events += self._item(
                    turn, jsonfields.mapping(event.params, "item"), done
                )
            case wire.ERROR:
                events.append(error_notice(event.params, first=not turn.retried))
                turn.retried |= retries(event.params)
            case _:
                pass
        return events

    def _item(self, turn: _Turn, item: JsonObject, done: bool) -> list[RuntimeEvent]:
        ref = TurnRef(turn.id)
        match item.get("type"), done:
            case wire.USER_MESSAGE, True:
                return self._surfaced(ref, jsonfields.text(item, "clientId"))
            case wire.AGENT_MESSAGE, True:
                said = jsonfields.text(item, "text")
                if item.get("phase") != "commentary" or not turn.answer:
                    turn.answer = said
                return [Said(ref, said)]
            case kind, True if kind in wire.TOOLS:
                return [tool_ended(ref, item)]
            case kind, False if kind in wire.TOOLS:
                return [tool_started(ref, item)]
            case _:
                return []

    def _surfaced(self, turn: TurnRef, client: str) -> list[RuntimeEvent]:
        named: list[RuntimeEvent] = []
        if not self.resumable:
            # Codex keeps nothing of a thread before its first input.
            self.resumable = True
            named.append(SessionNamed(self.thread))
        entry = self._entries.pop(client, None)
        if entry is None:
            return named
        evidence = Evidence(EVIDENCE, detail=f"{self.thread} {turn.id}")
        return [*named, *(Surfaced(turn, i.id, i.key, evidence) for i in entry.items)]

    def _end(self, turn: _Turn, ended: JsonObject) -> list[RuntimeEvent]:
        if turn.ended:
            return [Noticed("a turn ended twice", turn.id)]
        turn.ended = True
        if self.active == turn.id:
            self.active = None
        error = jsonfields.mapping(ended, "error")
        said = jsonfields.text(error, "message")
        return [
            TurnEnded(
                TurnRef(turn.id),
                STATUSES.get(jsonfields.text(ended, "status"), TurnStatus.failed),
                detail=said,
                advice=logins.advice(said, LOG_IN),
                items=self._dropped(turn.id),
                text=turn.answer,
                usage=turn.usage,
            )
        ]

    def _dropped(self, turn: str) -> dict[ItemId, ItemOutcome]:
        """
        Name what the ended turn accepted and never showed.

        What is recorded is reported before the turn's end, so the rest is not in the
        history. It is remembered: evidence that comes after all is still passed on.
        """
        return {
            item.id: ItemOutcome.dropped
            for entry in self._entries.values()
            if entry.turn == turn and entry.accepted
            for item in entry.items
        }

    def _read_held(self) -> list[RuntimeEvent]:
        held, self._held = self._held, []
        return [event for notification in held for event in self.receive(notification)]

    def _count(self, turn_id: str, params: JsonObject) -> None:
        """Keep the tokens of a turn: the thread's totals, less what they were before."""
        usage = jsonfields.mapping(params, "tokenUsage")
        total = tokens(jsonfields.mapping(usage, "total"))
        if turn := self._turns.get(turn_id):
            if turn.before is None:
                last = tokens(jsonfields.mapping(usage, "last"))
                turn.before = {k: n - last.get(k, 0) for k, n in total.items()}
            turn.usage = {k: n - turn.before.get(k, 0) for k, n in total.items()}
        self._totals = total


def _remember(kept: OrderedDict[str, V], key: str, value: V) -> None:
    kept[key] = value
    if len(kept) > MOST_REMEMBERED:
        kept.popitem(last=False)
