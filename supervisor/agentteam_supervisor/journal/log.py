"""The journal of a daemon: append as a plain call, durability as something to await."""

from __future__ import annotations

import sqlite3
import time
from collections import Counter, deque
from contextlib import asynccontextmanager, closing, suppress
from functools import lru_cache
from itertools import islice
from typing import TYPE_CHECKING, Any

import orjson
import trio

from agentteam_protocol.codec import decode_event, from_wire
from agentteam_protocol.errors import (
    JournalUnwritable,
    QueueFull,
    RemoteProtocolError,
)
from agentteam_protocol.frames import AgentGranted, Frame
from agentteam_protocol.journal import Entry, JournalEvent
from agentteam_supervisor.chaos import points
from agentteam_supervisor.journal import operations as op
from agentteam_supervisor.journal.records import (
    encode,
    encode_frame,
    marker,
    sound_frame,
)
from agentteam_supervisor.journal.schema import Salvage, connect, prepare
from agentteam_supervisor.journal.transaction import Numbers, read_numbers
from agentteam_supervisor.journal.writer import Writer

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
    from pathlib import Path

    from agentteam_protocol.ids import AgentId

Commit = op.Commit

MAX_UNWRITTEN = 64 << 20
CLOSE_WITHIN = 10.0
# So many frames may stay in the file after the server's receipt.
ACK_LAG = 256


@asynccontextmanager
async def open_journal(
    path: Path, *, max_unwritten: int = MAX_UNWRITTEN
) -> AsyncGenerator[Journal]:
    """
    Open the journal at `path`, moving a damaged file aside; see `Journal.salvage`.

    Raises `JournalUnwritable` or `JournalVersion` with what is wrong with the file.
    """
    salvage = await trio.to_thread.run_sync(prepare, path, now().replace(":", ""))
    with closing(connect(path)) as reader:
        numbers = await trio.to_thread.run_sync(read_numbers, reader)
        journal = Journal(path, reader, numbers, salvage, max_unwritten)
        try:
            yield journal
        finally:
            await journal.close()


def now() -> str:
    """The wall clock, only to be shown: order is by sequence numbers."""
    moment = time.time()
    second = int(moment)
    return f"{_to_the_second(second)}.{int((moment - second) * 1000):03d}Z"


@lru_cache(maxsize=2)
def _to_the_second(second: int) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(second))


