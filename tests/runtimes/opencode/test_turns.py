"""What the messages of a session mean, in whatever order and however often told."""

from __future__ import annotations

from typing import Any

import pytest

from agentteam_protocol.ids import ItemId
from agentteam_runtimes.driver import (
    Batch,
    InputItem,
    ItemOutcome,
    Output,
    RuntimeEvent,
    Said,
    Surfaced,
    ToolEnded,
    ToolStarted,
    TurnEnded,
    TurnRef,
    TurnStarted,
    TurnStatus,
)
from agentteam_runtimes.opencode import wire
from agentteam_runtimes.opencode.turns import Turns

SESSION = "ses_1"
ASK, STEER, LATER = "msg_10", "msg_30", "msg_50"
FIRST, SECOND, THIRD = "msg_20", "msg_40", "msg_60"


def item(name: str) -> InputItem:
    return InputItem(ItemId(name), f"{name}.1", name)


def user(id: str) -> dict[str, Any]:
    return {"id": id, "sessionID": SESSION, "role": "user"}


def answer(id: str, parent: str, **told: Any) -> dict[str, Any]:
    """Tell an assistant message; `error`, `finish` or neither."""
    done = {"time": {"completed": 5}} if told else {}
    told = {"sessionID": SESSION, "role": "assistant", "parentID": parent, **told}
    return {"id": id, **told, **done}


def part(message: str, kind: str, id: str = "prt_1", **told: Any) -> dict[str, Any]:
    return {"id": id, "sessionID": SESSION, "messageID": message, "type": kind, **told}


def running(*names: str) -> tuple[Turns, list[RuntimeEvent]]:
    """Have one turn whose prompt was accepted."""
    turns = Turns(SESSION)
    turns.start(ASK, Batch("bat", tuple(item(n) for n in names or ("ask",))))
    return turns, turns.accepted(ASK)


def only(events: list[RuntimeEvent], kind: type[TurnEnded]) -> TurnEnded:
    (event,) = events
    assert isinstance(event, kind)
    return event


def test_a_turn_is_announced_once_by_whichever_sign_comes_first() -> None:
    turns, told = running()
    assert told == [TurnStarted(TurnRef(ASK), "bat")]
    assert turns.message(user(ASK)) == []


@pytest.mark.req("R44", "R45")
def test_only_the_first_step_of_an_answer_surfaces_and_once() -> None:
    turns, _ = running("one", "two")
    assert turns.message(answer(FIRST, ASK)) == []
    surfaced = turns.part(part(FIRST, "step-start"))
    assert [(e.item, e.key) for e in surfaced if isinstance(e, Surfaced)] == [
        ("one", "one.1"),
        ("two", "two.1"),
    ]
    assert turns.part(part(FIRST, "step-start")) == []


@pytest.mark.req("R45")
def test_what_was_folded_into_the_request_of_a_later_message_surfaces_with_it() -> None:
    turns, _ = running()
    turns.message(answer(FIRST, ASK))
    turns.part(part(FIRST, "step-start"))
    turns.steer(ASK, STEER, item("steer"))
    turns.accepted(STEER)
    turns.steer(ASK, LATER, item("later"))
    turns.accepted(LATER)
    assert turns.waits(ASK)
    turns.message(answer(SECOND, STEER))
    told = turns.part(part(SECOND, "step-start"))
    assert [e.item for e in told if isinstance(e, Surfaced)] == ["steer"]
    turns.message(answer(THIRD, LATER))
    told = turns.part(part(THIRD, "step-start"))
    assert [(e.item, e.turn) for e in told if isinstance(e, Surfaced)] == [
        ("later", TurnRef(ASK))
    ]
    assert not turns.waits(ASK)


