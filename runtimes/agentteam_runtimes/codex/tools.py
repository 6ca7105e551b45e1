"""
The tools that we offer to the model: `send_message` and `read_history`. Pure.

Codex calls them through a request of its own that names the turn, so a call of a cut
turn is known as such however late it comes. Sub-agents are not offered them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from attrs import define, field, frozen

from agentteam_protocol.ids import mint
from agentteam_runtimes import jsonfields, message_tools
from agentteam_runtimes.codex import wire
from agentteam_runtimes.driver import CallRef, ReadCalled, SendCalled, TurnRef
from agentteam_runtimes.jsonrpc import RequestId

if TYPE_CHECKING:
    from agentteam_runtimes.jsonlines import JsonObject
    from agentteam_runtimes.jsonrpc import Request

SPECS = [{"type": "function", **spec} for spec in message_tools.SPECS]


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
        given = jsonfields.mapping(request.params, "arguments")
        target, text = jsonfields.text(given, "target"), jsonfields.text(given, "text")
        call = CallRef(mint("call"))
        match jsonfields.text(request.params, "tool"):
            case tool if tool == message_tools.SEND and target and text:
                called: SendCalled | ReadCalled = SendCalled(turn, call, target, text)
            case tool if tool == message_tools.READ and target:
                called = ReadCalled(
                    turn, call, target, jsonfields.number(given, "after")
                )
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
