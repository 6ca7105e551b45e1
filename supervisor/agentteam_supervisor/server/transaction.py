"""What a transaction may do: the store's rows, seen through one connection."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, cast

from attrs import define, field
from sqlalchemy import Connection

from agentteam_protocol.frames import Frame
from agentteam_protocol.ids import DaemonId
from agentteam_supervisor.server.clock import wall_time

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sqlalchemy import Executable

Row = Mapping[str, Any]
Queued = tuple[DaemonId, int, Frame]  # a frame in the outbox, under its number


@define
class Tx:
    """
    One transaction, or one snapshot for reading.

    `touched` names what waiters have to look at once it is committed: `events`,
    `outbox`. `acts` says what it did: each is a point where a crash can be staged.
    `queued` holds the last frame for each time that it changed the outbox, or None.
    """

    conn: Connection
    retention: int = 10_000
    at: str = field(factory=wall_time)
    touched: set[str] = field(factory=set[str])
    acts: list[object] = field(factory=list[object])
    queued: list[Queued | None] = field(factory=list["Queued | None"])

    def run(self, statement: Executable) -> None:
        self.conn.execute(statement)

    def one(self, statement: Executable) -> Row | None:
        return cast("Row | None", self.conn.execute(statement).mappings().first())

    def all(self, statement: Executable) -> Sequence[Row]:
        return cast("Sequence[Row]", self.conn.execute(statement).mappings().all())

    def scalar(self, statement: Executable) -> Any:
        return self.conn.execute(statement).scalar()
