"""What Claude's lines mean for our turns, both ways of telling: no process is needed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from agentteam_protocol.ids import ItemId
from agentteam_runtimes.claude.turns import NAMED, REPEATED, Turns
from agentteam_runtimes.driver import (
    Batch,
    InputItem,
    ItemOutcome,
    Noticed,
    Output,
    Said,
    SessionNamed,
    Surfaced,
    ToolEnded,
    ToolStarted,
    TurnEnded,
    TurnRef,
    TurnStarted,
    TurnStatus,
)

if TYPE_CHECKING:
    from agentteam_runtimes.driver import RuntimeEvent

CAPABILITIES = [
    "request_marker_lists_v1",
    "msg_lifecycle_v1",
    "interrupt_cancel_queued_v1",
]
BEGIN = {"type": "stream_event", "event": {"type": "message_start"}}


def item(name: str) -> InputItem:
    return InputItem(ItemId(name), f"{name}.1", name)


def init(*, newer: bool) -> dict[str, Any]:
    said = {"capabilities": CAPABILITIES} if newer else {}
    return {"type": "system", "subtype": "init", **said}


def lifecycle(uuid: str, state: str) -> dict[str, Any]:
    return {"type": "command_lifecycle", "command_uuid": uuid, "state": state}


def requesting(*uuids: str) -> dict[str, Any]:
    named = {"user_message_uuids": list(uuids)} if uuids else {}
    return {"type": "system", "subtype": "status", "status": "requesting", **named}


def echo(uuid: str) -> dict[str, Any]:
    return {"type": "user", "uuid": uuid, "isReplay": True, "message": {}}


def says(text: str, **more: Any) -> dict[str, Any]:
    content = [{"type": "text", "text": text}]
    return {"type": "assistant", "message": {"content": content, **more}}


def uses(call: str, parent: str | None = None) -> dict[str, Any]:
    part = {"type": "tool_use", "id": call, "name": "Bash", "input": {"command": "ls"}}
    message = {"content": [part]}
    return {"type": "assistant", "message": message, "parent_tool_use_id": parent}


def result(**fields: Any) -> dict[str, Any]:
    return {"type": "result", "subtype": "success", "is_error": False, **fields}


ABORTED = result(is_error=True, terminal_reason="aborted_streaming")


class Talk:
    """One session: what is sent, what comes, what it means."""

    def __init__(self, *, newer: bool = True, named: bool = True) -> None:
        self.turns = Turns("session", named=named)
        if newer:
            self.turns.greeted("2.1.332")
        self.newer = newer
        self.seen: list[RuntimeEvent] = []

    def start(self, *items: InputItem) -> TurnRef:
        turn, self.uuid = self.turns.start(Batch("batch", items))
        return TurnRef(turn)

    def hear(self, *lines: dict[str, Any]) -> list[RuntimeEvent]:
        heard = [event for line in lines for event in self.turns.receive(line)]
        self.seen += heard
        return heard

    def begin(self, uuid: str) -> None:
        """Let the round of an input begin, up to the model's first word."""
        if self.newer:
            self.hear(lifecycle(uuid, "queued"), lifecycle(uuid, "started"))
            self.hear(init(newer=True), requesting(uuid), echo(uuid), BEGIN)
        else:
            self.hear(init(newer=False), requesting(), BEGIN, echo(uuid))

    def surfaced(self) -> list[str]:
        return [e.key for e in self.seen if isinstance(e, Surfaced)]


@pytest.mark.inv(12)
@pytest.mark.parametrize("newer", [True, False])
def test_an_input_surfaces_with_the_first_word_of_its_answer(newer: bool) -> None:
    talk = Talk(newer=newer, named=False)
    turn = talk.start(item("a"), item("b"))
    talk.begin(talk.uuid)
    (started, *_) = talk.seen
    assert started == TurnStarted(turn, "batch")
    assert talk.surfaced() == ["a.1", "b.1"]
    kinds = {e.evidence.kind for e in talk.seen if isinstance(e, Surfaced)}
    assert kinds == {NAMED if newer else REPEATED}
    assert SessionNamed("session") in talk.seen
    (ended,) = talk.hear(result(result="well", usage={"output_tokens": 5, "x": True}))
    assert ended == TurnEnded(
        turn, TurnStatus.completed, text="well", usage={"output_tokens": 5}
    )
    assert talk.turns.idle


