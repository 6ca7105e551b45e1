"""
What the store forgets: rows that nobody can ask for again.

What people may look up stays for ever: messages, deliveries, runs, activities,
approvals. Events have a retention of their own (`events`).
"""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING

import trio
from sqlalchemy import delete, exists, select

from agentteam_supervisor.server.clock import wall_time
from agentteam_supervisor.server.idempotency import forget_old
from agentteam_supervisor.server.schema import controls, outbox, sends
from agentteam_supervisor.server.writer import StoreUnwritable

if TYPE_CHECKING:
    from agentteam_supervisor.server.store import Store
    from agentteam_supervisor.server.transaction import Tx

LOG = logging.getLogger(__name__)

KEPT = 24 * 3600.0
PAUSE = 3600.0


async def run_retention(store: Store, pause: float = PAUSE) -> None:
    """Forget at the start and then every hour, until cancelled."""
    while True:
        try:
            await store.write(lambda tx: forget(tx, time.time()))
        except StoreUnwritable as exc:
            LOG.warning("nothing was forgotten this time: %s", exc)
        await trio.sleep(pause)


def forget(tx: Tx, now: float) -> None:
    """
    Drop what is older than a day and done with.

    A send's verdict is asked for until the daemon has made it durable, and it has
    when nothing is on its way to it; a control's result comes once.
    """
    before = wall_time(now - KEPT)
    under_way = exists(select(outbox.c.number))
    tx.run(delete(sends).where(sends.c.created_at < before, ~under_way))
    done = controls.c.result.is_not(None)
    tx.run(delete(controls).where(controls.c.created_at < before, done))
    forget_old(tx, int(now))
