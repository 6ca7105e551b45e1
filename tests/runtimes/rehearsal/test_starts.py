"""Starts that are slow, noisy, refused or fail, and what a resumed process knows."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING, Any

import psutil
import pytest
import trio
from tests.kit.rehearsal import Stage, entry, open_stage

from agentteam_protocol.errors import (
    RuntimeExited,
    RuntimeMissing,
    RuntimeRefused,
    RuntimeTooSlow,
)
from agentteam_protocol.ids import AgentId, ItemId
from agentteam_runtimes.driver import (
    Asked,
    Capabilities,
    EvidenceLevel,
    Interrupt,
    InterruptRefused,
    ItemOutcome,
    Noticed,
    Options,
    ResumeRefused,
    SessionNamed,
    SessionSpec,
    Steer,
    Surfaced,
    TurnStatus,
)
from agentteam_runtimes.rehearsal import script, wire
from agentteam_runtimes.rehearsal.driver import RehearsalDriver

if TYPE_CHECKING:
    from pathlib import Path

slow = pytest.mark.slow


@pytest.mark.req("R65")
def test_capabilities_are_declared_by_the_config() -> None:
    driver = RehearsalDriver()
    assert driver.probe(Options()) == Capabilities(
        version=wire.VERSION,
        steer=Steer.ack,
        interrupt=Interrupt.turn,
        evidence=EvidenceLevel.recorded,
        approval_cancel=True,
        resume=True,
        batch_input=True,
        tools=True,
        maintenance=True,
    )
    other = driver.probe(Options(config={"steer": "none"}))
    assert other.steer is Steer.none


@pytest.mark.req("R65")
def test_less_is_declared_when_the_config_says_so() -> None:
    config = {
        "interrupt": "none",
        "evidence": "none",
        "resume": False,
        "batchInput": False,
        "tools": False,
    }
    can = RehearsalDriver().probe(Options(config=config))
    assert (can.interrupt, can.evidence) == (Interrupt.none, EvidenceLevel.none)
    assert (can.resume, can.batch_input, can.tools) == (False, False, False)


@slow
async def test_without_evidence_and_interrupt_it_gives_neither(tmp_path: Path) -> None:
    with trio.fail_after(10):
        async with open_stage(tmp_path, evidence="none", interrupt="none") as stage:
            turn = await stage.begin({"wait": 100})
            with pytest.raises(InterruptRefused):
                await stage.runtime.interrupt(turn)
            ended = await stage.end_of(turn)
            found = await stage.runtime.history({"key": ItemId("item")})
    assert ended.status is TurnStatus.completed
    assert (stage.all(Surfaced), ended.items) == ([], {})
    assert found == {"item": ItemOutcome.unknown}


@slow
async def test_a_missing_directory_is_told_with_what_to_do(tmp_path: Path) -> None:
    with trio.fail_after(10):
        with pytest.raises(RuntimeMissing):
            async with open_stage(tmp_path / "nowhere"):
                raise AssertionError
    spec = SessionSpec(AgentId("agt_1"), "demo", tmp_path, tmp_path / "nowhere")
    with trio.fail_after(10):
        with pytest.raises(RuntimeRefused, match="no record is kept") as refused:
            async with RehearsalDriver().open(spec, None, Stage(spec).emit):
                raise AssertionError
    assert not isinstance(refused.value, ResumeRefused)


@pytest.mark.parametrize(
    ("config", "problem"),
    [
        ({"colour": "red"}, "has no colour"),
        ({"script": "say"}, "script cannot be 'say'"),
        ({"steer": "maybe"}, "steer is one of"),
    ],
)
def test_a_config_of_unknown_words_is_refused(
    config: dict[str, Any], problem: str
) -> None:
    with pytest.raises(RuntimeRefused, match=problem):
        RehearsalDriver().probe(Options(config=config))


def test_a_missing_program_is_told_with_what_to_do() -> None:
    with pytest.raises(RuntimeMissing) as missing:
        RehearsalDriver().probe(Options(bin="no-such-python"))
    assert "no-such-python" in missing.value.problem
    assert "option bin" in missing.value.what_to_do


@slow
@pytest.mark.bug("B15")
async def test_a_banner_before_ready_is_noise(tmp_path: Path) -> None:
    banner = "Welcome!\n{hello}\n\n\ufeffA new version is out\r\n"
    with trio.fail_after(10):
        async with open_stage(tmp_path, start=[{"raw": banner}]) as stage:
            assert (await stage.play({"say": "up"})).text == "up"
    assert len(stage.all(Noticed)) == 4
    assert len(stage.all(SessionNamed)) == 1


@slow
async def test_a_slow_start_is_waited_for(tmp_path: Path) -> None:
    with trio.fail_after(10):
        async with open_stage(tmp_path, start=[{"wait": 300}]) as stage:
            assert (await stage.play({"say": "up"})).text == "up"


@slow
@pytest.mark.bug("B15", "B35")
@pytest.mark.parametrize("deaf", [[], ["TERM", "stdin"]])
async def test_a_handshake_that_never_comes_is_too_slow(
    tmp_path: Path, deaf: list[str]
) -> None:
    start: list[dict[str, Any]] = [{"wait": 60_000}]
    if deaf:
        start.insert(0, {"deaf": deaf})
    with trio.fail_after(10):
        with pytest.raises(RuntimeTooSlow, match=r"within 0\.5 s"):
            async with open_stage(
                tmp_path, driver=RehearsalDriver(handshake_seconds=0.5), start=start
            ):
                raise AssertionError
    assert _descendants() == []


@slow
@pytest.mark.parametrize("step", [{"exit": 3}, {"die": "KILL"}])
async def test_a_start_that_fails_tells_code_and_stderr(
    tmp_path: Path, step: dict[str, Any]
) -> None:
    with trio.fail_after(10):
        with pytest.raises(RuntimeExited) as exited:
            async with open_stage(tmp_path, start=[{"stderr": 200}, step]):
                raise AssertionError
    assert exited.value.returncode == (3 if "exit" in step else -signal.SIGKILL)
    assert "diagnostics" in exited.value.stderr_tail


@slow
async def test_a_broken_start_script_fails_the_start(tmp_path: Path) -> None:
    with trio.fail_after(10):
        with pytest.raises(RuntimeExited) as exited:
            async with open_stage(tmp_path, start=[{"dance": 1}]):
                raise AssertionError
    assert "bad script in config.start" in exited.value.stderr_tail


@slow
@pytest.mark.bug("B11")
async def test_a_process_may_die_soon_after_it_was_ready(tmp_path: Path) -> None:
    late = {"late": {"ms": 50, "step": {"exit": 1}}}
    with trio.fail_after(10):
        async with open_stage(tmp_path, start=[late]) as stage:
            assert (await stage.exit()).returncode == 1


@slow
async def test_a_failing_body_is_raised_as_it_is(tmp_path: Path) -> None:
    with trio.fail_after(10):
        with pytest.raises(KeyError):
            async with open_stage(tmp_path):
                raise KeyError


@slow
@pytest.mark.bug("B02", "B03")
async def test_a_resumed_process_knows_what_a_killed_one_recorded(
    tmp_path: Path,
) -> None:
    read, unread = entry("read"), entry("not read")
    with trio.fail_after(10):
        async with open_stage(tmp_path) as stage:
            turn = await stage.begin({"ask": "go"})
            await stage.until(Asked)
            await stage.runtime.steer(turn, unread)
            batch = stage.all(Surfaced)[0]
            assert stage.runtime.containment is not None
            assert await stage.runtime.containment.kill() == []
            await stage.exit()
        asked = {batch.key: batch.item, unread.key: unread.id, read.key: read.id}
        async with open_stage(tmp_path, resume=stage.session) as again:
            found = await again.runtime.history(asked)
            assert again.session == stage.session
            assert (await again.play({"say": "on"})).turn != turn
    assert found == {
        batch.item: ItemOutcome.surfaced,
        unread.id: ItemOutcome.dropped,
        read.id: ItemOutcome.dropped,
    }


@slow
@pytest.mark.bug("B04")
async def test_a_torn_record_is_passed_over(tmp_path: Path) -> None:
    with trio.fail_after(10):
        async with open_stage(tmp_path) as stage:
            await stage.play({"say": "x"})
            first = stage.all(Surfaced)[0]
        path = tmp_path / f"{stage.session}.jsonl"
        path.write_bytes(path.read_bytes() + b"rubbish\n\xff\n" + b'{"surf')
        async with open_stage(tmp_path, resume=stage.session) as again:
            await again.play({"say": "y"})
            second = again.all(Surfaced)[0]
        async with open_stage(tmp_path, resume=stage.session) as last:
            asked = {each.key: each.item for each in (first, second)}
            found = await last.runtime.history(asked)
            await last.play({"say": "z"})
    turns = {each.all(Surfaced)[0].turn for each in (stage, again, last)}
    assert len(turns) == 3
    assert set(found.values()) == {ItemOutcome.surfaced}


@slow
@pytest.mark.bug("B03")
@pytest.mark.parametrize("session", ["rehearsal-0000", "../../etc/passwd", ""])
async def test_resuming_an_unknown_session_is_refused(
    tmp_path: Path, session: str
) -> None:
    with trio.fail_after(10):
        with pytest.raises(ResumeRefused):
            async with open_stage(tmp_path, resume=session):
                raise AssertionError


@slow
@pytest.mark.bug("B03")
async def test_only_a_missing_session_is_a_refused_resume(tmp_path: Path) -> None:
    with trio.fail_after(10):
        async with open_stage(tmp_path) as stage:
            pass
        session = stage.session
        with pytest.raises(ResumeRefused):
            async with open_stage(tmp_path, resume=session, refuseResume=True):
                raise AssertionError
        with pytest.raises(RuntimeRefused, match="rate limit"):
            async with open_stage(tmp_path, resume=session, resumeError="rate limit"):
                raise AssertionError


@slow
async def test_the_environment_is_small_and_the_agents_own_on_top(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SECRET_OF_THE_DAEMON", "1")
    options = Options(env={"MINE": "yes"}, home=str(tmp_path))
    spec = SessionSpec(AgentId("agt_1"), "demo", tmp_path, tmp_path, options=options)
    stage = Stage(spec)
    with trio.fail_after(10):
        async with RehearsalDriver().open(spec, None, stage.emit) as runtime:
            stage.runtime = runtime
            await stage.play({"run": "env >env"})
    lines = (tmp_path / "env").read_text().splitlines()
    assert {"MINE=yes", f"HOME={tmp_path}"} <= set(lines)
    assert "SECRET" not in "".join(lines)


def test_the_program_says_its_version_as_the_wire_does() -> None:
    from agentteam_runtimes.rehearsal import listener

    assert listener.VERSION == wire.VERSION


@pytest.mark.parametrize("verb", list(script.VERBS))
def test_every_step_stands_in_the_table(verb: str) -> None:
    assert script.__doc__ is not None
    assert f'`{{"{verb}"' in script.__doc__ or f'{{"{verb}":' in script.__doc__


def _descendants() -> list[psutil.Process]:
    children = psutil.Process().children(recursive=True)
    # What an earlier test's product left to this process is dead, and not ours.
    return [p for p in children if p.status() != psutil.STATUS_ZOMBIE]
