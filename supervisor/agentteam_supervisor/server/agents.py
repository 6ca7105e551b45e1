"""Agents as the server knows them: settings, lease, and the daemon's last word."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from attrs import field, frozen
from sqlalchemy import bindparam, insert, select, update

from agentteam_protocol.approval import ApprovalPolicy
from agentteam_protocol.delivery import DeliveryState, Diagnostic
from agentteam_protocol.frames import AgentGranted, AgentRevoked
from agentteam_protocol.ids import AgentId, RunId, mint
from agentteam_supervisor.server import (
    activities,
    approvals,
    deliveries,
    events,
    frontiers,
    outbox,
    targets,
)
from agentteam_supervisor.server.freshness import Fencing
from agentteam_supervisor.server.options import shown_options
from agentteam_supervisor.server.prepared import Prepared
from agentteam_supervisor.server.problems import Problem, conflict, invalid, unknown
from agentteam_supervisor.server.schema import agents, daemons

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from agentteam_supervisor.server.transaction import Row, Tx

_ALIVE = agents.c.deleted_at.is_(None)
_BY_ID = Prepared(select(agents).where(agents.c.id == bindparam("ref"), _ALIVE))
_BY_NAME = Prepared(select(agents).where(agents.c.name == bindparam("ref"), _ALIVE))
_STATUS = Prepared(update(agents).where(agents.c.id == bindparam("agent")), "status")
_DAEMON = Prepared(select(daemons).where(daemons.c.id == bindparam("daemon")))

NO_DAEMON = "no daemon is connected"
# The server cannot know whether one belongs to its own process.
GET_DAEMON = "that of `agentteam up` comes back by itself, else start one with `agentteam daemon`"
MAY_BE_READ = "it may have been read before the agent was deleted"
OFFLINE = {"running": False, "phase": "offline", "parked": False}


@frozen
class Settings:
    """What a client says about a new agent."""

    name: str
    runtime: str
    workdir: str | None = None
    model: str | None = None
    approval_policy: ApprovalPolicy = ApprovalPolicy.ask
    auto_reply: bool = True
    options: dict[str, Any] = field(factory=dict[str, Any])


def find(tx: Tx, ref: str) -> Row:
    """Find a living agent by id or name; raises `Problem`."""
    row = get(tx, ref)
    if row is None:
        raise _absent(tx, ref)
    return row


def find_past(tx: Tx, ref: str) -> Row:
    """Find an agent, by its id also one that was removed: its history stays."""
    row = get(tx, ref) or tx.one(select(agents).where(agents.c.id == ref))
    if row is None:
        raise _absent(tx, ref)
    return row


def _absent(tx: Tx, ref: str) -> Problem:
    """Say that there is no such agent; of a removed one, where its history is."""
    named = (agents.c.name == ref) | (agents.c.id == ref)
    past = tx.one(select(agents).where(named).order_by(agents.c.seq.desc()).limit(1))
    if past is None:
        return unknown("agent", ref)
    return Problem(
        404,
        "unknown_agent",
        f"the agent {past['name']} was removed; what it did is kept under {past['id']},"
        f" its messages under {past['target_id']}",
        removed={"agent": past["id"], "target": past["target_id"]},
    )


def get(tx: Tx, ref: str) -> Row | None:
    for query in (_BY_ID, _BY_NAME):
        row = tx.one(query, ref=ref)
        if row is not None:
            return row
    return None


def living(tx: Tx, after: int = 0, limit: int | None = None) -> Sequence[Row]:
    alive = agents.c.deleted_at.is_(None) & (agents.c.seq > after)
    return tx.all(select(agents).where(alive).order_by(agents.c.seq).limit(limit))


def create(tx: Tx, settings: Settings) -> Row:
    """Make an agent and its direct target `@name`, and grant it to the daemon."""
    _check_runtime(tx, settings.runtime)
    _check_session(tx, settings.runtime, settings.options)
    targets.check_free(tx, settings.name)
    agent = AgentId(mint("agt"))
    target = targets.create(tx, f"@{settings.name}", direct=True)
    daemon = outbox.holder(tx)
    tx.run(
        insert(agents).values(
            id=agent,
            name=settings.name,
            runtime=settings.runtime,
            workdir=settings.workdir,
            model=settings.model,
            approval_policy=settings.approval_policy,
            auto_reply=settings.auto_reply,
            options=settings.options,
            target_id=target["id"],
            created_at=tx.at,
            daemon_id=daemon,
            lease_epoch=0 if daemon is None else 1,
            status=OFFLINE,
            fence_epoch=0,
            fence_number=0,
            fence_state=Fencing.open,
        )
    )
    targets.join(tx, target, agent)
    return _changed(tx, agent)


def change(tx: Tx, agent: Row, values: dict[str, Any]) -> Row:
    """Change settings; the daemon hears of them under the same epoch."""
    name = values.get("name")
    if name is not None and name != agent["name"]:
        targets.check_free(tx, name)
        targets.rename(tx, agent["target_id"], f"@{name}")
    if "options" in values:
        _check_session(tx, agent["runtime"], values["options"], agent["id"])
    if values:
        tx.run(update(agents).where(agents.c.id == agent["id"]).values(values))
    return _changed(tx, agent["id"])


def delete(tx: Tx, agent: Row) -> None:
    """End the session and forget the agent; its messages stay."""
    diagnostic = Diagnostic("the agent was deleted", "send to another agent")
    for row in deliveries.open_of(tx, agent["id"]):
        # Its frame may be with the daemon, and what comes back of it counts no more.
        cancelled = DeliveryState.cancelled
        deliveries.move(tx, row, cancelled, diagnostic=diagnostic, note=MAY_BE_READ)
    approvals.cancel_open(tx, agent["id"], agent["lease_epoch"] + 1)
    targets.leave_all(tx, agent)
    outbox.enqueue(tx, AgentRevoked(agent["id"], agent["lease_epoch"], forget=True))
    gone = {"deleted_at": tx.at}
    tx.run(update(agents).where(agents.c.id == agent["id"]).values(gone))
    events.emit(
        tx, "agent", {"id": agent["id"], "name": agent["name"], "deleted": True}
    )


def grant(tx: Tx, agent: Row) -> AgentGranted:
    """Make the frame that gives the agent's lease and settings."""
    return AgentGranted(
        agent=agent["id"],
        name=agent["name"],
        runtime=agent["runtime"],
        epoch=agent["lease_epoch"],
        workdir=agent["workdir"],
        model=agent["model"],
        approval_policy=ApprovalPolicy(agent["approval_policy"]),
        auto_reply=agent["auto_reply"],
        options=agent["options"],
        frontiers=frontiers.of_agent(tx, agent["id"]),
    )


