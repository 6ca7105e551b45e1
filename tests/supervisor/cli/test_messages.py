"""Sending, reading and marking urgent from a terminal."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from agentteam_supervisor.cli.failure import ExitCode

if TYPE_CHECKING:
    from tests.kit.api_server import ApiServer
    from tests.supervisor.cli.conftest import Run


def delivery(state: str = "queued", **more: Any) -> dict[str, Any]:
    urgent = {"id": "dlv_2", "messageId": "msg_1", "agentId": "agt_1", "state": state}
    return {"evidence": None, "diagnostic": None, **urgent, **more}


def message(seq: int = 7, kind: str = "user", body: str = "hello") -> dict[str, Any]:
    return {
        "id": f"msg_{seq}",
        "target": "tgt_1",
        "targetSeq": seq,
        "author": {"kind": kind, "name": "ann"},
        "body": body,
        "createdAt": f"2026-01-01T00:00:{seq:02}Z",
        "deliveries": [{**delivery(), "id": "dlv_1"}],
    }


def activity(kind: str, text: str, delivery_id: str = "dlv_2") -> dict[str, Any]:
    return {"kind": kind, "text": text, "deliveryId": delivery_id, "agentId": "agt_1"}


@pytest.mark.req("R7")
def test_send_carries_no_policy(api: ApiServer, run: Run) -> None:
    api.answer("POST /api/targets/@demo/messages", message())
    result = run("send", "@demo", "urgent! 停一下", "--url", api.url)
    assert result.exit_code == 0, result.output
    assert result.stdout == "sent msg_7 (@demo 7)\n"
    (post,) = api.seen("POST /api/targets/@demo/messages")
    assert post.body == {"body": "urgent! 停一下"}


def test_a_dash_sends_standard_input(api: ApiServer, run: Run) -> None:
    api.answer("POST /api/targets/@demo/messages", message())
    run("send", "@demo", "-", "--url", api.url, stdin="two\nlines\n")
    (post,) = api.seen("POST /api/targets/@demo/messages")
    assert post.body == {"body": "two\nlines\n"}


def test_wait_ends_with_the_proof(api: ApiServer, run: Run) -> None:
    api.answer("POST /api/targets/@demo/messages", message())
    proof = {"kind": "userMessage", "at": "", "detail": ""}
    api.answer(
        "GET /api/deliveries/dlv_1",
        delivery("accepted", id="dlv_1"),
        delivery("surfaced", id="dlv_1", evidence=proof),
    )
    result = run("send", "@demo", "hi", "--wait", "--url", api.url)
    assert result.exit_code == 0, result.output
    assert result.stdout.splitlines()[-1] == "dlv_1 surfaced (userMessage)"


def test_wait_for_a_failed_delivery_says_what_to_do(api: ApiServer, run: Run) -> None:
    api.answer("POST /api/targets/@demo/messages", message())
    why = {"problem": "no codex here", "whatToDo": "install it"}
    api.answer("GET /api/deliveries/dlv_1", delivery("failed", diagnostic=why))
    result = run("send", "@demo", "hi", "--wait", "--url", api.url)
    assert result.exit_code == ExitCode.failed
    assert "no codex here; install it" in result.stderr


def test_wait_ends_early_when_the_agent_cannot_run(api: ApiServer, run: Run) -> None:
    api.answer("POST /api/targets/@demo/messages", message())
    api.answer("GET /api/deliveries/dlv_1", delivery("queued", id="dlv_1"))
    why = {"problem": "no codex", "whatToDo": "install it"}
    api.answer("GET /api/agents/agt_1", {"name": "demo", "problem": why})
    result = run("send", "@demo", "x", "--wait", "--timeout", "20", "--url", api.url)
    assert result.exit_code == ExitCode.failed
    assert "demo: no codex; install it (dlv_1 stays queued)" in result.stderr


def test_wait_is_bounded(api: ApiServer, run: Run) -> None:
    api.answer("POST /api/targets/@demo/messages", message())
    api.answer("GET /api/deliveries/dlv_1", delivery("queued", id="dlv_1"))
    api.answer("GET /api/agents/agt_1", {"name": "demo", "problem": None})
    result = run("send", "@demo", "x", "--wait", "--timeout", "0.2", "--url", api.url)
    assert result.exit_code == ExitCode.timeout
    assert "still queued" in result.stderr


def test_follow_prints_the_reply_and_nobody_elses(api: ApiServer, run: Run) -> None:
    call = "POST /api/targets/@demo/messages"
    api.answer(call, message(7))
    api.cause(
        call,
        ("s.1", "message", message(7)),
        ("s.1", "message", message(5, "agent", "an older reply")),
        ("s.2", "message", {**message(9, "agent", "other"), "target": "tgt_2"}),
        ("s.3", "message", message(8, "user", "another person")),
        ("s.4", "message", message(9, "agent", "the\x1b[2J reply")),
    )
    api.answer("GET /api/deliveries/dlv_1", delivery("surfaced", id="dlv_1"))
    result = run("send", "@demo", "hi", "--follow", "--url", api.url)
    assert result.exit_code == 0, result.output
    assert result.stdout.splitlines()[1:] == ["[@demo 9] ann: the?[2J reply"]


def test_follow_ends_with_the_problem_of_an_agent_that_cannot_run(
    api: ApiServer, run: Run
) -> None:
    api.answer("POST /api/targets/@demo/messages", message(7))
    api.answer("GET /api/deliveries/dlv_1", delivery("queued", id="dlv_1"))
    why = {"problem": "it is not installed", "whatToDo": "install it"}
    api.answer("GET /api/agents/agt_1", {"name": "demo", "problem": why})
    result = run("send", "demo", "hi", "--follow", "--url", api.url)
    assert result.exit_code == ExitCode.failed
    assert "it is not installed; install it" in result.stderr


def test_follow_ends_with_a_turn_that_said_nothing(
    api: ApiServer, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("agentteam_supervisor.cli.send.LATE", 0)
    call = "POST /api/targets/@demo/messages"
    api.answer(call, message(7))
    ended = {"kind": "run_ended", "agentId": "agt_1", "text": ""}
    api.cause(call, ("s.1", "activity", ended), ("s.2", "activity", ended))
    state = delivery("surfaced", id="dlv_1")
    api.answer("GET /api/deliveries/dlv_1", state, delivery("queued"), state)
    api.answer("GET /api/agents/agt_1", {"status": "idle", "problem": None})
    api.answer("GET /api/targets/tgt_1/messages", {"messages": [], "head": 7})
    result = run("send", "@demo", "hi", "--follow", "--url", api.url)
    assert result.exit_code == 0, result.output
    assert "without a text" in result.stdout


def test_messages_shows_the_newest_ones(api: ApiServer, run: Run) -> None:
    call = "GET /api/targets/@demo/messages"
    page = {"messages": [message(6), message(7)], "head": 7}
    api.answer(call, {"messages": [], "head": 7}, page)
    result = run("messages", "@demo", "--limit", "2", "--url", api.url)
    assert result.stdout.splitlines() == [
        "[@demo 6] ann: hello",
        "[@demo 7] ann: hello",
    ]
    assert api.seen(call)[-1].query == "after=5&limit=2"


@pytest.mark.req("R2", "R32")
def test_urgent_prints_its_lines_in_order_and_the_proof(
    api: ApiServer, run: Run
) -> None:
    call = "POST /api/messages/msg_7/agent-delivery"
    api.answer(call, delivery(), status=202)
    api.cause(
        call,
        ("s.1", "activity", activity("requested", "@ann asked")),
        ("s.2", "activity", activity("interrupted", "not ours", "dlv_9")),
        ("s.3", "activity", activity("stopping", "Stopping")),
        ("s.4", "activity", activity("interrupted", "Interrupted")),
        ("s.5", "delivery", delivery("surfaced")),
        ("s.6", "activity", activity("started", "Working")),
    )
    proof = {"kind": "userMessage", "at": "", "detail": ""}
    api.answer("GET /api/deliveries/dlv_2", delivery("surfaced", evidence=proof))
    result = run("urgent", "msg_7", "--url", api.url)
    assert result.exit_code == 0, result.output
    assert result.stdout.splitlines() == [
        "@ann asked",
        "Stopping",
        "Interrupted",
        "Working",
        "dlv_2 surfaced (userMessage)",
    ]
    (post,) = api.seen(call)
    assert post.body == {"interruptPolicy": "interrupt_current_run"}


def test_a_failed_urgent_ends_with_its_diagnostic(api: ApiServer, run: Run) -> None:
    call = "POST /api/messages/msg_7/agent-delivery"
    api.answer(call, delivery(), status=202)
    api.cause(call, ("s.1", "activity", activity("failed", "It failed")))
    why = {"problem": "the process does not end", "whatToDo": "stop it by hand"}
    api.answer("GET /api/deliveries/dlv_2", delivery("failed", diagnostic=why))
    result = run("urgent", "msg_7", "--json", "--url", api.url)
    assert result.exit_code == ExitCode.failed
    lines = [json.loads(line) for line in result.stdout.splitlines()]
    assert [line.get("state", line.get("kind")) for line in lines] == [
        "failed",
    ]
    problem = json.loads(result.stderr)
    assert problem["diagnostic"] == why
    assert problem["exitCode"] == ExitCode.failed


@pytest.mark.parametrize("state", ["cancelled", "superseded", "unknown"])
def test_an_urgent_that_ends_without_a_last_line_ends_the_command(
    api: ApiServer, run: Run, state: str
) -> None:
    call = "POST /api/messages/msg_7/agent-delivery"
    api.answer(call, delivery(), status=202)
    api.cause(call, ("s.1", "delivery", delivery(state)))
    api.answer("GET /api/deliveries/dlv_2", delivery(state))
    result = run("urgent", "msg_7", "--timeout", "20", "--url", api.url)
    assert result.exit_code == ExitCode.failed
    assert state in result.stderr


def test_a_gap_in_the_events_loses_lines_and_not_the_outcome(
    api: ApiServer, run: Run
) -> None:
    call = "POST /api/messages/msg_7/agent-delivery"
    api.answer(call, delivery(), status=202)
    api.cause(call, ("s.9", "gap", {"reason": "too slow"}))
    api.answer("GET /api/deliveries/dlv_2", delivery("surfaced"))
    result = run("urgent", "msg_7", "--timeout", "20", "--url", api.url)
    assert (result.exit_code, result.stdout) == (0, "dlv_2 surfaced\n")


def test_an_urgent_that_surfaced_before_is_told_at_once(
    api: ApiServer, run: Run
) -> None:
    api.answer("POST /api/messages/msg_7/agent-delivery", delivery("surfaced"))
    result = run("urgent", "msg_7", "--timeout", "20", "--url", api.url)
    assert result.exit_code == 0
    assert result.stdout == "dlv_2 surfaced\n"


def test_last_is_the_newest_message_of_a_person(api: ApiServer, run: Run) -> None:
    targets = [{"id": "tgt_1"}, {"id": "tgt_2"}]
    api.answer("GET /api/targets", {"targets": targets})
    page = [message(6), message(7), message(8, "agent")]
    api.answer("GET /api/targets/tgt_1/messages", {"messages": page, "head": 8})
    older = {"messages": [message(3)], "head": 3}
    api.answer("GET /api/targets/tgt_2/messages", older)
    api.answer("POST /api/messages/msg_7/agent-delivery", delivery())
    result = run("urgent", "--last", "--no-wait", "--url", api.url)
    assert result.exit_code == 0, result.output
    assert len(api.seen("POST /api/messages/msg_7/agent-delivery")) == 1


def test_last_without_a_message_says_so(api: ApiServer, run: Run) -> None:
    api.answer("GET /api/targets", {"targets": []})
    result = run("urgent", "--last", "--url", api.url)
    assert result.exit_code == ExitCode.failed
    assert "nobody has sent a message yet" in result.stderr


def test_last_of_one_agent_looks_at_its_own_target(api: ApiServer, run: Run) -> None:
    page = {"messages": [message(6)], "head": 6}
    api.answer("GET /api/targets/@demo/messages", page)
    api.answer("POST /api/messages/msg_6/agent-delivery", delivery())
    arguments = ("urgent", "--last", "--agent", "demo", "--no-wait", "--json")
    result = run(*arguments, "--url", api.url)
    assert json.loads(result.stdout)["id"] == "dlv_2"
    (post,) = api.seen("POST /api/messages/msg_6/agent-delivery")
    assert post.body["agentId"] == "demo"


@pytest.mark.parametrize("arguments", [[], ["msg_1", "--last"]])
def test_urgent_wants_one_message(run: Run, arguments: list[str]) -> None:
    assert run("urgent", *arguments).exit_code == ExitCode.usage
