"""
Compare-and-set of visible sends: pure, per agent and target.

| generation of the send | frontier | verdict |
|---|---|---|
| of another lease | any | rejected |
| fenced | any | rejected |
| on hold | any | held: interrupted |
| open | covers the head | forwarded |
| open | behind the head | held, with what was not seen |
"""

from __future__ import annotations

import enum

from attrs import frozen

from agentteam_protocol.errors import RemoteProtocolError
from agentteam_protocol.ids import Generation

# Sequences seen ahead of the first gap. What does not fit is forgotten: its message
# counts as unseen, which holds a send and never loses anything.
EXTRAS = 256


@frozen
class Frontier:
    """What an agent has seen of a target: all up to `upto`, and some beyond."""

    upto: int = 0
    extras: frozenset[int] = frozenset()

    def saw(self, *seqs: int) -> Frontier:
        """Count these as seen; the frontier never goes back."""
        seen = self.extras | {seq for seq in seqs if seq > self.upto}
        upto = self.upto
        while upto + 1 in seen:
            upto += 1
        beyond = sorted(seq for seq in seen if seq > upto)
        return Frontier(upto, frozenset(beyond[:EXTRAS]))

    def covers(self, head: int) -> bool:
        return self.upto >= head

    def unseen(self, head: int) -> list[int]:
        return [s for s in range(self.upto + 1, head + 1) if s not in self.extras]


NONE = Generation(0, 0)


class Fencing(enum.StrEnum):
    open = "open"
    hold = "hold"
    fenced = "fenced"


def fencing(word: str) -> Fencing:
    """Read a daemon's word; raises `RemoteProtocolError` for one that we do not know."""
    try:
        return Fencing(word)
    except ValueError:
        known = ", ".join(Fencing)
        raise RemoteProtocolError(f"a fence is one of {known}, not {word!r}") from None


@frozen
class Fence:
    """The newest generation that the daemon told of; all older ones are fenced."""

    newest: Generation = NONE
    state: Fencing = Fencing.open

    def reported(self, gen: Generation, state: Fencing) -> Fence:
        """Take a report; an older or repeated one changes nothing, fenced is final."""
        if gen < self.newest or (gen == self.newest and self.state is Fencing.fenced):
            return self
        return Fence(gen, state)

    def of(self, gen: Generation) -> Fencing:
        if gen < self.newest:
            return Fencing.fenced
        return self.state if gen == self.newest else Fencing.open


@frozen
class Forwarded:
    """The message may be stored, at the sequence after the head."""


@frozen
class Held:
    reason: str
    unseen: tuple[int, ...] = ()


@frozen
class Rejected:
    reason: str


Verdict = Forwarded | Held | Rejected


def judge(
    gen: Generation, lease_epoch: int, fence: Fence, frontier: Frontier, head: int
) -> Verdict:
    """Judge a visible send of `gen`; the last protection of any visible reply."""
    if gen.epoch != lease_epoch:
        return Rejected("lease lost: this session no longer speaks for the agent")
    match fence.of(gen):
        case Fencing.fenced:
            return Rejected("interrupted: stop sending")
        case Fencing.hold:
            return Held("interrupted", tuple(frontier.unseen(head)))
        case Fencing.open:
            if frontier.covers(head):
                return Forwarded()
            return Held("unseen", tuple(frontier.unseen(head)))
