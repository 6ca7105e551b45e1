"""Stop, resume and the host's methods: stored, sent, and answered later."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sqlalchemy import insert, select, update

from agentteam_protocol.control import ControlAction, ControlResult, Method
from agentteam_protocol.frames import AgentControl, AgentIntervene
from agentteam_protocol.ids import ControlId, RunId, mint
from agentteam_supervisor.server import activities, agents, outbox
from agentteam_supervisor.server.problems import Problem, conflict
from agentteam_supervisor.server.schema import controls

if TYPE_CHECKING:
    from agentteam_protocol.frames import ControlReported
    from agentteam_supervisor.server.transaction import Row, Tx

NOTHING_RUNS = "nothing is running; there is nothing to stop"


def stop(tx: Tx, agent: Row, run: RunId, who: str) -> ControlId:
    """
    Stop this run and no other (interrupt spec §5.2).

    While the daemon is away nobody knows what runs there: the Stop waits for it.
    """
    if outbox.holder_connected(tx) or outbox.holder(tx) is None:
        _check_current(agents.current_run(agent), run)
    return _send(tx, agent, ControlAction.interrupt_current_run, run, who)


def resume(tx: Tx, agent: Row, who: str) -> ControlId:
    return _send(tx, agent, ControlAction.resume, None, who)


def intervene(
    tx: Tx, agent: Row, method: Method, arguments: dict[str, Any]
) -> ControlId:
    """Pass one of the seven methods on to the session."""
    if outbox.holder(tx) is None:
        detail = f"{agents.NO_DAEMON}; {agents.GET_DAEMON}; then try again"
        raise Problem(503, "daemon_away", detail)
    control = ControlId(mint("ctl"))
    _remember(tx, control, agent, method, None, "host")
    outbox.enqueue(tx, AgentIntervene(control, agent["id"], method, arguments))
    return control


def report(tx: Tx, agent: Row, told: ControlReported) -> None:
    """Keep the outcome; a Stop that came too late is said in the activity."""
    row = tx.one(select(controls).where(controls.c.id == told.control))
    if row is None or row["result"] is not None:
        return
    mine = controls.c.id == told.control
    tx.run(update(controls).where(mine).values(result=told.result))
    if told.result not in {ControlResult.stale_run, ControlResult.not_running}:
        return
    if row["action"] == ControlAction.interrupt_current_run:
        activities.notice(
            tx,
            agent["id"],
            row["run_id"],
            "The run that was to be stopped had ended before; nothing was stopped",
            "要停止的 run 此前已结束，没有停止任何 run",
        )


def came_late(result: ControlResult, run: RunId) -> Problem:
    """Say in a problem what the session said of a Stop that stopped nothing."""
    if result is ControlResult.stale_run:
        return conflict("stale_run", f"{run} is over; nothing was stopped")
    return conflict("not_running", NOTHING_RUNS)


def _check_current(current: RunId | None, run: RunId) -> None:
    if current is None:
        raise conflict("not_running", NOTHING_RUNS)
    if current != run:
        detail = f"{run} is not the current run, {current} is; nothing was stopped"
        raise conflict("stale_run", detail, currentRun=current)


def _send(
    tx: Tx, agent: Row, action: ControlAction, run: RunId | None, who: str
) -> ControlId:
    control = ControlId(mint("ctl"))
    _remember(tx, control, agent, action, run, who)
    outbox.enqueue(tx, AgentControl(control, agent["id"], action, run, who))
    return control


def _remember(
    tx: Tx, control: ControlId, agent: Row, action: str, run: RunId | None, who: str
) -> None:
    tx.run(
        insert(controls).values(
            id=control,
            agent_id=agent["id"],
            action=action,
            run_id=run,
            who=who,
            created_at=tx.at,
        )
    )
    tx.acts.append("control")
