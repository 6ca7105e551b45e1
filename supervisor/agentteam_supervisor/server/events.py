"""The stored events: each change writes one, in the transaction of the change."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import orjson
from sqlalchemy import delete, func, select

from agentteam_supervisor.server.prepared import insertion
from agentteam_supervisor.server.schema import events
from agentteam_supervisor.server.transaction import Told

if TYPE_CHECKING:
    from collections.abc import Sequence

    from agentteam_supervisor.server.transaction import Row, Tx

_INSERT = insertion(events)


def emit(tx: Tx, kind: str, data: Any) -> None:
    """Tell everybody who watches; the oldest beyond the retention go, by and by."""
    seq = tx.insert(_INSERT, kind=kind, data=data)
    if seq % max(1, tx.retention // 100) == 0:
        tx.run(delete(events).where(events.c.seq <= seq - tx.retention))
    tx.touched.add("events")
    tx.told.append(Told(seq, kind, orjson.dumps(data)))


def after(tx: Tx, seq: int, limit: int) -> Sequence[Row]:
    query = select(events).where(events.c.seq > seq).order_by(events.c.seq)
    return tx.all(query.limit(limit))


def bounds(tx: Tx) -> tuple[int, int]:
    """Tell the oldest and the newest sequence that the store holds (0, 0: none)."""
    found = tx.one(
        select(
            func.coalesce(func.min(events.c.seq), 0).label("oldest"),
            func.coalesce(func.max(events.c.seq), 0).label("newest"),
        )
    )
    return (0, 0) if found is None else (found["oldest"], found["newest"])