@pytest.mark.inv(12)
@pytest.mark.parametrize("newer", [True, False])
@pytest.mark.parametrize("seen", [1, 2, 3, 4, 5])
def test_no_sign_before_the_answer_is_evidence_and_what_was_taken_is_carried(
    newer: bool, seen: int
) -> None:
    talk = Talk(newer=newer)
    talk.start(item("a"))
    signs = [
        lifecycle("a.1", "queued"),
        lifecycle("a.1", "started"),
        init(newer=newer),
        requesting(*(["a.1"] if newer else [])),
        echo("a.1"),
    ]
    talk.hear(*(s for s in signs[:seen] if newer or s["type"] != "command_lifecycle"))
    assert talk.surfaced() == []
    if seen < 3:
        return
    # The abort repeats the input as well, and names it in the result.
    ended = talk.hear(echo("a.1"), ABORTED)[-1]
    assert isinstance(ended, TurnEnded)
    assert (ended.status, ended.items) == (
        TurnStatus.interrupted,
        {ItemId("a"): ItemOutcome.carried},
    )
    later = talk.start(item("b"))
    talk.begin("b.1")
    assert talk.surfaced() == ["a.1", "b.1"]
    assert {e.turn for e in talk.seen if isinstance(e, Surfaced)} == {later}


def test_what_never_was_taken_is_dropped_and_no_result_is_waited_for() -> None:
    talk = Talk()
    turn = talk.start(item("a"))
    talk.turns.cut(turn.id)
    talk.hear(lifecycle("a.1", "queued"))
    ended = talk.turns.withdrawn(["a.1"])
    assert ended == [
        TurnStarted(turn, "batch"),
        TurnEnded(
            turn, TurnStatus.interrupted, items={ItemId("a"): ItemOutcome.dropped}
        ),
    ]
    assert talk.hear(lifecycle("a.1", "cancelled")) == []


def test_a_withdrawn_steer_leaves_the_turn_to_its_result() -> None:
    talk = Talk()
    turn = talk.start(item("a"))
    talk.begin("a.1")
    talk.turns.steer(turn.id, item("s"))
    talk.turns.cut(turn.id)
    assert talk.hear(lifecycle("s.1", "cancelled")) == []
    (ended,) = talk.hear(ABORTED)
    assert isinstance(ended, TurnEnded)
    assert ended.items == {"s": ItemOutcome.dropped}
    assert talk.hear(lifecycle("a.1", "cancelled")) == []


@pytest.mark.parametrize("newer", [True, False])
def test_a_steer_that_was_too_late_for_its_round_goes_on_with_the_turn(
    newer: bool,
) -> None:
    talk = Talk(newer=newer)
    turn = talk.start(item("a"))
    talk.begin("a.1")
    talk.hear(says("one"))
    talk.turns.steer(turn.id, item("s"))
    # An older version joins what waits and forgets the ids: one at a time.
    assert talk.turns.takes_steers(turn.id) is newer
    assert talk.hear(result(result="one", usage={"n": 1})) == []
    talk.begin("s.1")
    (ended,) = talk.hear(result(result="two", usage={"n": 2}))
    assert isinstance(ended, TurnEnded)
    assert (ended.text, ended.usage, ended.items) == ("two", {"n": 3}, {})
    assert talk.surfaced() == ["a.1", "s.1"]


