"""The driver on the real Claude Code: turns, evidence, steers, resumes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import trio

from agentteam_protocol.errors import RuntimeMissing
from agentteam_runtimes.claude import driver
from agentteam_runtimes.claude.driver import ClaudeDriver
from agentteam_runtimes.claude.record import Tail
from agentteam_runtimes.claude.turns import NAMED, REPEATED
from agentteam_runtimes.driver import (
    EvidenceLevel,
    Exited,
    InputItem,
    ItemOutcome,
    Options,
    Output,
    ResumeRefused,
    Said,
    SteerRefused,
    Surfaced,
    ToolEnded,
    ToolStarted,
    TurnEnded,
    TurnStarted,
    TurnStatus,
)
from agentteam_supervisor.chaos.models.responses import do

if TYPE_CHECKING:
    from tests.kit.claude_desk import ClaudeDesk

pytestmark = [pytest.mark.slow]


async def recorded(desk: ClaudeDesk, item: InputItem) -> None:
    """Wait for what Claude writes some 100 ms late: a kill before that loses it."""
    while not any(item.key in path.read_text() for path in desk.home.records):  # noqa: ASYNC110
        await trio.sleep(0.02)


@pytest.mark.req("R10", "R65")
async def test_turn_runs_from_its_start_to_its_answer(desk: ClaudeDesk) -> None:
    with trio.fail_after(60):
        capabilities = ClaudeDriver().probe(desk.spec().options)
        async with desk.open() as runtime:
            item = desk.item(do({"say": "one two three", "ms": 10}))
            turn = await desk.begin(runtime, item)
            ended = await desk.ended(turn)

    assert capabilities.evidence is EvidenceLevel.answered
    assert capabilities.version in str(desk.home.bin)
    kinds = [type(event) for event in desk.seen.of_turn(turn)]
    assert (kinds[0], kinds[-1]) == (TurnStarted, TurnEnded)
    assert kinds.count(TurnStarted) == kinds.count(Surfaced) == 1
    assert kinds.index(Surfaced) < kinds.index(Said)
    assert "".join(e.text for e in desk.seen.of(Output)) == "one two three"
    assert [e.text for e in desk.seen.of(Said)] == ["one two three"]
    assert (ended.status, ended.text) == (TurnStatus.completed, "one two three")
    assert ended.items == {}
    assert ended.usage["output_tokens"] == 5
    assert desk.model.requests[0].user_texts == [item.text]


@pytest.mark.inv(12)
async def test_entry_surfaces_when_the_model_answers_and_not_before(
    desk: ClaudeDesk,
) -> None:
    with trio.fail_after(60):
        async with desk.open() as runtime:
            item = desk.item(do({"wait": 0.6, "say": "hello"}))
            turn = await desk.begin(runtime, item)
            request = await desk.model.wait_for_requests(1)
            await trio.sleep(0.3)
            assert not desk.seen.of(Surfaced), "the request is out, and not answered"
            surfaced = await desk.seen.first(Surfaced)
            await desk.ended(turn)

    assert request.user_texts == [item.text]
    assert (surfaced.item, surfaced.key, surfaced.turn) == (item.id, item.key, turn)
    named = "2.1.197" not in str(desk.home.bin)
    assert surfaced.evidence.kind == (NAMED if named else REPEATED)


async def test_batch_surfaces_as_one_input_with_its_own_entries(
    desk: ClaudeDesk,
) -> None:
    with trio.fail_after(60):
        async with desk.open() as runtime:
            first, second = desk.item("before that"), desk.item("/help me, urgent")
            turn = await desk.begin(runtime, first, second)
            await desk.ended(turn)
            keys = {first.key: first.id, second.key: second.id}
            history = await runtime.history(keys)

    surfaced = desk.seen.of(Surfaced, lambda e: e.turn == turn)
    assert [(e.item, e.key) for e in surfaced] == [
        (first.id, first.key),
        (second.id, second.key),
    ]
    assert set(history.values()) == {ItemOutcome.surfaced}
    request = desk.model.requests[0]
    # A text that begins like a command of Claude is a text all the same.
    assert request.user_texts == ["before that", "/", "help me, urgent"]


@pytest.mark.req("R21", "R45")
async def test_steer_surfaces_at_the_next_boundary_of_the_running_turn(
    desk: ClaudeDesk,
) -> None:
    with trio.fail_after(60):
        async with desk.open() as runtime:
            script = do({"run": "sleep 0.7; echo done"}, {"say": "after the tool"})
            turn = await desk.begin(runtime, desk.item(script))
            await desk.seen.first(ToolStarted)
            steered = desk.item("and also this")
            await runtime.steer(turn, steered)
            surfaced = await desk.seen.first(Surfaced, lambda e: e.key == steered.key)
            assert desk.seen.of(ToolEnded)[0].output == "done"
            ended = await desk.ended(turn)

    assert surfaced.turn == turn
    assert (ended.items, ended.text) == ({}, "after the tool")
    assert desk.model.requests[1].user_texts[-1] == "and also this"
    assert desk.model.requests[0].end == "completed"


async def test_steer_without_a_boundary_is_read_before_the_turn_ends(
    desk: ClaudeDesk,
) -> None:
    """Streaming text is not cut; the entry begins a round that is still the turn's."""
    with trio.fail_after(60):
        async with desk.open() as runtime:
            turn = await desk.begin(runtime, desk.item(do({"stream": 20, "ms": 20})))
            await desk.seen.first(Output)
            steered = desk.item("and then this")
            await runtime.steer(turn, steered)
            ended = await desk.ended(turn)

    assert [r.end for r in desk.model.requests] == ["completed", "completed"]
    assert [e.key for e in desk.seen.of(Surfaced)][-1] == steered.key
    assert (ended.items, ended.text) == ({}, "Heard: and then this")
    assert len(desk.seen.of(TurnEnded)) == 1


