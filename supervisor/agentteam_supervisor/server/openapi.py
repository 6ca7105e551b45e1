"""The description of the HTTP interface, written by hand, tested against the routes."""

from __future__ import annotations

import re
from typing import Any

from agentteam_supervisor.server.shapes import (
    CHANGED_AGENT,
    CONTROL,
    FLAG,
    INTERVENTION,
    NEW_AGENT,
    NUMBER,
    OBJECT,
    POLICY,
    SCHEMAS,
    TEXT,
    list_of,
    object_of,
    ref,
)


def _parameter(name: str, kind: dict[str, Any]) -> dict[str, Any]:
    return {"name": name, "in": "query", "required": False, "schema": kind}


_PAGE = [_parameter("after", NUMBER), _parameter("limit", NUMBER)]
_NEWEST = [*_PAGE, _parameter("newest", NUMBER)]
_SEARCH = [*_PAGE, _parameter("search", TEXT)]


def _operation(
    summary: str,
    status: int,
    answer: dict[str, Any] | None,
    body: dict[str, Any] | None = None,
    query: list[dict[str, Any]] | None = None,
    media: str = "application/json",
    problems: tuple[int, ...] = (),
    also: dict[int, dict[str, Any]] | None = None,
) -> dict[str, Any]:
    success: dict[str, Any] = {"description": summary}
    if answer is not None:
        success["content"] = {media: {"schema": answer}}
    others = {
        str(code): {"description": summary, "content": {media: {"schema": shape}}}
        for code, shape in (also or {}).items()
    }
    operation: dict[str, Any] = {
        "summary": summary,
        "responses": {str(status): success, **others},
        "x-problems": problems,
    }
    if body is not None:
        content = {"application/json": {"schema": body}}
        operation["requestBody"] = {"required": True, "content": content}
        operation["parameters"] = [
            {"name": "Idempotency-Key", "in": "header", "schema": TEXT}
        ]
    if query is not None:
        operation["parameters"] = query
    return operation


# What each can be refused with; a body brings its own, and so does a name in the path.
_PROBLEMS = {
    400: "the body is not a JSON object",
    403: "a foreign Host or Origin",
    404: "there is nothing of this name",
    409: "it cannot be done in this state, or the Idempotency-Key had another body",
    413: "the body is too large",
    415: "the body is not announced as application/json",
    422: "a field or parameter is not valid",
    502: "the daemon refused to answer",
    503: "the server, its store or the daemon cannot serve now",
    507: "the store cannot be written; nothing was stored",
}
_OF_BODY = (400, 409, 413, 415, 422, 503, 507)


def _refusals(path: str, method: str, operation: dict[str, Any]) -> dict[str, Any]:
    codes = {403, *operation["x-problems"]}
    codes |= {404} if "{" in path else set()
    codes |= {422} if "parameters" in operation else set()
    codes |= set(_OF_BODY) if "requestBody" in operation else set()
    codes |= {503, 507} if method == "delete" else set()
    content = {"application/problem+json": {"schema": ref("Problem")}}
    known = {
        str(code): {"description": _PROBLEMS[code], "content": content}
        for code in sorted(codes)
    }
    return known | {"default": {"description": "another problem", "content": content}}


_AGENT = "/api/agents/{agent}"

