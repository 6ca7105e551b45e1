"""What nobody can ask for again is forgotten; what people look up is not."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from sqlalchemy import insert, select, update
from tests.supervisor.server.test_outbox import DAEMON, begin

from agentteam_protocol.frames import SendAsked
from agentteam_protocol.ids import AgentId, SendId
from agentteam_supervisor.server import outbox, schema, sends
from agentteam_supervisor.server.clock import wall_time
from agentteam_supervisor.server.retention import KEPT, forget
from agentteam_supervisor.server.store import open_store

if TYPE_CHECKING:
    from pathlib import Path

    from agentteam_supervisor.server.transaction import Tx

AGENT = AgentId("agt_1")
NOW = time.time()


def judge(tx: Tx, send: str, age: float) -> None:
    sends.answer(tx, SendAsked(SendId(send), AGENT))
    moment = {"created_at": wall_time(NOW - age)}
    mine = schema.sends.c.id == send
    tx.run(update(schema.sends).where(mine).values(moment))


def control(tx: Tx, name: str, result: str | None, age: float) -> None:
    row = {"id": name, "agent_id": AGENT, "action": "resume", "who": "user"}
    moment = wall_time(NOW - age)
    tx.run(insert(schema.controls).values(**row, result=result, created_at=moment))


def ids(tx: Tx, table: str) -> set[str]:
    return {row["id"] for row in tx.all(select(schema.METADATA.tables[table]))}


async def test_a_verdict_is_kept_until_the_daemon_has_it_and_a_day_after(
    tmp_path: Path,
) -> None:
    async with open_store(tmp_path / "s.db") as store:
        await store.write(begin)
        await store.write(lambda tx: judge(tx, "snd_old", KEPT + 60))
        await store.write(lambda tx: judge(tx, "snd_new", KEPT - 60))
        await store.write(lambda tx: forget(tx, NOW))
        found = await store.read(lambda tx: ids(tx, "sends"))
        assert found == {"snd_old", "snd_new"}  # the daemon has not got them yet
        await store.write(lambda tx: outbox.acknowledge(tx, DAEMON, 2))
        await store.write(lambda tx: forget(tx, NOW))
        assert await store.read(lambda tx: ids(tx, "sends")) == {"snd_new"}


async def test_a_control_is_kept_while_its_result_is_owed(tmp_path: Path) -> None:
    def some(tx: Tx) -> None:
        control(tx, "ctl_old", "stopping", KEPT + 60)
        control(tx, "ctl_new", "stopping", KEPT - 60)
        control(tx, "ctl_owed", None, KEPT + 60)

    async with open_store(tmp_path / "s.db") as store:
        await store.write(some)
        await store.write(lambda tx: forget(tx, NOW))
        found = await store.read(lambda tx: ids(tx, "controls"))
    assert found == {"ctl_new", "ctl_owed"}
