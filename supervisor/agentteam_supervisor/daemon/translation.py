"""Frames of the server in the words of the session machine, and back. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from agentteam_protocol.activity import ActivityKind
from agentteam_protocol.codec import CONVERTER
from agentteam_protocol.control import (
    ControlAction,
    ControlResult,
    Method,
    Resolution,
)
from agentteam_protocol.delivery import DeliveryState, Diagnostic
from agentteam_protocol.frames import (
    ActivityReported,
    AgentControl,
    AgentDeliver,
    AgentIntervene,
    AgentResolve,
    ApprovalDecide,
    ControlReported,
    DeliveryReceived,
    DeliveryReported,
    Frame,
    SendJudged,
)
from agentteam_protocol.ids import AgentId, ItemId
from agentteam_protocol.inbox import Item, Lane, Source
from agentteam_protocol.journal import Entry, JournalEvent
from agentteam_supervisor.daemon.answers import verdict
from agentteam_supervisor.session.events import (
    ApprovalAnswered,
    CancelRequested,
    Delivered,
    Dismissed,
    Event,
    IdleAwaited,
    MaintenanceRequested,
    ResumeRequested,
    SendAnswered,
    Sent,
    StopRequested,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from agentteam_supervisor.session.effects import Reply

HOST = Source("plugin", "host")


def to_item(frame: AgentDeliver) -> Item:
    """Make the inbox entry; only its policy makes a delivery urgent, never its body."""
    message = frame.message
    urgent = frame.interrupt_policy is not None
    return Item(
        id=ItemId(frame.delivery),
        body=message.body,
        lane=Lane.urgent if urgent else Lane.next_step,
        attempt=frame.attempt,
        delivery=frame.delivery,
        message=message.id,
        target=message.target,
        seq=message.target_seq,
        policy=frame.interrupt_policy,
        target_name=message.target_name,
        direct=message.direct,
        author=message.author,
    )


def to_event(frame: Frame, ref: int) -> Event | None:
    """Make the event of a frame for one session; None: it says nothing to a session."""
    match frame:
        case AgentDeliver():
            return Delivered(to_item(frame), frame.floor)
        case AgentControl(action=ControlAction.interrupt_current_run):
            return StopRequested(frame.run_id, frame.who, ref)
        case AgentControl():
            return ResumeRequested(ref)
        case AgentResolve(delivery, resolution=Resolution.dismiss):
            return Dismissed(delivery)
        case ApprovalDecide(approval, _, outcome):
            return ApprovalAnswered(approval, outcome)
        case SendJudged():
            answer: SendAnswered = verdict(frame)
            return answer
        case AgentIntervene():
            return _intervention(frame, ref)
        case _:
            return None


def wants_reply(frame: Frame) -> bool:
    return isinstance(frame, AgentControl | AgentIntervene)


def to_report(frame: Frame, reply: Reply) -> Frame | None:
    """Tell what came of a control; a method of a host is told only when it failed."""
    match frame:
        case AgentControl():
            result = control_result(reply)
            return ControlReported(frame.control, frame.agent, result, frame.run_id)
        case AgentIntervene() if reply.error:
            return notice(frame.agent, f"{frame.method} was refused: {reply.error}")
        case _:
            return None


def control_result(reply: Reply) -> ControlResult:
    try:
        return ControlResult(reply.value)
    except ValueError:
        return ControlResult.not_running


def undeliverable(frame: Frame, why: Diagnostic) -> list[Frame]:
    """Answer a frame that no session takes: nothing is lost in silence."""
    match frame:
        case AgentDeliver(delivery, agent, attempt=attempt):
            failed = DeliveryState.failed
            return [
                DeliveryReceived(delivery, attempt),
                DeliveryReported(delivery, agent, failed, attempt, diagnostic=why),
            ]
        case AgentResolve(delivery, agent):
            # The attempt is unknown here; the server takes any that is not older.
            return [DeliveryReported(delivery, agent, DeliveryState.cancelled, 1)]
        case AgentControl(control, agent, _, run_id):
            result = ControlResult.not_running
            return [ControlReported(control, agent, result, run_id)]
        case AgentIntervene(agent=agent) | ApprovalDecide(agent=agent):
            return [notice(agent, why.problem, why.what_to_do)]
        case _:
            return []


def notice(agent: AgentId, text: str, what_to_do: str = "") -> ActivityReported:
    detail = {"whatToDo": what_to_do} if what_to_do else {}
    words = {"text": text}
    return ActivityReported(agent, ActivityKind.notice, words=words, detail=detail)


def entries_body(entries: Sequence[Entry]) -> dict[str, Any]:
    """Make the answer to a query of the journal."""
    return {
        "events": [
            {
                "seq": entry.seq,
                "at": entry.at,
                "event": CONVERTER.unstructure(
                    entry.event, unstructure_as=JournalEvent
                ),
            }
            for entry in entries
        ]
    }


def _intervention(frame: AgentIntervene, ref: int) -> Event:
    arguments = frame.arguments
    match frame.method:
        case Method.followup:
            return Sent(_items(frame, Lane.next_turn, wakes=True), ref)
        case Method.steer:
            return Sent(_items(frame, Lane.next_step, wakes=True), ref)
        case Method.inject:
            return Sent(_items(frame, Lane.next_step, wakes=False), ref)
        case Method.send:
            lane = Lane(str(arguments.get("lane", Lane.next_turn)))
            wakes = bool(arguments.get("wakeup", True))
            return Sent(_items(frame, lane, wakes=wakes), ref)
        case Method.cancel:
            keep = bool(arguments.get("keepInbox", False))
            return CancelRequested(str(arguments.get("cause", "")), keep, ref)
        case Method.when_idle:
            return IdleAwaited(ref)
        case Method.run_maintenance:
            return MaintenanceRequested(str(arguments.get("task", "compact")), ref)


def _items(frame: AgentIntervene, lane: Lane, *, wakes: bool) -> tuple[Item, ...]:
    """The control's id names them, so that a frame that comes twice is known again."""
    bodies: Sequence[Any] = frame.arguments.get("messages", ())
    return tuple(
        Item(ItemId(f"{frame.control}.{n}"), str(body), lane, wakes, source=HOST)
        for n, body in enumerate(bodies, 1)
    )
