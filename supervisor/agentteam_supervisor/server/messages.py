"""Visible messages, their target sequence, and the deliveries they bring about."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sqlalchemy import bindparam, select, update

from agentteam_protocol.delivery import (
    Author,
    AuthorKind,
    InterruptPolicy,
    MessageRef,
)
from agentteam_protocol.frames import AgentDeliver
from agentteam_protocol.ids import MessageId, mint
from agentteam_supervisor.server import deliveries, events, outbox, targets
from agentteam_supervisor.server.prepared import Prepared, insertion
from agentteam_supervisor.server.problems import invalid, unknown
from agentteam_supervisor.server.schema import (
    members,
    messages,
    targets as target_table,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from agentteam_protocol.ids import AgentId, TargetId
    from agentteam_supervisor.server.transaction import Row, Tx


# Bodies that go along with a frame, such as what a held send has not seen.
SHOWN_BYTES = 512 * 1024

_FIND = Prepared(select(messages).where(messages.c.id == bindparam("message")))
_INSERT = insertion(messages)
_FLOOR = Prepared(
    select(members.c.floor).where(
        members.c.target_id == bindparam("target"),
        members.c.agent_id == bindparam("agent"),
    )
)
_THIS_TARGET = target_table.c.id == bindparam("target")
_HEAD = Prepared(select(target_table.c.head).where(_THIS_TARGET))
_MOVE_HEAD = Prepared(update(target_table).where(_THIS_TARGET), "head")


def post(
    tx: Tx, target: Row, body: str, author: Author, agent: AgentId | None = None
) -> dict[str, Any]:
    """
    Store a message at the target's next sequence and deliver it to its members.

    These deliveries are ordinary, whatever the body says: no policy passes here.
    Returns what clients see of the message.
    """
    message = MessageId(mint("msg"))
    row: dict[str, Any] = {
        "id": message,
        "target_id": target["id"],
        "target_seq": _next_seq(tx, target["id"]),
        "author_kind": author.kind,
        "author_name": author.name,
        "author_agent": agent,
        "body": body,
        "created_at": tx.at,
    }
    tx.run(_INSERT, **row)
    tx.acts.append("message")
    made: list[Row] = []
    for member in targets.member_agents(tx, target["id"]):
        if member["id"] != agent:
            delivery = deliveries.create(tx, message, member["id"], None)
            frame = _frame(delivery, ref(row, target), member["floor"])
            outbox.enqueue(tx, frame)
            made.append(delivery)
    shown = _view(row, made)
    events.emit(tx, "message", shown)
    return shown


def mark_urgent(
    tx: Tx, message: Row, agent: Row, policy: InterruptPolicy
) -> tuple[Row, bool]:
    """
    Make the urgent delivery of a message that was sent before.

    It has an identity of its own, so that nothing done about the ordinary delivery
    swallows it (interrupt spec §5.1). One that still stands is returned as it is.
    """
    standing = deliveries.standing_urgent(tx, message["id"], agent["id"])
    if standing is not None:
        return standing, False
    delivery = deliveries.create(tx, message["id"], agent["id"], policy)
    push(tx, delivery)
    tx.acts.append("urgent")
    events.emit(tx, "delivery", deliveries.view(delivery))
    return delivery, True


def push(tx: Tx, delivery: Row) -> None:
    """Queue the frame that carries a delivery to its agent's daemon."""
    outbox.enqueue(tx, deliver_frame(tx, delivery))


def deliver_frame(tx: Tx, delivery: Row) -> AgentDeliver:
    message = find(tx, delivery["message_id"])
    member = {"target": message["target_id"], "agent": delivery["agent_id"]}
    floor = tx.scalar(_FLOOR, **member)
    target = targets.find(tx, message["target_id"])
    return _frame(delivery, ref(message, target), floor)