def regrant(tx: Tx, agent: AgentId) -> None:
    """Tell the daemon of changed settings, or of a target that the agent joined."""
    outbox.enqueue(tx, grant(tx, find(tx, agent)))


def set_status(tx: Tx, agent: AgentId, status: dict[str, Any]) -> None:
    tx.run(_STATUS, agent=agent, status=status)
    tell(tx, agent)


def tell(tx: Tx, agent: AgentId) -> None:
    events.emit(tx, "agent", view(tx, find(tx, agent)))


def current_run(agent: Row) -> RunId | None:
    """Name the run that the daemon last called running."""
    status = agent["status"]
    return status.get("runId") if status["running"] else None


def view(tx: Tx, agent: Row) -> dict[str, Any]:
    status = agent["status"]
    daemon = _daemon(tx, agent["daemon_id"])
    connected = daemon is not None and daemon["connected"]
    target = targets.find(tx, agent["target_id"])
    return {
        "id": agent["id"],
        "seq": agent["seq"],
        "name": agent["name"],
        "runtime": agent["runtime"],
        "workdir": agent["workdir"],
        "model": agent["model"],
        "approvalPolicy": agent["approval_policy"],
        "autoReply": agent["auto_reply"],
        "options": shown_options(agent["options"]),
        "target": {"id": target["id"], "name": target["name"]},
        "capabilities": status.get("capabilities") or _declared(daemon, agent),
        "status": "running" if status["running"] else "idle",
        "detail": {"phase": status["phase"], "leaseEpoch": agent["lease_epoch"]},
        "currentRun": _run(tx, agent),
        "pendingApprovals": approvals.pending_of(tx, agent["id"]),
        "parked": status["parked"],
        "waiting": status.get("waiting", 0),
        "problem": status.get("problem") or _absence(connected),
        "daemon": {"id": agent["daemon_id"], "connected": connected},
        "createdAt": agent["created_at"],
    }


def _run(tx: Tx, agent: Row) -> dict[str, Any] | None:
    run = current_run(agent)
    if run is None:
        return None
    return {
        "id": run,
        "generation": agent["status"].get("gen"),
        "startedAt": agent["status"].get("runStartedAt"),
        "activity": activities.latest_line(tx, agent["id"], run),
    }


def _absence(connected: bool) -> dict[str, str] | None:
    if connected:
        return None
    return {
        "problem": NO_DAEMON,
        "whatToDo": f"{GET_DAEMON}; what you send is kept until then",
    }


def _daemon(tx: Tx, daemon: str | None) -> Row | None:
    return tx.one(_DAEMON, daemon=daemon)


def _declared(daemon: Row | None, agent: Row) -> dict[str, Any]:
    """
    Say what the daemon found of the runtime, until the agent's own session is up.

    It looked without options: an agent that has some may mean another program.
    """
    if daemon is None or agent["options"]:
        return {}
    return dict(daemon["runtimes"].get(agent["runtime"], {}))


def runtimes(tx: Tx) -> list[str]:
    """List what the daemon can run agents on; nothing if none ever came."""
    daemon = _daemon(tx, outbox.holder(tx))
    return [] if daemon is None else sorted(daemon["runtimes"])


def _check_runtime(tx: Tx, runtime: str) -> None:
    known = runtimes(tx)
    if known and runtime not in known:
        detail = f"the daemon has no runtime {runtime!r}; it has: {', '.join(known)}"
        raise invalid("unknown_runtime", detail, known=known, field="runtime")


def _changed(tx: Tx, agent: AgentId) -> Row:
    regrant(tx, agent)
    tell(tx, agent)
    return find(tx, agent)


def _check_session(
    tx: Tx, runtime: str, options: Mapping[str, Any], mine: str | None = None
) -> None:
    """Refuse a session that another agent is made on: each would go its own way."""
    wanted = options.get("resume")
    if wanted is None:
        return
    others = agents.c.deleted_at.is_(None) & (agents.c.runtime == runtime)
    for other in tx.all(select(agents).where(others)):
        if other["id"] != mine and other["options"].get("resume") == wanted:
            name = other["name"]
            detail = (
                f"the agent {name} has that session; talk to it, or remove it first"
            )
            raise conflict("session_taken", detail, agent=name)
