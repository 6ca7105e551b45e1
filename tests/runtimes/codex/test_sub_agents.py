"""Sub-agents of the real app-server: their end is not ours, our cut is theirs."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import trio

from agentteam_runtimes.driver import (
    Noticed,
    Output,
    Said,
    ToolEnded,
    ToolStarted,
    TurnEnded,
    TurnStatus,
)
from agentteam_supervisor.chaos.models.responses import Step, do

if TYPE_CHECKING:
    from tests.kit.codex_desk import CodexDesk

    from agentteam_runtimes.driver import Runtime

pytestmark = [pytest.mark.slow, pytest.mark.needs("codex")]


def spawn(*script: Step) -> Step:
    """A call that starts a sub-agent, whose model plays this script."""
    given = {"message": do(*script)}
    return {"call": "spawn_agent", "in": "multi_agent_v1", "with": given}


@pytest.mark.bug("B19")
async def test_turn_ends_at_its_own_end_with_its_own_answer(
    desk: CodexDesk, runtime: Runtime
) -> None:
    child = spawn({"run": "echo in the child"}, {"say": "the child's answer"})
    script = do(child, {"run": "sleep 2"}, {"say": "the parent's answer"})
    turn = await desk.begin(runtime, desk.item(script))
    await desk.seen.first(Noticed, lambda e: "turn ended" in e.what)
    assert not desk.seen.of(TurnEnded)
    ended = await desk.ended(turn)

    assert ended.text == "the parent's answer"
    assert len(desk.seen.of(TurnEnded)) == 1
    assert [e.text for e in desk.seen.of(Said)] == ["the parent's answer"]
    tools = desk.seen.of(ToolStarted)
    assert [t.name for t in tools].count("shell") == 2
    assert {t.turn for t in tools} == {turn}


@pytest.mark.bug("B24")
@pytest.mark.req("R36")
async def test_interrupt_cuts_the_sub_agent_and_its_command(
    desk: CodexDesk, runtime: Runtime
) -> None:
    child = spawn({"run": "sleep 2; touch side_effect"}, {"say": "not said"})
    script = do(child, {"stream": 500, "ms": 20})
    turn = await desk.begin(runtime, desk.item(script))
    await desk.seen.first(ToolStarted, lambda e: e.name == "shell")
    await desk.seen.first(Output)
    await runtime.interrupt(turn)
    ended = await desk.ended(turn)
    urgent = await desk.begin(runtime, desk.item("the urgent one"))
    await desk.ended(urgent)
    await trio.sleep(2.5)

    assert ended.status is TurnStatus.interrupted
    assert not (desk.home.workdir / "side_effect").exists()
    (cut,) = desk.seen.of(ToolEnded, lambda e: e.error is not None)
    assert cut.turn == turn
    assert [e.text for e in desk.seen.of(Said)] == ["Heard: the urgent one"]
    begun = desk.seen.of_turn(urgent)[0]
    after = desk.seen.all[desk.seen.all.index(begun) :]
    assert not [e for e in after if getattr(e, "turn", urgent) not in (urgent, None)]
