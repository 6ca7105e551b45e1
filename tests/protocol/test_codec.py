"""Every frame and every journal event survives its way over the wire."""

from __future__ import annotations

import json
from typing import Any

import pytest

from agentteam_protocol.activity import ActivityKind
from agentteam_protocol.approval import (
    ApprovalOutcome,
    ApprovalPolicy,
    ApprovalRequest,
)
from agentteam_protocol.codec import (
    camel,
    decode_envelope,
    decode_event,
    encode_envelope,
    encode_event,
    from_wire,
    to_wire,
)
from agentteam_protocol.control import (
    ControlAction,
    ControlResult,
    CutCause,
    Method,
    Resolution,
)
from agentteam_protocol.delivery import (
    Author,
    AuthorKind,
    DeliveryState,
    Diagnostic,
    Evidence,
    InterruptPolicy,
    MessageRef,
)
from agentteam_protocol.errors import RemoteProtocolError
from agentteam_protocol.frames import (
    FRAME_KINDS,
    NUMBERED,
    VERSION,
    ActivityReported,
    AgentControl,
    AgentDeliver,
    AgentGranted,
    AgentIntervene,
    AgentResolve,
    AgentRevoked,
    AgentTroubled,
    Answer,
    ApprovalDecide,
    ApprovalReported,
    ControlReported,
    DeliveryReceived,
    DeliveryReported,
    Envelope,
    FenceReported,
    Frame,
    FrontierReported,
    Hello,
    HistoryAsked,
    HistoryGiven,
    Progressed,
    Query,
    Receipt,
    Refused,
    RunReported,
    SendAsked,
    SendJudged,
    SendRequested,
    StatusReported,
    Welcome,
)
from agentteam_protocol.ids import (
    AgentId,
    ApprovalId,
    ControlId,
    DaemonId,
    DeliveryId,
    Generation,
    ItemId,
    MessageId,
    RunId,
    SendId,
    TargetId,
)
from agentteam_protocol.inbox import Item, Lane, Source
from agentteam_protocol.journal import (
    KINDS,
    ApprovalAsked,
    ApprovalDecided,
    ApprovalPolicySet,
    AssistantMessage,
    DeliveryChanged,
    EpochBegun,
    FenceClosed,
    FenceHeld,
    FenceLate,
    FenceReopened,
    FrontierMoved,
    InboxSpliced,
    InputForgotten,
    InterruptRequested,
    ItemsInFlight,
    JournalEvent,
    RunNotice,
    RunParked,
    RunProblem,
    RunProcess,
    RunSession,
    SendDecided,
    SessionClosed,
    SpliceReason,
    StepEnd,
    StepStart,
    ToolCall,
    ToolResult,
    TurnEnd,
    TurnOutcome,
    TurnStart,
    UserMessage,
)

AGENT, TARGET, MESSAGE = AgentId("agt_1"), TargetId("tgt_1"), MessageId("msg_1")
DELIVERY, RUN, APPROVAL = DeliveryId("dlv_1"), RunId("run_1"), ApprovalId("apr_1")
CONTROL, SEND, ITEM = ControlId("ctl_1"), SendId("snd_1"), ItemId("itm_1")
GEN = Generation(2, 7)
URGENT = InterruptPolicy.interrupt_current_run
ASK = ApprovalRequest(APPROVAL, RUN, "shell", '{"a":1}', "call_1", "why", "now")
WHY = Diagnostic("it is gone", "start it again")
PROOF = Evidence("userMessage", "2026-01-01T00:00:00Z", "item_1")
REF = MessageRef(
    MESSAGE, TARGET, 3, "停一下 \U0001f600", Author(AuthorKind.user, "ann")
)
ENTRY = Item(
    ITEM,
    "body",
    Lane.urgent,
    wakes=False,
    position=4,
    attempt=2,
    source=Source("plugin", "cron"),
    delivery=DELIVERY,
    message=MESSAGE,
    target=TARGET,
    seq=3,
    policy=URGENT,
    target_name="team",
    direct=False,
    author=Author(AuthorKind.agent, "bob"),
)

