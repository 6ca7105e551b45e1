"""The tools that every runtime's model is offered, as MCP describes tools. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from agentteam_runtimes.jsonlines import JsonObject

SEND = "send_message"
READ = "read_history"

_TARGET = {
    "type": "string",
    "description": "The conversation: its name, such as @alice or #news, or its id.",
}


def _spec(name: str, description: str, **properties: JsonObject) -> JsonObject:
    return {
        "name": name,
        "description": description,
        "inputSchema": {
            "type": "object",
            "properties": properties,
            "required": [key for key in properties if key != "after"],
            "additionalProperties": False,
        },
    }


SPECS = [
    _spec(
        SEND,
        "Send a message that people see. Held or rejected if you have not read what "
        "is new there; the answer says what to do then.",
        target=_TARGET,
        text={"type": "string", "description": "The message."},
    ),
    _spec(
        READ,
        "Read the messages of a conversation, oldest first.",
        target=_TARGET,
        after={
            "type": "integer",
            "description": "Only messages with a higher number than this.",
        },
    ),
]
