"""Approvals on the real app-server: one grant runs one command, a cut runs none."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import trio

from agentteam_protocol.approval import ApprovalOutcome
from agentteam_runtimes.driver import (
    AskClosed,
    Asked,
    TurnEnded,
    TurnStatus,
)
from agentteam_supervisor.chaos.models.responses import do

if TYPE_CHECKING:
    from tests.kit.codex_desk import CodexDesk

pytestmark = [pytest.mark.slow, pytest.mark.needs("codex")]

ASKING = {"approval_policy": "untrusted"}
PATCH = "*** Begin Patch\n*** Add File: made\n+hello\n*** End Patch\n"


@pytest.mark.bug("B07")
async def test_interrupt_while_an_approval_is_pending_runs_nothing(
    desk: CodexDesk,
) -> None:
    with trio.fail_after(60):
        async with desk.open(ASKING) as runtime:
            script = do({"run": "touch approved"}, {"say": "went on"})
            turn = await desk.begin(runtime, desk.item(script))
            asked = await desk.seen.first(Asked)
            await runtime.interrupt(turn)
            ended = await desk.ended(turn)
            await desk.seen.first(AskClosed, lambda e: e.ask == asked.ask)
            # A late yes reaches nobody.
            await runtime.answer(asked.ask, ApprovalOutcome.allowed_once)
            urgent = await desk.begin(runtime, desk.item("the urgent one"))
            await desk.ended(urgent)

    assert (asked.turn, asked.tool_name) == (turn, "shell")
    assert "touch approved" in asked.input
    assert ended.status is TurnStatus.interrupted
    assert not (desk.home.workdir / "approved").exists()
    assert not [m for m in desk.home.wire if "result" in m]


@pytest.mark.bug("B07")
@pytest.mark.req("R70")
async def test_cancelled_ask_ends_its_turn_and_the_interrupt_finds_it_over(
    desk: CodexDesk,
) -> None:
    with trio.fail_after(60):
        async with desk.open(ASKING) as runtime:
            script = do({"run": "touch approved"}, {"say": "went on"})
            turn = await desk.begin(runtime, desk.item(script))
            asked = await desk.seen.first(Asked)
            # As a cut does it: the ask is cancelled, the interrupt follows at once.
            await runtime.answer(asked.ask, ApprovalOutcome.cancelled)
            await runtime.interrupt(turn)
            ended = await desk.ended(turn)

    assert ended.status is TurnStatus.interrupted
    assert len(desk.seen.of(TurnEnded)) == 1
    assert not (desk.home.workdir / "approved").exists()
    assert len(desk.model.requests) == 1


@pytest.mark.req("R78", "R92")
@pytest.mark.parametrize(
    ("outcome", "made"),
    [
        (ApprovalOutcome.allowed_once, True),
        (ApprovalOutcome.rejected, False),
        (ApprovalOutcome.unavailable, False),
    ],
)
async def test_only_a_grant_lets_a_command_run(
    desk: CodexDesk, outcome: ApprovalOutcome, *, made: bool
) -> None:
    with trio.fail_after(60):
        async with desk.open(ASKING) as runtime:
            script = do({"run": "touch approved"}, {"say": "went on"})
            turn = await desk.begin(runtime, desk.item(script))
            asked = await desk.seen.first(Asked)
            await runtime.answer(asked.ask, outcome)
            await runtime.answer(asked.ask, ApprovalOutcome.allowed_once)
            ended = await desk.ended(turn)

    assert ended.status is TurnStatus.completed
    assert (desk.home.workdir / "approved").exists() is made
    assert len([m for m in desk.home.wire if "result" in m]) == 1


async def test_edit_is_asked_with_what_it_changes(desk: CodexDesk) -> None:
    # Only models that codex knows by name get its tool for edits.
    settings = ASKING | {"model": "gpt-5.5", "sandbox_mode": "read-only"}
    with trio.fail_after(60):
        async with desk.open(settings) as runtime:
            turn = await desk.begin(runtime, desk.item(do({"patch": PATCH})))
            asked = await desk.seen.first(Asked)
            assert not (desk.home.workdir / "made").exists()
            await runtime.answer(asked.ask, ApprovalOutcome.allowed_once)
            await desk.ended(turn)

    assert (asked.turn, asked.tool_name) == (turn, "edit")
    assert "hello" in asked.input
    assert (desk.home.workdir / "made").read_text() == "hello\n"


@pytest.mark.bug("B26")
async def test_question_to_the_user_is_declined_and_the_turn_goes_on(
    desk: CodexDesk,
) -> None:
    question = {
        "id": "q",
        "header": "h",
        "question": "Which one?",
        "options": [{"label": "a", "description": "a"}],
    }
    script = do(
        {"call": "request_user_input", "with": {"questions": [question]}},
        {"say": "then without"},
    )
    with trio.fail_after(60):
        features = {"features": {"default_mode_request_user_input": True}}
        async with desk.open(features) as runtime:
            turn = await desk.begin(runtime, desk.item(script))
            ended = await desk.ended(turn)

    assert ended.text == "then without"
    (reply,) = [m for m in desk.home.wire if "result" in m]
    assert reply["result"] == {"answers": {}}
