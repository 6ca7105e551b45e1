"""
What was sent in one session, and what the agent's own record says became of it.

The protocol carries no name of ours into an agent's record. But an agent that can load
a session replays it then, and an entry is found in that by its text. Where the texts do
not tell for certain, nothing is said:

| the replay holds the text                    | the entry was                          |
|----------------------------------------------|----------------------------------------|
| as often as it was sent, an answer behind it | surfaced                               |
| as often as it was sent, nothing behind it   | carried: the next request has it, too  |
| as often as it was known to be there before  | dropped, if the rest is as we know it  |
| in any other number                          | whatever it was: nobody can tell       |

OpenCode keeps a prompt that was cut before its model had it, and one whose request its
model refused, and sends them with the next (measured).
"""

from __future__ import annotations

import enum
import hashlib
import json
from pathlib import Path
from typing import TYPE_CHECKING

from attrs import define, field, frozen

from agentteam_protocol.ids import ItemId
from agentteam_runtimes import jsonfields
from agentteam_runtimes.acp import wire
from agentteam_runtimes.driver import ItemOutcome
from agentteam_runtimes.jsonlines import well_formed

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from agentteam_runtimes.driver import Batch
    from agentteam_runtimes.jsonlines import JsonObject

MOST_REMEMBERED = 500  # submissions: a long session stays small


class Fate(enum.StrEnum):
    open = "open"
    surfaced = "surfaced"
    carried = "carried"
    dropped = "dropped"
    unknown = "unknown"  # nobody shall look for it: its turn ended without a sign


OUTCOMES = {
    Fate.surfaced: ItemOutcome.surfaced,
    Fate.carried: ItemOutcome.carried,
    Fate.dropped: ItemOutcome.dropped,
    Fate.unknown: ItemOutcome.unknown,
}
RECORDED = (Fate.surfaced, Fate.carried)
ANSWERS = (wire.MESSAGE_CHUNK, wire.THOUGHT_CHUNK, wire.TOOL_CALL)


@define
class Replayed:
    """A message of the user, as an agent replays it."""

    name: str
    text: str
    answered: bool = False


@define
class Replay:
    """What an agent tells of the past of a session that it loads."""

    messages: list[Replayed] = field(factory=list[Replayed])
    _in_message: bool = False

    def take(self, update: JsonObject) -> None:
        kind = jsonfields.text(update, "sessionUpdate")
        if kind == wire.USER_CHUNK:
            name, words = jsonfields.text(update, "messageId"), wire.chunk_text(update)
            if self._in_message and self.messages[-1].name == name:
                self.messages[-1].text += words
            else:
                self.messages.append(Replayed(name, words))
            self._in_message = True
        elif kind in ANSWERS:
            self._in_message = False
            for message in self.messages:
                message.answered = True


@define
class Sent:
    """One submission: the keys of its entries, its text's digest, what came of it."""

    items: dict[str, ItemId]
    digest: str
    after: int  # so many messages of the user were there before
    fate: Fate = Fate.open


