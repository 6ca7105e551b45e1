"""The checker finds every fault that is planted, and nothing where all is well."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from attrs import evolve

from agentteam_supervisor.chaos.checker import count, judge, stop_bound
from agentteam_supervisor.chaos.observations import (
    Accepted,
    Observations,
    Read,
    Shown,
    Sighting,
    Stop,
    Told,
    ToolShowed,
)
from agentteam_supervisor.chaos.records import read_tools

if TYPE_CHECKING:
    from pathlib import Path

AGENT = {"name": "a0", "status": "idle", "parked": False, "problem": None}


def view(state: str, *notes: str, **more: Any) -> dict[str, Any]:
    history = [{"state": "queued", "at": "1"}, {"state": state, "at": "3"}]
    history += [{"state": state, "at": "3", "note": note} for note in notes]
    return {
        "state": state,
        "evidence": {"kind": "recorded"},
        "diagnostic": None,
        "history": history,
        **more,
    }


def message(number: int, author: str, at: str) -> dict[str, Any]:
    kind = "agent" if author == "a0" else "user"
    return {
        "id": f"m{number}",
        "target": "@a0",
        "targetSeq": number,
        "author": {"kind": kind, "name": author},
        "createdAt": at,
    }


def line(kind: str, delivery: str = "d2") -> dict[str, Any]:
    return {"kind": kind, "deliveryId": delivery}


LINES = ("requested", "stopping", "interrupted", "started")
WELL = Observations(
    accepted=(Accepted("d1", "m1", "a"), Accepted("d2", "m2", "a", urgent=True)),
    deliveries={"d1": view("surfaced"), "d2": view("surfaced")},
    agents={"a": AGENT},
    messages=(message(1, "user", "1"), message(2, "user", "2"), message(3, "a0", "4")),
    activity=tuple(line(kind) for kind in LINES),
    reads=(Read("a", "d1", 1), Read("a", "d2", 1)),
    shown=(
        Shown("a", "progress", "r1", (1, 0), "working"),
        Shown("a", "stopping", "r1", (1, 0)),
        Shown("a", "run_ended", "r1", (1, 0)),
        Shown("a", "progress", "r2", (1, 1), "the new request"),
    ),
    stops=(Stop("a", "r1", ended=True, seconds=0.1),),
)


def planted(**changes: Any) -> dict[str, int]:
    return dict(count(judge(evolve(WELL, **changes))))


def first_is(found: dict[str, Any], **changes: Any) -> dict[str, int]:
    deliveries = {**WELL.deliveries, "d1": found}
    return planted(deliveries=deliveries, **changes)


def test_nothing_is_found_where_all_is_well() -> None:
    assert judge(WELL) == []


@pytest.mark.req("R118")
def test_a_delivery_that_is_nowhere_is_lost() -> None:
    assert planted(deliveries={"d2": view("surfaced")})["lost"] == 1


@pytest.mark.parametrize("state", ["queued", "accepted"])
def test_a_delivery_that_waits_for_nothing_is_lost(state: str) -> None:
    assert first_is(view(state), reads=WELL.reads[1:])["lost"] == 1


@pytest.mark.parametrize(
    "reason", [{"parked": True}, {"problem": {"problem": "no"}}, {"status": "running"}]
)
def test_a_delivery_that_waits_for_a_reason_is_not_lost(reason: dict[str, Any]) -> None:
    found = first_is(
        view("queued"), reads=WELL.reads[1:], agents={"a": {**AGENT, **reason}}
    )
    assert "lost" not in found


@pytest.mark.parametrize("state", ["failed", "blocked", "cancelled"])
@pytest.mark.inv(21)
def test_an_end_that_nobody_explains_is_found(state: str) -> None:
    assert first_is(view(state), reads=WELL.reads[1:])["silent"] == 1
    told = view(state, diagnostic={"problem": "p", "whatToDo": "w"})
    assert "silent" not in first_is(told, reads=WELL.reads[1:])


@pytest.mark.inv(13)
def test_a_delivery_read_twice_is_found_unless_its_history_says_so() -> None:
    reads = (*WELL.reads, Read("a", "d1", 2))
    assert planted(reads=reads) == {"doubled": 1}
    said = view(
        "surfaced", "an earlier attempt reached it: it may have been seen twice"
    )
    assert first_is(said, reads=reads) == {}


@pytest.mark.inv(9, 13)
@pytest.mark.parametrize(
    ("told", "state", "found"),
    [
        (Told(1, 1), "surfaced", {}),
        (Told(1, 0), "surfaced", {}),  # the runtime has summed up what was before
        (Told(0, 0), "surfaced", {"claimed": 1}),
        (Told(2, 2), "surfaced", {"doubled": 1}),
        (Told(1, 1), "failed", {"denied": 1}),
        (Told(1, 1), "unknown", {}),
        (Told(1, 0), "failed", {}),  # of a request that the runtime has not kept
        (Told(0, 0), "failed", {}),
    ],
)
def test_what_a_model_was_told_is_held_against_what_is_said_of_it(
    told: Told, state: str, found: dict[str, int]
) -> None:
    why = {"problem": "p", "whatToDo": "w"}
    blind = evolve(WELL, blind=frozenset({"a"}), told={"m1": told})
    deliveries = {**WELL.deliveries, "d1": view(state, diagnostic=why)}
    seen = judge(evolve(blind, deliveries=deliveries, messages=()))
    assert dict(count(seen)) == found


@pytest.mark.bug("B36")
def test_one_attempt_read_twice_is_found() -> None:
    assert planted(reads=(*WELL.reads, Read("a", "d1", 1))) == {"doubled": 1}


@pytest.mark.inv(9)
def test_a_claim_without_a_record_is_found() -> None:
    assert planted(reads=WELL.reads[1:]) == {"claimed": 1}
    shown = view("surfaced", evidence={"kind": "read_history"})
    assert first_is(shown, reads=WELL.reads[1:]) == {}


@pytest.mark.parametrize("state", ["failed", "superseded", "queued"])
def test_a_record_that_the_state_denies_is_found(state: str) -> None:
    words = {"problem": "p", "whatToDo": "w"}
    assert first_is(view(state, diagnostic=words))["denied"] == 1


def test_unknown_is_found_where_the_record_can_tell_and_not_elsewhere() -> None:
    unknown = view("unknown", diagnostic={"problem": "p", "whatToDo": "w"})
    assert first_is(unknown)["guessed"] == 1
    assert "guessed" not in first_is(unknown, blind=frozenset({"a"}))


@pytest.mark.bug("B01")
def test_processes_that_live_on_are_found() -> None:
    there = (Sighting("after life 3", 7, "sleep 600"),)
    assert planted(outlived=there) == {"outlived": 1}
    assert planted(orphans=there) == {"orphan": 1}


@pytest.mark.inv(7, 8)
def test_output_after_the_stop_or_the_end_of_its_run_is_found() -> None:
    late = Shown("a", "progress", "r1", (1, 0), "too late")
    assert planted(shown=(*WELL.shown, late)) == {"late": 1}
    ended = (Shown("a", "run_ended", "r3", (1, 2)),)
    after = (Shown("a", "progress", "r3", (1, 2), "after its end"),)
    assert planted(shown=(*ended, *after)) == {"late": 1}
    other = Shown("b", "progress", "r1", (1, 0), "another agent's")
    assert planted(shown=(*WELL.shown, other)) == {}


def test_a_run_that_could_not_be_stopped_may_go_on() -> None:
    shown = (
        Shown("a", "stopping", "r1", (1, 0)),
        Shown("a", "failed", "r1", (1, 0)),
        Shown("a", "progress", "r1", (1, 0), "going on"),
    )
    assert planted(shown=shown) == {}


@pytest.mark.bug("B06")
@pytest.mark.inv(36)
def test_a_stop_that_does_not_settle_in_time_is_found() -> None:
    assert planted(stops=(Stop("a", "r1", ended=False),)) == {"unsettled": 1}
    slow = Stop("a", "r1", ended=True, seconds=stop_bound() + 1)
    assert planted(stops=(slow,)) == {"unsettled": 1}


@pytest.mark.inv(22)
@pytest.mark.parametrize(
    "lines",
    [
        ("stopping", "requested", "started"),
        ("requested", "interrupted", "started"),
        ("requested", "started", "stopping"),
        ("requested", "stopping", "stopping", "interrupted", "started"),
        ("requested", "stopping", "interrupted"),
        (),
    ],
)
def test_lines_of_an_urgent_message_out_of_order_are_found(
    lines: tuple[str, ...],
) -> None:
    assert planted(activity=tuple(line(kind) for kind in lines)) == {"disorder": 1}


@pytest.mark.req("R44")
@pytest.mark.inv(9)
def test_an_answer_ahead_of_what_precedes_it_is_found() -> None:
    early = (*WELL.messages[:2], message(3, "a0", "2"))
    assert planted(messages=early)["ahead"] == 2


@pytest.mark.req("R44")
def test_what_a_held_reply_showed_was_read_though_its_delivery_failed() -> None:
    failed = view("failed", diagnostic="the runtime did not start")
    unread = {"deliveries": {**WELL.deliveries, "d1": failed}, "reads": WELL.reads[1:]}
    assert planted(**unread) == {"ahead": 1}
    before = ToolShowed("a", "@a0", 1, "3")
    assert planted(**unread, by_tools=(before,)) == {}
    assert planted(**unread, by_tools=(evolve(before, at="5"),)) == {"ahead": 1}


@pytest.mark.req("R44")
def test_a_runtime_s_record_tells_what_tools_showed_it(tmp_path: Path) -> None:
    session = tmp_path / "sessions" / "a"
    session.mkdir(parents=True)
    text = "Held, not sent: unseen.\nYou have not seen:\n[@a0 3 from user] hello\nyou"
    line = json.dumps({"shown": text, "at": 1.5})
    (session / "rehearsal-1.jsonl").write_text(f'{line}\n{{"shown": "torn')
    shown = ToolShowed("a", "@a0", 3, "1970-01-01T00:00:01.500Z")
    assert read_tools(tmp_path) == [shown]


def test_a_trace_of_the_service_is_found() -> None:
    assert planted(traces=("Traceback (most recent call last):",)) == {"fault": 1}
