"""Visible sends of agents: the compare-and-set, once per send id."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, cast

import orjson
from sqlalchemy import insert, select

from agentteam_protocol.codec import from_wire, to_wire
from agentteam_protocol.delivery import Author, AuthorKind
from agentteam_protocol.frames import SendJudged
from agentteam_supervisor.server import agents, frontiers, messages, outbox, targets
from agentteam_supervisor.server.freshness import Forwarded, Held, Rejected, judge
from agentteam_supervisor.server.problems import Problem
from agentteam_supervisor.server.schema import sends

if TYPE_CHECKING:
    from agentteam_protocol.delivery import MessageRef
    from agentteam_protocol.frames import SendAsked, SendRequested
    from agentteam_protocol.ids import SendId
    from agentteam_supervisor.server.transaction import Row, Tx

# A held reply shows the oldest unseen messages, not a whole history.
SHOWN = 50


def request(tx: Tx, asked: SendRequested) -> SendJudged:
    """Judge a send, or say again what was said before; the answer is queued."""
    judged = _known(tx, asked.send)
    if judged is None:
        judged = _judge(tx, asked)
        _remember(tx, judged)
    outbox.enqueue(tx, judged)
    return judged


def answer(tx: Tx, asked: SendAsked) -> SendJudged:
    """
    Tell what became of a send.

    One that never came is rejected for good: should it still arrive, it finds this
    verdict, so that what the agent was told stays true.
    """
    judged = _known(tx, asked.send)
    if judged is None:
        reason = "the send never reached the server"
        judged = SendJudged(asked.send, asked.agent, "rejected", reason=reason)
        _remember(tx, judged)
    outbox.enqueue(tx, judged)
    return judged


def _judge(tx: Tx, asked: SendRequested) -> SendJudged:
    agent = agents.get(tx, asked.agent)
    target = _target(tx, asked)
    if agent is None or target is None:
        reason = f"there is no target {asked.target!r} that you may send to"
        return SendJudged(asked.send, asked.agent, "rejected", reason=reason)
    if "\0" in asked.text:
        reason = "the text holds a NUL character, which no message can; leave it out"
        return SendJudged(asked.send, asked.agent, "rejected", reason=reason)
    frontier = frontiers.get(tx, agent["id"], target["id"])
    epoch, fence = agent["lease_epoch"], frontiers.fence_of(agent)
    # The target's id goes back, since the agent may have written its name.
    judged = partial(SendJudged, asked.send, asked.agent, target=target["id"])
    match judge(asked.gen, epoch, fence, frontier, target["head"]):
        case Forwarded():
            seq = _forward(tx, agent, target, asked.text)
            return judged(verdict="forwarded", seq=seq)
        case Held(reason, seqs):
            unseen = _unseen(tx, target, seqs)
            return judged(verdict="held", reason=reason, unseen=unseen)
        case Rejected(reason):
            return judged(verdict="rejected", reason=reason)


def _target(tx: Tx, asked: SendRequested) -> Row | None:
    try:
        target = targets.find(tx, asked.target)
    except Problem:
        return None
    mine = targets.is_member(tx, target["id"], asked.agent)
    return target if mine else None


def _forward(tx: Tx, agent: Row, target: Row, text: str) -> int:
    author = Author(AuthorKind.agent, agent["name"])
    message = messages.post(tx, target, text, author, agent["id"])
    # Its author has seen it; nobody else has.
    frontiers.advance(tx, agent["id"], target["id"], message["targetSeq"])
    return int(message["targetSeq"])


def _unseen(tx: Tx, target: Row, seqs: tuple[int, ...]) -> tuple[MessageRef, ...]:
    rows = messages.at(tx, target["id"], seqs[:SHOWN])
    return tuple(messages.ref(row, target) for row in messages.bearable(rows))


def _known(tx: Tx, send: SendId) -> SendJudged | None:
    text = tx.scalar(select(sends.c.judged).where(sends.c.id == send))
    if text is None:
        return None
    return cast("SendJudged", from_wire(orjson.loads(text), SendJudged))


def _remember(tx: Tx, judged: SendJudged) -> None:
    text = orjson.dumps(to_wire(judged)).decode()
    row = {"id": judged.send, "agent_id": judged.agent, "judged": text}
    tx.run(insert(sends).values(**row, created_at=tx.at))