FRAMES: list[Frame] = [
    Hello(VERSION, DaemonId("dmn_1"), "laptop", "srv", 9, {"codex": {"version": "1"}}),
    Welcome(VERSION, "srv", 4),
    Refused("a second daemon", "stop the first"),
    AgentGranted(
        AGENT,
        "demo",
        "codex",
        2,
        "/src",
        "m",
        ApprovalPolicy.never,
        False,
        {"env": {"A": "b"}, "args": ["-v"]},
        {TARGET: 12},
    ),
    AgentRevoked(AGENT, 2, forget=True),
    AgentDeliver(DELIVERY, AGENT, REF, URGENT, 2, 1),
    AgentControl(CONTROL, AGENT, ControlAction.interrupt_current_run, RUN, "ann"),
    AgentResolve(DELIVERY, AGENT, Resolution.dismiss),
    ApprovalDecide(APPROVAL, AGENT, ApprovalOutcome.allowed_once, "ann"),
    SendJudged(SEND, AGENT, "held", 3, TARGET, "unseen", (REF, REF)),
    AgentIntervene(CONTROL, AGENT, Method.steer, {"messages": ["x"]}),
    DeliveryReceived(DELIVERY, 2),
    DeliveryReported(
        DELIVERY, AGENT, DeliveryState.surfaced, 2, GEN, PROOF, WHY, "seen twice"
    ),
    ControlReported(CONTROL, AGENT, ControlResult.stale_run, RUN),
    ActivityReported(
        AGENT, ActivityKind.stopping, RUN, GEN, DELIVERY, {"who": "a"}, {"n": 1}, "now"
    ),
    StatusReported(
        AGENT, 2, True, "Running", True, RUN, GEN, "now", WHY, {"steer": "ack"}
    ),
    FenceReported(AGENT, GEN, "hold"),
    FrontierReported(AGENT, TARGET, (3, 5), GEN),
    RunReported(
        AGENT,
        RUN,
        4,
        GEN,
        "then",
        "now",
        "aborted",
        "urgent",
        "detail",
        (DELIVERY,),
        {"input": 5},
        "a draft",
    ),
    ApprovalReported(AGENT, ASK, GEN, ApprovalOutcome.cancelled),
    SendRequested(SEND, AGENT, GEN, "team", "text", auto_reply=True),
    SendAsked(SEND, AGENT),
    Progressed(AGENT, RUN, GEN, "half a sen"),
    AgentTroubled(AGENT, 2, Diagnostic("the disk is full", "free space")),
    Query(1, AGENT, "journal", {"after": 3}),
    Answer(1, True, {"events": []}),
    HistoryAsked(2, AGENT, "team", 3, 50),
    HistoryGiven(2, TARGET, (REF,), "none"),
    Receipt(),
]

EVENTS: list[JournalEvent] = [
    InboxSpliced(SpliceReason.requeued, (ITEM,), (ENTRY,)),
    TurnStart(4, RUN, GEN),
    StepStart(4, 1),
    UserMessage(4, ITEM, "body", DELIVERY, MESSAGE),
    AssistantMessage(4, "half", partial=True),
    ToolCall(4, "c1", "shell", "ls"),
    ToolResult(4, "c1", "out", "TOOL_OUTCOME_UNKNOWN"),
    StepEnd(4, 1),
    TurnEnd(4, TurnOutcome.max_tokens, CutCause.stop, "detail"),
    InterruptRequested(GEN, RUN, CutCause.urgent, DELIVERY, "ann"),
    FenceHeld(GEN),
    FenceReopened(GEN),
    FenceClosed(GEN, GEN.next()),
    FenceLate(None, "output", "detail"),
    ApprovalAsked(4, ASK),
    ApprovalDecided(4, APPROVAL, ApprovalOutcome.unavailable),
    ApprovalPolicySet(ApprovalPolicy.never),
    DeliveryChanged(DELIVERY, DeliveryState.unknown, 2, GEN, PROOF, WHY, "note"),
    ItemsInFlight((ENTRY,), (ITEM,), (ITEM,)),
    FrontierMoved(TARGET, (3, 4), 1),
    RunProcess(3, True, '{"pid": 1}', "detail"),
    RunSession("thread_1"),
    RunParked(4),
    RunProblem(WHY),
    RunNotice("text", "detail"),
    InputForgotten(ITEM, "text", DELIVERY),
    SendDecided(GEN, TARGET, "forwarded", SEND, 4, "text", auto_reply=True),
    SessionClosed(CutCause.disposed),
    EpochBegun(GEN, 17),
]