@pytest.mark.parametrize("newer", [True, False])
def test_a_steer_in_mid_turn_needs_an_answer_that_follows_it(newer: bool) -> None:
    talk = Talk(newer=newer)
    turn = talk.start(item("a"))
    talk.begin("a.1")
    talk.hear(uses("call"))
    talk.turns.steer(turn.id, item("s"))
    talk.hear(echo("s.1"), requesting(*(["a.1", "s.1"] if newer else [])))
    assert talk.surfaced() == ["a.1"]
    talk.hear(BEGIN)
    assert talk.surfaced() == ["a.1", "s.1"]


@pytest.mark.bug("B19")
def test_a_round_that_nobody_asked_for_belongs_to_no_turn() -> None:
    talk = Talk()
    (noticed, *heard) = talk.hear(init(newer=True), BEGIN, says("by myself"))
    assert isinstance(noticed, Noticed)
    assert heard == [Said(None, "by myself")]
    assert not talk.turns.idle
    assert talk.hear(result()) == []
    # An older one tells only at the end whose round it was.
    talk = Talk(newer=False)
    turn = talk.start(item("a"))
    assert talk.hear(init(newer=False), BEGIN, says("by myself"), result())[-1:] != []
    assert not talk.turns.has_ended(turn.id)
    assert talk.turns.waiting(turn.id) == ["a.1"]


def test_calls_of_sub_agents_belong_to_the_turn_that_made_them() -> None:
    talk = Talk()
    first = talk.start(item("a"))
    talk.begin("a.1")
    talk.hear(uses("agent"), result())
    second = talk.start(item("b"))
    talk.begin("b.1")
    (child,) = talk.hear(uses("child", parent="agent"))
    assert isinstance(child, ToolStarted)
    assert child.turn == first
    done: dict[str, Any] = {"type": "tool_result", "tool_use_id": "child"}
    done |= {"content": "x\ny", "is_error": True}
    (ended,) = talk.hear({"type": "user", "message": {"content": [done]}})
    assert ended == ToolEnded(first, "child", "x\ny", "x")
    words = {"type": "content_block_delta", "delta": {"text": "hm"}}
    of_child = {"type": "stream_event", "event": words, "parent_tool_use_id": "agent"}
    assert talk.hear(of_child) == []
    assert talk.hear({"type": "stream_event", "event": words}) == [Output(second, "hm")]


@pytest.mark.parametrize(
    ("line", "status", "detail"),
    [
        (result(is_error=True, result="API Error"), TurnStatus.failed, "API Error"),
        (
            result(subtype="error_max_turns", errors=["a", "b"]),
            TurnStatus.failed,
            "a; b",
        ),
        (result(stop_reason="max_tokens"), TurnStatus.max_tokens, ""),
        (ABORTED, TurnStatus.interrupted, ""),
        ({"type": "result", "errors": 3}, TurnStatus.failed, ""),
    ],
)
def test_a_result_says_how_the_turn_ended(
    line: dict[str, Any], status: TurnStatus, detail: str
) -> None:
    talk = Talk()
    talk.start(item("a"))
    talk.begin("a.1")
    talk.hear(says("API Error", model="<synthetic>"))
    ended = talk.hear(line)[-1]
    assert isinstance(ended, TurnEnded)
    assert (ended.status, ended.detail) == (status, detail)
    assert not [e for e in talk.seen if isinstance(e, Said)]


@pytest.mark.parametrize(
    "line",
    [
        {},
        {"type": 7},
        {"type": "user", "message": {"content": [{"type": "tool_result"}]}},
        {"type": "assistant", "message": []},
        {"type": "stream_event", "event": "x"},
        {"type": "system", "subtype": "status", "user_message_uuids": [1, None]},
        {"type": "command_lifecycle", "state": "started"},
        {"type": "user", "isReplay": True},
    ],
)
def test_a_line_that_makes_no_sense_changes_nothing(line: dict[str, Any]) -> None:
    talk = Talk()
    turn = talk.start(item("a"))
    talk.begin("a.1")
    assert not [e for e in talk.hear(line) if not isinstance(e, ToolEnded)]
    assert isinstance(talk.hear(result())[-1], TurnEnded)
    assert talk.turns.has_ended(turn.id)
