"""The tools of ours on the real app-server: offered, called, answered, cut."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import trio

from agentteam_runtimes.driver import ReadCalled, SendCalled, TurnStatus
from agentteam_supervisor.chaos.models.responses import do

if TYPE_CHECKING:
    from tests.kit.codex_desk import CodexDesk

    from agentteam_runtimes.driver import Runtime

pytestmark = [pytest.mark.slow, pytest.mark.needs("codex")]

SEND = {"call": "send_message", "with": {"target": "@alice", "text": "hello"}}
READ = {"call": "read_history", "with": {"target": "#news", "after": 7}}


@pytest.mark.req("R36")
async def test_model_calls_our_tools_and_reads_what_we_answer(
    desk: CodexDesk, runtime: Runtime
) -> None:
    script = do(SEND, READ, {"say": "done"})
    turn = await desk.begin(runtime, desk.item(script))
    sent = await desk.seen.first(SendCalled)
    await runtime.tool_result(sent.call, "Held:\n“read” first", error=True)
    read = await desk.seen.first(ReadCalled)
    await runtime.tool_result(read.call, "8 from bob: hi", error=False)
    await desk.ended(turn)

    assert (sent.turn, sent.target, sent.text) == (turn, "@alice", "hello")
    assert (read.turn, read.target, read.after) == (turn, "#news", 7)
    outputs = " ".join(desk.model.requests[-1].outputs)
    assert "Held:\\n“read” first" in outputs
    assert "8 from bob: hi" in outputs


async def test_our_tools_are_there_after_a_resume(desk: CodexDesk) -> None:
    with trio.fail_after(60):
        async with desk.open() as runtime:
            turn = await desk.begin(runtime, desk.item("hello"))
            await desk.ended(turn)
            assert runtime.containment is not None
            await runtime.containment.kill()
        async with desk.open(resume=desk.session) as runtime:
            turn = await desk.begin(runtime, desk.item(do(SEND, {"say": "done"})))
            sent = await desk.seen.first(SendCalled)
            await runtime.tool_result(sent.call, "sent", error=False)
            await desk.ended(turn)

    assert sent.turn == turn


async def test_result_of_a_cut_call_never_reaches_the_next_turn(
    desk: CodexDesk,
    runtime: Runtime,
) -> None:
    turn = await desk.begin(runtime, desk.item(do(SEND, {"say": "not said"})))
    sent = await desk.seen.first(SendCalled)
    await runtime.interrupt(turn)
    ended = await desk.ended(turn)
    urgent = await desk.begin(runtime, desk.item("the urgent one"))
    await runtime.tool_result(sent.call, "sent after all", error=False)
    await desk.ended(urgent)

    assert ended.status is TurnStatus.interrupted
    assert "sent after all" not in " ".join(desk.model.requests[-1].outputs)
    assert not [m for m in desk.home.wire if "result" in m]
