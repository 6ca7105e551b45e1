"""Situations of a session to begin a test in, and short questions about them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from attrs import evolve
from tests.kit.driving import ABLE, Drive, Manner, followup

from agentteam_protocol import journal as j
from agentteam_protocol.ids import ItemId, TargetId
from agentteam_runtimes import driver as d
from agentteam_supervisor.session import effects as fx, events as ev
from agentteam_supervisor.session.state import Phase

if TYPE_CHECKING:
    from agentteam_protocol.delivery import DeliveryState
    from agentteam_protocol.inbox import Lane

DEAF = Manner(deaf=True)
UNSTOPPABLE = Manner(deaf=True, killable=False)
LOOP = evolve(ABLE, steps=True, steer=d.Steer.none)


def idle() -> Drive:
    return Drive().ready()


def running() -> Drive:
    drive = idle().running()
    drive.surface(ItemId("first"))
    return drive


def converging(*, soft: bool = False) -> Drive:
    """A Stop, or a cancel, whose interrupt nobody has answered."""
    drive = running()
    if soft:
        drive.feed(ev.CancelRequested(keep_inbox=True))
    else:
        drive.stop()
    assert drive.phase is Phase.converging
    return drive


def starting() -> Drive:
    drive = Drive()
    drive.send(followup("first"))
    assert drive.phase is Phase.starting
    return drive


def recovering() -> Drive:
    drive = running()
    drive.send(followup("second"))
    drive.die()
    assert drive.phase is Phase.recovering
    return drive


def maintaining() -> Drive:
    drive = idle()
    drive.feed(ev.MaintenanceRequested("compact", 900))
    assert drive.phase is Phase.maintenance
    return drive


def offline() -> Drive:
    return Drive()


ANY = [idle, running, converging, starting, recovering, maintaining, offline]


def state_of(drive: Drive, delivery: str) -> DeliveryState:
    found = {str(d_): v for d_, v in drive.session.ledger.deliveries.items()}
    return found[delivery].state


def frontier(drive: Drive, target: str = "tgt_a") -> int:
    found = drive.session.ledger.frontiers.get(TargetId(target))
    return found.contiguous if found is not None else 0


def submitted(drive: Drive) -> list[list[str]]:
    submits = [e for e in drive.trace if isinstance(e, fx.Submit)]
    return [[str(i.id) for i in e.items] for e in submits]


def ends(drive: Drive) -> list[tuple[str, str]]:
    found = [e for e in drive.log if isinstance(e, j.TurnEnd)]
    return [(str(e.outcome), str(e.cause or "")) for e in found]


def lane(drive: Drive, which: Lane) -> list[str]:
    return [str(i.id) for i in drive.session.ledger.lanes[which]]


def kinds(drive: Drive) -> list[str]:
    return [j.KINDS[type(e)] for e in drive.log]


def count(drive: Drive, kind: type) -> int:
    return sum(isinstance(e, kind) for e in drive.trace)
