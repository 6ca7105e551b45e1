"""What the journal's writer is asked to do, in the order in which it was asked."""

from __future__ import annotations

from collections.abc import Callable

import trio
from attrs import define, frozen

from agentteam_protocol.errors import JournalUnwritable
from agentteam_protocol.ids import AgentId


@define(eq=False)
class Commit:
    """
    The fate of one request to the writer, known in the loop's thread.

    `seqs` and `frames` are the last numbers that the request got, once it is durable.
    """

    done: bool = False
    error: str | None = None
    seq: int = 0
    frame: int = 0
    _event: trio.Event | None = None
    _watchers: list[Callable[[Commit], None]] | None = None

    async def wait(self) -> None:
        """Return when the records are durable; raises `JournalUnwritable`."""
        if not self.done:
            if self._event is None:
                self._event = trio.Event()
            await self._event.wait()
        if self.error is not None:
            raise JournalUnwritable(self.error)

    def when_done(self, watcher: Callable[[Commit], None]) -> None:
        """Call back in the loop's thread, at once if the fate is known."""
        if self.done:
            watcher(self)
        elif self._watchers is None:
            self._watchers = [watcher]
        else:
            self._watchers.append(watcher)

    def resolve(self) -> None:
        self.done = True
        if self._event is not None:
            self._event.set()
        for watcher in self._watchers or ():
            watcher(self)
        self._watchers = None


@frozen(eq=False)
class Append:
    """Events of one session and the frames that tell the server about them."""

    agent: AgentId | None
    events: tuple[tuple[str, bytes], ...]
    frames: tuple[bytes, ...]
    size: int
    commit: Commit


@frozen(eq=False)
class Reopen:
    """The owner has reloaded the session: its appends count again."""

    agent: AgentId
    commit: Commit
    size: int = 0


@frozen(eq=False)
class Received:
    """Everything up to this number of the server is durable with what it caused."""

    number: int
    commit: Commit
    size: int = 0


@frozen(eq=False)
class ResetInbound:
    """The link starts over at the durable number: its marks count again."""

    commit: Commit
    size: int = 0


@frozen(eq=False)
class Acked:
    number: int
    commit: Commit
    size: int = 0


@frozen(eq=False)
class Rebase:
    """Number what is still outbound from `after` on, for this server."""

    server: str
    after: int
    commit: Commit
    size: int = 0


@frozen(eq=False)
class Keep:
    """Remember an agent's settings; None forgets them and keeps its entries."""

    agent: AgentId
    settings: bytes | None
    commit: Commit
    size: int = 0


@frozen(eq=False)
class Mark:
    name: str
    value: str
    commit: Commit
    size: int = 0


@frozen(eq=False)
class SetAside:
    """A record that cannot be decoded makes room for its marker."""

    agent: AgentId
    seq: int
    marker: bytes
    commit: Commit
    size: int = 0


Operation = (
    Append | Reopen | Received | ResetInbound | Acked | Rebase | Keep | Mark | SetAside
)