def name(value: object) -> str:
    return type(value).__name__


def test_the_tables_of_this_file_leave_nothing_out() -> None:
    assert {type(frame) for frame in FRAMES} == set(FRAME_KINDS)
    assert {type(event) for event in EVENTS} == set(KINDS)


def test_no_two_classes_share_a_kind() -> None:
    for kinds in (FRAME_KINDS, KINDS):
        assert len(set(kinds.values())) == len(kinds)


def test_what_is_numbered_is_a_frame() -> None:
    assert set(FRAME_KINDS) > NUMBERED


@pytest.mark.parametrize("frame", FRAMES, ids=name)
def test_a_frame_comes_back_as_it_was(frame: Frame) -> None:
    envelope = Envelope((frame, frame), 5, 3)
    data = encode_envelope(envelope)
    assert decode_envelope(data) == envelope
    assert json.loads(data)["frames"][0]["kind"] == FRAME_KINDS[type(frame)]


def test_the_kind_of_an_activity_is_not_lost_to_the_kind_of_its_frame() -> None:
    report = ActivityReported(AGENT, ActivityKind.stopping)
    (wire,) = json.loads(encode_envelope(Envelope((report,))))["frames"]
    assert (wire["kind"], wire["ofKind"]) == ("activity:reported", "stopping")


@pytest.mark.req("R118")
@pytest.mark.parametrize("event", EVENTS, ids=name)
def test_an_event_comes_back_as_it_was(event: JournalEvent) -> None:
    data = encode_event(event)
    assert decode_event(data) == event
    assert decode_event(data.decode()) == event
    assert json.loads(data)["kind"] == KINDS[type(event)]


@pytest.mark.parametrize("value", [*FRAMES, *EVENTS], ids=name)
def test_every_name_on_the_wire_is_camel_case(value: Any) -> None:
    for key in to_wire(value):
        assert "_" not in key


@pytest.mark.req("R5", "R16")
def test_a_delivery_without_a_policy_has_none_on_the_wire() -> None:
    ordinary = to_wire(AgentDeliver(DELIVERY, AGENT, REF))
    assert "interruptPolicy" not in ordinary
    urgent = to_wire(AgentDeliver(DELIVERY, AGENT, REF, URGENT))
    assert urgent["interruptPolicy"] == "interrupt_current_run"
    assert (urgent["message"]["id"], urgent["message"]["targetSeq"]) == ("msg_1", 3)


@pytest.mark.req("R19")
def test_an_unknown_policy_is_refused_not_taken_for_an_ordinary_one() -> None:
    wire = to_wire(AgentDeliver(DELIVERY, AGENT, REF, URGENT))
    with pytest.raises(RemoteProtocolError):
        from_wire({**wire, "interruptPolicy": "pause"}, AgentDeliver)


def test_a_generation_is_a_pair_and_orders_by_epoch_first() -> None:
    assert to_wire(FenceHeld(GEN)) == {"gen": [2, 7]}
    assert Generation(1, 9) < Generation(2, 0) < Generation(2, 1)


def test_a_field_that_a_newer_peer_added_is_skipped() -> None:
    data = {"frames": [{"kind": "link:receipt", "more": 1}], "ack": 1, "more": 2}
    assert decode_envelope(json.dumps(data)) == Envelope((Receipt(),), None, 1)


@pytest.mark.bug("B15")
@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"{",
        b"[]",
        b"null",
        b"\xff\xfe",
        b'{"frames": [{"kind": "no:such"}]}',
        b'{"frames": [{}]}',
        b'{"frames": [{"kind": "link:welcome", "version": 1}]}',
        b'{"frames": 3}',
        b"[" * 5000,
    ],
)
def test_what_is_no_envelope_is_the_peers_fault(data: bytes) -> None:
    with pytest.raises(RemoteProtocolError) as caught:
        decode_envelope(data)
    assert len(caught.value.frame) <= 500


@pytest.mark.parametrize(
    ("snake", "wire"), [("a", "a"), ("run_id", "runId"), ("a_b_c", "aBC")]
)
def test_camel_spells_as_the_wire_does(snake: str, wire: str) -> None:
    assert camel(snake) == wire
