"""The description of the HTTP interface, written by hand, tested against the routes."""

from __future__ import annotations

import re
from typing import Any

_TEXT = {"type": "string"}
_NUMBER = {"type": "integer"}
_FLAG = {"type": "boolean"}
_OBJECT = {"type": "object"}
_MAYBE_TEXT = {"type": ["string", "null"]}
_MAYBE_OBJECT = {"type": ["object", "null"]}
_GENERATION = {"type": ["array", "null"], "items": _NUMBER}
_POLICY = {"enum": ["interrupt_current_run"]}


def _list(items: dict[str, Any]) -> dict[str, Any]:
    return {"type": "array", "items": items}


def _object(required: str = "", **properties: Any) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": "object", "properties": properties}
    if required:
        schema["required"] = required.split()
    return schema


def _ref(name: str) -> dict[str, str]:
    return {"$ref": f"#/components/schemas/{name}"}


_DIAGNOSTIC = _object(problem=_TEXT, whatToDo=_TEXT) | {"type": ["object", "null"]}

SCHEMAS: dict[str, Any] = {
    "Problem": _object(
        "type title status detail",
        type=_TEXT,
        title=_TEXT,
        status=_NUMBER,
        detail=_TEXT,
    ),
    "Agent": _object(
        "id name runtime status",
        id=_TEXT,
        seq=_NUMBER,
        name=_TEXT,
        runtime=_TEXT,
        workdir=_MAYBE_TEXT,
        model=_MAYBE_TEXT,
        approvalPolicy={"enum": ["ask", "never"]},
        autoReply=_FLAG,
        options=_OBJECT,
        target=_object(id=_TEXT, name=_TEXT),
        capabilities=_OBJECT,
        status={"enum": ["idle", "running"]},
        detail=_object(phase=_TEXT, leaseEpoch=_NUMBER),
        currentRun=_MAYBE_OBJECT,
        pendingApprovals=_list(_ref("Approval")),
        parked=_FLAG,
        problem=_DIAGNOSTIC,
        daemon=_object(id=_MAYBE_TEXT, connected=_FLAG),
        createdAt=_TEXT,
    ),
    "Target": _object(
        "id name head agents",
        id=_TEXT,
        seq=_NUMBER,
        name=_TEXT,
        direct=_FLAG,
        head=_NUMBER,
        agents=_list(_object(id=_TEXT, name=_TEXT)),
        createdAt=_TEXT,
        retired=_FLAG,
    ),
    "Message": _object(
        "id target targetSeq author body deliveries",
        id=_TEXT,
        target=_TEXT,
        targetSeq=_NUMBER,
        author=_object(kind={"enum": ["user", "agent"]}, name=_TEXT),
        body=_TEXT,
        createdAt=_TEXT,
        deliveries=_list(_ref("Delivery")),
    ),
    "Delivery": _object(
        "id messageId agentId interruptPolicy state attempt history",
        id=_TEXT,
        messageId=_TEXT,
        agentId=_TEXT,
        interruptPolicy={"enum": ["interrupt_current_run", None]},
        state={
            "enum": [
                "queued",
                "accepted",
                "surfaced",
                "failed",
                "blocked",
                "cancelled",
                "superseded",
                "unknown",
            ]
        },
        attempt=_NUMBER,
        evidence=_MAYBE_OBJECT,
        diagnostic=_DIAGNOSTIC,
        history=_list(_object(state=_TEXT, at=_TEXT, attempt=_NUMBER, note=_TEXT)),
        createdAt=_TEXT,
    ),
    "Approval": _object(
        "id agentId runId toolName input askedAt state",
        id=_TEXT,
        seq=_NUMBER,
        agentId=_TEXT,
        runId=_TEXT,
        toolName=_TEXT,
        callId=_TEXT,
        reason=_TEXT,
        input=_TEXT,
        askedAt=_TEXT,
        state={
            "enum": ["pending", "allowed-once", "rejected", "cancelled", "unavailable"]
        },
        decidedBy=_TEXT,
        decidedAt=_TEXT,
    ),
    "Activity": _object(
        "seq kind text",
        seq=_NUMBER,
        agentId=_TEXT,
        kind=_TEXT,
        text=_TEXT,
        runId=_MAYBE_TEXT,
        generation=_GENERATION,
        deliveryId=_MAYBE_TEXT,
        at=_TEXT,
        detail=_OBJECT,
    ),
    "Run": _object(
        "seq id turn generation startedAt",
        seq=_NUMBER,
        id=_TEXT,
        turn=_NUMBER,
        generation=_GENERATION,
        startedAt=_TEXT,
        endedAt=_MAYBE_TEXT,
        outcome=_MAYBE_TEXT,
        cause=_MAYBE_TEXT,
        detail=_TEXT,
        deliveries=_list(_TEXT),
        usage=_OBJECT,
        draft=_MAYBE_TEXT,
    ),
}

