"""One group of requests as SQL, with the numbers that it gives out."""

from __future__ import annotations

import sqlite3
from functools import cache
from typing import TYPE_CHECKING, Any, assert_never

from attrs import define, field

from agentteam_protocol.ids import AgentId
from agentteam_supervisor.journal import operations as op

if TYPE_CHECKING:
    from collections.abc import Sequence

# So many rows go by one statement; any number of rows takes few of them.
_SIZES = (256, 32, 4, 1)
_REFUSED = "an earlier record of this log could not be written"


@define
class Numbers:
    """The last numbers given out; the writer's thread alone changes them."""

    entries: dict[AgentId, int] = field(factory=dict[AgentId, int])
    outbound: int = 0
    acked: int = 0
    received: int = 0
    server: str = ""

    def copy(self) -> Numbers:
        return Numbers(
            self.entries, self.outbound, self.acked, self.received, self.server
        )


def read_numbers(db: sqlite3.Connection) -> Numbers:
    marks = dict(db.execute("SELECT name, value FROM marks"))
    acked = int(marks.get("acked", 0))
    last = db.execute("SELECT max(seq) FROM outbound").fetchone()[0] or 0
    agents = [AgentId(row[0]) for row in db.execute("SELECT agent FROM agents")]
    entries = {agent: _last_entry(db, agent) for agent in agents}
    received = int(marks.get("received", 0))
    return Numbers(entries, max(acked, last), acked, received, marks.get("server", ""))


def _last_entry(db: sqlite3.Connection, agent: AgentId) -> int:
    row = db.execute("SELECT max(seq) FROM entries WHERE agent = ?", (agent,))
    return row.fetchone()[0] or 0


@define
class Refusals:
    """
    Whose requests are refused after a failure, until their owner starts over.

    A later record must not hide that an earlier one is missing: an agent's appends
    wait for `Reopen`, the inbound marks (which vouch for all agents) for
    `ResetInbound`.
    """

    agents: set[AgentId] = field(factory=set[AgentId])
    inbound: bool = False

    def after(self, group: list[op.Operation]) -> None:
        """Take note of a group that failed."""
        self.inbound = True
        for operation in group:
            if isinstance(operation, op.Append) and operation.agent is not None:
                self.agents.add(operation.agent)


def _insert(
    db: sqlite3.Connection, table: str, width: int, rows: Sequence[tuple[Any, ...]]
) -> None:
    """
    Insert rows, as many as possible by one statement.

    SQLite runs a statement without the interpreter, and getting that back from a busy
    loop takes longer than inserting hundreds of rows.
    """
    done = 0
    for size in _SIZES:
        while len(rows) - done >= size:
            db.execute(
                _statement(table, width, size),
                [value for row in rows[done : done + size] for value in row],
            )
            done += size


@cache
def _statement(table: str, width: int, size: int) -> str:
    row = f"({', '.join('?' * width)})"
    return f"INSERT INTO {table} VALUES {', '.join([row] * size)}"


@define
class Transaction:
    """Collects the rows of a group, so that each table gets one statement."""

    db: sqlite3.Connection
    numbers: Numbers
    refusals: Refusals
    _entries: list[tuple[AgentId, int, str, bytes]] = field(
        factory=list[tuple[AgentId, int, str, bytes]]
    )
    _frames: list[tuple[int, bytes]] = field(factory=list[tuple[int, bytes]])
    _last: dict[AgentId, int] = field(factory=dict[AgentId, int])

    def perform(self, operation: op.Operation) -> None:
        match operation:
            case op.Append():
                self._append(operation)
            case op.Reopen(agent):
                self.refusals.agents.discard(agent)
            case op.Received(number, commit):
                self._received(number, commit)
            case op.ResetInbound():
                self.refusals.inbound = False
            case op.Acked(number):
                self._acked(number)
            case op.Rebase(server, after):
                self._rebase(server, after)
            case op.Keep(agent, settings):
                self._keep(agent, settings)
            case op.Mark(name, value):
                self._mark(name, value)
            case op.SetAside():
                self._set_aside(operation)
            case _:
                assert_never(operation)

    def flush(self) -> None:
        """Write what was collected."""
        _insert(self.db, "entries", 4, self._entries)
        self._entries.clear()
        _insert(self.db, "outbound", 2, self._frames)
        self._frames.clear()

    def committed(self) -> Numbers:
        self.numbers.entries.update(self._last)
        return self.numbers

    def _append(self, append: op.Append) -> None:
        agent = append.agent
        if agent is not None and agent in self.refusals.agents:
            append.commit.error = _REFUSED
            self.refusals.inbound = True
            return
        if agent is not None:
            append.commit.seq = self._take_entries(agent, append.events)
        for frame in append.frames:
            self.numbers.outbound += 1
            self._frames.append((self.numbers.outbound, frame))
        append.commit.frame = self.numbers.outbound

    def _take_entries(
        self, agent: AgentId, events: tuple[tuple[str, bytes], ...]
    ) -> int:
        seq = self._last.get(agent, self.numbers.entries.get(agent, -1))
        if seq < 0:
            self.db.execute("INSERT OR IGNORE INTO agents VALUES (?, NULL)", (agent,))
            seq = 0
        for at, event in events:
            seq += 1
            self._entries.append((agent, seq, at, event))
        self._last[agent] = seq
        return seq

    def _received(self, number: int, commit: op.Commit) -> None:
        if self.refusals.inbound:
            commit.error = _REFUSED
        elif number > self.numbers.received:
            self.numbers.received = number
            self._mark("received", str(number))

    def _acked(self, number: int) -> None:
        number = min(number, self.numbers.outbound)
        if number <= self.numbers.acked:
            return
        self.flush()
        self.db.execute("DELETE FROM outbound WHERE seq <= ?", (number,))
        self.numbers.acked = number
        self._mark("acked", str(number))

    def _rebase(self, server: str, after: int) -> None:
        self.flush()
        shift = after - self.numbers.acked
        count = self.numbers.outbound - self.numbers.acked
        # By way of negative numbers: two rows never claim the same one meanwhile.
        self.db.execute("UPDATE outbound SET seq = -(seq + ?)", (shift,))
        self.db.execute("UPDATE outbound SET seq = -seq")
        self.numbers.acked, self.numbers.outbound = after, after + count
        self._mark("acked", str(after))
        if server != self.numbers.server:
            self.numbers.server, self.numbers.received = server, 0
            self._mark("server", server)
            self._mark("received", "0")

    def _keep(self, agent: AgentId, settings: bytes | None) -> None:
        self.db.execute(
            "INSERT INTO agents VALUES (?, ?)"
            " ON CONFLICT (agent) DO UPDATE SET settings = excluded.settings",
            (agent, settings),
        )

    def _mark(self, name: str, value: str) -> None:
        self.db.execute("INSERT OR REPLACE INTO marks VALUES (?, ?)", (name, value))

    def _set_aside(self, request: op.SetAside) -> None:
        self.flush()
        place = (request.agent, request.seq)
        self.db.execute(
            "INSERT INTO damaged SELECT * FROM entries WHERE agent = ? AND seq = ?",
            place,
        )
        self.db.execute(
            "UPDATE entries SET event = ? WHERE agent = ? AND seq = ?",
            (request.marker, *place),
        )
