"""What the model reads of an entry: its body, under at most a few lines of ours."""

from __future__ import annotations

from typing import TYPE_CHECKING

from attrs import evolve, frozen

from agentteam_protocol.journal import SendDecided, TurnEnd, TurnOutcome, TurnStart
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
_QUOTED = 80


@frozen
class Notes:
    """
    The lines that the next input owes the agent, folded from the journal.

    A cut turn's runtime only says "aborted", so the next turn is told which of its
    sends are public.
    """

    due: tuple[str, ...] = ()
    sends: tuple[str, ...] = ()  # of the turn that is open

    def after(self, event: JournalEvent) -> Notes:
        match event:
            case TurnStart():
                return evolve(self, sends=())
            case SendDecided(verdict="forwarded", auto_reply=False):
                return evolve(self, sends=(*self.sends, _sent(event)))
            case SendDecided(verdict="held", auto_reply=True):
                return self.owing(DRAFT_HELD)
            case TurnEnd(outcome=TurnOutcome.aborted | TurnOutcome.interrupted):
                return evolve(self, due=(*self.due, *self.sends), sends=())
            case _:
                return self

    def owing(self, line: str) -> Notes:
        return self if line in self.due else evolve(self, due=(*self.due, line))

    def told(self, lines: tuple[str, ...]) -> Notes:
        """Strike out what an accepted submission has said."""
        return evolve(self, due=tuple(line for line in self.due if line not in lines))


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
        InputItem(item.id, item.key, _text(item, () if number else notes))
        for number, item in enumerate(items)
    )


def _text(item: Item, notes: Sequence[str]) -> str:
    return "\n".join([*notes, *_header(item), item.body])


def _header(item: Item) -> tuple[str, ...]:
    if item.direct or item.target is None:
        return ()
    name = (item.target_name or item.target).removeprefix("#")
    author = f" from {item.author.name}" if item.author is not None else ""
    seq = "" if item.seq is None else f" {item.seq}"
    return (f"[#{name}{seq}{author}]",)