_OPTIONS = _object(
    bin=_TEXT, env=_OBJECT, home=_TEXT, config=_OBJECT, args=_list(_TEXT)
)
_NEW_AGENT = _object(
    "name runtime",
    name=_TEXT,
    runtime=_TEXT,
    workdir=_TEXT,
    model=_TEXT,
    approvalPolicy={"enum": ["ask", "never"]},
    autoReply=_FLAG,
    options=_OPTIONS,
)
_CHANGED_AGENT = _object(
    name=_TEXT,
    workdir=_MAYBE_TEXT,
    model=_MAYBE_TEXT,
    approvalPolicy={"enum": ["ask", "never"]},
    autoReply=_FLAG,
    options=_OPTIONS,
)
_CONTROL = _object(
    "action",
    action={"enum": ["interrupt_current_run", "resume"]},
    runId=_TEXT,
    who=_TEXT,
)
_INTERVENTION = _object(
    "method",
    method={
        "enum": [
            "followup",
            "steer",
            "inject",
            "send",
            "cancel",
            "when_idle",
            "run_maintenance",
        ]
    },
    messages=_list(_TEXT),
    lane={"enum": ["next_turn", "next_step"]},
    wakeup=_FLAG,
    cause=_TEXT,
    keepInbox=_FLAG,
    task={"enum": ["compact"]},
    wait={"type": "number"},
)


def _parameter(name: str, kind: dict[str, Any]) -> dict[str, Any]:
    return {"name": name, "in": "query", "required": False, "schema": kind}


_PAGE = [_parameter("after", _NUMBER), _parameter("limit", _NUMBER)]


def _operation(
    summary: str,
    status: int,
    answer: dict[str, Any] | None,
    body: dict[str, Any] | None = None,
    query: list[dict[str, Any]] | None = None,
    media: str = "application/json",
) -> dict[str, Any]:
    success: dict[str, Any] = {"description": summary}
    if answer is not None:
        success["content"] = {media: {"schema": answer}}
    problem = {"application/problem+json": {"schema": _ref("Problem")}}
    operation: dict[str, Any] = {
        "summary": summary,
        "responses": {
            str(status): success,
            "default": {"description": "a problem", "content": problem},
        },
    }
    if body is not None:
        content = {"application/json": {"schema": body}}
        operation["requestBody"] = {"required": True, "content": content}
        operation["parameters"] = [
            {"name": "Idempotency-Key", "in": "header", "schema": _TEXT}
        ]
    if query is not None:
        operation["parameters"] = query
    return operation


_AGENT = "/api/agents/{agent}"

