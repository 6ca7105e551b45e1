"""The driver on the real server: turns, cuts, what is carried, asks, deaths."""

from __future__ import annotations

from typing import TYPE_CHECKING

import psutil
import pytest
import trio

from agentteam_protocol.approval import ApprovalOutcome
from agentteam_protocol.errors import RuntimeRefused
from agentteam_runtimes.driver import (
    Asked,
    Batch,
    Exited,
    ItemOutcome,
    Noticed,
    Output,
    ResumeRefused,
    Said,
    SteerRefused,
    SubmitRefused,
    Surfaced,
    ToolEnded,
    ToolStarted,
    TurnStarted,
    TurnStatus,
)
from agentteam_runtimes.opencode import wire
from agentteam_runtimes.opencode.driver import OpenCodeDriver
from agentteam_runtimes.opencode.session import OpenCodeSession
from agentteam_supervisor.chaos.models.responses import do

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.kit.opencode_desk import OpenCodeDesk

    from agentteam_runtimes.driver import InputItem, TurnRef

pytestmark = [pytest.mark.slow, pytest.mark.needs("opencode")]

STREAM = do({"stream": 1000, "ms": 20})
ASKING = {"permission": {"bash": "ask"}}
SECONDS = 180  # eight times what it takes on two idle cores


def leftovers(desk: OpenCodeDesk) -> list[str]:
    """Name what lives of this home, by its environment."""
    mark = f"HOME={desk.home.path}"
    found: list[str] = []
    for process in psutil.process_iter():
        try:
            if mark in [f"{k}={v}" for k, v in process.environ().items()]:
                found.append(" ".join(process.cmdline()))
        except psutil.Error:
            continue
    return found


def surfaced(desk: OpenCodeDesk, item: InputItem) -> list[Surfaced]:
    return desk.seen.of(Surfaced, lambda e: e.key == item.key)


@pytest.mark.req("R10", "R44", "R45")
async def test_a_turn_runs_from_its_start_to_its_answer(desk: OpenCodeDesk) -> None:
    with trio.fail_after(SECONDS):
        async with desk.open() as runtime:
            first, second = desk.item("before that "), desk.item("the urgent one")
            turn = await runtime.start_turn(Batch("b", (first, second)))
            with pytest.raises(SubmitRefused) as refused:
                await runtime.start_turn(Batch("c", (desk.item("too early"),)))
            ended = await desk.ended(turn)
            script = do({"run": "echo hi; exit 3"}, {"say": "one two", "ms": 5})
            worked = await desk.whole_turn(runtime, script)
            keys = {first.key: first.id, "nobody.1": second.id}
            history = await runtime.history(keys)
    assert not refused.value.written
    kinds = [type(event) for event in desk.seen.of_turn(turn)]
    assert kinds[:3] == [TurnStarted, Surfaced, Surfaced]
    told = desk.seen.of(Surfaced)[:2]
    assert [(e.item, e.key) for e in told] == [
        (first.id, first.key),
        (second.id, second.key),
    ]
    assert told[0].evidence.kind == "step-start of the answer"
    assert ended.status is TurnStatus.completed
    request = desk.model.requests[0]
    assert "".join(request.user_texts) == "before that the urgent one"
    (call,) = desk.seen.of(ToolEnded)
    assert (call.output, call.error) == ("hi\n", "exit code 3")
    assert (worked.text, worked.usage) == ("one two", {"input": 20, "output": 10})
    assert [e.text for e in desk.seen.of(Said, lambda e: e.turn == worked.turn)] == [
        "one two"
    ]
    assert history == {
        first.id: ItemOutcome.surfaced,
        second.id: ItemOutcome.dropped,
    }
    assert len(desk.model.requests) == 3
    assert leftovers(desk) == []
    assert not (desk.home.path / "state" / "opencode-tmp").exists()