PATHS: dict[str, dict[str, Any]] = {
    "/api/agents": {
        "get": _operation(
            "List the agents", 200, object_of(agents=list_of(ref("Agent"))), query=_PAGE
        ),
        "post": _operation("Make an agent", 201, ref("Agent"), NEW_AGENT),
    },
    _AGENT: {
        "get": _operation("Show an agent", 200, ref("Agent")),
        "patch": _operation("Change an agent", 200, ref("Agent"), CHANGED_AGENT),
        "delete": _operation("Forget an agent", 204, None),
    },
    f"{_AGENT}/control": {
        "post": _operation(
            "Stop the current run, or resume",
            202,
            object_of("result", result=TEXT, control=TEXT, recorded=FLAG),
            CONTROL,
        ),
    },
    f"{_AGENT}/interventions": {
        "post": _operation(
            "One of the seven methods for hosts; `when_idle` answers 200",
            202,
            OBJECT,
            INTERVENTION,
            also={200: OBJECT},
        ),
    },
    f"{_AGENT}/activity": {
        "get": _operation(
            "The user-facing lifecycle",
            200,
            object_of(items=list_of(ref("Activity"))),
            query=_NEWEST,
        ),
    },
    f"{_AGENT}/runs": {
        "get": _operation(
            "The ledger of turns",
            200,
            object_of(runs=list_of(ref("Run"))),
            query=_NEWEST,
        ),
    },
    f"{_AGENT}/journal": {
        "get": _operation(
            "The session's raw events",
            200,
            object_of(events=list_of(OBJECT)),
            query=_PAGE,
            problems=(502, 503),
        ),
    },
    "/api/targets": {
        "get": _operation(
            "List the targets",
            200,
            object_of(targets=list_of(ref("Target"))),
            query=_PAGE,
        ),
        "post": _operation(
            "Make a target",
            201,
            ref("Target"),
            object_of("name", name=TEXT, agents=list_of(TEXT)),
        ),
    },
    "/api/targets/{target}/messages": {
        "get": _operation(
            "A target's messages",
            200,
            object_of(messages=list_of(ref("Message")), head=NUMBER),
            query=_SEARCH,
        ),
        "post": _operation(
            "Send an ordinary message",
            201,
            ref("Message"),
            object_of("body", body=TEXT, author=TEXT),
        ),
    },
    "/api/messages/{message}": {
        "get": _operation("Show a message", 200, ref("Message")),
    },
    "/api/messages/{message}/agent-delivery": {
        "post": _operation(
            "Mark a sent message urgent; one that was read before is read again",
            202,
            ref("Marked"),
            object_of("interruptPolicy", interruptPolicy=POLICY, agentId=TEXT),
        ),
    },
    "/api/deliveries/{delivery}": {
        "get": _operation(
            "Show a delivery, waiting for its end",
            200,
            ref("Delivery"),
            query=[_parameter("wait", {"type": "number", "maximum": 60})],
        ),
    },
    "/api/deliveries/{delivery}/resolve": {
        "post": _operation(
            "Redeliver or dismiss",
            200,
            ref("Delivery"),
            object_of("as", **{"as": {"enum": ["redeliver", "dismiss"]}}),
        ),
    },
    "/api/approvals": {
        "get": _operation(
            "List approvals",
            200,
            object_of(approvals=list_of(ref("Approval"))),
            query=[_parameter("state", TEXT), *_PAGE],
        ),
    },
    "/api/approvals/{approval}/decision": {
        "post": _operation(
            "Answer an approval",
            200,
            ref("Approval"),
            object_of(
                "outcome", outcome={"enum": ["allowed-once", "rejected"]}, who=TEXT
            ),
        ),
    },
    "/api/events": {
        "get": _operation(
            "Server-sent events: message, delivery, agent, activity, approval, gap",
            200,
            TEXT,
            query=[
                {"name": "Last-Event-ID", "in": "header", "schema": TEXT},
                _parameter("lastEventId", TEXT),
            ],
            media="text/event-stream",
        ),
    },
    "/healthz": {"get": _operation("Liveness", 200, OBJECT)},
    "/readyz": {
        "get": _operation("Readiness", 200, OBJECT, problems=(503,)),
    },
    "/metrics": {
        "get": _operation("Prometheus", 200, TEXT, media="text/plain"),
    },
    "/openapi.json": {"get": _operation("This description", 200, OBJECT)},
}


def _complete(path: str, method: str, operation: dict[str, Any]) -> dict[str, Any]:
    """Add what follows from the path and the kind of the call."""
    inside = [
        {"name": name, "in": "path", "required": True, "schema": TEXT}
        for name in re.findall(r"\{(\w+)\}", path)
    ]
    refusals = _refusals(path, method, operation)
    return {
        "summary": operation["summary"],
        **{k: v for k, v in operation.items() if k == "requestBody"},
        "parameters": [*inside, *operation.get("parameters", [])],
        "responses": operation["responses"] | refusals,
    }


DESCRIPTION: dict[str, Any] = {
    "openapi": "3.1.0",
    "info": {"title": "agentteam", "version": "1"},
    "paths": {
        path: {
            method: _complete(path, method, operation)
            for method, operation in methods.items()
        }
        for path, methods in PATHS.items()
    },
    "components": {"schemas": SCHEMAS},
}
