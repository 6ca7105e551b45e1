"""
Every crash point there is, by stage, in the order in which a message passes them.

A stage says what passes there; a point is `STAGE/WHAT`. `PATH` are the points that one
urgent message passes from its acceptance to surfaced, the cut of a run among them.
"""

from __future__ import annotations

# stage: (what "before" and "after" mean there, the names on the path, the others)
STAGES: dict[str, tuple[str, str, str]] = {
    "store": (
        "a transaction of the server that did this: before and after its commit",
        "message delivery urgent outbox receipt frontier delivery-received"
        " delivery-reported activity-reported fence-reported run-reported"
        " status-reported",
        "hello parting control decision control-reported approval-reported"
        " frontier-reported send-requested",
    ),
    "server-sends": (
        "the server hands a message with this frame to the WebSocket",
        "agent-deliver receipt",
        "agent-granted agent-control agent-intervene agent-resolve agent-revoked"
        " approval-decide history-given query send-judged welcome",
    ),
    "daemon-receives": (
        "the daemon hands this frame to the agent's session, which takes its step",
        "agent-deliver",
        "agent-granted agent-control agent-intervene agent-resolve agent-revoked"
        " approval-decide send-judged",
    ),
    "event": (
        "the session takes its step: after, its records are queued, not yet durable",
        "delivered interrupt-taken turn-ended swept pre-step-decided submit-accepted"
        " turn-started surfaced",
        "asked deadline-passed dismissed dispose-requested"
        " history-read idle-awaited interrupt-failed loaded maintenance-ended"
        " maintenance-requested noticed output process-gone read-called"
        " resume-requested runtime-ready said send-answered send-called sent"
        " session-named settled shutdown-requested start-failed steer-accepted"
        " steer-failed stop-requested submit-failed tool-ended tool-started"
        " cancel-requested approval-answered",
    ),
    "journal": (
        "records are queued for the journal's writer",
        "append received",
        "keep mark rebase reopen reset-inbound",
    ),
    "commit": (
        "a group of the journal with this in it: before and after its commit",
        "append received",
        "acked keep mark rebase reopen reset-inbound",
    ),
    "effect": (
        "the session's actor starts to do this; its records are durable if it waits",
        "received interrupt cancel-turn sweep pre-step submit",
        "abort-maintenance allow close-runtime consult deny finish judge-send kill"
        " maintain open-runtime progress read-target reply settle steer-item"
        " terminate tool-reply withdraw-ask",
    ),
    "daemon-sends": (
        "the daemon hands a message with this frame to the WebSocket",
        "delivery-received delivery-reported activity-reported fence-reported"
        " run-reported status-reported",
        "answer approval-reported control-reported frontier-reported history-asked"
        " progressed send-requested",
    ),
    "server-receives": (
        "the server applies a message with this frame: after, it is stored",
        "delivery-received delivery-reported activity-reported fence-reported"
        " run-reported status-reported",
        "answer approval-reported control-reported frontier-reported history-asked"
        " progressed send-requested",
    ),
}

PATH: tuple[str, ...] = tuple(
    f"{stage}/{name}"
    for stage, (_, path, _others) in STAGES.items()
    for name in path.split()
)

POINTS: dict[str, str] = {
    f"{stage}/{name}": meaning
    for stage, (meaning, path, others) in STAGES.items()
    for name in (*path.split(), *others.split())
}

# What passes a stage and is no point: it does nothing that a crash could part from
# what is beside it, or only a fault that cannot be staged brings it about.
NO_POINTS = frozenset(
    {
        "effect/clear-deadline",
        "effect/record",
        "effect/set-deadline",
        "event/ask-closed",
        "event/exited",
        "event/kill-failed",
        "event/lease-lost",
        "event/policy-chosen",
        "event/step-ended",
        "commit/set-aside",
        "journal/set-aside",
        "server-sends/refused",
        "store/send-asked",
        "server-receives/send-asked",
        "daemon-sends/send-asked",
    }
)
