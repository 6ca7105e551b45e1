"""
The requests of the app-server: approvals that people decide, and all the rest. Pure.

Every request gets exactly one reply, for the runtime blocks on it (B26):

| request                             | reply                                           |
|-------------------------------------|-------------------------------------------------|
| approval of a command or an edit    | what was decided; broken params: decline        |
| approval of further permissions     | none granted                                    |
| a question to the user              | no answers                                      |
| an elicitation of an MCP server     | decline                                         |
| a call of a tool of ours            | its result; of another: a failed one            |
| anything else                       | error -32601                                    |

Request ids start again at 0 in each process, so an ask gets a name of its own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from attrs import define, field, frozen

from agentteam_protocol.approval import ApprovalOutcome
from agentteam_protocol.ids import mint
from agentteam_runtimes import jsonfields
from agentteam_runtimes.codex import wire
from agentteam_runtimes.codex.items import call_id
from agentteam_runtimes.codex.tools import result
from agentteam_runtimes.driver import AskClosed, Asked, AskRef, TurnRef
from agentteam_runtimes.excerpts import as_json
from agentteam_runtimes.jsonrpc import RequestId

if TYPE_CHECKING:
    from agentteam_runtimes.jsonlines import JsonObject
    from agentteam_runtimes.jsonrpc import Request

TOOL_NAMES = {wire.ASK_COMMAND: "shell", wire.ASK_FILE_CHANGE: "edit"}

# `cancel` also ends the turn as interrupted; only a cut cancels an ask.
DECISIONS = {
    ApprovalOutcome.allowed_once: "accept",
    ApprovalOutcome.rejected: "decline",
    ApprovalOutcome.cancelled: "cancel",
    ApprovalOutcome.unavailable: "decline",
}

REFUSALS: dict[str, JsonObject] = {
    wire.ASK_COMMAND: {"decision": "decline"},
    wire.ASK_FILE_CHANGE: {"decision": "decline"},
    wire.ASK_PERMISSIONS: {"permissions": {}, "scope": "turn"},
    wire.ASK_USER: {"answers": {}},
    wire.ASK_ELICITATION: {"action": "decline", "content": None, "_meta": None},
    wire.TOOL_CALL: result("There is no such tool, or its arguments are wrong.", True),
}


@frozen
class _Open:
    request: RequestId
    turn: str


@define
class Asks:
    """The approvals that wait for a decision."""

    _open: dict[str, _Open] = field(factory=dict[str, _Open])

    def ask(self, request: Request, turn: TurnRef | None, shown: str) -> Asked | None:
        """
        Open an ask; None when the request is no approval, or a broken one.

        `shown` is the input of the call that asks, where its item told it.
        """
        tool = TOOL_NAMES.get(request.method)
        item = jsonfields.text(request.params, "itemId")
        if tool is None or not item or not jsonfields.text(request.params, "turnId"):
            return None
        ask = AskRef(mint("ask"))
        self._open[ask.id] = _Open(request.id, turn.id if turn else "")
        return Asked(
            turn,
            ask,
            tool,
            input=shown or as_json(_command(request.params)),
            call_id=call_id({"id": item}),
            reason=jsonfields.text(request.params, "reason") or None,
        )

    def decide(
        self, ask: AskRef, outcome: ApprovalOutcome
    ) -> tuple[RequestId, JsonObject] | None:
        """Take a decision: what to reply to which request; None if it is closed."""
        opened = self._open.pop(ask.id, None)
        if opened is None:
            return None
        return opened.request, {"decision": DECISIONS[outcome]}

    def resolved(self, request: Any) -> list[AskClosed]:
        """Close the ask of a request that the runtime no longer waits for."""
        return self._close([k for k, o in self._open.items() if o.request == request])

    def turn_ended(self, turn: str) -> tuple[list[RequestId], list[AskClosed]]:
        """Close the asks of a turn; the requests that need no reply any more."""
        names = [k for k, o in self._open.items() if o.turn == turn]
        requests = [self._open[name].request for name in names]
        return requests, self._close(names)

    def _close(self, names: list[str]) -> list[AskClosed]:
        for name in names:
            del self._open[name]
        return [AskClosed(AskRef(name)) for name in names]


def _command(params: JsonObject) -> JsonObject:
    return {
        k: v
        for k in ("command", "cwd", "grantRoot")
        if (v := jsonfields.text(params, k))
    }
