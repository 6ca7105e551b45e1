"""The shapes of what goes over HTTP, in the words of JSON Schema."""

from __future__ import annotations

from typing import Any

TEXT = {"type": "string"}
NUMBER = {"type": "integer"}
FLAG = {"type": "boolean"}
OBJECT = {"type": "object"}
MAYBE_TEXT = {"type": ["string", "null"]}
MAYBE_OBJECT = {"type": ["object", "null"]}
GENERATION = {"type": ["array", "null"], "items": NUMBER}
POLICY = {"enum": ["interrupt_current_run"]}


def list_of(items: dict[str, Any]) -> dict[str, Any]:
    return {"type": "array", "items": items}


def object_of(required: str = "", **properties: Any) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": "object", "properties": properties}
    if required:
        schema["required"] = required.split()
    return schema


def ref(name: str) -> dict[str, str]:
    return {"$ref": f"#/components/schemas/{name}"}


DIAGNOSTIC = object_of(problem=TEXT, whatToDo=TEXT) | {"type": ["object", "null"]}

SCHEMAS: dict[str, Any] = {
    "Problem": object_of(
        "type title status detail",
        type=TEXT,
        title=TEXT,
        status=NUMBER,
        detail=TEXT,
    ),
    "Agent": object_of(
        "id name runtime status",
        id=TEXT,
        seq=NUMBER,
        name=TEXT,
        runtime=TEXT,
        workdir=MAYBE_TEXT,
        model=MAYBE_TEXT,
        approvalPolicy={"enum": ["ask", "never"]},
        autoReply=FLAG,
        options=OBJECT,
        target=object_of(id=TEXT, name=TEXT),
        capabilities=OBJECT,
        status={"enum": ["idle", "running"]},
        detail=object_of(phase=TEXT, leaseEpoch=NUMBER),
        currentRun=MAYBE_OBJECT,
        pendingApprovals=list_of(ref("Approval")),
        parked=FLAG,
        waiting=NUMBER,
        problem=DIAGNOSTIC,
        daemon=object_of(id=MAYBE_TEXT, connected=FLAG),
        createdAt=TEXT,
    ),
    "Target": object_of(
        "id name head agents",
        id=TEXT,
        seq=NUMBER,
        name=TEXT,
        direct=FLAG,
        head=NUMBER,
        agents=list_of(object_of(id=TEXT, name=TEXT)),
        createdAt=TEXT,
        retired=FLAG,
    ),
    "Message": object_of(
        "id target targetSeq author body deliveries",
        id=TEXT,
        target=TEXT,
        targetSeq=NUMBER,
        author=object_of(kind={"enum": ["user", "agent"]}, name=TEXT),
        body=TEXT,
        createdAt=TEXT,
        deliveries=list_of(ref("Delivery")),
    ),
    "Delivery": object_of(
        "id messageId agentId interruptPolicy state attempt history",
        id=TEXT,
        messageId=TEXT,
        agentId=TEXT,
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
        attempt=NUMBER,
        evidence=MAYBE_OBJECT,
        diagnostic=DIAGNOSTIC,
        history=list_of(object_of(state=TEXT, at=TEXT, attempt=NUMBER, note=TEXT)),
        createdAt=TEXT,
    ),
    "Marked": {
        "allOf": [
            ref("Delivery"),
            object_of(
                "made readBefore",
                made=FLAG,  # false: it stood already, nothing new is delivered
                readBefore=object_of(deliveryId=TEXT, evidence=MAYBE_OBJECT)
                | {"type": ["object", "null"]},
            ),
        ]
    },
    "Approval": object_of(
        "id agentId runId toolName input askedAt state",
        id=TEXT,
        seq=NUMBER,
        agentId=TEXT,
        runId=TEXT,
        toolName=TEXT,
        callId=TEXT,
        reason=TEXT,
        input=TEXT,
        askedAt=TEXT,
        state={
            "enum": ["pending", "allowed-once", "rejected", "cancelled", "unavailable"]
        },
        decidedBy=TEXT,
        decidedAt=TEXT,
    ),
    "Activity": object_of(
        "seq kind text",
        seq=NUMBER,
        agentId=TEXT,
        kind=TEXT,
        text=TEXT,
        runId=MAYBE_TEXT,
        generation=GENERATION,
        deliveryId=MAYBE_TEXT,
        at=TEXT,
        detail=OBJECT,
    ),
    "Run": object_of(
        "seq id turn generation startedAt",
        seq=NUMBER,
        id=TEXT,
        turn=NUMBER,
        generation=GENERATION,
        startedAt=TEXT,
        endedAt=MAYBE_TEXT,
        outcome=MAYBE_TEXT,
        cause=MAYBE_TEXT,
        detail=TEXT,
        deliveries=list_of(TEXT),
        usage=OBJECT,
        draft=MAYBE_TEXT,
    ),
}

OPTIONS = object_of(bin=TEXT, env=OBJECT, home=TEXT, config=OBJECT, args=list_of(TEXT))
NEW_AGENT = object_of(
    "name runtime",
    name=TEXT,
    runtime=TEXT,
    workdir=TEXT,
    model=TEXT,
    approvalPolicy={"enum": ["ask", "never"]},
    autoReply=FLAG,
    options=OPTIONS,
)
CHANGED_AGENT = object_of(
    name=TEXT,
    workdir=MAYBE_TEXT,
    model=MAYBE_TEXT,
    approvalPolicy={"enum": ["ask", "never"]},
    autoReply=FLAG,
    options=OPTIONS,
)
CONTROL = object_of(
    "action",
    action={"enum": ["interrupt_current_run", "resume"]},
    runId=TEXT,
    who=TEXT,
)
INTERVENTION = object_of(
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
    messages=list_of(TEXT),
    lane={"enum": ["next_turn", "next_step"]},
    wakeup=FLAG,
    cause=TEXT,
    keepInbox=FLAG,
    task={"enum": ["compact"]},
    wait={"type": "number"},
)