class Journal:
    """
    Every session's log, and the link's two directions, in one file.

    `append`, `received`, `acked` and the like are plain calls from the loop's thread;
    they take effect in the order of the calls. Use `open_journal`.
    """

    def __init__(
        self,
        path: Path,
        reader: sqlite3.Connection,
        numbers: Numbers,
        salvage: Salvage | None,
        max_unwritten: int,
    ) -> None:
        self.path = path
        self.salvage = salvage
        self._damaged: Counter[AgentId] = Counter()
        self.unwritten = 0
        self._max_unwritten = max_unwritten
        self._numbers = numbers
        self._reader = _Reader(reader)
        self._tail = Tail()
        self._to_ack = 0
        self._watchers: list[Callable[[], None]] = []
        self._writer = Writer(path, connect(path), numbers, self._settled)
        self._writer.start()

    # --- sessions ---------------------------------------------------------------

    def append(
        self,
        agent: AgentId,
        events: Sequence[JournalEvent],
        frames: Sequence[Frame] = (),
        at: str | None = None,
    ) -> Commit:
        """
        Queue events and the frames that report them, as one transaction.

        Raises `QueueFull` when too much is waiting for the disk. When the commit
        fails, the agent's later appends fail too, until `reopen`: the owner ends the
        session and loads it anew.
        """
        stamp = now() if at is None else at
        rows = tuple((stamp, encode(event)) for event in events)
        return self._append(agent, rows, frames)

    def send(self, frames: Sequence[Frame]) -> Commit:
        """Queue frames that no session's log backs."""
        return self._append(None, (), frames)

    def _append(
        self,
        agent: AgentId | None,
        rows: tuple[tuple[str, bytes], ...],
        frames: Sequence[Frame],
    ) -> Commit:
        encoded = tuple(encode_frame(frame) for frame in frames)
        size = sum(len(row[1]) for row in rows) + sum(map(len, encoded))
        if self.unwritten and self.unwritten + size > self._max_unwritten:
            raise QueueFull(f"{self.unwritten} bytes wait for the disk already")
        commit = Commit()
        if encoded:
            commit.when_done(lambda done: self._grown(done, encoded))
        self.unwritten += size
        return self._put(op.Append(agent, rows, encoded, size, commit))

    def reopen(self, agent: AgentId) -> Commit:
        """Let an agent append again whose earlier append failed; see `append`."""
        return self._put(op.Reopen(agent, Commit()))

    def keep(self, granted: AgentGranted) -> Commit:
        """Remember an agent's settings, to start it without a server."""
        settings = encode(granted)
        return self._put(op.Keep(granted.agent, settings, Commit()))

    def forget(self, agent: AgentId) -> Commit:
        """Drop an agent's settings; its entries stay as history."""
        return self._put(op.Keep(agent, None, Commit()))

    async def kept(self) -> Mapping[AgentId, AgentGranted]:
        """Read the settings of all agents that were granted to this daemon."""
        rows = await self._reader.rows(
            "SELECT agent, settings FROM agents WHERE settings IS NOT NULL"
        )
        granted = (_granted(settings) for _, settings in rows)
        return {one.agent: one for one in granted if one is not None}

    def agents(self) -> frozenset[AgentId]:
        """List the agents that have a log."""
        return frozenset(self._numbers.entries)

    def last(self, agent: AgentId) -> int:
        """Give the number of the agent's last durable entry; 0: none."""
        return self._numbers.entries.get(agent, 0)

    async def entries(
        self, agent: AgentId, after: int = 0, limit: int = 1000
    ) -> list[Entry]:
        """
        Read durable entries in order.

        A record that cannot be decoded is set aside for ever, and a marker has its
        place: reading never fails for what is in the log.
        """
        rows = await self._reader.rows(
            "SELECT seq, at, event FROM entries"
            " WHERE agent = ? AND seq > ? ORDER BY seq LIMIT ?",
            (agent, after, limit),
        )
        return [self._entry(agent, *row) for row in rows]

    async def logs(self, agents: Sequence[AgentId]) -> dict[AgentId, list[Entry]]:
        """Read the whole logs of some agents at once, as `entries` reads one."""
        holes = ", ".join("?" * len(agents))
        rows = await self._reader.rows(
            "SELECT agent, seq, at, event FROM entries"
            f" WHERE agent IN ({holes}) ORDER BY agent, seq",
            agents,
        )
        found: dict[AgentId, list[Entry]] = {agent: [] for agent in agents}
        for agent, *row in rows:
            found[agent].append(self._entry(agent, *row))
        return found

    def _entry(self, agent: AgentId, seq: int, at: str, data: bytes) -> Entry:
        try:
            return Entry(seq, at, decode_event(data))
        except RemoteProtocolError:
            stand_in = marker(self._damaged[agent] == 0, seq)
            self._damaged[agent] += 1
            request = op.SetAside(agent, seq, encode(stand_in), Commit())
            self._put(request)
            return Entry(seq, str(at), stand_in)

    def damaged(self, agent: AgentId) -> int:
        """Count the agent's records that were set aside since the journal was opened."""
        return self._damaged[agent]

    # --- the link ---------------------------------------------------------------

    @property
    def server(self) -> str:
        """The server that the numbers of the link belong to; empty: none yet."""
        return self._numbers.server

    @property
    def received_number(self) -> int:
        """The last frame of the server whose effects are durable."""
        return self._numbers.received

    @property
    def outbound_number(self) -> int:
        """The last durable frame for the server."""
        return self._numbers.outbound

    @property
    def acked_number(self) -> int:
        return self._numbers.acked

    def received(self, number: int) -> Commit:
        """
        Mark the server's frames up to `number` as received.

        Durable only with all appends before the call; when one of those failed, so
        does this, until `reset_inbound`: then the server sends again.
        """
        return self._put(op.Received(number, Commit()))

    def reset_inbound(self) -> Commit:
        return self._put(op.ResetInbound(Commit()))

    def acked(self, number: int) -> None:
        """
        Drop the frames that the server has made durable.

        It travels with the next request: a receipt alone is not worth a commit, and
        after a crash the server's greeting says the same.
        """
        self._to_ack = max(self._to_ack, number)
        if self._to_ack - self._numbers.acked >= ACK_LAG:
            self._put_ack()

    def _put_ack(self) -> None:
        if self._to_ack > 0:
            self._writer.put(op.Acked(self._to_ack, Commit()))
            self._to_ack = 0

    async def rebase(self, server: str, after: int) -> None:
        """
        Number the outbound frames from `after` + 1 on, for this server.

        For a server that is new to us, or that remembers another number than we do.
        """
        commit = self._put(op.Rebase(server, after, Commit()))
        commit.when_done(lambda _: self._tail.clear())
        await commit.wait()

    async def outbound(self, after: int, limit: int = 512) -> list[tuple[int, bytes]]:
        """Read the durable frames after this number, as JSON texts with numbers."""
        if (fresh := self._tail.after(after, limit)) is not None:
            return fresh
        rows = await self._reader.rows(
            "SELECT seq, frame FROM outbound WHERE seq > ? ORDER BY seq LIMIT ?",
            (after, limit),
        )
        return [(seq, sound_frame(data)) for seq, data in rows]

    def watch(self, grown: Callable[[], None]) -> None:
        """Call back in the loop's thread when there is more outbound."""
        self._watchers.append(grown)

    # --- marks --------------------------------------------------------------------

    def mark(self, name: str, value: str) -> Commit:
        """Remember a value of the daemon's own under a name."""
        return self._put(op.Mark(f"own/{name}", value, Commit()))

    async def marked(self, name: str) -> str | None:
        rows = await self._reader.rows(
            "SELECT value FROM marks WHERE name = ?", (f"own/{name}",)
        )
        return str(rows[0][0]) if rows else None

    async def flushed(self) -> None:
        """Return when everything asked so far is durable, or has failed."""
        commit = self._put(op.Mark("flushed", "", Commit()))
        with suppress(JournalUnwritable):
            await commit.wait()

    async def close(self) -> None:
        self._put_ack()
        await self._writer.close(CLOSE_WITHIN)

    def _put(self, operation: op.Operation) -> Commit:
        self._put_ack()
        points.through("journal", operation, self._writer.put)
        return operation.commit

    def _settled(self, numbers: Numbers, size: int) -> None:
        self._numbers = numbers
        self.unwritten -= size

    def _grown(self, commit: Commit, frames: tuple[bytes, ...]) -> None:
        if commit.error is not None:
            return
        self._tail.add(commit.frame - len(frames) + 1, frames)
        for watcher in self._watchers:
            watcher()


