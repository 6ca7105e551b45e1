"""
The lines of `claude --print` with stream-json that we use, spelled as it spells them.

Builders make lines of ours; readers look into what it prints and never raise: a field
that is missing or of another type reads as its empty value, because nothing a runtime
sends may crash a session. Nothing outside this folder sees these names.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from agentteam_runtimes.jsonlines import JsonObject, encode_line, well_formed

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

# Types of lines.
USER: Final = "user"
ASSISTANT: Final = "assistant"
STREAM: Final = "stream_event"
SYSTEM: Final = "system"
RESULT: Final = "result"
LIFECYCLE: Final = "command_lifecycle"
REQUEST: Final = "control_request"
RESPONSE: Final = "control_response"
WITHDRAWN: Final = "control_cancel_request"

# Requests of ours.
INITIALIZE: Final = "initialize"
INTERRUPT: Final = "interrupt"
CANCEL_MESSAGE: Final = "cancel_async_message"

# Requests of Claude.
ASK: Final = "can_use_tool"
HOOK: Final = "hook_callback"
MCP: Final = "mcp_message"

# What newer versions say they can do, whenever a round begins.
NAMES_IN_REQUESTS: Final = "request_marker_lists_v1"
NAMES_IN_LIFECYCLE: Final = "msg_lifecycle_v1"
CANCELS_QUEUED: Final = "interrupt_cancel_queued_v1"
# The oldest that is known to say all three.
SAYS_SO: Final = (2, 1, 332)

SERVER: Final = "agentteam"
# A message of Claude's own making, such as the text of an API error.
SYNTHETIC: Final = "<synthetic>"
NO_SESSION: Final = "No conversation found"
END: Final = "last-prompt"  # names the row at which a process ended in peace
NO_ROW: Final = "No message found with message.uuid"


def user_line(uuid: str, texts: Iterable[str]) -> bytes:
    """Make one input; `uuid` comes back as the sign of what became of it."""
    parts = [part for text in texts for part in _parts(well_formed(text))]
    return encode_line(
        {
            "type": USER,
            "uuid": uuid,
            "message": {"role": "user", "content": parts},
            "parent_tool_use_id": None,
            "session_id": "",
        }
    )


def _parts(text: str) -> list[JsonObject]:
    """Make the parts of a text; one that began with `/` would be a command."""
    command = text.lstrip().startswith("/")
    cut = text.index("/") + 1 if command else 0
    pieces = [text[:cut], text[cut:]] if command and text[cut:] else [text]
    return [{"type": "text", "text": piece} for piece in pieces]


def request(id: str, subtype: str, **fields: object) -> bytes:
    """Make a request of ours."""
    inner = {"subtype": subtype, **fields}
    return encode_line({"type": REQUEST, "request_id": id, "request": inner})


def response(id: str, answer: Mapping[str, object]) -> bytes:
    """Answer a request of Claude."""
    inner = {"subtype": "success", "request_id": id, "response": answer}
    return encode_line({"type": RESPONSE, "response": inner})


def refusal(id: str, error: str) -> bytes:
    """Refuse a request of Claude."""
    inner = {"subtype": "error", "request_id": id, "error": error}
    return encode_line({"type": RESPONSE, "response": inner})


def version(said: str) -> tuple[int, ...]:
    """Read a version; an empty one is older than any."""
    return tuple(int(part) for part in said.split(".") if part.isdecimal())
