"""
Frames on their way to the daemon: stored, numbered, kept until its receipt.

The rows are the link's outbound queue. There is one daemon of record, the holder;
before any daemon was there, nothing is queued and `leases` builds the first queue
from the store's own tables.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import orjson
from sqlalchemy import Select, bindparam, delete, insert, select, update

from agentteam_protocol.codec import CONVERTER, from_wire
from agentteam_protocol.frames import Frame
from agentteam_protocol.ids import DaemonId
from agentteam_supervisor.server.prepared import Prepared, insertion
from agentteam_supervisor.server.schema import daemons, meta, outbox

if TYPE_CHECKING:
    from collections.abc import Sequence

    from agentteam_supervisor.server.transaction import Tx


BATCH = 128
BATCH_BYTES = 512 * 1024

_HOLDER = Prepared(
    select(daemons.c.id, daemons.c.sent)
    .join(meta, meta.c.value == daemons.c.id)
    .where(meta.c.key == "holder")
)
_INSERT = insertion(outbox)
_SENT = Prepared(update(daemons).where(daemons.c.id == bindparam("daemon")), "sent")
_ACKNOWLEDGE = Prepared(
    delete(outbox).where(
        outbox.c.daemon_id == bindparam("daemon"), outbox.c.number <= bindparam("last")
    )
)


def holder(tx: Tx) -> DaemonId | None:
    """Name the daemon of record, which may be away."""
    found = tx.scalar(select(meta.c.value).where(meta.c.key == "holder"))
    return None if found is None else DaemonId(found)


def appoint(tx: Tx, daemon: DaemonId) -> None:
    tx.run(delete(meta).where(meta.c.key == "holder"))
    tx.run(insert(meta).values(key="holder", value=daemon))


def holder_connected(tx: Tx) -> bool:
    query = select(daemons.c.connected).where(daemons.c.id == holder(tx))
    return bool(tx.scalar(query))


def enqueue(tx: Tx, frame: Frame) -> None:
    """Queue a frame for the daemon of record; without one there is nothing to do."""
    known = tx.one(_HOLDER)
    if known is not None:
        put(tx, known["id"], known["sent"] + 1, [frame])


def put(tx: Tx, daemon: DaemonId, number: int, frames: Sequence[Frame]) -> None:
    """Store frames under the numbers from `number` on."""
    for offset, frame in enumerate(frames):
        text = orjson.dumps(CONVERTER.unstructure(frame, unstructure_as=Frame))
        row = {"daemon_id": daemon, "number": number + offset, "frame": text.decode()}
        tx.run(_INSERT, **row)
    last = number + len(frames) - 1
    tx.run(_SENT, daemon=daemon, sent=last)
    tx.queued.append((daemon, last, frames[-1]) if frames else None)
    tx.touched.add("outbox")
    tx.acts.append("outbox")


def pending(tx: Tx, daemon: DaemonId, after: int) -> list[tuple[int, Frame]]:
    """List all that the daemon has not made durable after this number."""
    return [(r["number"], _frame(r["frame"])) for r in tx.all(_after(daemon, after))]


def batch(tx: Tx, daemon: DaemonId, after: int) -> list[tuple[int, Frame]]:
    """List the next frames that make a message of bearable size, at least one."""
    rows: list[tuple[int, Frame]] = []
    size = 0
    for row in tx.all(_after(daemon, after).limit(BATCH)):
        size += len(row["frame"])
        if rows and size > BATCH_BYTES:
            break
        rows.append((row["number"], _frame(row["frame"])))
    return rows


def acknowledge(tx: Tx, daemon: DaemonId, number: int) -> None:
    """Forget what the daemon has made durable."""
    tx.run(_ACKNOWLEDGE, daemon=daemon, last=number)
    tx.acts.append("receipt")


def clear(tx: Tx) -> None:
    tx.run(delete(outbox))
    tx.queued.append(None)  # what comes now may have the old numbers


def _after(daemon: DaemonId, number: int) -> Select[Any]:
    mine = (outbox.c.daemon_id == daemon) & (outbox.c.number > number)
    return select(outbox).where(mine).order_by(outbox.c.number)


def _frame(text: str) -> Frame:
    return cast("Frame", from_wire(orjson.loads(text), Frame))
