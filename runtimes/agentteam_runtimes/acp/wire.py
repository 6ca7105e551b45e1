"""
The messages of the Agent Client Protocol, version 1, that we use, as it spells them.

Builders make the params of requests; `offers`, `model_option` and `sessions` read
answers, of which no field need be there. Nothing outside this folder sees these names.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from agentteam_runtimes import jsonfields
from agentteam_runtimes.jsonlines import JsonObject, well_formed

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

PROTOCOL: Final = 1
JSON_RPC: Final = "2.0"

# Requests and notifications of ours.
INITIALIZE: Final = "initialize"
SESSION_NEW: Final = "session/new"
SESSION_LOAD: Final = "session/load"
SESSION_LIST: Final = "session/list"
SET_MODEL: Final = "session/set_model"
SET_OPTION: Final = "session/set_config_option"
PROMPT: Final = "session/prompt"
CANCEL: Final = "session/cancel"

# What the agent sends.
UPDATE: Final = "session/update"
ASK_PERMISSION: Final = "session/request_permission"

# Error codes: of what does not exist, and of an agent that nobody has logged in.
NOT_FOUND: Final = "-32002"
LOGIN_WANTED: Final = "-32000"

# Kinds of updates.
USER_CHUNK: Final = "user_message_chunk"
MESSAGE_CHUNK: Final = "agent_message_chunk"
THOUGHT_CHUNK: Final = "agent_thought_chunk"
TOOL_CALL: Final = "tool_call"
TOOL_CALL_UPDATE: Final = "tool_call_update"

CANCELLED: Final[JsonObject] = {"outcome": {"outcome": "cancelled"}}


def initialize(version: str) -> JsonObject:
    """Params of `initialize`: no files and no terminals are offered."""
    return {
        "protocolVersion": PROTOCOL,
        "clientInfo": {"name": "agentteam", "title": "AgentTeam", "version": version},
        "clientCapabilities": {
            "fs": {"readTextFile": False, "writeTextFile": False},
            "terminal": False,
        },
    }


def session_new(workdir: Path) -> JsonObject:
    """Params of `session/new`."""
    return {"cwd": str(workdir), "mcpServers": []}


def session_load(session: str, workdir: Path) -> JsonObject:
    """Params of `session/load`."""
    return {"sessionId": session, **session_new(workdir)}


def prompt(session: str, texts: Iterable[str]) -> JsonObject:
    """Params of `session/prompt`: one block for each text."""
    blocks = [{"type": "text", "text": well_formed(text)} for text in texts]
    return {"sessionId": session, "prompt": blocks}


def selected(option: str) -> JsonObject:
    """Say which option of a permission request was chosen."""
    return {"outcome": {"outcome": "selected", "optionId": option}}


def chunk_text(update: JsonObject) -> str:
    """Read the text of a chunk, of whichever kind."""
    return jsonfields.text(jsonfields.mapping(update, "content"), "text")


def offers(initialized: object, *path: str) -> bool:
    """Tell whether the agent declared a capability; an empty object declares it, too."""
    *outer, last = path
    value = jsonfields.mapping(initialized, "agentCapabilities", *outer).get(last)
    return value is True or isinstance(value, dict)


def model_option(opened: object) -> str:
    """Name the session's option that is its model; "" where there is none."""
    for option in jsonfields.objects(opened, "configOptions"):
        if jsonfields.text(option, "category") == "model":
            return jsonfields.text(option, "id")
    return ""


def sessions(page: object) -> list[str]:
    """Name the sessions of a page of `session/list`."""
    found = jsonfields.objects(page, "sessions")
    return [jsonfields.text(session, "sessionId") for session in found]
