"""
The HTTP interface of `opencode serve` that we use, spelled as it spells it.

Builders make paths and bodies; readers look into what it sends and never raise: a field
that is missing or of another type reads as its empty value, because nothing a runtime
sends may crash a session. Nothing outside this folder sees these names.

OpenCode sorts what it keeps by id, and its ids begin with the time. Ours have the same
form, so that they fall into place; the ids of parts end with the keys of our entries.
"""

from __future__ import annotations

import secrets
import time
from typing import TYPE_CHECKING, Final

from agentteam_runtimes.jsonlines import JsonObject, well_formed

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from agentteam_protocol.approval import ApprovalOutcome
    from agentteam_runtimes.driver import InputItem

EVENTS: Final = "/event"
PROVIDERS: Final = "/config/providers"
SESSION: Final = "/session"
STATUS: Final = "/session/status"
PERMISSIONS: Final = "/permission"
DISPOSE: Final = "/global/dispose"
DISPOSE_INSTANCE: Final = "/instance/dispose"

# Events.
MESSAGE: Final = "message.updated"
PART: Final = "message.part.updated"
DELTA: Final = "message.part.delta"
STATUS_CHANGED: Final = "session.status"
IDLE: Final = "session.idle"
SESSION_ERROR: Final = "session.error"
ASKED: Final = "permission.asked"
REPLIED: Final = "permission.replied"
QUESTION: Final = "question.asked"

# Errors of an assistant message.
ABORTED: Final = "MessageAbortedError"
TOO_LONG: Final = "MessageOutputLengthError"
# What it says when its instance was broken by an abort during its own start.
POISONED: Final = "All fibers interrupted"

_last = 0


def message_id() -> str:
    """Make the id of a message: it sorts behind all that were made before."""
    return f"msg_{_ascending()}{secrets.token_hex(7)}"


def part_id(key: str) -> str:
    """Make the id of a part that carries the entry with this key."""
    return f"prt_{_ascending()}_{key}"


def key_of(part: str) -> str:
    """Read the key back out of a part's id; empty when it is none of ours."""
    head, _, rest = part.partition("_")
    stamp, _, key = rest.partition("_")
    return key if head == "prt" and len(stamp) == 12 else ""


def _ascending() -> str:
    global _last  # one clock for all ids of this program
    _last = max(_last + 1, time.time_ns() // 1_000_000 * 0x1000)
    return f"{_last & 0xFFFFFFFFFFFF:012x}"


def session(id: str, part: str = "") -> str:
    """Make the path of a session, or of a part of it."""
    return f"/session/{id}/{part}" if part else f"/session/{id}"


def messages(id: str, limit: int | None = None) -> str:
    """Make the path of a session's messages: all, or the newest so many."""
    path = session(id, "message")
    return f"{path}?limit={limit}" if limit else path


def message(session_id: str, id: str) -> str:
    """Make the path of one message."""
    return f"/session/{session_id}/message/{id}"


def prompt(message: str, items: Iterable[InputItem]) -> JsonObject:
    """Make the body of a prompt: one message, one part for each entry."""
    parts = [
        {"id": part_id(item.key), "type": "text", "text": well_formed(item.text)}
        for item in items
    ]
    return {"messageID": message, "parts": parts}


def permission_reply(id: str) -> str:
    return f"/permission/{id}/reply"


def question_reject(id: str) -> str:
    return f"/question/{id}/reject"


# A rejection without a word ends the turn; with one, the model hears of it and goes on.
_REPLIES: Final[Mapping[str, JsonObject]] = {
    "allowed-once": {"reply": "once"},
    "rejected": {"reply": "reject", "message": "The user said no to this call."},
    "unavailable": {"reply": "reject", "message": "Nobody is there to allow this."},
    "cancelled": {"reply": "reject"},
}
CANCEL: Final[JsonObject] = {"reply": "reject"}


def reply(outcome: ApprovalOutcome) -> JsonObject:
    """Make the body of an answer to an ask for permission."""
    return _REPLIES[outcome]
