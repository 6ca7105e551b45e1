"""
The messages of `codex app-server` that we use, spelled as it spells them.

Builders make the params of requests; readers look into what it sends and never raise:
a field that is missing or of another type reads as its empty value, because nothing a
runtime sends may crash a session. Nothing outside this folder sees these names.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from agentteam_runtimes import jsonfields
from agentteam_runtimes.jsonlines import JsonObject, well_formed

if TYPE_CHECKING:
    from collections.abc import Iterable

# Requests of ours.
INITIALIZE: Final = "initialize"
INITIALIZED: Final = "initialized"
THREAD_START: Final = "thread/start"
THREAD_RESUME: Final = "thread/resume"
THREAD_READ: Final = "thread/read"
TURNS_LIST: Final = "thread/turns/list"
TURN_START: Final = "turn/start"
TURN_STEER: Final = "turn/steer"
TURN_INTERRUPT: Final = "turn/interrupt"
TERMINALS_LIST: Final = "thread/backgroundTerminals/list"
TERMINALS_TERMINATE: Final = "thread/backgroundTerminals/terminate"

# Notifications.
TURN_STARTED: Final = "turn/started"
TURN_COMPLETED: Final = "turn/completed"
ITEM_STARTED: Final = "item/started"
ITEM_COMPLETED: Final = "item/completed"
MESSAGE_DELTA: Final = "item/agentMessage/delta"
TOKEN_USAGE: Final = "thread/tokenUsage/updated"
REQUEST_RESOLVED: Final = "serverRequest/resolved"
ERROR: Final = "error"
WARNING: Final = "warning"

# Requests of the runtime.
ASK_COMMAND: Final = "item/commandExecution/requestApproval"
ASK_FILE_CHANGE: Final = "item/fileChange/requestApproval"
ASK_PERMISSIONS: Final = "item/permissions/requestApproval"
ASK_USER: Final = "item/tool/requestUserInput"
ASK_ELICITATION: Final = "mcpServer/elicitation/request"
TOOL_CALL: Final = "item/tool/call"

# Item types.
USER_MESSAGE: Final = "userMessage"
AGENT_MESSAGE: Final = "agentMessage"
TOOLS: Final = frozenset(
    {
        "commandExecution",
        "fileChange",
        "mcpToolCall",
        "dynamicToolCall",
        "webSearch",
        "collabAgentToolCall",
    }
)

# What we do not want to hear about.
OPT_OUT: Final = (
    "account/rateLimits/updated",
    "thread/readState/changed",
    "thread/queue/changed",
    "app/list/updated",
    "skills/changed",
)


def initialize(version: str) -> JsonObject:
    """Params of `initialize`."""
    return {
        "clientInfo": {"name": "agentteam", "title": "AgentTeam", "version": version},
        "capabilities": {
            "experimentalApi": True,  # thread/backgroundTerminals, dynamicTools
            "optOutNotificationMethods": list(OPT_OUT),
        },
    }


def turn_start(thread: str, text: Iterable[str], client_id: str) -> JsonObject:
    """Params of `turn/start`."""
    return {
        "threadId": thread,
        "input": [text_input(t) for t in text],
        "clientUserMessageId": client_id,
    }


def turn_steer(thread: str, turn: str, text: str, client_id: str) -> JsonObject:
    """Params of `turn/steer`."""
    return {
        "threadId": thread,
        "expectedTurnId": turn,
        "input": [text_input(text)],
        "clientUserMessageId": client_id,
    }


def turn_interrupt(thread: str, turn: str) -> JsonObject:
    """
    Params of `turn/interrupt`.

    Never with an empty turn: that interrupts whatever runs, and is answered with
    success when nothing does.
    """
    return {"threadId": thread, "turnId": turn}


def turns_list(thread: str, cursor: str | None) -> JsonObject:
    """Params of `thread/turns/list`, newest first, with all items."""
    return {
        "threadId": thread,
        "itemsView": "full",
        "limit": 20,
        "sortDirection": "desc",
        **({"cursor": cursor} if cursor else {}),
    }


def text_input(text: str) -> JsonObject:
    """Make one text part of an input."""
    return {"type": "text", "text": well_formed(text)}


def turn_id(params: JsonObject) -> str:
    """Read which turn an event is about; some carry the turn itself."""
    return jsonfields.text(params, "turnId") or jsonfields.text(
        jsonfields.mapping(params, "turn"), "id"
    )
