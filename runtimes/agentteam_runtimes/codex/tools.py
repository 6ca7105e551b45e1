"""
The tools that we offer to the model: `send_message` and `read_history`. Pure.

Codex calls them through a request of its own that names the turn, so a call of a cut
turn is known as such however late it comes. Sub-agents are not offered them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from attrs import define, field, frozen

from agentteam_protocol.ids import mint
from agentteam_runtimes.codex import wire
from agentteam_runtimes.driver import CallRef, ReadCalled, SendCalled, TurnRef
from agentteam_runtimes.jsonrpc import RequestId

if TYPE_CHECKING:
    from agentteam_runtimes.jsonlines import JsonObject
    from agentteam_runtimes.jsonrpc import Request

SEND = "send_message"
READ = "read_history"

_TARGET = {
    "type": "string",
    "description": "The conversation: its name, such as @alice or #news, or its id.",
}


def _spec(name: str, description: str, **properties: JsonObject) -> JsonObject:
    required = [key for key in properties if key != "after"]
    return {
        "type": "function",
        "name": name,
        "description": description,
        "inputSchema": {
            "type": "object",
            "properties": properties,
            "required": required,
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


@frozen
class _Open:
    request: RequestId
    turn: str


@define
class ToolCalls:
    """The calls of our tools that wait for their result."""

    _open: dict[str, _Open] = field(factory=dict[str, _Open])

    def take(
        self, request: Request, turn: TurnRef | None
    ) -> SendCalled | ReadCalled | None:
        """Open a call; None when it is none of ours, or its arguments are wrong."""
        given = wire.mapping(request.params, "arguments")
        target, text = wire.text(given, "target"), wire.text(given, "text")
        call = CallRef(mint("call"))
        match wire.text(request.params, "tool"):
            case tool if tool == SEND and target and text:
                called: SendCalled | ReadCalled = SendCalled(turn, call, target, text)
            case tool if tool == READ and target:
                called = ReadCalled(turn, call, target, wire.number(given, "after"))
            case _:
                return None
        self._open[call.id] = _Open(request.id, turn.id if turn else "")
        return called

    def finish(
        self, call: CallRef, text: str, error: bool
    ) -> tuple[RequestId, JsonObject] | None:
        """Take a result: what to reply to which request; None if it is closed."""
        opened = self._open.pop(call.id, None)
        return None if opened is None else (opened.request, result(text, error))

    def turn_ended(self, turn: str) -> list[RequestId]:
        """Forget the calls of a turn; the requests that need no reply any more."""
        names = [name for name, opened in self._open.items() if opened.turn == turn]
        return [self._open.pop(name).request for name in names]


def result(text: str, error: bool) -> JsonObject:
    """Make the result of a call: the model reads the text, whether it failed or not."""
    content = [{"type": "inputText", "text": wire.text_input(text)["text"]}]
    return {"contentItems": content, "success": not error}
