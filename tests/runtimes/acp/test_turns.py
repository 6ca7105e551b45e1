"""Turns: whose an update is, what is evidence, and how a turn ends."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from tests.kit.fake_acp import (
    FakeAcp,
    an_item,
    call,
    called,
    chunk,
    echo,
    open_fake_acp,
    update,
    words,
)

from agentteam_runtimes.driver import (
    Batch,
    ItemOutcome,
    Output,
    Said,
    SubmitRefused,
    Surfaced,
    ToolEnded,
    ToolStarted,
    TurnEnded,
    TurnRef,
    TurnStarted,
    TurnStatus,
)

if TYPE_CHECKING:
    from pathlib import Path


def surfaced(agent: FakeAcp) -> list[tuple[str, TurnRef, str]]:
    return [(e.key, e.turn, e.evidence.kind) for e in agent.seen.of(Surfaced)]


def end(agent: FakeAcp, turn: TurnRef) -> TurnEnded:
    (ended,) = agent.seen.of(TurnEnded, lambda e: e.turn == turn)
    return ended


async def cut(agent: FakeAcp, turn: TurnRef, reason: str = "cancelled") -> None:
    await agent.session.interrupt(turn)
    await agent.stop(reason)


@pytest.mark.req("R44", "R45")
async def test_a_turn_is_told_from_its_start_to_its_answer(tmp_path: Path) -> None:
    async with open_fake_acp(tmp_path) as agent:
        batch = Batch("b", (an_item("k1"), an_item("k2")))
        turn = await agent.session.start_turn(batch)
        assert surfaced(agent) == [], "that it is written proves nothing"
        agent.send(
            echo("text of k1"),
            words("let me ", "m1"),
            words("see", "m1"),
            call("c1", rawInput={"cwd": "/"}),
            called("c1", "in_progress", rawInput={"command": "ls"}),
            called("c1", "completed", content=[{"content": {"text": "a file"}}]),
            words("one file", "m2"),
        )
        await agent.stop(usage={"inputTokens": 7, "outputTokens": 3})
    assert [type(e) for e in agent.seen.of_turn(turn)] == [
        *(TurnStarted, Surfaced, Surfaced, Output, Output, Said),
        *(ToolStarted, ToolEnded, Output, Said, TurnEnded),
    ]
    sign = "agent_message_chunk"
    assert surfaced(agent) == [("k1", turn, sign), ("k2", turn, sign)]
    (started,), (ended,) = agent.seen.of(ToolStarted), agent.seen.of(ToolEnded)
    assert (started.name, started.input) == ("execute", '{"command":"ls"}')
    assert (ended.output, ended.error) == ("a file", None)
    assert [e.text for e in agent.seen.of(Said)] == ["let me see", "one file"]
    told = end(agent, turn)
    assert (told.status, told.text, told.items) == (
        *(TurnStatus.completed, "one file"),
        {},
    )
    assert told.usage == {"input": 7, "output": 3}
    blocks = agent.told("session/prompt")[0]["params"]["prompt"]
    assert [b["text"] for b in blocks] == ["text of k1", "text of k2"]


@pytest.mark.parametrize(
    ("answer", "status", "detail"),
    [
        ({"stopReason": "max_tokens"}, TurnStatus.max_tokens, ""),
        ({"stopReason": "refusal"}, TurnStatus.failed, "the agent says 'refusal'"),
        ({}, TurnStatus.failed, "the agent says ''"),
    ],
)
async def test_a_turn_ends_as_the_agent_says(
    tmp_path: Path, answer: Any, status: TurnStatus, detail: str
) -> None:
    async with open_fake_acp(tmp_path) as agent:
        turn = await agent.turn()
        agent.send(words("well", "m1"))
        agent.send({"id": agent.told("session/prompt")[0]["id"], "result": answer})
    assert (end(agent, turn).status, end(agent, turn).detail) == (status, detail)


@pytest.mark.bug("B10")
async def test_an_end_without_a_sign_of_the_model_proves_nothing(
    tmp_path: Path,
) -> None:
    async with open_fake_acp(tmp_path) as agent:
        turn = await agent.turn(text="/command that the agent does not know")
        agent.send(update("usage_update", used=0), update("plan", entries=[]))
        await agent.stop()
        # It may have been done, so it is never sent again, whatever the record says.
        history = await agent.session.history({"k1": an_item("k1").id})
    assert surfaced(agent) == []
    assert end(agent, turn).items == {an_item("k1").id: ItemOutcome.unknown}
    assert history == {an_item("k1").id: ItemOutcome.unknown}
    assert agent.told("session/load") == []


@pytest.mark.req("R29", "R44")
@pytest.mark.bug("B10")
async def test_a_cut_before_the_model_was_asked_is_one_whatever_the_agent_says(
    tmp_path: Path,
) -> None:
    # OpenCode says so, with the tokens of the answer before.
    async with open_fake_acp(tmp_path) as agent:
        turn = await agent.turn()
        await agent.session.interrupt(turn)
        await agent.stop(usage={"inputTokens": 10, "outputTokens": 5})
    assert end(agent, turn).status is TurnStatus.interrupted
    assert end(agent, turn).items == {}, "the record tells what became of it"
    assert surfaced(agent) == []


@pytest.mark.req("R32")
@pytest.mark.bug("B35")
async def test_what_comes_late_keeps_the_name_of_its_turn(tmp_path: Path) -> None:
    async with open_fake_acp(tmp_path) as agent:
        old = await agent.turn()
        agent.send(words("old ", "m1"), call("c1", "in_progress"))
        await cut(agent, old)
        agent.send(words("late ", "m1"))
        new = await agent.turn("k2")
        agent.send(
            words("later", "m1"),
            called("c1", "completed", rawOutput={"output": "late"}),
        )
        assert [key for key, *_ in surfaced(agent)] == ["k1"]
        agent.send(words("new", "m2"))
        await agent.stop()
    told = [(e.turn, e.text) for e in agent.seen.of(Output)]
    assert told == [(old, "old "), (old, "late "), (old, "later"), (new, "new")]
    assert [e.turn for e in agent.seen.of(ToolEnded)] == [old]
    assert end(agent, new).text == "new"


@pytest.mark.req("R32")
@pytest.mark.bug("B35")
async def test_nameless_words_after_a_cut_are_no_evidence_before_the_end(
    tmp_path: Path,
) -> None:
    async with open_fake_acp(tmp_path) as agent:
        old = await agent.turn()
        agent.send(words("old"))
        await cut(agent, old)
        new = await agent.turn("k2")
        agent.send(words("late or new"))
        assert [key for key, *_ in surfaced(agent)] == ["k1"]
        await agent.stop()
    assert surfaced(agent)[1] == ("k2", new, "answer to the prompt")
    assert end(agent, new).text == "late or new"


@pytest.mark.req("R32")
@pytest.mark.bug("B35")
async def test_nameless_words_of_an_agent_that_speaks_late_are_nobodys(
    tmp_path: Path,
) -> None:
    async with open_fake_acp(tmp_path) as agent:
        old = await agent.turn()
        agent.send(words("old"))
        await cut(agent, old)
        agent.send(words("late"))
        new = await agent.turn("k2")
        agent.send(words("later"))
        assert [e.turn for e in agent.seen.of(Output)] == [old, None, None]
        # Its repetition of the new prompt is where the new turn begins.
        agent.send(echo("text of k2"), words("new"))
        assert surfaced(agent)[1] == ("k2", new, "agent_message_chunk")
        await agent.stop()
    assert end(agent, new).text == "new"


async def test_a_greeting_before_the_first_turn_is_nobodys_and_no_offence(
    tmp_path: Path,
) -> None:
    async with open_fake_acp(tmp_path) as agent:
        agent.send(words("welcome"))
        first = await agent.turn()
        await cut(agent, first)
        second = await agent.turn("k2")
        agent.send(words("hello"))
        await agent.stop()
    assert [e.turn for e in agent.seen.of(Output)] == [None, second]


async def test_thoughts_are_a_sign_and_are_not_shown(tmp_path: Path) -> None:
    async with open_fake_acp(tmp_path) as agent:
        turn = await agent.turn()
        agent.send(chunk("agent_thought_chunk", "hm", "m1"))
        assert surfaced(agent) == [("k1", turn, "agent_thought_chunk")]
        await agent.stop()
    assert agent.seen.of(Output) == []


async def test_updates_of_other_sessions_and_broken_ones_change_nothing(
    tmp_path: Path,
) -> None:
    async with open_fake_acp(tmp_path) as agent:
        await agent.turn()
        before = list(agent.seen.all)
        agent.send(
            update("agent_message_chunk", "ses-2", content={"text": "not ours"}),
            update("tool_call"),
            update("something_new", x=1),
            {"method": "session/update"},
            {"method": "session/update", "params": {"sessionId": "ses-1", "update": 3}},
            {"method": "$/progress", "params": {}},
        )
        assert agent.seen.all == before
        agent.send(words("", "m1"))
        await agent.stop()


async def test_a_busy_agent_is_not_given_a_second_prompt(tmp_path: Path) -> None:
    async with open_fake_acp(tmp_path) as agent:
        await agent.turn()
        with pytest.raises(SubmitRefused) as refused:
            await agent.turn("k2")
        await agent.stop()
    assert not refused.value.written
    assert len(agent.told("session/prompt")) == 1


async def test_a_failed_tool_says_why(tmp_path: Path) -> None:
    async with open_fake_acp(tmp_path) as agent:
        await agent.turn()
        agent.send(
            call("c1", "failed", title="ls", rawOutput={"error": "denied"}),
            call("c2", "failed", content=[{"content": {"text": "gone"}}]),
            call("c3", "failed"),
            called("c3", "failed"),
        )
        await agent.stop()
    assert [e.error for e in agent.seen.of(ToolEnded)] == ["denied", "gone", "failed"]
    assert agent.seen.of(ToolStarted)[0].input == '{"title":"ls"}'
