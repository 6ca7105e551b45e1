"""Every step of the script's table, once, by a real process."""

from __future__ import annotations

import base64
import json
import signal
from functools import partial
from typing import TYPE_CHECKING, Any

import psutil
import pytest
import trio
from tests.kit.rehearsal import do, entry, open_stage

from agentteam_protocol.approval import ApprovalOutcome
from agentteam_runtimes.driver import (
    AskClosed,
    Asked,
    InterruptRefused,
    Noticed,
    Output,
    ReadCalled,
    Said,
    SendCalled,
    SteerRefused,
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

pytestmark = pytest.mark.slow


async def test_say_streams_word_by_word_and_is_the_answer(tmp_path: Path) -> None:
    with trio.fail_after(10):
        async with open_stage(tmp_path) as stage:
            ended = await stage.play({"say": "one two  three", "ms": 1})
    assert [o.text for o in stage.all(Output)] == ["one ", "two ", " ", "three"]
    assert [s.text for s in stage.all(Said)] == ["one two  three"]
    assert (ended.status, ended.text) == (TurnStatus.completed, "one two  three")
    assert {event.turn for event in stage.all(Output)} == {ended.turn}
    assert {event.turn for event in stage.all(Said)} == {ended.turn}


async def test_a_plain_body_is_heard_over_about_a_second(tmp_path: Path) -> None:
    with trio.fail_after(10):
        async with open_stage(tmp_path) as stage:
            turn = await stage.submit("hello there, are you awake?")
            began = trio.current_time()
            ended = await stage.end_of(turn)
            took = trio.current_time() - began
    assert ended.text == "Heard: hello there, are you awake?"
    assert len(stage.all(Output)) == 6
    assert 0.7 < took < 3


async def test_plain_bodies_of_one_batch_are_answered_together(tmp_path: Path) -> None:
    with trio.fail_after(10):
        async with open_stage(tmp_path) as stage:
            ended = await stage.end_of(await stage.submit("a", "b"))
    assert ended.text == "Heard: a\nHeard: b"
    assert [event.turn for event in stage.all(Surfaced)] == [ended.turn] * 2
    started = stage.all(TurnStarted)[0]
    assert started.turn == ended.turn
    assert stage.events.index(started) < stage.events.index(stage.all(Surfaced)[0])


async def test_run_is_a_tool_call_with_a_real_shell(tmp_path: Path) -> None:
    with trio.fail_after(10):
        async with open_stage(tmp_path) as stage:
            await stage.play({"run": "echo out; pwd >where"}, {"run": "exit 3"})
    first, second = stage.all(ToolEnded)
    assert [(t.name, t.input) for t in stage.all(ToolStarted)] == [
        ("shell", "echo out; pwd >where"),
        ("shell", "exit 3"),
    ]
    assert (first.output, first.error) == ("out\n", None)
    assert second.error == "exit code 3"
    assert (tmp_path / "where").read_text().strip() == str(tmp_path)


async def test_a_shell_that_cannot_start_fails_the_turn(tmp_path: Path) -> None:
    with trio.fail_after(10):
        async with open_stage(tmp_path) as stage:
            ended = await stage.play({"run": "echo \0"})
            assert ended.status is TurnStatus.failed
            assert (await stage.play({"say": "still here"})).text == "still here"


@pytest.mark.parametrize("outcome", list(ApprovalOutcome))
async def test_ask_guards_the_run_that_follows(
    tmp_path: Path, outcome: ApprovalOutcome
) -> None:
    script = ({"ask": "shell", "reason": "why", "input": "{}"}, {"run": "touch ran"})
    with trio.fail_after(10):
        async with open_stage(tmp_path) as stage:
            turn = await stage.begin(*script)
            asked = await stage.until(Asked)
            await stage.runtime.answer(asked.ask, outcome)
            await stage.end_of(turn)
    assert (asked.turn, asked.tool_name, asked.reason) == (turn, "shell", "why")
    assert stage.all(Said)[0].text == f"shell: {outcome}"
    allowed = outcome is ApprovalOutcome.allowed_once
    assert (tmp_path / "ran").exists() is allowed


async def test_send_and_read_say_what_came_back(tmp_path: Path) -> None:
    with trio.fail_after(10):
        async with open_stage(tmp_path) as stage:
            turn = await stage.begin(
                {"send": "hi"}, {"send": "ho", "target": "crew"}, {"read": "crew"}
            )
            sent = await stage.until(SendCalled)
            await stage.runtime.tool_result(sent.call, "forwarded", error=False)
            held = await stage.until(SendCalled, lambda call: call.text == "ho")
            await stage.runtime.tool_result(held.call, "held", error=True)
            read = await stage.until(ReadCalled)
            await stage.runtime.tool_result(read.call, "[1] alice: hi", error=False)
            await stage.end_of(turn)
    assert (sent.turn, sent.target, held.target) == (turn, "@demo", "crew")
    assert (read.target, read.after) == ("crew", None)
    assert [said.text for said in stage.all(Said)] == [
        "send_message: forwarded",
        "send_message failed: held",
        "read_history: [1] alice: hi",
    ]


async def test_wait_is_silence(tmp_path: Path) -> None:
    with trio.fail_after(10):
        async with open_stage(tmp_path) as stage:
            turn = await stage.begin({"wait": 200})
            began = trio.current_time()
            await stage.end_of(turn)
            assert trio.current_time() - began > 0.15


async def test_late_lines_come_after_the_end_under_the_old_turn(
    tmp_path: Path,
) -> None:
    with trio.fail_after(10):
        async with open_stage(tmp_path) as stage:
            late = {"ms": 100, "step": {"say": "too late", "ms": 0}}
            first = await stage.play({"late": late})
            second = await stage.begin({"wait": 300})
            said = await stage.until(Said)
            await stage.end_of(second)
    assert said.turn == first.turn != second
    assert stage.events.index(said) > stage.events.index(stage.all(TurnStarted)[1])


async def test_the_first_answer_of_an_ask_counts(tmp_path: Path) -> None:
    with trio.fail_after(30):
        async with open_stage(tmp_path) as stage:
            for _ in range(20):
                turn = await stage.begin({"ask": "shell"}, {"run": "touch ran"})
                asked = await stage.until(Asked, partial(_is_of, turn))
                await stage.runtime.answer(asked.ask, ApprovalOutcome.rejected)
                await stage.runtime.answer(asked.ask, ApprovalOutcome.allowed_once)
                await stage.end_of(turn)
    assert not (tmp_path / "ran").exists()


def _is_of(turn: TurnRef, asked: Asked) -> bool:
    return asked.turn == turn


async def test_a_late_ask_and_a_late_send_are_of_the_old_turn(tmp_path: Path) -> None:
    with trio.fail_after(10):
        async with open_stage(tmp_path) as stage:
            first = await stage.play(
                {"late": {"ms": 20, "step": {"ask": "shell"}}},
                {"late": {"ms": 20, "step": {"send": "still me"}}},
            )
            asked, sent = await stage.until(Asked), await stage.until(SendCalled)
            await stage.runtime.answer(asked.ask, ApprovalOutcome.rejected)
            await stage.runtime.tool_result(sent.call, "stop sending", error=True)
            await stage.until(Said, lambda said: said.text == "shell: rejected")
            await stage.until(Said, lambda said: "stop sending" in said.text)
    assert asked.turn == sent.turn == first.turn


@pytest.mark.bug("B15")
@pytest.mark.parametrize(
    "text",
    [
        "a warning\n",
        "\n",
        "{hello}\n",
        "42\n",
        '"x"\n',
        "[]\n",
        "{}\n",
        '{"type": "delta"}\n',
        '{"type": "news", "turn": "turn-1"}\n',
        '{"type": "turn_ended", "turn": "turn-99", "status": "completed",'
        ' "detail": "", "items": {}, "text": ""}\n',
        '{"type": "surfaced", "turn": "turn-1", "key": "nobody"}\n',
        "\ud800\n",
        "[" * 100_000 + "\n",
    ],
)
async def test_noise_in_a_turn_is_noticed_and_never_output(
    tmp_path: Path, text: str
) -> None:
    with trio.fail_after(10):
        async with open_stage(tmp_path) as stage:
            ended = await stage.play({"raw": text}, {"say": "good", "ms": 0})
    assert (ended.status, ended.text) == (TurnStatus.completed, "good")
    assert len(stage.all(Noticed)) == 1
    assert [said.text for said in stage.all(Said)] == ["good"]
    assert len(stage.all(TurnEnded)) == 1


@pytest.mark.bug("B15")
async def test_unknown_fields_repeated_keys_and_line_ends_are_passed_over(
    tmp_path: Path,
) -> None:
    line = (
        '\ufeff{"turn": "x", "type": "said", "turn": "turn-1", "text": "t", "z": 1}\r\n'
    )
    with trio.fail_after(10):
        async with open_stage(tmp_path) as stage:
            ended = await stage.play({"raw": line})
    assert [(said.turn, said.text) for said in stage.all(Said)] == [(ended.turn, "t")]
    assert stage.all(Noticed) == []


@pytest.mark.bug("B15")
async def test_diagnostics_of_ten_thousand_noise_lines_stay_few(
    tmp_path: Path,
) -> None:
    with trio.fail_after(20):
        async with open_stage(tmp_path) as stage:
            ended = await stage.play({"raw": "noise\n", "times": 10_000})
    assert ended.status is TurnStatus.completed
    assert len(stage.all(Noticed)) < 40
    assert "(8192)" in stage.all(Noticed)[-1].what


async def test_bytes_go_to_stdout_as_they_are(tmp_path: Path) -> None:
    line = {"type": "said", "turn": "turn-1", "text": "by hand"}
    encoded = base64.b64encode(json.dumps(line).encode() + b"\n").decode()
    with trio.fail_after(10):
        async with open_stage(tmp_path) as stage:
            await stage.play({"bytes": encoded}, {"bytes": "/wD+Cg=="})
    assert [said.text for said in stage.all(Said)] == ["by hand"]
    assert len(stage.all(Noticed)) == 1


@pytest.mark.bug("B09")
@pytest.mark.parametrize("lines", [True, False])
async def test_a_megabyte_of_stderr_stops_nothing(tmp_path: Path, lines: bool) -> None:
    flood = {"stderr": 1 << 20, "lines": lines}
    with trio.fail_after(20):
        async with open_stage(tmp_path, start=[{"stderr": 300_000}]) as stage:
            ended = await stage.play(flood, {"say": "a b", "ms": 0}, flood)
            await stage.begin({"exit": 3})
            exited = await stage.exit()
    assert ended.text == "a b"
    assert 0 < len(exited.stderr_tail) <= 64 * 1024
    assert stage.all(Noticed) == []


async def test_a_spawned_child_outlives_its_turn(tmp_path: Path) -> None:
    with trio.fail_after(20):
        async with open_stage(tmp_path) as stage:
            await stage.play({"spawn": "exec sleep 60"})
            pid = int(stage.all(ToolEnded)[0].output)
            await stage.play({"say": "next"})
            assert psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    assert not psutil.pid_exists(pid)


@pytest.mark.parametrize(
    ("step", "code"),
    [
        ({"exit": 0}, 0),
        ({"exit": 7}, 7),
        ({"die": "KILL"}, -signal.SIGKILL),
        ({"die": "SEGV"}, -signal.SIGSEGV),
        ({"die": "TERM"}, -signal.SIGTERM),
    ],
)
@pytest.mark.bug("B25")
async def test_a_process_that_leaves_inside_a_turn_owes_no_end(
    tmp_path: Path, step: dict[str, Any], code: int
) -> None:
    with trio.fail_after(10):
        async with open_stage(tmp_path) as stage:
            await stage.begin({"say": "half a", "ms": 0}, step)
            exited = await stage.exit()
    assert (exited.returncode, exited.fault) == (code, "")
    assert stage.events[-1] == exited
    assert stage.all(TurnEnded) == []


async def test_a_lost_steer_is_taken_and_never_heard_of(tmp_path: Path) -> None:
    lost = entry("nobody reads this")
    with trio.fail_after(10):
        async with open_stage(tmp_path) as stage:
            turn = await stage.arrive({"lose": "steer"}, {"wait": 100}, {"wait": 100})
            await stage.runtime.steer(turn, lost)
            ended = await stage.end_of(turn)
            found = await stage.runtime.history({lost.key: lost.id})
    assert ended.items == {}
    assert lost.id not in {event.item for event in stage.all(Surfaced)}
    assert found == {lost.id: "dropped"}


async def test_a_lost_acknowledgement_never_comes_but_the_steer_counts(
    tmp_path: Path,
) -> None:
    item = entry("you there")
    with trio.fail_after(10):
        async with open_stage(tmp_path) as stage:
            turn = await stage.arrive({"lose": "ack"}, {"wait": 200})
            with trio.move_on_after(0.1) as scope:
                await stage.runtime.steer(turn, item)
            assert scope.cancelled_caught
            assert (await stage.end_of(turn)).text == "Heard: you there"
            # What is lost is one answer, not the ears.
            again = await stage.begin({"wait": 5000})
            await stage.runtime.interrupt(again)
    assert item.id in {event.item for event in stage.all(Surfaced)}


async def test_a_lost_end_leaves_the_turn_open_here_and_over_there(
    tmp_path: Path,
) -> None:
    with trio.fail_after(10):
        async with open_stage(tmp_path) as stage:
            turn = await stage.arrive({"lose": "end"}, {"wait": 0})
            await trio.sleep(0.1)
            with pytest.raises(InterruptRefused):
                await stage.runtime.interrupt(turn)
            assert (await stage.play({"say": "next"})).text == "next"
    assert [event.turn == turn for event in stage.all(TurnEnded)] == [False]


async def test_a_lost_sign_is_found_in_the_history(tmp_path: Path) -> None:
    item = entry("read, but not shown")
    with trio.fail_after(10):
        async with open_stage(tmp_path) as stage:
            turn = await stage.arrive({"lose": "sign"}, {"wait": 100})
            await stage.runtime.steer(turn, item)
            await stage.end_of(turn)
            found = await stage.runtime.history({item.key: item.id})
    assert item.id not in {event.item for event in stage.all(Surfaced)}
    assert found == {item.id: "surfaced"}


@pytest.mark.bug("B28")
async def test_a_delayed_end_of_the_old_turn_comes_inside_the_next(
    tmp_path: Path,
) -> None:
    with trio.fail_after(10):
        async with open_stage(tmp_path) as stage:
            first = await stage.arrive({"delay": "end", "ms": 200}, {"wait": 5000})
            await stage.runtime.interrupt(first)
            second = await stage.begin({"wait": 400})
            old, new = await stage.end_of(first), await stage.end_of(second)
    assert old.status is TurnStatus.interrupted
    assert new.status is TurnStatus.completed
    ends = [event.turn for event in stage.all(TurnEnded)]
    assert ends == [first, second]


async def test_refusals_are_said_with_what_they_name(tmp_path: Path) -> None:
    refusals = (
        {"refuse": "steer"},
        {"refuse": "interrupt", "named": "turn-7"},
        {"refuse": "turn"},
    )
    with trio.fail_after(10):
        async with open_stage(tmp_path) as stage:
            turn = await stage.arrive(*refusals, {"wait": 5000})
            with pytest.raises(SteerRefused) as steer:
                await stage.runtime.steer(turn, entry("b"))
            with pytest.raises(InterruptRefused) as interrupt:
                await stage.runtime.interrupt(turn)
            await stage.runtime.interrupt(turn)
            await stage.end_of(turn)
            with pytest.raises(SubmitRefused) as submit:
                await stage.submit("c")
    assert interrupt.value.named is not None
    assert interrupt.value.named.id == "turn-7"
    assert (steer.value.written, submit.value.written) == (False, False)


async def test_a_second_turn_beside_a_running_one_is_refused(tmp_path: Path) -> None:
    with trio.fail_after(10):
        async with open_stage(tmp_path) as stage:
            await stage.begin({"wait": 5000})
            with pytest.raises(SubmitRefused) as refused:
                await stage.submit("me too")
    assert refused.value.code == "busy"


async def test_fail_and_end_choose_how_the_turn_ends(tmp_path: Path) -> None:
    with trio.fail_after(10):
        async with open_stage(tmp_path) as stage:
            failed = await stage.play({"fail": "no credit"}, {"say": "never"})
            full = await stage.play({"end": "max-tokens", "detail": "long"})
            empty = await stage.play({"say": "real"}, {"end": "completed", "text": ""})
    assert (failed.status, failed.detail) == (TurnStatus.failed, "no credit")
    assert (full.status, full.detail) == (TurnStatus.max_tokens, "long")
    assert (empty.status, empty.text) == (TurnStatus.completed, "")


@pytest.mark.bug("B25")
async def test_a_second_end_of_a_turn_is_only_noticed(tmp_path: Path) -> None:
    with trio.fail_after(10):
        async with open_stage(tmp_path) as stage:
            again = {"late": {"ms": 0, "step": {"end": "failed"}}}
            ended = await stage.play({"say": "done"}, again)
            await stage.until(Noticed)
            assert (await stage.play({"say": "more"})).text == "more"
    assert ended.status is TurnStatus.completed
    assert len(stage.all(TurnEnded)) == 2


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("nonsense", "not JSON"),
        ("{}", "a list of steps"),
        ("[1]", "step 1 is no object"),
        ('[{"say": 1}]', '"say" takes a text, not 1'),
        ('[{"dance": 1}]', "names no step"),
        ("[" * 100_000, "not JSON"),
    ],
)
async def test_a_broken_script_is_said(tmp_path: Path, line: str, problem: str) -> None:
    with trio.fail_after(10):
        async with open_stage(tmp_path) as stage:
            ended = await stage.end_of(await stage.submit(f"#do {line}"))
            assert (await stage.play({"say": "ok"})).text == "ok"
    assert ended.text.startswith("bad script: ")
    assert problem in ended.text
    assert stage.all(AskClosed) == []


async def test_the_script_of_the_session_reads_no_body(tmp_path: Path) -> None:
    script = [[{"say": "first"}], [{"say": "second"}]]
    with trio.fail_after(10):
        async with open_stage(tmp_path, script=script) as stage:
            one = await stage.end_of(await stage.submit(do({"die": "KILL"})))
        async with open_stage(tmp_path, resume=stage.session, script=script) as stage:
            two = await stage.end_of(await stage.submit(do({"die": "KILL"})))
            three = await stage.end_of(await stage.submit("anything"))
    assert [one.text, two.text] == ["first", "second"]
    assert three.text == "The script has no further turn."
    assert len({one.turn, two.turn, three.turn}) == 3
