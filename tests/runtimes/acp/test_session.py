"""The session: cuts, asks, what is open after a cut, strange lines, death."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import trio
from tests.kit.fake_acp import (
    SESSION,
    FakeAcp,
    an_item,
    call,
    called,
    echo,
    open_fake_acp,
    permission,
    words,
)
from trio.testing import wait_all_tasks_blocked

from agentteam_protocol.approval import ApprovalOutcome
from agentteam_protocol.errors import RuntimeExited
from agentteam_runtimes.acp.record import Memory
from agentteam_runtimes.driver import (
    AskClosed,
    Asked,
    InterruptRefused,
    ItemOutcome,
    Noticed,
    SessionNamed,
    SubmitRefused,
    Surfaced,
    TurnEnded,
    TurnStatus,
)

if TYPE_CHECKING:
    from pathlib import Path

ALLOW, REJECT = ApprovalOutcome.allowed_once, ApprovalOutcome.rejected
CANCELLED = {"outcome": {"outcome": "cancelled"}}
ITEM = an_item("k1").id


def statuses(agent: FakeAcp) -> list[TurnStatus]:
    return [e.status for e in agent.seen.of(TurnEnded)]


# Cuts.


@pytest.mark.req("R29", "R62")
@pytest.mark.inv(7)
async def test_a_cut_is_one_cancel_and_over_with_the_answer_to_the_prompt(
    tmp_path: Path,
) -> None:
    async with open_fake_acp(tmp_path) as agent:
        turn = await agent.turn()
        agent.send(words("well", "m1"))
        await agent.session.interrupt(turn)
        await agent.session.interrupt(turn)
        assert agent.seen.of(TurnEnded) == []
        await agent.stop("cancelled")
        # It is over: neither this nor an interrupt of nothing hits the next one.
        await agent.session.interrupt(turn)
        with pytest.raises(InterruptRefused):
            await agent.session.interrupt(None)
    assert statuses(agent) == [TurnStatus.interrupted]
    (cancel,) = agent.told("session/cancel")
    assert cancel == {
        "jsonrpc": "2.0",
        "method": "session/cancel",
        "params": {"sessionId": SESSION},
    }


async def test_a_cut_that_is_answered_by_an_error_is_a_cut(tmp_path: Path) -> None:
    # OpenCode does so in the first moments of its process.
    async with open_fake_acp(tmp_path, loads=False) as agent:
        turn = await agent.turn()
        await agent.session.interrupt(None)
        await agent.refuse("session/prompt", "Internal error")
        # Nobody can tell whether it was read, so nothing is said of it.
        history = await agent.session.history({"k1": ITEM})
    (ended,) = agent.seen.of(TurnEnded)
    assert (ended.turn, ended.status, ended.items) == (turn, TurnStatus.interrupted, {})
    assert history == {}


async def test_a_cut_that_crosses_the_end_leaves_it_as_it_was(tmp_path: Path) -> None:
    async with open_fake_acp(tmp_path) as agent:
        turn = await agent.turn()
        agent.send(words("done", "m1"))
        await agent.session.interrupt(turn)
        await agent.stop("end_turn")
    assert statuses(agent) == [TurnStatus.completed]


async def test_a_turn_that_fails_says_why(tmp_path: Path) -> None:
    async with open_fake_acp(tmp_path) as agent:
        await agent.turn()
        await agent.refuse("session/prompt", "the model is away")
        await agent.turn("k2")
        await agent.refuse("session/prompt", "401 Unauthorized", count=2)
    away, locked = agent.seen.of(TurnEnded)
    assert (away.status, away.detail) == (TurnStatus.failed, "the model is away")
    assert (away.advice, locked.advice) == (
        "",
        "log in to the agent, with its own command",
    )


# Asks.


@pytest.mark.req("R70")
@pytest.mark.parametrize(
    ("outcome", "reply"),
    [
        (ALLOW, {"outcome": {"outcome": "selected", "optionId": "once"}}),
        (REJECT, {"outcome": {"outcome": "selected", "optionId": "no"}}),
        (
            ApprovalOutcome.unavailable,
            {"outcome": {"outcome": "selected", "optionId": "no"}},
        ),
        (ApprovalOutcome.cancelled, CANCELLED),
    ],
)
async def test_an_ask_gets_what_was_decided_and_never_more(
    tmp_path: Path, outcome: ApprovalOutcome, reply: object
) -> None:
    async with open_fake_acp(tmp_path) as agent:
        turn = await agent.turn()
        agent.send(call("c1"), permission(0))
        (asked,) = agent.seen.of(Asked)
        await agent.session.answer(asked.ask, outcome)
        await agent.session.answer(asked.ask, ALLOW)
        assert (await agent.replied(0))["result"] == reply
    assert (asked.turn, asked.tool_name, asked.call_id) == (turn, "execute", "c1")
    assert (asked.input, asked.reason) == ('{"command":"touch x"}', "touch x")
    assert [e.key for e in agent.seen.of(Surfaced)] == ["k1"]


async def test_a_yes_without_an_option_for_once_is_a_no(tmp_path: Path) -> None:
    async with open_fake_acp(tmp_path) as agent:
        await agent.turn()
        asking = permission(0)
        asking["params"]["options"] = asking["params"]["options"][:1]
        agent.send(asking)
        await agent.session.answer(agent.seen.of(Asked)[0].ask, ALLOW)
        assert (await agent.replied(0))["result"] == CANCELLED
        await agent.stop()
    assert statuses(agent) == [TurnStatus.completed], "nobody has cut it"


@pytest.mark.req("R78", "R84")
@pytest.mark.bug("B07", "B26")
async def test_a_cut_cancels_the_ask_before_the_turn_and_no_yes_follows(
    tmp_path: Path,
) -> None:
    async with open_fake_acp(tmp_path) as agent:
        turn = await agent.turn()
        agent.send(call("c1"), permission(0))
        (asked,) = agent.seen.of(Asked)
        await agent.session.interrupt(turn)
        assert [m.get("method", "reply") for m in agent.sent[-2:]] == [
            "reply",
            "session/cancel",
        ]
        # Another one that was on its way, and a yes that comes too late.
        agent.send(permission(1, "c2"))
        await agent.session.answer(asked.ask, ALLOW)
        await agent.stop("end_turn")
        agent.send(permission(2))
        await wait_all_tasks_blocked()
        replies = [(await agent.replied(id))["result"] for id in range(3)]
    assert replies == [CANCELLED] * 3
    assert [e.ask for e in agent.seen.of(Asked)] == [asked.ask]
    assert statuses(agent) == [TurnStatus.interrupted]
    assert len(agent.seen.of(Noticed)) == 2


@pytest.mark.req("R78")
async def test_the_end_of_a_turn_closes_its_asks(tmp_path: Path) -> None:
    async with open_fake_acp(tmp_path) as agent:
        await agent.turn()
        agent.send(permission(0))
        (asked,) = agent.seen.of(Asked)
        await agent.stop("cancelled")
        await agent.session.answer(asked.ask, ALLOW)
        await wait_all_tasks_blocked()
    assert [e.ask for e in agent.seen.of(AskClosed)] == [asked.ask]
    assert [m for m in agent.sent if "method" not in m] == []


# What is open after a cut.


@pytest.mark.req("R44")
@pytest.mark.bug("B03")
@pytest.mark.parametrize(
    ("past", "outcome"),
    [
        ([echo("text of k1", "u2")], ItemOutcome.carried),
        ([echo("text of k1", "u2"), words("well", "a2")], ItemOutcome.surfaced),
        ([], ItemOutcome.dropped),
        ([echo("changed by the agent", "u2")], None),
    ],
)
async def test_what_a_cut_leaves_open_is_read_from_the_agents_record(
    tmp_path: Path, past: list[dict[str, object]], outcome: ItemOutcome | None
) -> None:
    async with open_fake_acp(tmp_path) as agent:
        await agent.turn("k0")
        agent.send(words("hello", "a1"))
        await agent.stop()
        turn = await agent.turn()
        await agent.session.interrupt(turn)
        await agent.stop("cancelled")
        found: list[object] = []

        async def look() -> None:
            found.append(await agent.session.history({"k1": ITEM}))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(look)
            await agent.asked("session/load")
            before = [echo("text of k0", "u1"), words("hello", "a1")]
            await agent.replay(*before, *past)
        # Of the past nothing is told again.
        assert [e.key for e in agent.seen.of(Surfaced)] == ["k0"]
        # What is carried surfaces with the next answer.
        await agent.turn("k2")
        agent.send(words("well", "a3"))
        await agent.stop()
    assert found == [{} if outcome is None else {ITEM: outcome}]
    late = ["k1"] if outcome is ItemOutcome.carried else []
    assert [e.key for e in agent.seen.of(Surfaced)] == ["k0", *late, "k2"]


async def test_nothing_is_sent_while_the_past_is_told(tmp_path: Path) -> None:
    async with open_fake_acp(tmp_path) as agent:
        await agent.turn()
        await agent.stop("cancelled")
        async with trio.open_nursery() as nursery:
            nursery.start_soon(agent.session.history, {"k1": ITEM})
            await agent.asked("session/load")
            nursery.cancel_scope.cancel()  # whoever asked has no time for it
        async with trio.open_nursery() as nursery:
            nursery.start_soon(agent.turn, "k2")
            await wait_all_tasks_blocked()
            assert len(agent.told("session/prompt")) == 1
            await agent.replay(echo("text of k1", "u1"), words("well", "a1"))
        agent.send(words("hello", "a2"))
        await agent.stop()
    assert len(agent.told("session/prompt")) == 2
    assert [e.key for e in agent.seen.of(Surfaced)] == ["k2"]


async def test_an_agent_that_cannot_load_is_not_asked_and_nothing_is_claimed(
    tmp_path: Path,
) -> None:
    async with open_fake_acp(tmp_path, loads=False) as agent:
        await agent.turn()
        await agent.session.interrupt(None)
        await agent.stop("cancelled")
        history = await agent.session.history({"k1": ITEM, "never": an_item("n").id})
    assert history == {an_item("n").id: ItemOutcome.dropped}
    assert agent.told("session/load") == []
    assert agent.seen.of(SessionNamed) == []


async def test_what_is_noted_before_it_is_written_was_certainly_never_sent_if_missing(
    tmp_path: Path,
) -> None:
    async with open_fake_acp(tmp_path / "gone") as agent:
        with pytest.raises(SubmitRefused) as refused:
            await agent.turn()  # there is no place for the note
    assert not refused.value.written
    assert agent.sent == []
    async with open_fake_acp(tmp_path) as agent:
        await agent.turn()
        assert Memory(tmp_path / "acp.json").read(SESSION).has("k1")
        assert not Memory(tmp_path / "acp.json").read("another").known


# Its wire.


@pytest.mark.bug("B10")
async def test_strange_lines_are_noise_and_unknown_requests_are_refused(
    tmp_path: Path,
) -> None:
    async with open_fake_acp(tmp_path) as agent:
        await agent.turn()
        agent.send(
            b"Loading model...",
            b'{"jsonrpc": "2.0", "method": "session/update", "params"',
            b"[]",
            {"jsonrpc": "2.0", "id": 99, "result": {"stopReason": "end_turn"}},
            {"id": 7, "method": "fs/read_text_file", "params": {"path": "/etc/passwd"}},
            {"id": 8, "method": "terminal/create", "params": {"command": "sh"}},
            {"id": 9, "method": "session/request_permission"},
        )
        codes = [(await agent.replied(id))["error"]["code"] for id in (7, 8)]
        assert (await agent.replied(9))["result"] == CANCELLED
        agent.send(words("well", "m1"))
        await agent.stop()
    assert codes == [-32601, -32601]
    assert statuses(agent) == [TurnStatus.completed]
    assert all(m["jsonrpc"] == "2.0" for m in agent.sent)


@pytest.mark.bug("B06")
async def test_a_death_in_mid_prompt_fails_whatever_waits(tmp_path: Path) -> None:
    async with open_fake_acp(tmp_path) as agent:
        await agent.turn()
        agent.send(words("well", "m1"), called("c1", "in_progress"))
        await agent.session.interrupt(None)
        await agent.stop("cancelled")
        await agent.turn("k2")
        await agent.stop("cancelled")

        async def look() -> None:
            with pytest.raises(RuntimeExited):
                await agent.session.history({"k2": an_item("k2").id})

        async with trio.open_nursery() as nursery:
            nursery.start_soon(look)
            await agent.asked("session/load")
            agent.exit(-9)


@pytest.mark.bug("B10")
async def test_what_surfaced_before_a_death_does_not_surface_again(
    tmp_path: Path,
) -> None:
    async with open_fake_acp(tmp_path) as agent:
        await agent.turn()
        agent.send(words("well", "m1"))
        agent.exit(-9)
    async with open_fake_acp(tmp_path) as agent:
        agent.session.turns.record = agent.session.memory.read(SESSION)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(agent.session.load)
            # Its half answer is not in the agent's record: OpenCode keeps none.
            await agent.replay(echo("text of k1", "u1"))
        history = await agent.session.history({"k1": ITEM})
        await agent.turn("k2")
        agent.send(words("well", "m2"))
        await agent.stop()
    assert history == {ITEM: ItemOutcome.surfaced}
    assert [e.key for e in agent.seen.of(Surfaced)] == ["k2"]


async def test_a_session_is_named_with_its_first_prompt(tmp_path: Path) -> None:
    # Before that many agents keep nothing of it.
    async with open_fake_acp(tmp_path) as agent:
        assert agent.seen.all == []
        await agent.turn()
        await agent.stop("cancelled")
        await agent.turn("k2")
    assert agent.seen.all[0] == SessionNamed(SESSION)
    assert len(agent.seen.of(SessionNamed)) == 1