class _Reader:
    """One reading connection, used by one thread at a time."""

    def __init__(self, db: sqlite3.Connection) -> None:
        self._db = db
        self._turn = trio.Lock()

    async def rows(self, sql: str, values: Sequence[Any] = ()) -> list[Any]:
        async with self._turn:
            return await trio.to_thread.run_sync(self._rows, sql, values)

    def _rows(self, sql: str, values: Sequence[Any]) -> list[Any]:
        rows: list[Any] = []
        # A page that went bad after the check at the start: what precedes it counts.
        with suppress(sqlite3.DatabaseError):
            rows.extend(self._db.execute(sql, values))
        return rows


def _granted(settings: bytes) -> AgentGranted | None:
    try:
        frame = from_wire(orjson.loads(settings), Frame)
    except (RemoteProtocolError, orjson.JSONDecodeError):
        return None
    return frame if isinstance(frame, AgentGranted) else None


class Tail:
    """The newest outbound frames, so that a connected link need not read the file."""

    def __init__(self, limit: int = 4096) -> None:
        self._frames: deque[tuple[int, bytes]] = deque(maxlen=limit)

    def add(self, first: int, frames: Sequence[bytes]) -> None:
        if self._frames and self._frames[-1][0] + 1 != first:
            self._frames.clear()
        self._frames.extend(enumerate(frames, first))

    def after(self, number: int, limit: int) -> list[tuple[int, bytes]] | None:
        """None: some of them are only in the file."""
        if not self._frames or self._frames[0][0] > number + 1:
            return None
        skip = max(0, number + 1 - self._frames[0][0])
        return list(islice(self._frames, skip, skip + limit))

    def clear(self) -> None:
        self._frames.clear()