@pytest.mark.req("R44")
def test_a_cut_turn_leaves_its_unanswered_prompt_with_opencode() -> None:
    turns, _ = running()
    turns.cut(ASK)
    turns.message(answer(FIRST, ASK, error={"name": wire.ABORTED}))
    ended = only(turns.end(ASK), TurnEnded)
    assert (ended.status, ended.items) == (
        TurnStatus.interrupted,
        {ItemId("ask"): ItemOutcome.carried},
    )
    turns.start(LATER, Batch("next", (item("later"),)))
    turns.accepted(LATER)
    turns.message(answer(THIRD, LATER))
    told = turns.part(part(THIRD, "step-start"))
    assert [(e.item, e.key) for e in told if isinstance(e, Surfaced)] == [
        ("ask", "ask.1"),
        ("later", "later.1"),
    ]
    assert {e.turn for e in told if isinstance(e, Surfaced)} == {TurnRef(LATER)}


@pytest.mark.req("R44")
def test_what_was_taken_back_may_be_sent_again_and_never_surfaces() -> None:
    turns, _ = running()
    turns.steer(ASK, STEER, item("steer"))
    turns.accepted(STEER)
    turns.message(answer(FIRST, ASK, error={"name": "APIError"}))
    # The prompt of a turn that fails by itself stays where it is.
    assert turns.to_withdraw(ASK) == [STEER]
    turns.cut(ASK)
    assert turns.to_withdraw(ASK) == [ASK, STEER]
    assert turns.unstarted(ASK) == [FIRST]
    turns.withdrawn(STEER)
    ended = only(turns.end(ASK), TurnEnded)
    assert ended.items == {
        ItemId("ask"): ItemOutcome.carried,
        ItemId("steer"): ItemOutcome.dropped,
    }
    turns.message(answer(THIRD, LATER))
    turns.start(LATER, Batch("next", (item("later"),)))
    told = turns.part(part(THIRD, "step-start"))
    assert [e.item for e in told if isinstance(e, Surfaced)] == ["ask", "later"]


@pytest.mark.bug("B02", "B19")
def test_what_comes_late_bears_the_turn_it_belongs_to() -> None:
    turns, _ = running()
    turns.message(answer(FIRST, ASK))
    turns.part(part(FIRST, "text", "prt_9", text=""))
    turns.cut(ASK)
    turns.end(ASK)
    turns.start(LATER, Batch("next", (item("later"),)))
    piece = {"messageID": FIRST, "partID": "prt_9", "field": "text", "delta": "late"}
    assert turns.delta(piece) == [Output(TurnRef(ASK), "late")]
    closed = part(FIRST, "text", "prt_9", text="late", time={"start": 1, "end": 2})
    assert turns.part(closed) == [Said(TurnRef(ASK), "late")]
    assert turns.active == LATER


def test_what_was_told_of_a_part_is_not_told_again() -> None:
    turns, _ = running()
    turns.message(answer(FIRST, ASK))
    call = part(FIRST, "tool", "prt_2", tool="bash", callID="c1")
    begun = call | {"state": {"status": "running", "input": {"command": "ls"}}}
    ended = call | {"state": {"status": "completed", "output": "x"}}
    (started,) = turns.part(begun)
    assert isinstance(started, ToolStarted)
    assert turns.part(begun) == []
    assert [type(e) for e in turns.part(ended)] == [ToolEnded]
    assert turns.part(begun) == turns.part(ended) == []
    final = part(FIRST, "text", "prt_3", text="said", time={"end": 1})
    assert turns.part(final) == [Said(TurnRef(ASK), "said")]
    assert turns.part(final) == []
    missed = part(FIRST, "tool", "prt_4", tool="bash", callID="c2")
    missed |= {"state": {"status": "error", "error": "no"}}
    assert [type(e) for e in turns.part(missed)] == [ToolStarted, ToolEnded]


@pytest.mark.bug("B19")
def test_nobody_elses_events_count() -> None:
    turns, _ = running()
    foreign = answer("msg_21", "msg_5") | {"sessionID": "ses_2"}
    assert turns.message(foreign) == []
    assert turns.part(part("msg_21", "step-start")) == []
    turns.message(answer("msg_22", "msg_5"))
    assert turns.part(part("msg_22", "step-start")) == []
    assert turns.part({"type": 7}) == turns.message({"id": []}) == []


