"""Which turn an event belongs to, and what it means: the pure part of Codex."""

from __future__ import annotations

import json
from typing import Any

import pytest
from tests.kit.fake_app_server import (
    THREAD,
    an_item,
    command,
    completed,
    note,
    recorded,
    said,
    started,
)

from agentteam_runtimes.codex.turns import Turns, client_id, keys_of
from agentteam_runtimes.driver import (
    Batch,
    ItemOutcome,
    Noticed,
    Output,
    RuntimeEvent,
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
from agentteam_runtimes.jsonrpc import Notification, Peer

T1 = TurnRef("T1")


class Played:
    """A thread's turns, fed with messages."""

    def __init__(self) -> None:
        self.turns = Turns(THREAD)
        self.events: list[RuntimeEvent] = []

    def feed(self, *messages: dict[str, Any]) -> None:
        for message in messages:
            event = Peer().receive(json.dumps(message).encode())
            assert isinstance(event, Notification)
            self.events += self.turns.receive(event)

    def begin(self, turn: str = "T1", key: str = "k1") -> None:
        self.turns.start(Batch(f"b-{key}", (an_item(key),)))
        fresh, events = self.turns.named(turn)
        assert fresh
        self.events += events
        self.feed(started(turn), recorded(turn, key))

    def of(self, kind: type[Any]) -> list[Any]:
        return [e for e in self.events if isinstance(e, kind)]


@pytest.fixture
def played() -> Played:
    return Played()


def test_client_id_of_a_batch_holds_the_keys_of_its_entries() -> None:
    items = (an_item("k1"), an_item("k2"))
    assert keys_of(client_id(items)) == ["k1", "k2"]
    assert client_id(items[:1]) == "k1"
    assert keys_of("") == []


def test_turn_begins_once_and_ends_once_with_its_answer(played: Played) -> None:
    played.begin()
    played.feed(
        note("item/agentMessage/delta", turnId="T1", delta="he"),
        said("T1", "hello"),
        note("thread/status/changed", status={"type": "idle"}),
        completed("T1"),
        completed("T1"),
    )
    assert played.of(TurnStarted) == [TurnStarted(T1, "b-k1")]
    assert played.of(Output) == [Output(T1, "he")]
    assert played.of(Said) == [Said(T1, "hello")]
    (ended,) = played.of(TurnEnded)
    assert (ended.turn, ended.status, ended.text) == (T1, TurnStatus.completed, "hello")
    assert played.turns.active is None


def test_session_is_named_with_its_first_recorded_input(played: Played) -> None:
    played.turns.start(Batch("b", (an_item("k1"),)))
    played.events += played.turns.named("T1")[1]
    played.feed(started("T1"))
    assert played.of(SessionNamed) == []
    played.feed(recorded("T1", "k1"), completed("T1"))
    played.begin("T2", "k2")
    assert played.of(SessionNamed) == [SessionNamed(THREAD)]


@pytest.mark.bug("B25")
def test_events_that_come_before_the_answer_wait_for_the_name(played: Played) -> None:
    played.turns.start(Batch("b", (an_item("k1"),)))
    played.feed(started("T1"), recorded("T1", "k1"), said("T1", "hi"), completed("T1"))
    assert played.events == []
    fresh, events = played.turns.named("T1")
    assert fresh
    kinds = [type(e) for e in events]
    assert kinds == [TurnStarted, SessionNamed, Surfaced, Said, TurnEnded]


@pytest.mark.bug("B16")
def test_start_that_names_a_known_turn_started_no_new_one(played: Played) -> None:
    played.begin()
    played.feed(completed("T1", "interrupted"))
    played.turns.start(Batch("b2", (an_item("k2"),)))
    fresh, _ = played.turns.named("T1")
    assert not fresh
    # If the text shows up in the old turn, that is where it is.
    played.feed(recorded("T1", "k2"))
    assert [(e.turn, e.key) for e in played.of(Surfaced)] == [(T1, "k1"), (T1, "k2")]


def test_only_the_completed_item_with_our_id_is_evidence(played: Played) -> None:
    played.turns.start(Batch("b", (an_item("k1"),)))
    played.turns.named("T1")
    item = {"type": "userMessage", "id": "u", "clientId": "k1"}
    played.feed(
        started("T1"),
        note("item/started", turnId="T1", item=item),
        note("thread/tokenUsage/updated", turnId="T1", tokenUsage={}),
        recorded("T1", "of somebody else"),
        note("item/completed", turnId="T1", item={"type": "userMessage", "id": "u"}),
    )
    assert played.of(Surfaced) == []
    played.feed(recorded("T1", "k1"), recorded("T1", "k1"))
    assert [e.key for e in played.of(Surfaced)] == ["k1"]


def test_end_names_what_was_accepted_and_never_shown(played: Played) -> None:
    played.begin()
    for key in ("k2", "k3", "k4"):
        played.turns.steer("T1", an_item(key))
    assert played.turns.steered("k2")
    assert played.turns.steered("k3")
    played.feed(recorded("T1", "k2"), completed("T1", "interrupted"))
    (ended,) = played.of(TurnEnded)
    # k4 is still on its way: its own answer will tell.
    assert ended.items == {an_item("k3").id: ItemOutcome.dropped}
    assert not played.turns.steered("k4")


def test_evidence_after_the_end_is_still_passed_on(played: Played) -> None:
    played.begin()
    played.turns.steer("T1", an_item("k2"))
    played.turns.steered("k2")
    played.feed(completed("T1", "interrupted"), recorded("T1", "k2"))
    assert [e.key for e in played.of(Surfaced)] == ["k1", "k2"]


@pytest.mark.bug("B19")
def test_end_of_a_sub_agent_is_not_the_end_of_the_turn(played: Played) -> None:
    played.begin()
    played.feed(
        started("T2", "thread-k", root="T1"),
        command("T2", "call_1", "thread-k"),
        said("T2", "the child is done", "thread-k"),
        completed("T2", thread="thread-k"),
        said("T1", "the final answer"),
    )
    assert played.of(TurnEnded) == []
    assert played.turns.active == "T1"
    played.feed(completed("T1"))
    (ended,) = played.of(TurnEnded)
    assert (ended.turn, ended.text) == (T1, "the final answer")
    assert [e.turn for e in played.of(TurnStarted)] == [T1]


@pytest.mark.bug("B19")
@pytest.mark.req("R36")
def test_tools_of_sub_agents_belong_to_the_turn_at_their_root(played: Played) -> None:
    played.begin()
    played.feed(
        started("T2", "thread-k", root="T1"),
        started("T3", "thread-g", root="T2"),
        command("T1", "call_1"),
        command("T3", "call_1", "thread-g"),
        completed("T1", "interrupted"),
        command("T3", "call_1", "thread-g", status="completed"),
    )
    own, childs = played.of(ToolStarted)
    assert (own.turn, childs.turn) == (T1, T1)
    assert own.call_id != childs.call_id
    (late,) = played.of(ToolEnded)
    assert (late.turn, late.call_id) == (T1, childs.call_id)
    assert played.turns.children.running("T1") == [
        ("thread-k", "T2"),
        ("thread-g", "T3"),
    ]


@pytest.mark.bug("B19")
@pytest.mark.parametrize("thread", [THREAD, None, "thread-x"])
def test_end_of_an_unknown_turn_changes_nothing(
    played: Played, thread: str | None
) -> None:
    played.begin()
    before = len(played.events)
    played.feed(completed("T0", thread=thread))
    assert played.turns.active == "T1"
    assert played.of(TurnEnded) == []
    assert all(isinstance(e, Noticed) for e in played.events[before:])


@pytest.mark.bug("B19")
def test_event_without_a_thread_goes_by_the_turn_it_names(played: Played) -> None:
    played.begin()
    played.feed(note("item/agentMessage/delta", None, turnId="T1", delta="x"))
    played.feed(note("item/agentMessage/delta", None, turnId="T9", delta="y"))
    played.feed(note("item/agentMessage/delta", None, delta="z"))
    assert played.of(Output) == [Output(T1, "x")]


@pytest.mark.bug("B28")
@pytest.mark.req("R36")
def test_late_output_of_the_old_turn_bears_the_old_turn(played: Played) -> None:
    played.begin()
    played.feed(command("T1", "call_1"), completed("T1", "interrupted"))
    played.begin("T2", "k2")
    played.feed(
        note("item/agentMessage/delta", turnId="T1", delta="late"),
        command("T1", "call_1", status="completed", aggregatedOutput="late"),
        completed("T1", "interrupted"),
    )
    assert [e.turn for e in played.of(Output)] == [T1]
    assert [e.turn for e in played.of(ToolEnded)] == [T1]
    assert played.turns.active == "T2"
    assert [e.turn for e in played.of(TurnEnded)] == [T1]


@pytest.mark.bug("B24")
def test_turn_that_nobody_asked_for_is_noticed_and_known(played: Played) -> None:
    played.feed(started("T7"), said("T7", "by the way"), completed("T7"))
    assert isinstance(played.events[0], Noticed)
    assert played.of(TurnStarted) == []
    assert [e.turn for e in played.of(Said)] == [TurnRef("T7")]


def test_tokens_of_a_turn_are_what_it_added(played: Played) -> None:
    def usage(turn: str, total: int, last: int) -> dict[str, Any]:
        counts = {"total": {"totalTokens": total}, "last": {"totalTokens": last}}
        return note("thread/tokenUsage/updated", turnId=turn, tokenUsage=counts)

    played.begin()
    played.feed(usage("T1", 115, 15), usage("T1", 130, 15), completed("T1"))
    played.begin("T2", "k2")
    # Codex repeats the last counts when it is interrupted.
    played.feed(usage("T2", 130, 15), completed("T2", "interrupted"))
    first, second = played.of(TurnEnded)
    assert first.usage == {"totalTokens": 30}
    assert second.usage == {"totalTokens": 0}


def test_answer_is_the_last_message_that_is_no_commentary(played: Played) -> None:
    played.begin()
    played.feed(
        said("T1", "I look around", phase="commentary"),
        said("T1", "It is blue", phase="final_answer"),
        said("T1", "Tidying up", phase="commentary"),
        completed("T1"),
    )
    assert played.of(TurnEnded)[0].text == "It is blue"
    assert len(played.of(Said)) == 3


@pytest.mark.parametrize(
    ("status", "exit_code", "error"),
    [
        ("completed", 0, None),
        ("completed", 3, "completed, exit code 3"),
        ("failed", -1, "failed, exit code -1"),
        ("declined", None, "declined"),
    ],
)
def test_tool_ends_with_its_error(
    played: Played, status: str, exit_code: int | None, error: str | None
) -> None:
    played.begin()
    played.feed(command("T1", "c", status=status, exitCode=exit_code))
    assert played.of(ToolEnded) == [ToolEnded(T1, "c", "", error)]


@pytest.mark.bug("B15")
@pytest.mark.parametrize(
    "params",
    [
        {},
        {"threadId": THREAD},
        {"threadId": 7, "turnId": []},
        {"threadId": THREAD, "turnId": "T1"},
        {"threadId": THREAD, "turnId": "T1", "item": "no object"},
        {"threadId": THREAD, "turnId": "T1", "item": {"type": "userMessage"}},
        {"threadId": THREAD, "turnId": "T1", "item": {"type": "commandExecution"}},
        {"threadId": THREAD, "turn": {"id": None}},
        {"threadId": THREAD, "turnId": "T1", "tokenUsage": [1]},
    ],
)
def test_nothing_codex_sends_raises(played: Played, params: dict[str, Any]) -> None:
    played.begin()
    for method in (
        "turn/started",
        "turn/completed",
        "item/started",
        "item/completed",
        "item/agentMessage/delta",
        "thread/tokenUsage/updated",
        "error",
        "never/heard/of",
    ):
        played.feed({"method": method, "params": params})
