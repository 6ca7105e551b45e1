"""The stored events: each change writes one, in the transaction of the change."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sqlalchemy import delete, func, insert, select

from agentteam_supervisor.server.schema import events

if TYPE_CHECKING:
    from collections.abc import Sequence

    from agentteam_supervisor.server.transaction import Row, Tx


def emit(tx: Tx, kind: str, data: Any) -> None:
    """Tell everybody who watches; the oldest beyond the retention go, by and by."""
    result = tx.conn.execute(insert(events).values(kind=kind, data=data))
    key = result.inserted_primary_key
    seq = 0 if key is None else int(key[0])
    if seq % max(1, tx.retention // 100) == 0:
        tx.run(delete(events).where(events.c.seq <= seq - tx.retention))
    tx.touched.add("events")


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
