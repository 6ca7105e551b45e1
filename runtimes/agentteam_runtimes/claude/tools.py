"""
The tools that we offer to the model: `send_message` and `read_history`. Pure.

Claude calls them through a tool server (MCP) that lives inside our own connection. A
call names the `tool_use` it comes from, which the stream announced before within its
turn: so a call of a cut turn is known as such, however late it comes.

| message of the tool server's client | reply                                           |
|--------------------------------------|-------------------------------------------------|
| `initialize`                         | that there are tools, in the version it speaks  |
| `tools/list`                         | both of them                                    |
| `tools/call`                         | its result; of another, or broken: a failed one |
| `ping`, any notification             | an empty result                                 |
| anything else                        | error -32601                                    |
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from attrs import define, field, frozen

from agentteam_protocol.ids import mint
from agentteam_runtimes import jsonfields, message_tools
from agentteam_runtimes.claude import wire
from agentteam_runtimes.driver import CallRef, ReadCalled, SendCalled, TurnRef
from agentteam_runtimes.jsonlines import well_formed

if TYPE_CHECKING:
    from collections.abc import Callable

    from agentteam_runtimes.jsonlines import JsonObject

METHOD_NOT_FOUND = -32601


@frozen
class _Open:
    request: str  # the control request that carries the call
    id: object  # of the call within the tool server's protocol
    turn: str


@define
class ToolCalls:
    """The calls of our tools that wait for their result."""

    _open: dict[str, _Open] = field(factory=dict[str, _Open])

    def take(
        self, request: str, message: JsonObject, owner: Callable[[str], TurnRef | None]
    ) -> JsonObject | SendCalled | ReadCalled:
        """Take a message: what to reply at once, or a call that waits for its result."""
        method, id = jsonfields.text(message, "method"), message.get("id")
        params = jsonfields.mapping(message, "params")
        match method:
            case "initialize":
                return reply(id, _greeting(params))
            case "tools/list":
                return reply(id, {"tools": message_tools.SPECS})
            case "tools/call":
                use = jsonfields.text(
                    jsonfields.mapping(params, "_meta"), "claudecode/toolUseId"
                )
                called = self._call(request, id, params, owner(use))
                if called is not None:
                    return called
                wrong = "There is no such tool, or its arguments are wrong."
                return reply(id, result(wrong, error=True))
            case "notifications/cancelled":
                self._cancelled(params.get("requestId"))
                return reply(0, {})
            case _ if id is None or method == "ping":
                return reply(0 if id is None else id, {})
            case _:
                error = {"code": METHOD_NOT_FOUND, "message": f"no method {method}"}
                return {"mcp_response": {"jsonrpc": "2.0", "id": id, "error": error}}

    def finish(
        self, call: CallRef, text: str, error: bool
    ) -> tuple[str, JsonObject] | None:
        """Take a result: what to answer to which request; None if it is closed."""
        opened = self._open.pop(call.id, None)
        if opened is None:
            return None
        return opened.request, reply(opened.id, result(text, error=error))

    def turn_ended(self, turn: str) -> None:
        """Forget the calls of a turn: nobody waits for them any more."""
        for name in [k for k, opened in self._open.items() if opened.turn == turn]:
            del self._open[name]

    def _call(
        self, request: str, id: object, params: JsonObject, turn: TurnRef | None
    ) -> SendCalled | ReadCalled | None:
        given = jsonfields.mapping(params, "arguments")
        target, text = jsonfields.text(given, "target"), jsonfields.text(given, "text")
        call = CallRef(mint("call"))
        match jsonfields.text(params, "name"):
            case tool if tool == message_tools.SEND and target and text:
                called: SendCalled | ReadCalled = SendCalled(turn, call, target, text)
            case tool if tool == message_tools.READ and target:
                called = ReadCalled(
                    turn, call, target, jsonfields.number(given, "after")
                )
            case _:
                return None
        self._open[call.id] = _Open(request, id, turn.id if turn else "")
        return called

    def _cancelled(self, id: object) -> None:
        for name in [k for k, opened in self._open.items() if opened.id == id]:
            del self._open[name]


def reply(id: object, value: JsonObject) -> JsonObject:
    """Wrap an answer of the tool server as the connection carries it."""
    return {"mcp_response": {"jsonrpc": "2.0", "id": id, "result": value}}


def result(text: str, *, error: bool) -> JsonObject:
    """Make the result of a call. Text only: beside structured content it is dropped."""
    shown = well_formed(text)
    return {"content": [{"type": "text", "text": shown}], "isError": error}


def _greeting(params: JsonObject) -> JsonObject:
    return {
        "protocolVersion": jsonfields.text(params, "protocolVersion") or "2025-11-25",
        "capabilities": {"tools": {}},
        "serverInfo": {"name": wire.SERVER, "version": "1"},
    }