async def test_steer_of_a_turn_that_ended_is_refused(desk: ClaudeDesk) -> None:
    with trio.fail_after(60):
        async with desk.open() as runtime:
            turn = await desk.begin(runtime, desk.item("hello"))
            await desk.ended(turn)
            with pytest.raises(SteerRefused) as refused:
                await runtime.steer(turn, desk.item("too late"))
    assert not refused.value.written


@pytest.mark.req("R44", "R46")
@pytest.mark.bug("B03")
async def test_killed_session_is_resumed_with_what_it_had_read(
    desk: ClaudeDesk,
) -> None:
    with trio.fail_after(60):
        async with desk.open() as runtime:
            first = desk.item("remember me")
            await desk.ended(await desk.begin(runtime, first))
            await recorded(desk, first)
            turn = await desk.begin(runtime, desk.item(do({"stream": 900, "ms": 20})))
            await desk.seen.first(Output, lambda e: e.turn == turn)
            queued = desk.item("only queued")
            await runtime.steer(turn, queued)
            assert runtime.containment is not None
            await runtime.containment.kill()
            await desk.seen.first(Exited)
        async with desk.open(resume=desk.session) as runtime:
            keys = {first.key: first.id, queued.key: queued.id}
            history = await runtime.history(keys)
            await desk.ended(await desk.begin(runtime, desk.item("go on")))

    # An older version records an answer so late that a kill may lose it: then its
    # input counts as carried, and as surfaced once more with the next answer.
    assert history[first.id] in (ItemOutcome.surfaced, ItemOutcome.carried)
    assert history[queued.id] is ItemOutcome.dropped
    assert desk.model.requests[-1].user_texts[0] == "remember me"
    assert "only queued" not in desk.model.requests[-1].user_texts


async def test_a_row_that_it_does_not_have_after_all_does_not_keep_it_from_coming_back(
    desk: ClaudeDesk, monkeypatch: pytest.MonkeyPatch
) -> None:
    with trio.fail_after(60):
        async with desk.open() as runtime:
            first = desk.item("remember me")
            await desk.ended(await desk.begin(runtime, first))
            await recorded(desk, first)
            turn = await desk.begin(runtime, desk.item(do({"stream": 900, "ms": 20})))
            await desk.seen.first(Output, lambda e: e.turn == turn)
            queued = desk.item("only queued")
            await runtime.steer(turn, queued)
            assert runtime.containment is not None
            await runtime.containment.kill()
            await desk.seen.first(Exited)
        row = Tail("0b9526d0-0000-4000-8000-000000000000", (queued.key,))
        monkeypatch.setattr(driver, "find_tail", lambda *_: row)
        async with desk.open(resume=desk.session) as runtime:
            history = await runtime.history({queued.key: queued.id})
            await desk.ended(await desk.begin(runtime, desk.item("go on")))
    assert history[queued.id] is ItemOutcome.dropped
    texts = desk.model.requests[-1].user_texts
    assert (texts[0], texts[-1]) == ("remember me", "go on")


@pytest.mark.bug("B03", "B10")
async def test_killed_after_a_resume_it_remembers_what_it_did_since(
    desk: ClaudeDesk,
) -> None:
    """Its record may name an end of its own that the session has left since."""
    with trio.fail_after(60):
        async with desk.open() as runtime:
            await desk.ended(await desk.begin(runtime, desk.item("first")))
            turn = await desk.begin(runtime, desk.item(do({"run": "sleep 300"})))
            await desk.seen.first(ToolStarted, lambda e: e.turn == turn)
            await trio.sleep(0.5)  # it writes its record some 100 ms late
        async with desk.open(resume=desk.session) as runtime:
            await desk.ended(await desk.begin(runtime, desk.item("second")))
            await trio.sleep(0.5)
            assert runtime.containment is not None
            await runtime.containment.kill()
        async with desk.open(resume=desk.session) as runtime:
            await desk.ended(await desk.begin(runtime, desk.item("third")))
    told = desk.model.requests[-1].user_texts
    assert (told[0], told[-2:]) == ("first", ["second", "third"])


async def test_unknown_session_is_refused_as_such(desk: ClaudeDesk) -> None:
    gone = "0b9526d0-0000-4000-8000-000000000000"
    with trio.fail_after(60):
        with pytest.raises(ResumeRefused, match=gone):
            async with desk.open(resume=gone):
                pass
    assert desk.model.requests == []


async def test_a_failing_model_fails_the_turn_and_says_why(desk: ClaudeDesk) -> None:
    with trio.fail_after(60):
        async with desk.open() as runtime:
            script = do({"http": 401})
            ended = await desk.ended(await desk.begin(runtime, desk.item(script)))
            again = await desk.ended(await desk.begin(runtime, desk.item("again")))
    assert ended.status is TurnStatus.failed
    assert "scripted failure" in ended.detail
    assert again.status is TurnStatus.completed


@pytest.mark.parametrize(
    ("said", "part"),
    [
        (None, "there is no program"),
        ("echo '2.0.9 (Claude Code)'", "older than 2.1.197"),
        ("echo GNU sed 4.9", "is no Claude Code"),
    ],
)
def test_a_program_that_is_no_claude_is_named_with_what_to_do(
    tmp_path_factory: pytest.TempPathFactory, said: str | None, part: str
) -> None:
    program = tmp_path_factory.mktemp("bin") / "claude"
    if said is not None:
        program.write_text(f"#!/bin/sh\n{said}\n")
        program.chmod(0o755)
    with pytest.raises(RuntimeMissing, match=part) as missing:
        ClaudeDriver().probe(Options(bin=str(program)))
    assert "npm install" in missing.value.what_to_do
