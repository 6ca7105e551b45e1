"""What the model reads of an entry: its body, under at most a few lines of ours."""

from __future__ import annotations

from typing import TYPE_CHECKING

from attrs import evolve, frozen

from agentteam_protocol.delivery import DeliveryState
from agentteam_protocol.ids import ItemId
from agentteam_protocol.journal import (
    DeliveryChanged,
    InputForgotten,
    RunSession,
    SendDecided,
    StepStart,
    TurnEnd,
    TurnOutcome,
    TurnStart,
    UserMessage,
)
from agentteam_runtimes.driver import InputItem

if TYPE_CHECKING:
    from collections.abc import Sequence

    from agentteam_protocol.inbox import Item
    from agentteam_protocol.journal import JournalEvent

HISTORY_LOST = (
    "[note: the history of this session is not available any more;"
    " read_history shows what was said in a conversation]"
)
DRAFT_HELD = (
    "[note: your last answer was not published, newer messages had arrived;"
    " read them, then answer again if it still holds]"
)
FORGOTTEN = (
    "[note: your last run was killed before your history had what you had just read:]"
)
_QUOTED = 80


@frozen
class Notes:
    """
    The lines that the next input owes the agent, folded from the journal.

    A cut turn's runtime only says "aborted", so the next turn is told which of its
    sends are public. What was given counts as told once the entry that it stands above
    is surfaced, or its turn has completed; until then it is given again.
    """

    due: tuple[str, ...] = ()
    sends: tuple[str, ...] = ()  # of the turn that is open
    given: tuple[str, ...] = ()  # with the last submission
    above: ItemId | None = None
    turn: int = 0  # of that submission

    def after(self, event: JournalEvent) -> Notes:
        if type(event) not in _NOTED:
            return self
        match event:
            case TurnStart():
                return evolve(self, sends=()) if self.sends else self
            case StepStart(turn, _, (first, *_)):
                return evolve(self, given=self.due, above=first, turn=turn)
            case UserMessage(item=item) if item == self.above:
                return self._told()
            case DeliveryChanged(delivery, DeliveryState.surfaced) if (
                str(delivery) == self.above  # such an entry bears its delivery's id
            ):
                return self._told()
            case RunSession(lost=True):
                return self.owing(HISTORY_LOST)
            case InputForgotten(text=text):
                quoted = "\n".join(f"> {line}" for line in text.split("\n"))
                return self.owing(f"{FORGOTTEN}\n{quoted}")
            case SendDecided(verdict="forwarded", auto_reply=False):
                return evolve(self, sends=(*self.sends, _sent(event)))
            case SendDecided(verdict="held", auto_reply=True):
                return self.owing(DRAFT_HELD)
            case TurnEnd(outcome=TurnOutcome.aborted | TurnOutcome.interrupted):
                return evolve(self, due=(*self.due, *self.sends), sends=())
            case TurnEnd(turn, TurnOutcome.completed) if turn == self.turn:
                return self._told()
            case _:
                return self

    def owing(self, line: str) -> Notes:
        return self if line in self.due else evolve(self, due=(*self.due, line))

    def _told(self) -> Notes:
        due = tuple(line for line in self.due if line not in self.given)
        return evolve(self, due=due, given=(), above=None)


# Most records of a busy session are none of these, and one look is all they get.
_NOTED = frozenset(
    {
        TurnStart,
        StepStart,
        UserMessage,
        DeliveryChanged,
        InputForgotten,
        RunSession,
        SendDecided,
        TurnEnd,
    }
)


def _sent(event: SendDecided) -> str:
    text = " ".join(event.text.split())
    quoted = text if len(text) <= _QUOTED else text[: _QUOTED - 1] + "…"
    return f'[note: before it was cut, your last run had sent to {event.target}: "{quoted}"]'


def compose(items: Sequence[Item], notes: Sequence[str] = ()) -> tuple[InputItem, ...]:
    """
    Make the input of a batch; the notes stand above its first entry.

    A direct target gives the body byte for byte (R10), a group one header line above.
    """
    return tuple(
        InputItem(item.id, item.key, text_of(item, () if number else notes))
        for number, item in enumerate(items)
    )


def text_of(item: Item, notes: Sequence[str] = ()) -> str:
    """Write what the model reads of an entry, below these notes."""
    return "\n".join([*notes, *_header(item), item.body])


def _header(item: Item) -> tuple[str, ...]:
    if item.direct or item.target is None:
        return ()
    name = (item.target_name or item.target).removeprefix("#")
    author = f" from {item.author.name}" if item.author is not None else ""
    seq = "" if item.seq is None else f" {item.seq}"
    return (f"[#{name}{seq}{author}]",)