@define
class Record:
    """All submissions in one session, oldest first."""

    session: str = ""
    seen: int = 0  # messages of the user, when the session was loaded last
    known: bool = False  # it is complete: what is not in it was never sent
    sent: list[Sent] = field(factory=list[Sent])

    def submit(self, batch: Batch) -> None:
        """Take it that a batch is sent now."""
        items = {item.key: item.id for item in batch.items}
        text = "".join(well_formed(item.text) for item in batch.items)
        self.sent = [*self.sent, Sent(items, digest(text), self.seen)]
        self.sent = self.sent[-MOST_REMEMBERED:]

    def take_back(self) -> None:
        """Take it that the last batch did not leave."""
        self.sent[-1].fate = Fate.dropped

    def answered(self) -> dict[str, ItemId]:
        """Take it that the model answers: what that shows it to have read."""
        read = [s for s in self.sent[:-1] if s.fate is Fate.carried]
        read += [s for s in self.sent[-1:] if s.fate in (Fate.open, Fate.carried)]
        for sent in read:
            sent.fate = Fate.surfaced
        return {key: item for sent in read for key, item in sent.items.items()}

    def give_up(self) -> None:
        """Take it that nothing will tell whether the last batch was read."""
        self.sent[-1].fate = Fate.unknown

    @property
    def has_open(self) -> bool:
        return any(sent.fate is Fate.open for sent in self.sent)

    def outcomes(self, keys: Iterable[str]) -> Mapping[ItemId, ItemOutcome]:
        """Say of these keys what is known, by the entries that they name."""
        wanted = set(keys)
        return {
            item: OUTCOMES[sent.fate]
            for sent in self.sent
            for key, item in sent.items.items()
            if key in wanted and sent.fate in OUTCOMES
        }

    def has(self, key: str) -> bool:
        return any(key in sent.items for sent in self.sent)

    def compare(self, found: Sequence[Replayed]) -> None:
        """Decide about what is open by the agent's own record, where that is certain."""
        places: dict[str, list[int]] = {}
        for place, message in enumerate(found):
            places.setdefault(digest(message.text), []).append(place)
        complete = self._is_as_known(found, places)
        for kind in {(s.digest, s.after) for s in self.sent if s.fate is Fate.open}:
            if kind[1] <= len(found):
                self._compare(found, places, kind, complete)
        self.seen = len(found)

    def _compare(
        self,
        found: Sequence[Replayed],
        places: Mapping[str, Sequence[int]],
        kind: tuple[str, int],
        complete: bool,
    ) -> None:
        there = [p for p in places.get(kind[0], ()) if p >= kind[1]]
        same = [s for s in self.sent if s.digest == kind[0] and s.after >= kind[1]]
        before = sum(s.fate in RECORDED for s in same)
        open_ones = [s for s in same if s.fate is Fate.open]
        if len(there) == before + len(open_ones):
            for sent, place in zip(open_ones, there[before:], strict=True):
                answered = found[place].answered
                sent.fate = Fate.surfaced if answered else Fate.carried
        elif len(there) == before and complete:
            for sent in open_ones:
                sent.fate = Fate.dropped

    def _is_as_known(
        self, found: Sequence[Replayed], places: Mapping[str, Sequence[int]]
    ) -> bool:
        """Tell whether what is not in the replay is not in the record, either."""
        newest = next((s for s in reversed(self.sent) if s.fate in RECORDED), None)
        if newest is None:
            return False
        ours = {sent.digest for sent in self.sent}
        waiting = {digest(m.text) for m in found if not m.answered}
        here = any(p >= newest.after for p in places.get(newest.digest, ()))
        return here and waiting <= ours


def digest(text: str) -> str:
    return hashlib.sha256(text.strip().encode("utf-8", "replace")).hexdigest()[:16]


@frozen
class Memory:
    """The file of a record, for the process that loads the session."""

    path: Path

    def read(self, session: str) -> Record:
        """Read what was sent in this session; nothing of another."""
        try:
            kept = json.loads(self.path.read_text())
            if kept["session"] == session:
                sent = [_sent(*one) for one in kept["sent"]]
                return Record(session, int(kept["seen"]), True, sent)
        except (OSError, ValueError, TypeError, KeyError, AttributeError):
            pass
        return Record(session)

    def keep(self, record: Record) -> None:
        """Write it; raises `OSError`."""
        sent = [(s.items, s.digest, s.after, s.fate) for s in record.sent]
        text = {"session": record.session, "seen": record.seen, "sent": sent}
        new = self.path.with_suffix(".new")
        new.write_text(json.dumps(text))
        new.replace(self.path)


def _sent(items: Mapping[str, str], text: str, after: int, fate: str) -> Sent:
    named = {str(key): ItemId(str(item)) for key, item in items.items()}
    return Sent(named, str(text), int(after), Fate(fate))
