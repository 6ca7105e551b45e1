"""The arguments of the seven methods, checked before they travel."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from agentteam_protocol.control import Method
from agentteam_protocol.inbox import Lane
from agentteam_supervisor.server.bodies import MAX_WAIT
from agentteam_supervisor.server.problems import invalid

if TYPE_CHECKING:
    from agentteam_supervisor.server.bodies import Fields

_INPUT = frozenset({Method.followup, Method.steer, Method.inject, Method.send})


def check_intervention(method: Method, fields: Fields) -> dict[str, Any]:
    """Make a method's arguments; raises `Problem` for what it does not take."""
    if method in _INPUT:
        return _input(method, fields)
    match method:
        case Method.cancel:
            fields.only("method", "cause", "keepInbox")
            keep = fields.flag("keepInbox", False)
            return {"cause": fields.text("cause", "host"), "keepInbox": keep}
        case Method.run_maintenance:
            fields.only("method", "task")
            return {"task": _task(fields)}
        case _:
            fields.only("method", "wait")
            return {"wait": _wait(fields)}


def _input(method: Method, fields: Fields) -> dict[str, Any]:
    extra = ("lane", "wakeup") if method is Method.send else ()
    fields.only("method", "messages", *extra)
    messages = fields.texts("messages")
    if not messages:
        raise invalid("invalid_field", "'messages' must have at least one message")
    if not all(text.strip() for text in messages):
        raise invalid("invalid_field", "'messages' must not be blank")
    arguments: dict[str, Any] = {"messages": messages}
    if method is Method.send:
        arguments["lane"] = _lane(fields)
        arguments["wakeup"] = fields.flag("wakeup", True)
    return arguments


def _lane(fields: Fields) -> Lane:
    lane = fields.choice("lane", Lane, "unknown_lane", Lane.next_turn)
    if lane is Lane.urgent:
        # Urgent is a property of a sent message alone, never of new input.
        detail = "'lane' must be one of: next_turn, next_step; not 'urgent'"
        raise invalid("unknown_lane", detail)
    return lane


def _task(fields: Fields) -> str:
    task = fields.text("task", "compact")
    if task != "compact":
        raise invalid("unknown_task", f"'task' must be 'compact', not {task!r}")
    return task


def _wait(fields: Fields) -> float:
    wait = fields.data.get("wait", MAX_WAIT)
    if isinstance(wait, bool) or not isinstance(wait, (int, float)) or wait < 0:
        raise invalid("invalid_field", "'wait' must be a number of seconds")
    return min(float(wait), MAX_WAIT)
