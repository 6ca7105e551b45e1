"""The outbox: what was queued last is handed over without a second look."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from sqlalchemy import insert

from agentteam_protocol.approval import ApprovalOutcome
from agentteam_protocol.frames import ApprovalDecide
from agentteam_protocol.ids import AgentId, ApprovalId, DaemonId
from agentteam_supervisor.server import outbox, schema
from agentteam_supervisor.server.store import open_store

if TYPE_CHECKING:
    from pathlib import Path

    from agentteam_supervisor.server.transaction import Tx

DAEMON = DaemonId("dmn_1")


def frame(name: str) -> ApprovalDecide:
    outcome = ApprovalOutcome.rejected
    return ApprovalDecide(ApprovalId(name), AgentId("agt_1"), outcome, "user")


def begin(tx: Tx) -> None:
    row = {"id": DAEMON, "name": "d", "boot": "b", "connected": True, "sent": 0}
    tx.run(insert(schema.daemons).values(**row, received=0, runtimes=[]))
    outbox.appoint(tx, DAEMON)


async def test_only_the_frame_that_was_committed_last_is_handed_over(
    tmp_path: Path,
) -> None:
    def fails(tx: Tx) -> None:
        outbox.enqueue(tx, frame("never"))
        raise ValueError("rolled back")

    async with open_store(tmp_path / "s.db") as store:
        await store.write(begin)
        assert store.newest is None
        await store.write(lambda tx: outbox.enqueue(tx, frame("one")))
        await store.write(lambda tx: outbox.enqueue(tx, frame("two")))
        with pytest.raises(ValueError, match="rolled back"):
            await store.write(fails)
        assert store.newest == (DAEMON, 2, frame("two"))
        kept = await store.read(lambda tx: outbox.batch(tx, DAEMON, 1))
    assert kept == [(2, frame("two"))]


async def test_a_queue_that_is_built_anew_hands_over_nothing_of_the_old_one(
    tmp_path: Path,
) -> None:
    """Its numbers are used again, for other frames."""

    def anew(tx: Tx) -> None:
        outbox.clear(tx)
        outbox.put(tx, DAEMON, 1, [])

    async with open_store(tmp_path / "s.db") as store:
        await store.write(begin)
        await store.write(lambda tx: outbox.enqueue(tx, frame("old")))
        await store.write(anew)
        assert store.newest is None
        await store.write(lambda tx: outbox.put(tx, DAEMON, 1, [frame("new")]))
        assert store.newest == (DAEMON, 1, frame("new"))
