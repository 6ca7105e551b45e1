"""What people read in the command when things stand otherwise than they thought."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from agentteam_supervisor.cli.failure import ExitCode

if TYPE_CHECKING:
    from tests.kit.api_server import ApiServer
    from tests.supervisor.cli.conftest import Run

MARK = "POST /api/messages/msg_7/agent-delivery"
READ: dict[str, Any] = {"deliveryId": "dlv_1", "evidence": {"kind": "recorded"}}


def marked(**more: Any) -> dict[str, Any]:
    return {"id": "dlv_2", "state": "queued", "agentId": "agt_1", **more}


def test_marking_what_was_read_says_so_and_by_what_proof(
    api: ApiServer, run: Run
) -> None:
    api.answer(MARK, marked(made=True, readBefore=READ), status=202)
    result = run("urgent", "msg_7", "--no-wait", "--url", api.url)
    assert result.stdout.splitlines() == [
        "the agent has read this message already (dlv_1, recorded); it will read it"
        " again",
        "dlv_2 queued",
    ]


def test_marking_again_says_that_nothing_new_is_delivered(
    api: ApiServer, run: Run
) -> None:
    read = {**READ, "deliveryId": "dlv_2"}
    api.answer(MARK, marked(state="surfaced", made=False, readBefore=read), status=202)
    result = run("urgent", "msg_7", "--url", api.url)
    assert "it is not delivered again" in result.stdout


@pytest.mark.parametrize(
    ("slug", "words"),
    [
        ("agent_required", "several agents get this message; choose one with --agent"),
        ("not_a_member", "eve does not get this message; --agent can be"),
    ],
)
def test_what_a_person_can_type_stands_in_the_words(
    api: ApiServer, run: Run, slug: str, words: str
) -> None:
    body = {
        "type": slug,
        "detail": "name the agent in 'agentId'; candidates: ada, bob",
        "candidates": [{"id": "agt_1", "name": "ada"}, {"id": "agt_2", "name": "bob"}],
    }
    api.answer(MARK, body, status=422)
    result = run("urgent", "msg_7", "--agent", "eve", "--url", api.url)
    assert result.exit_code == ExitCode.failed
    assert result.stderr.strip() == f"error: {words}: ada, bob"


def test_a_stop_says_what_waits_and_how_it_goes_on(api: ApiServer, run: Run) -> None:
    idle = {"id": "agt_1", "name": "demo", "status": "idle", "currentRun": None}
    busy = {**idle, "status": "running", "currentRun": {"id": "run_1"}}
    parked = {**idle, "detail": {"phase": "Idle"}, "parked": True, "waiting": 2}
    api.answer("GET /api/agents/demo", busy, parked)
    call = "POST /api/agents/demo/control"
    api.answer(call, {"result": "stopping"}, status=202)
    ended = {"kind": "run_ended", "text": "Interrupted by @ann", "runId": "run_1"}
    api.cause(call, ("s.1", "activity", {**ended, "agentId": "agt_1"}))
    result = run("stop", "demo", "--url", api.url)
    assert result.stdout.splitlines() == [
        "Interrupted by @ann",
        "demo is parked; 2 messages wait (agentteam resume demo)",
    ]
