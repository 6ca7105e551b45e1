"""The driver on the real app-server: turns, steers, resumes, replies."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import trio

from agentteam_protocol.errors import RuntimeExited, RuntimeRefused
from agentteam_runtimes.driver import (
    Batch,
    Exited,
    ItemOutcome,
    Output,
    ResumeRefused,
    Said,
    SessionNamed,
    SteerRefused,
    SubmitRefused,
    Surfaced,
    ToolEnded,
    ToolStarted,
    TurnRef,
    TurnStarted,
    TurnStatus,
)
from agentteam_supervisor.chaos.models.responses import do

if TYPE_CHECKING:
    from tests.kit.codex_desk import CodexDesk

    from agentteam_runtimes.driver import Runtime

pytestmark = [pytest.mark.slow, pytest.mark.needs("codex")]


@pytest.mark.req("R10")
async def test_turn_runs_from_its_start_to_its_answer(
    desk: CodexDesk, runtime: Runtime
) -> None:
    item = desk.item(do({"say": "one two three", "ms": 10}))
    turn = await desk.begin(runtime, item)
    ended = await desk.ended(turn)

    kinds = [type(event) for event in desk.seen.of_turn(turn)]
    assert kinds[:2] == [TurnStarted, Surfaced]
    assert kinds.count(Surfaced) == 1
    assert "".join(e.text for e in desk.seen.of(Output)) == "one two three"
    assert [e.text for e in desk.seen.of(Said)] == ["one two three"]
    assert (ended.status, ended.text) == (TurnStatus.completed, "one two three")
    assert ended.items == {}
    assert ended.usage["totalTokens"] == 15
    assert desk.model.requests[0].user_texts == [item.text]


async def test_entry_surfaces_on_evidence_and_not_on_the_answer(
    desk: CodexDesk,
    runtime: Runtime,
) -> None:
    item = desk.item(do({"say": "hello"}))
    turn = await runtime.start_turn(Batch("b", (item,)))
    # The answer is here; the evidence comes on the stream, in its own time.
    surfaced = await desk.seen.first(Surfaced)
    await desk.ended(turn)

    assert (surfaced.item, surfaced.key, surfaced.turn) == (item.id, item.key, turn)
    assert surfaced.evidence.kind == "item/completed userMessage clientId"


async def test_batch_surfaces_as_one_submission_with_its_own_entries(
    desk: CodexDesk,
    runtime: Runtime,
) -> None:
    first, second = desk.item("before that"), desk.item("the urgent one")
    turn = await desk.begin(runtime, first, second)
    await desk.ended(turn)
    keys = {first.key: first.id, second.key: second.id}
    history = await runtime.history(keys)

    surfaced = desk.seen.of(Surfaced)
    assert [(e.item, e.key) for e in surfaced] == [
        (first.id, first.key),
        (second.id, second.key),
    ]
    assert set(history.values()) == {ItemOutcome.surfaced}
    assert len(desk.model.requests) == 1
    assert "before that" in desk.model.requests[0].user_texts[-1]
    assert "the urgent one" in desk.model.requests[0].user_texts[-1]


@pytest.mark.req("R21", "R45")
async def test_steer_surfaces_at_the_next_boundary_of_the_running_turn(
    desk: CodexDesk,
    runtime: Runtime,
) -> None:
    script = do({"run": "sleep 1; echo done"}, {"say": "after the tool"})
    turn = await desk.begin(runtime, desk.item(script))
    await desk.seen.first(ToolStarted)
    steered = desk.item("and also this")
    await runtime.steer(turn, steered)
    # Accepted, and not a bit surfaced: the tool still runs.
    assert not desk.seen.of(Surfaced, lambda e: e.key == steered.key)
    surfaced = await desk.seen.first(Surfaced, lambda e: e.key == steered.key)
    assert desk.seen.of(ToolEnded)[0].output == "done\n"
    ended = await desk.ended(turn)

    assert surfaced.turn == turn
    assert ended.items == {}
    assert desk.model.requests[1].user_texts[-1] == "and also this"


@pytest.mark.bug("B40")
@pytest.mark.req("R20")
async def test_steer_never_cuts_streaming_text(
    desk: CodexDesk, runtime: Runtime
) -> None:
    script = do({"stream": 30, "ms": 20}, {"say": "heard it"})
    turn = await desk.begin(runtime, desk.item(script))
    await desk.seen.first(Output)
    await runtime.steer(turn, desk.item("please stop now, this is urgent"))
    await desk.ended(turn)

    whole = "".join(f"tok{n} " for n in range(30))
    assert [e.text for e in desk.seen.of(Said)] == [whole, "heard it"]
    assert [r.end for r in desk.model.requests] == ["completed", "completed"]
    assert "turn/interrupt" not in desk.home.calls


@pytest.mark.bug("B16")
async def test_steer_of_a_finished_turn_is_refused_and_may_be_sent_again(
    desk: CodexDesk,
    runtime: Runtime,
) -> None:
    turn = await desk.begin(runtime, desk.item(do({"say": "short"})))
    await desk.ended(turn)
    with pytest.raises(SteerRefused) as refused:
        await runtime.steer(turn, desk.item("too late"))

    assert not refused.value.written
    assert not desk.model.told("too late")


@pytest.mark.bug("B16")
async def test_steer_with_a_stale_turn_is_repeated_with_the_turn_codex_names(
    desk: CodexDesk,
    runtime: Runtime,
) -> None:
    script = do({"run": "sleep 1"}, {"say": "end"})
    turn = await desk.begin(runtime, desk.item(script))
    stale = TurnRef("00000000-0000-7000-8000-000000000000")
    steered = desk.item("meant for the running turn")
    await runtime.steer(stale, steered)
    surfaced = await desk.seen.first(Surfaced, lambda e: e.key == steered.key)
    await desk.ended(turn)

    assert surfaced.turn == turn
    assert desk.home.calls.count("turn/steer") == 2
    assert len(desk.model.told("meant for the running turn")) == 1


@pytest.mark.req("R30")
async def test_turn_is_not_started_while_another_is_active(
    desk: CodexDesk, runtime: Runtime
) -> None:
    turn = await desk.begin(runtime, desk.item(do({"stream": 20, "ms": 20})))
    with pytest.raises(SubmitRefused) as refused:
        await runtime.start_turn(Batch("b2", (desk.item("second"),)))
    await desk.ended(turn)

    assert not refused.value.written
    assert desk.home.calls.count("turn/start") == 1


async def test_failing_model_fails_the_turn_with_its_message(
    desk: CodexDesk, runtime: Runtime
) -> None:
    turn = await desk.begin(runtime, desk.item(do({"http": 500})))
    ended = await desk.ended(turn)
    again = await desk.begin(runtime, desk.item("and now"))
    after = await desk.ended(again)

    assert ended.status is TurnStatus.failed
    assert ended.detail
    assert (after.status, after.text) == (TurnStatus.completed, "Heard: and now")


async def test_history_settles_what_a_killed_process_had_accepted(
    desk: CodexDesk,
) -> None:
    with trio.fail_after(60):
        async with desk.open() as runtime:
            begun = desk.item(do({"run": "sleep 30"}))
            turn = await desk.begin(runtime, begun)
            await desk.seen.first(ToolStarted)
            pending = desk.item("accepted, never read")
            await runtime.steer(turn, pending)
            assert runtime.containment is not None
            assert await runtime.containment.kill() == []
            exited = await desk.seen.first(Exited)
            with pytest.raises(RuntimeExited):
                await runtime.interrupt(turn)
        session = desk.session
        async with desk.open(resume=session) as runtime:
            never = desk.item("never sent")
            items = (begun, pending, never)
            history = await runtime.history({i.key: i.id for i in items})
            turn = await desk.begin(runtime, desk.item("go on"))
            ended = await desk.ended(turn)

    assert exited.returncode != 0
    assert desk.session == session
    assert history == {
        begun.id: ItemOutcome.surfaced,
        pending.id: ItemOutcome.dropped,
        never.id: ItemOutcome.dropped,
    }
    assert ended.status is TurnStatus.completed
    assert begun.text in desk.model.requests[-1].user_texts
    assert not desk.model.told("accepted, never read")


@pytest.mark.bug("B03")
async def test_session_that_does_not_exist_is_refused_as_such(desk: CodexDesk) -> None:
    for gone in ("00000000-0000-7000-8000-000000000000", "no-such-thread"):
        with trio.fail_after(60), pytest.raises(ResumeRefused):
            async with desk.open(resume=gone):
                pass


async def test_session_without_any_input_is_not_named(desk: CodexDesk) -> None:
    """Codex could not resume it, and nothing is lost with it."""
    with trio.fail_after(60):
        async with desk.open():
            assert not desk.seen.of(SessionNamed)
        async with desk.open() as runtime:
            turn = await desk.begin(runtime, desk.item("hello"))
            await desk.seen.first(Surfaced)
            assert runtime.containment is not None
            await runtime.containment.kill()
        async with desk.open(resume=desk.session) as runtime:
            again = await desk.begin(runtime, desk.item("go on"))
            await desk.ended(again)

    assert again != turn


async def test_session_that_another_process_has_is_not_taken_for_lost(
    desk: CodexDesk,
) -> None:
    with trio.fail_after(60):
        async with desk.open() as runtime:
            turn = await desk.begin(runtime, desk.item("hello"))
            await desk.ended(turn)
            with pytest.raises(RuntimeRefused, match="active writer"):
                async with desk.open(resume=desk.session):
                    pass


async def test_sandbox_and_policy_are_passed_again_on_resume(desk: CodexDesk) -> None:
    with trio.fail_after(60):
        async with desk.open() as runtime:
            turn = await desk.begin(runtime, desk.item("hello"))
            await desk.ended(turn)
        async with desk.open(resume=desk.session) as runtime:
            turn = await desk.begin(runtime, desk.item(do({"run": "touch made"})))
            await desk.ended(turn)

    assert (desk.home.workdir / "made").exists()
    started, resumed = [
        message["params"]
        for message in desk.home.wire
        if message.get("method") in ("thread/start", "thread/resume")
    ]
    for key in ("sandbox", "approvalPolicy", "cwd"):
        assert started[key] == resumed[key]
