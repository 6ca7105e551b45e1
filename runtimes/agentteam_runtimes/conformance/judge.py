"""
Judges the events of a driver by the rules that hold in every check. Pure.

It is told what was submitted, steered and answered, and reads every event; what breaks
a rule becomes a `Fault`, which the check raises at its next wait.

| rule                                                                    |
|-------------------------------------------------------------------------|
| a turn starts once, and only for a batch that was submitted             |
| no event names a turn that has not started                              |
| a turn ends once                                                        |
| an entry is surfaced once, under the key that was sent with it          |
| what is surfaced is not said to be dropped, and the other way round     |
| an ask's name is used once, and only an ask that was asked is closed    |
| nothing comes after `Exited`                                            |
"""

from __future__ import annotations

from typing import TYPE_CHECKING, get_args

from attrs import define, field

from agentteam_runtimes.conformance.verdict import Fault
from agentteam_runtimes.driver import (
    AskClosed,
    Asked,
    Exited,
    InputItem,
    ItemOutcome,
    RuntimeEvent,
    Surfaced,
    TurnEnded,
    TurnRef,
    TurnStarted,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from agentteam_protocol.ids import ItemId
    from agentteam_runtimes.driver import Batch

KINDS = get_args(RuntimeEvent)
ONCE = "`Surfaced` is emitted once for an entry, on the runtime's own evidence."


@define(eq=False)
class Entry:
    """One entry that was sent, and what was said about it."""

    item: InputItem
    accepted: bool = False
    surfaced: bool = False
    outcome: ItemOutcome | None = None
    turn: str = ""  # in which it was surfaced
    at_risk: bool = False  # the process died in that turn: its record may lack it

    @property
    def fate(self) -> ItemOutcome | None:
        return ItemOutcome.surfaced if self.surfaced else self.outcome

    def __str__(self) -> str:
        return f"the entry {self.item.key} ({self.item.text[:40]!r})"


@define(eq=False)
class Judge:
    """Everything of one check: the events of all its incarnations, and the faults."""

    events: list[RuntimeEvent] = field(factory=list[RuntimeEvent])
    faults: list[Fault] = field(factory=list[Fault])
    entries: dict[str, Entry] = field(factory=dict[str, Entry])
    _batches: set[str] = field(factory=set[str])
    _started: set[str] = field(factory=set[str])
    _ended: set[str] = field(factory=set[str])
    _asks: set[str] = field(factory=set[str])
    _exited: bool = False

    def opens(self) -> None:
        """A new incarnation: its turns and asks are named afresh."""
        for entry in self.entries.values():
            died = entry.surfaced and entry.turn in self._started - self._ended
            entry.at_risk = entry.at_risk or died
        self._started, self._ended, self._asks = set(), set(), set()
        self._exited = False

    @property
    def at_rest(self) -> bool:
        """No fault, no turn that runs, and the process lives."""
        return not self.faults and not self._exited and self._started <= self._ended

    def submits(self, batch: Batch) -> None:
        self._batches.add(batch.id)
        for item in batch.items:
            self.entries[item.key] = Entry(item)

    def steers(self, item: InputItem) -> None:
        self.entries[item.key] = Entry(item)

    def accepted(self, items: Iterable[InputItem]) -> None:
        for item in items:
            self.entries[item.key].accepted = True

    def hear(self, events: Sequence[RuntimeEvent]) -> None:
        """Take what was emitted; never raises."""
        for event in events:
            self.events.append(event)
            if isinstance(event, KINDS):
                self._rule(event)
            else:
                self._fault(
                    f"emit() was given {event!r}",
                    "`emit` takes a sequence of the events of `RuntimeEvent`.",
                )

    def _rule(self, event: RuntimeEvent) -> None:
        if self._exited:
            self._fault(
                f"{_shown(event)} was emitted after Exited",
                "`Exited` comes last, after the last output was read.",
            )
        match event:
            case TurnStarted():
                self._turn_started(event)
            case TurnEnded():
                self._turn_ended(event)
            case Surfaced():
                self._surfaced(event)
            case Asked(ask=ask):
                if ask.id in self._asks:
                    self._fault(
                        f"two asks are called {ask.id}",
                        "an ask has a name of its own in its incarnation.",
                    )
                self._asks.add(ask.id)
                self._tied(event, event.turn)
            case AskClosed(ask=ask):
                if ask.id not in self._asks:
                    self._fault(
                        f"AskClosed names {ask.id}, which was never asked",
                        "`AskClosed` closes an ask that `Asked` opened.",
                    )
            case Exited():
                self._exited = True
            case _:
                self._tied(event, getattr(event, "turn", None))

    def _turn_started(self, event: TurnStarted) -> None:
        if event.batch not in self._batches:
            self._fault(
                f"the turn {event.turn.id} started for the batch {event.batch!r},"
                " which nobody submitted",
                "a turn starts for a batch that `start_turn` was given; after a resume"
                " nothing is submitted again by the driver.",
            )
        if event.turn.id in self._started:
            self._fault(
                f"the turn {event.turn.id} started twice",
                "`TurnStarted` comes once, before any other event of its turn.",
            )
        self._started.add(event.turn.id)

    def _turn_ended(self, event: TurnEnded) -> None:
        self._tied(event, event.turn)
        if event.turn.id in self._ended:
            self._fault(
                f"the turn {event.turn.id} ended twice",
                "each turn ends with exactly one `TurnEnded`.",
            )
        self._ended.add(event.turn.id)
        for item, outcome in event.items.items():
            self.tells(item, outcome, "TurnEnded")

    def tells(self, item: ItemId, outcome: ItemOutcome, where: str) -> None:
        """Something says what became of an entry: `TurnEnded`, or the history."""
        entry = next((e for e in self.entries.values() if e.item.id == item), None)
        if entry is None:
            self._fault(
                f"{where} names the entry {item}, which nobody sent",
                "outcomes are told of entries that were handed over.",
            )
        elif entry.surfaced and outcome is ItemOutcome.dropped:
            self._fault(
                f"{entry} was surfaced, and {where} says that it was dropped",
                "`Surfaced` is emitted only on the runtime's own evidence that the"
                " entry is in the model's input. Accepting a request is not evidence.",
            )
        elif outcome is not ItemOutcome.unknown:
            entry.outcome = outcome

    def _surfaced(self, event: Surfaced) -> None:
        self._tied(event, event.turn)
        entry = self.entries.get(event.key)
        if entry is None or entry.item.id != event.item:
            self._fault(
                f"Surfaced names the key {event.key!r} and the entry {event.item!r},"
                " which were not sent together",
                "`Surfaced` is tied to our key and names our entry.",
            )
        elif entry.surfaced:
            self._fault(f"{entry} was surfaced twice", ONCE)
        elif entry.outcome is ItemOutcome.dropped:
            self._fault(f"{entry} was dropped, and surfaced after that", ONCE)
        else:
            entry.surfaced, entry.turn = True, event.turn.id

    def _tied(self, event: RuntimeEvent, turn: TurnRef | None) -> None:
        if turn is not None and turn.id not in self._started:
            self._fault(
                f"{_shown(event)} names the turn {turn.id}, which has not started",
                "`TurnStarted` is emitted before any other event of its turn, and an"
                " event that cannot be tied to a turn has none.",
            )

    def _fault(self, happened: str, contract: str) -> None:
        self.faults.append(Fault(happened, contract))


def _shown(event: RuntimeEvent) -> str:
    return type(event).__name__