def _frame(delivery: Row, message: MessageRef, floor: int | None) -> AgentDeliver:
    policy = delivery["policy"]
    return AgentDeliver(
        delivery=delivery["id"],
        agent=delivery["agent_id"],
        message=message,
        interrupt_policy=None if policy is None else InterruptPolicy(policy),
        attempt=delivery["attempt"],
        floor=floor,
    )


def candidates(tx: Tx, message: Row) -> list[Row]:
    """List the agents that a message can be delivered to."""
    there = targets.member_agents(tx, message["target_id"])
    return [agent for agent in there if agent["id"] != message["author_agent"]]


def choose(tx: Tx, message: Row, named: str | None) -> Row:
    """Choose the agent of an urgent delivery; raises `Problem` naming who can be."""
    there = candidates(tx, message)
    names = ", ".join(agent["name"] for agent in there) or "none"
    if named is not None:
        for agent in there:
            if named in {agent["id"], agent["name"]}:
                return agent
        detail = f"{named!r} gets no deliveries of this target; candidates: {names}"
        raise invalid("not_a_member", detail, candidates=_named(there))
    if len(there) == 1:
        return there[0]
    raise invalid(
        "agent_required",
        f"name the agent in 'agentId'; candidates: {names}",
        candidates=_named(there),
    )


def _named(agents: Sequence[Row]) -> list[dict[str, str]]:
    return [{"id": agent["id"], "name": agent["name"]} for agent in agents]


def find(tx: Tx, message: str) -> Row:
    row = tx.one(_FIND, message=message)
    if row is None:
        raise unknown("message", message)
    return row


def after(tx: Tx, target: TargetId, seq: int, limit: int) -> Sequence[Row]:
    mine = (messages.c.target_id == target) & (messages.c.target_seq > seq)
    query = select(messages).where(mine).order_by(messages.c.target_seq)
    return tx.all(query.limit(limit))


def containing(tx: Tx, target: TargetId, words: str, limit: int) -> Sequence[Row]:
    """Find the newest messages that contain the words, newest first."""
    mine = messages.c.target_id == target
    found = mine & messages.c.body.icontains(words, autoescape=True)
    query = select(messages).where(found).order_by(messages.c.target_seq.desc())
    return tx.all(query.limit(limit))


def at(tx: Tx, target: TargetId, seqs: Sequence[int]) -> Sequence[Row]:
    mine = (messages.c.target_id == target) & messages.c.target_seq.in_(seqs)
    return tx.all(select(messages).where(mine).order_by(messages.c.target_seq))


def bearable(rows: Sequence[Row]) -> Sequence[Row]:
    """Cut a list off where its bodies would make too large a frame; one always fits."""
    size = 0
    for index, row in enumerate(rows):
        size += len(row["body"])
        if index and size > SHOWN_BYTES:
            return rows[:index]
    return rows


def ref(message: Row, target: Row) -> MessageRef:
    """Make what a daemon needs of a message, its body included."""
    return MessageRef(
        id=message["id"],
        target=message["target_id"],
        target_seq=message["target_seq"],
        body=message["body"],
        author=Author(AuthorKind(message["author_kind"]), message["author_name"]),
        target_name=target["name"],
        direct=target["direct"],
    )


def view(tx: Tx, message: Row) -> dict[str, Any]:
    return _view(message, deliveries.of_message(tx, message["id"]))


def _view(message: Row, made: Sequence[Row]) -> dict[str, Any]:
    return {
        "id": message["id"],
        "target": message["target_id"],
        "targetSeq": message["target_seq"],
        "author": {"kind": message["author_kind"], "name": message["author_name"]},
        "body": message["body"],
        "createdAt": message["created_at"],
        "deliveries": [deliveries.view(row) for row in made],
    }


def _next_seq(tx: Tx, target: TargetId) -> int:
    seq = int(tx.scalar(_HEAD, target=target)) + 1
    tx.run(_MOVE_HEAD, target=target, head=seq)
    return seq