def test_a_sub_agents_call_belongs_to_the_turn_whose_task_it_works_for() -> None:
    turns, _ = running()
    turns.message(answer(FIRST, ASK))
    state = {"status": "running", "metadata": {"sessionId": "ses_child"}}
    turns.part(part(FIRST, "tool", "prt_2", tool="task", callID="c1", state=state))
    call = part("msg_99", "tool", "prt_8", tool="bash", callID="c1")
    call |= {"sessionID": "ses_child", "state": {"status": "running"}}
    (started,) = turns.part(call)
    assert isinstance(started, ToolStarted)
    assert (started.turn, started.call_id) == (TurnRef(ASK), "ses_child/c1")
    assert turns.root("ses_child", "msg_99") == TurnRef(ASK)
    assert turns.root("ses_stranger", "msg_99") is None


def test_what_opencode_writes_itself_belongs_to_the_running_turn() -> None:
    turns, _ = running()
    turns.message(user("msg_05"))  # older: a summary of it was changed
    turns.message(user("msg_25"))
    turns.message(answer(SECOND, "msg_25"))
    told = turns.part(part(SECOND, "text", text="on", time={"end": 1}))
    assert told == [Said(TurnRef(ASK), "on")]
    turns.message(answer(THIRD, "msg_05"))
    assert turns.part(part(THIRD, "text", "prt_7", text="?", time={"end": 1})) == [
        Said(None, "?")
    ]


ENDS: dict[str, tuple[dict[str, Any], bool, TurnStatus, str]] = {
    "stop": ({"finish": "stop"}, False, TurnStatus.completed, ""),
    "stop, although cut": ({"finish": "stop"}, True, TurnStatus.completed, ""),
    "a rejected call": ({"finish": "tool-calls"}, False, TurnStatus.completed, ""),
    "a cut call": ({"finish": "tool-calls"}, True, TurnStatus.interrupted, ""),
    "too long": ({"finish": "length"}, False, TurnStatus.max_tokens, ""),
    "an error": (
        {"error": {"name": "APIError", "data": {"message": "no key"}}},
        False,
        TurnStatus.failed,
        "no key",
    ),
    "a cut back-off": ({"finish": ""}, True, TurnStatus.interrupted, ""),
}


@pytest.mark.parametrize("end", ENDS)
def test_how_a_turn_ended_is_read_from_its_last_message(end: str) -> None:
    told, cut, status, detail = ENDS[end]
    turns, _ = running()
    if cut:
        turns.cut(ASK)
    turns.message(answer(FIRST, ASK, finish="tool-calls"))
    turns.message(answer(SECOND, ASK, **told))
    ended = only(turns.end(ASK), TurnEnded)
    assert (ended.status, ended.detail) == (status, detail)
    assert turns.end(ASK) == []


def test_a_prompt_that_was_never_answered_fails_with_what_the_session_said() -> None:
    turns, _ = running()
    turns.failed("no such model")
    ended = only(turns.end(ASK), TurnEnded)
    assert (ended.status, ended.detail) == (TurnStatus.failed, "no such model")


def test_the_last_words_and_all_tokens_of_the_turn_are_told() -> None:
    turns, _ = running()
    tokens = {"input": 3, "output": 2, "cache": {"read": 1}}
    for id, said in ((FIRST, "thinking"), (SECOND, "done")):
        turns.message(answer(id, ASK, finish="stop", tokens=tokens))
        turns.part(part(id, "text", f"prt_{id}", text=said, time={"end": 1}))
    ended = only(turns.end(ASK), TurnEnded)
    assert ended.text == "done"
    assert ended.usage == {"input": 6, "output": 4, "cached": 2}


def test_ids_sort_in_the_order_they_were_made_and_name_their_keys() -> None:
    ids = [wire.message_id() for _ in range(500)]
    assert ids == sorted(set(ids))
    assert wire.key_of(wire.part_id("dlv_12.3")) == "dlv_12.3"
    assert wire.key_of("prt_22f0301b2001LmODGTdROcGkEZ") == ""
