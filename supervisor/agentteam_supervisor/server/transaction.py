"""What a transaction may do: the store's rows, seen through one connection."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, cast

from attrs import define, field, frozen
from sqlalchemy import Connection

from agentteam_protocol.frames import Frame
from agentteam_protocol.ids import DaemonId
from agentteam_supervisor.server.clock import wall_time
from agentteam_supervisor.server.prepared import Prepared

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sqlalchemy import Executable

Row = Mapping[str, Any]
Queued = tuple[DaemonId, int, Frame]  # a frame in the outbox, under its number


@frozen
class Told:
    """A stored event as it was written, for those who follow in this process."""

    seq: int
    kind: str
    data: bytes


@define
class Tx:
    """
    One transaction, or one snapshot for reading.

    `touched` names what waiters have to look at once it is committed: `events`,
    `outbox`. `acts` says what it did: each is a point where a crash can be staged.
    `queued` holds the last frame for each time that it changed the outbox, or None;
    `told` the events that it wrote.
    """

    conn: Connection
    retention: int = 10_000
    at: str = field(factory=wall_time)
    touched: set[str] = field(factory=set[str])
    acts: list[object] = field(factory=list[object])
    queued: list[Queued | None] = field(factory=list["Queued | None"])
    told: list[Told] = field(factory=list[Told])

    def run(self, statement: Executable | Prepared, **values: Any) -> None:
        if isinstance(statement, Prepared):
            statement.run(self.conn, values)
        else:
            self.conn.execute(statement)

    def insert(self, statement: Prepared, **values: Any) -> int:
        """Insert a row; returns its sequence number."""
        return int(statement.run(self.conn, values).lastrowid)

    def one(self, statement: Executable | Prepared, **values: Any) -> Row | None:
        if isinstance(statement, Prepared):
            cells = statement.run(self.conn, values).fetchone()
            columns = statement.compiled(self.conn.dialect)
            return None if cells is None else columns.row(cells)
        return cast("Row | None", self.conn.execute(statement).mappings().first())

    def all(self, statement: Executable | Prepared, **values: Any) -> Sequence[Row]:
        if isinstance(statement, Prepared):
            columns = statement.compiled(self.conn.dialect)
            cursor = statement.run(self.conn, values)
            return [columns.row(cells) for cells in cursor.fetchall()]
        return cast("Sequence[Row]", self.conn.execute(statement).mappings().all())

    def scalar(self, statement: Executable | Prepared, **values: Any) -> Any:
        if isinstance(statement, Prepared):
            row = self.one(statement, **values)
            return None if row is None else next(iter(row.values()))
        return self.conn.execute(statement).scalar()