@pytest.mark.req("R29", "R32", "R35")
@pytest.mark.bug("B02", "B35")
async def test_a_cut_turn_ends_and_the_next_one_is_read(desk: OpenCodeDesk) -> None:
    with trio.fail_after(SECONDS):
        async with desk.open() as runtime:
            await desk.whole_turn(runtime, "warm")
            turn = await desk.begin(runtime, desk.item(STREAM))
            await desk.seen.first(Output, lambda e: e.turn == turn)
            await runtime.interrupt(turn)
            ended = await desk.ended(turn)
            await desk.whole_turn(runtime, "the urgent one")
            # Again, before OpenCode has begun to work on it.
            early = desk.item("early. ")
            cut = await runtime.start_turn(Batch("early", (early,)))
            await runtime.interrupt(cut)
            stranded = await desk.ended(cut)
            again = desk.item("early. ")
            later = await desk.begin(runtime, again, desk.item("later. "))
            await desk.ended(later)
            # An interrupt of nothing harms nothing.
            await runtime.interrupt(later)
            history = await runtime.history({early.key: early.id})
    assert ended.status is TurnStatus.interrupted
    assert desk.model.requests[1].end == "client gone"
    assert desk.model.requests[2].user_texts[-1] == "the urgent one"
    assert stranded.status is TurnStatus.interrupted
    assert stranded.items == {early.id: ItemOutcome.dropped}
    assert history == {early.id: ItemOutcome.dropped}
    assert surfaced(desk, early) == []
    assert [e.turn for e in surfaced(desk, again)] == [later]
    told = "".join(desk.model.requests[-1].user_texts)
    assert (told.count("early. "), told.count("later. ")) == (1, 1)


@pytest.mark.req("R44")
async def test_what_opencode_does_not_give_back_is_read_with_the_next_message(
    desk: OpenCodeDesk, monkeypatch: pytest.MonkeyPatch
) -> None:
    with trio.fail_after(SECONDS):
        async with desk.open() as runtime:
            await desk.whole_turn(runtime, "warm")
            monkeypatch.setattr(wire, "message", lambda *_: "/no/such/path")
            early = desk.item("early. ")
            turn = await runtime.start_turn(Batch("early", (early,)))
            await runtime.interrupt(turn)
            cut = await desk.ended(turn)
            history = await runtime.history({early.key: early.id})
            later = await desk.whole_turn(runtime, "later. ")
            after = await runtime.history({early.key: early.id})
    assert cut.items == history == {early.id: ItemOutcome.carried}
    assert after == {early.id: ItemOutcome.surfaced}
    assert [e.turn for e in surfaced(desk, early)] == [later.turn]
    told = "".join(desk.model.requests[-1].user_texts)
    assert (told.count("early. "), told.count("later. ")) == (1, 1)
    assert [e for e in desk.seen.of(Noticed) if "keeps a message" in e.what]


