"""The driver on the real `opencode acp`: what the session relies on, measured again."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import trio
from tests.kit.acp_desk import AcpDesk, open_acp_desk
from trio.testing import wait_all_tasks_blocked

from agentteam_protocol.approval import ApprovalOutcome
from agentteam_runtimes.driver import (
    AskClosed,
    Asked,
    Batch,
    Exited,
    ItemOutcome,
    Output,
    ResumeRefused,
    Surfaced,
    ToolEnded,
    TurnEnded,
    TurnStatus,
)
from agentteam_supervisor.chaos.models.responses import do

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from agentteam_runtimes.driver import InputItem, Runtime, TurnRef

pytestmark = [pytest.mark.slow, pytest.mark.needs("opencode")]

STREAM = do({"stream": 1000, "ms": 20})
ASKING = {"permission": {"bash": "ask"}}
SECONDS = 240  # many times what it takes on two idle cores


@pytest.fixture
async def desk(tmp_path: Path) -> AsyncIterator[AcpDesk]:
    async with open_acp_desk(tmp_path) as desk:
        yield desk


async def play(desk: AcpDesk, runtime: Runtime, *items: InputItem) -> TurnEnded:
    return await desk.ended(await desk.begin(runtime, *items))


async def cut(desk: AcpDesk, runtime: Runtime, turn: TurnRef) -> TurnEnded:
    await runtime.interrupt(turn)
    return await desk.ended(turn)


def surfaced(desk: AcpDesk, item: InputItem) -> list[TurnRef]:
    return [e.turn for e in desk.seen.of(Surfaced, lambda e: e.key == item.key)]


@pytest.mark.req("R29", "R32", "R35", "R44", "R45")
@pytest.mark.bug("B03", "B35")
async def test_what_is_cut_is_settled_and_each_entry_is_read_once(
    desk: AcpDesk,
) -> None:
    with trio.fail_after(SECONDS):
        async with desk.open() as runtime:
            both = desk.item("before that "), desk.item("the urgent one. ")
            first = await play(desk, runtime, *both)
            script = do({"run": "echo hi"}, {"say": "one two", "ms": 5})
            worked = await play(desk, runtime, desk.item(script))
            turn = await desk.begin(runtime, desk.item(STREAM))
            await desk.seen.first(Output, lambda e: e.turn == turn)
            streamed = await cut(desk, runtime, turn)
            # Before the model has it: OpenCode keeps it for its next request.
            early = desk.item("early. ")
            stranded = await cut(
                desk, runtime, await runtime.start_turn(Batch("e", (early,)))
            )
            kept = await runtime.history({early.key: early.id})
            later = await play(desk, runtime, desk.item("later. "))
            # A request that the model refuses is kept for the next one, too.
            refused = desk.item(do({"http": 400}))
            failed = await play(desk, runtime, refused)
            again = await runtime.history({refused.key: refused.id})
            last = await play(desk, runtime, desk.item("last. "))
    told = desk.model.requests[-1].user_texts
    assert [ended.status for ended in (first, worked, streamed, stranded)] == [
        *(TurnStatus.completed, TurnStatus.completed),
        *(TurnStatus.interrupted, TurnStatus.interrupted),
    ]
    assert first.text == "Heard: before that the urgent one. "
    assert (worked.text, worked.usage["output"]) == ("one two", 5)
    assert [e.output for e in desk.seen.of(ToolEnded)] == ["hi\n"]
    assert kept == {early.id: ItemOutcome.carried}
    assert surfaced(desk, early) == [later.turn]
    assert (failed.status, "scripted failure" in failed.detail) == (
        *(TurnStatus.failed, True),
    )
    assert again == {refused.id: ItemOutcome.carried}
    assert surfaced(desk, refused) == [last.turn]
    assert [told.count(text) for text in ("early. ", "later. ", "last. ")] == [1, 1, 1]


@pytest.mark.req("R66", "R67", "R78", "R84")
@pytest.mark.bug("B06", "B07")
async def test_a_cut_ask_never_runs_and_a_killed_agent_goes_on(
    desk: AcpDesk,
) -> None:
    with trio.fail_after(SECONDS):
        async with desk.open(ASKING) as runtime:
            turn = await desk.begin(runtime, desk.item(do({"run": "touch asked"})))
            asked = await desk.seen.first(Asked, within=desk.patience)
            ended = await cut(desk, runtime, turn)
            await runtime.answer(asked.ask, ApprovalOutcome.allowed_once)
            read = desk.item("read. ")
            await play(desk, runtime, read)
            early = desk.item("early. ")
            await runtime.start_turn(Batch("e", (early,)))
            await wait_all_tasks_blocked()
            assert runtime.containment is not None
            await runtime.containment.kill()
            await desk.seen.first(Exited, within=desk.patience)
            with pytest.raises(ResumeRefused):
                async with desk.open(ASKING, resume="ses_0000000000000000000000000"):
                    pass
        session = desk.session
        async with desk.open(ASKING, resume=session) as runtime:
            keys = {item.key: item.id for item in (read, early)}
            history = await runtime.history(keys)
            last = await play(desk, runtime, desk.item("last. "))
    assert ended.status is TurnStatus.interrupted
    assert [e.ask for e in desk.seen.of(AskClosed)] == [asked.ask]
    assert not (desk.home.workdir / "asked").exists()
    assert history[read.id] is ItemOutcome.surfaced
    # It had the prompt or not: either way the agent reads it at most once.
    told = desk.model.requests[-1].user_texts.count("early. ")
    fate = history[early.id]
    assert (fate, told) in ((ItemOutcome.carried, 1), (ItemOutcome.dropped, 0))
    assert surfaced(desk, early) == [last.turn] * told
    assert not (desk.home.path / "state" / "tmp").exists()