PATHS: dict[str, dict[str, Any]] = {
    "/api/agents": {
        "get": _operation(
            "List the agents", 200, _object(agents=_list(_ref("Agent"))), query=_PAGE
        ),
        "post": _operation("Make an agent", 201, _ref("Agent"), _NEW_AGENT),
    },
    _AGENT: {
        "get": _operation("Show an agent", 200, _ref("Agent")),
        "patch": _operation("Change an agent", 200, _ref("Agent"), _CHANGED_AGENT),
        "delete": _operation("Forget an agent", 204, None),
    },
    f"{_AGENT}/control": {
        "post": _operation(
            "Stop the current run, or resume",
            202,
            _object("result", result=_TEXT, control=_TEXT),
            _CONTROL,
        ),
    },
    f"{_AGENT}/interventions": {
        "post": _operation(
            "One of the seven methods for hosts", 202, _OBJECT, _INTERVENTION
        ),
    },
    f"{_AGENT}/activity": {
        "get": _operation(
            "The user-facing lifecycle",
            200,
            _object(items=_list(_ref("Activity"))),
            query=_PAGE,
        ),
    },
    f"{_AGENT}/runs": {
        "get": _operation(
            "The ledger of turns", 200, _object(runs=_list(_ref("Run"))), query=_PAGE
        ),
    },
    f"{_AGENT}/journal": {
        "get": _operation(
            "The session's raw events",
            200,
            _object(events=_list(_OBJECT)),
            query=_PAGE,
        ),
    },
    "/api/targets": {
        "get": _operation(
            "List the targets", 200, _object(targets=_list(_ref("Target"))), query=_PAGE
        ),
        "post": _operation(
            "Make a target",
            201,
            _ref("Target"),
            _object("name", name=_TEXT, agents=_list(_TEXT)),
        ),
    },
    "/api/targets/{target}/messages": {
        "get": _operation(
            "A target's messages",
            200,
            _object(messages=_list(_ref("Message")), head=_NUMBER),
            query=_PAGE,
        ),
        "post": _operation(
            "Send an ordinary message",
            201,
            _ref("Message"),
            _object("body", body=_TEXT, author=_TEXT),
        ),
    },
    "/api/messages/{message}": {
        "get": _operation("Show a message", 200, _ref("Message")),
    },
    "/api/messages/{message}/agent-delivery": {
        "post": _operation(
            "Mark a sent message urgent",
            202,
            _ref("Delivery"),
            _object("interruptPolicy", interruptPolicy=_POLICY, agentId=_TEXT),
        ),
    },
    "/api/deliveries/{delivery}": {
        "get": _operation(
            "Show a delivery, waiting for its end",
            200,
            _ref("Delivery"),
            query=[_parameter("wait", {"type": "number", "maximum": 60})],
        ),
    },
    "/api/deliveries/{delivery}/resolve": {
        "post": _operation(
            "Redeliver or dismiss",
            200,
            _ref("Delivery"),
            _object("as", **{"as": {"enum": ["redeliver", "dismiss"]}}),
        ),
    },
    "/api/approvals": {
        "get": _operation(
            "List approvals",
            200,
            _object(approvals=_list(_ref("Approval"))),
            query=[_parameter("state", _TEXT), *_PAGE],
        ),
    },
    "/api/approvals/{approval}/decision": {
        "post": _operation(
            "Answer an approval",
            200,
            _ref("Approval"),
            _object(
                "outcome", outcome={"enum": ["allowed-once", "rejected"]}, who=_TEXT
            ),
        ),
    },
    "/api/events": {
        "get": _operation(
            "Server-sent events: message, delivery, agent, activity, approval, gap",
            200,
            _TEXT,
            query=[
                {"name": "Last-Event-ID", "in": "header", "schema": _TEXT},
                _parameter("lastEventId", _TEXT),
            ],
            media="text/event-stream",
        ),
    },
    "/healthz": {"get": _operation("Liveness", 200, _OBJECT)},
    "/readyz": {"get": _operation("Readiness", 200, _OBJECT)},
    "/metrics": {
        "get": _operation("Prometheus", 200, _TEXT, media="text/plain"),
    },
    "/openapi.json": {"get": _operation("This description", 200, _OBJECT)},
}


def _with_path_parameters(path: str, operation: dict[str, Any]) -> dict[str, Any]:
    inside = [
        {"name": name, "in": "path", "required": True, "schema": _TEXT}
        for name in re.findall(r"\{(\w+)\}", path)
    ]
    return operation | {"parameters": [*inside, *operation.get("parameters", [])]}


DESCRIPTION: dict[str, Any] = {
    "openapi": "3.1.0",
    "info": {"title": "agentteam", "version": "1"},
    "paths": {
        path: {
            method: _with_path_parameters(path, operation)
            for method, operation in methods.items()
        }
        for path, methods in PATHS.items()
    },
    "components": {"schemas": SCHEMAS},
}