@pytest.mark.req("R20", "R21", "R45")
@pytest.mark.bug("B16", "B40")
async def test_a_steer_is_read_at_the_next_step_or_taken_back(
    desk: OpenCodeDesk,
) -> None:
    with trio.fail_after(SECONDS):
        async with desk.open() as runtime:
            turn = await desk.begin(runtime, desk.item(do({"run": "sleep 1"})))
            await desk.seen.first(ToolStarted)
            steered = desk.item("and also this. ")
            await runtime.steer(turn, steered)
            assert not surfaced(desk, steered)
            ended = await desk.ended(turn)
            # Streaming text goes on to its end before a steer is read.
            turn = await desk.begin(runtime, desk.item(do({"stream": 80, "ms": 20})))
            await desk.seen.first(Output, lambda e: e.turn == turn)
            second = desk.item("and that. ")
            await runtime.steer(turn, second)
            streamed = await desk.ended(turn)
            with pytest.raises(SteerRefused) as refused:
                await runtime.steer(turn, desk.item("too late"))
            turn = await desk.begin(runtime, desk.item(do({"run": "sleep 20"})))
            await desk.seen.first(ToolStarted, lambda e: e.turn == turn)
            third = desk.item("stranded. ")
            await runtime.steer(turn, third)
            await runtime.interrupt(turn)
            cut = await desk.ended(turn)
            last = desk.item("stranded. "), desk.item("last. ")
            ended_last = await desk.ended(await desk.begin(runtime, *last))
    assert (ended.status, ended.items) == (TurnStatus.completed, {})
    assert [e.turn for e in surfaced(desk, steered)] == [ended.turn]
    assert streamed.items == {}
    assert [e.turn for e in surfaced(desk, second)] == [streamed.turn]
    words = [e.text for e in desk.seen.of(Said, lambda e: e.turn == streamed.turn)]
    assert words[0] == "".join(f"tok{n} " for n in range(80))
    assert not refused.value.written
    assert cut.items == {third.id: ItemOutcome.dropped}
    assert surfaced(desk, third) == []
    assert [e.turn for e in surfaced(desk, last[0])] == [ended_last.turn]
    told = "".join(desk.model.requests[-1].user_texts)
    assert [told.count(i.text) for i in (steered, second, third)] == [1, 1, 1]


@pytest.mark.req("R70", "R78", "R92")
@pytest.mark.bug("B07", "B26")
async def test_only_what_is_allowed_in_time_runs(desk: OpenCodeDesk) -> None:
    with trio.fail_after(SECONDS):
        async with desk.open(ASKING) as runtime:
            for outcome in ApprovalOutcome:
                script = do({"run": f"touch {outcome}"}, {"say": "went on"})
                turn = await desk.begin(runtime, desk.item(script))
                asked = await desk.seen.first(Asked, of_turn(turn))
                await runtime.answer(asked.ask, outcome)
                ended = await desk.ended(turn)
                assert ended.status is TurnStatus.completed, outcome
            turn = await desk.begin(runtime, desk.item(do({"run": "touch late"})))
            asked = await desk.seen.first(Asked, of_turn(turn))
            await runtime.interrupt(turn)
            await runtime.answer(asked.ask, ApprovalOutcome.allowed_once)
            cut = await desk.ended(turn)
            await desk.whole_turn(runtime, "the urgent one")
            assert isinstance(runtime, OpenCodeSession)
            assert await runtime.server.get(wire.PERMISSIONS) == []
    assert (asked.tool_name, asked.call_id is not None) == ("bash", True)
    assert "touch late" in asked.input
    assert cut.status is TurnStatus.interrupted
    made = {path.name for path in desk.home.workdir.iterdir()}
    assert made == {"allowed-once"}
    went_on = [r for r in desk.model.requests if r.step == {"say": "went on"}]
    assert len(went_on) == 3, "a cancelled call ends its turn"


def of_turn(turn: TurnRef) -> Callable[[Asked], bool]:
    return lambda e: e.turn == turn


@pytest.mark.req("R29")
@pytest.mark.bug("B24")
async def test_a_cut_reaches_a_sub_agent_and_what_it_asks(desk: OpenCodeDesk) -> None:
    child = {"description": "d", "subagent_type": "general"}
    asking = do({"call": "task", "with": child | {"prompt": do({"run": "touch x"})}})
    working = do({"call": "task", "with": child | {"prompt": do({"run": "sleep 20"})}})
    config = {"permission": {"bash": {"*": "allow", "touch*": "ask"}, "task": "allow"}}
    with trio.fail_after(SECONDS):
        async with desk.open(config) as runtime:
            for script in (asking, working):
                turn = await desk.begin(runtime, desk.item(script))
                if script is asking:
                    await desk.seen.first(Asked, in_child_of(turn))
                else:
                    await desk.seen.first(ToolStarted, in_child_of(turn))
                await runtime.interrupt(turn)
                await desk.ended(turn)
                before = len(desk.model.requests)
                await desk.whole_turn(runtime, "the urgent one")
                assert len(desk.model.requests) == before + 1
            assert isinstance(runtime, OpenCodeSession)
            assert await runtime.server.get(wire.PERMISSIONS) == []
    assert not (desk.home.workdir / "x").exists()


def in_child_of(turn: TurnRef) -> Callable[[Asked | ToolStarted], bool]:
    return lambda e: e.turn == turn and "/" in (e.call_id or "")


@pytest.mark.req("R56", "R117")
async def test_a_failing_model_fails_the_turn_and_one_that_is_retried_can_be_cut(
    desk: OpenCodeDesk,
) -> None:
    with trio.fail_after(SECONDS):
        async with desk.open() as runtime:
            failed = await desk.whole_turn(runtime, do({"http": 401}))
            turn = await desk.begin(runtime, desk.item(do({"http": 500})))
            await desk.seen.first(Noticed, lambda e: "retries" in e.what)
            await runtime.interrupt(turn)
            cut = await desk.ended(turn)
            done = await desk.whole_turn(runtime, "again")
            # A lost stream of events is opened again, and its turn is found over.
            turn = await desk.begin(runtime, desk.item(STREAM))
            await desk.seen.first(Output, lambda e: e.turn == turn)
            assert isinstance(runtime, OpenCodeSession)
            await runtime.server.post(wire.DISPOSE_INSTANCE)
            lost = await desk.ended(turn)
            after = await desk.whole_turn(runtime, "and again")
    assert (failed.status, failed.detail) == (
        TurnStatus.failed,
        "scripted failure (HTTP 401)",
    )
    assert cut.status is TurnStatus.interrupted
    assert done.status is TurnStatus.completed
    assert lost.status in (TurnStatus.interrupted, TurnStatus.failed)
    assert after.status is TurnStatus.completed


@pytest.mark.req("R44", "R66")
@pytest.mark.bug("B03", "B10", "B25")
async def test_killed_it_is_resumed_and_gives_back_what_it_did_not_read(
    desk: OpenCodeDesk,
) -> None:
    with trio.fail_after(SECONDS):
        async with desk.open() as runtime:
            turn = await desk.begin(runtime, desk.item(do({"run": "sleep 30"})))
            await desk.seen.first(ToolStarted)
            kept = desk.item("kept. ")
            await runtime.steer(turn, kept)
            assert runtime.containment is not None
            await runtime.containment.kill()
            await desk.seen.first(Exited)
            session = desk.session
        assert leftovers(desk) == []
        async with desk.open(resume=session) as runtime:
            keys = {kept.key: kept.id, "nobody.1": desk.item("").id}
            history = await runtime.history(keys)
            again = desk.item("kept. "), desk.item("after. ")
            after = await desk.ended(await desk.begin(runtime, *again))
        await refused_elsewhere(desk, session)
    assert desk.session == session
    assert list(history.values()) == [ItemOutcome.dropped, ItemOutcome.dropped]
    assert surfaced(desk, kept) == []
    assert [e.turn for e in surfaced(desk, again[0])] == [after.turn]
    told = "".join(desk.model.requests[-1].user_texts)
    assert (told.count("kept. "), told.count("after. ")) == (1, 1)
    assert "sleep 30" in told


async def refused_elsewhere(desk: OpenCodeDesk, session: str) -> None:
    """Neither a session that is not there nor one of another place is begun anew."""
    with pytest.raises(ResumeRefused):
        async with desk.open(resume="ses_nobody"):
            raise AssertionError("it opened")
    (desk.home.path / "elsewhere").mkdir()
    spec = desk.spec({}, resume=session)
    object.__setattr__(spec, "workdir", desk.home.path / "elsewhere")
    with pytest.raises(RuntimeRefused, match="belongs to"):
        async with OpenCodeDriver().open(spec, None, desk.seen):
            raise AssertionError("it opened")
