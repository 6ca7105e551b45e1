"""Start: what an agent says it is, sessions that open, are loaded or are gone."""

from __future__ import annotations

import sys
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest
import trio
from attrs import evolve
from tests.kit import acp_program
from tests.kit.fake_acp import an_item
from tests.kit.seen_events import SeenEvents

from agentteam_protocol.errors import RuntimeMissing, RuntimeRefused, RuntimeUnset
from agentteam_protocol.ids import AgentId
from agentteam_runtimes.acp import introductions
from agentteam_runtimes.acp.command import command, environment
from agentteam_runtimes.acp.driver import AcpDriver
from agentteam_runtimes.driver import (
    Batch,
    EvidenceLevel,
    Exited,
    Interrupt,
    ItemOutcome,
    Options,
    ResumeRefused,
    SessionNamed,
    SessionSpec,
    Steer,
    Surfaced,
    TurnEnded,
    TurnStatus,
)

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from agentteam_runtimes.driver import Runtime

SECONDS = 60


def options(place: Path, way: str) -> Options:
    return Options(command=(*acp_program.PROGRAM, way), home=str(place))


@pytest.fixture
def seen() -> SeenEvents:
    return SeenEvents()


@pytest.fixture(autouse=True)
def fresh(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(introductions, "_known", {})


@asynccontextmanager
async def opened(
    place: Path,
    seen: SeenEvents,
    way: str = "keeping",
    resume: str | None = None,
    adopt: str | None = None,
    **more: Any,
) -> AsyncIterator[Runtime]:
    """Open an agent; bounds what is done with it."""
    given = evolve(options(place, way), resume=adopt)
    spec = SessionSpec(AgentId("agt"), "a", place, place, options=given, **more)
    with trio.fail_after(SECONDS):
        async with AcpDriver().open(spec, resume, seen) as runtime:
            yield runtime


async def whole_turn(runtime: Runtime, seen: SeenEvents, key: str) -> TurnEnded:
    turn = await runtime.start_turn(Batch(key, (an_item(key),)))
    return await seen.first(TurnEnded, lambda e: e.turn == turn)


# What it is.


def test_the_command_is_the_agents_own_option() -> None:
    python = sys.executable
    for given in (
        Options(command=(python, "acp"), args=("--more",)),
        Options(command=("other", "acp"), bin=python, args=("--more",)),
        Options(bin=python, args=("acp", "--more")),
    ):
        assert command(given) == [python, "acp", "--more"]
    with pytest.raises(RuntimeUnset) as unset:
        command(Options())
    assert "--options" in unset.value.what_to_do
    with pytest.raises(RuntimeMissing, match="no program no-such-agent"):
        command(Options(command=("no-such-agent",)))
    with pytest.raises(RuntimeMissing, match="NUL"):
        command(Options(command=(python, "\0")))
    with pytest.raises(RuntimeMissing, match="`config`"):
        command(Options(command=(python,), config={"a": 1}))


def test_little_is_inherited(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HOME", "/theirs")
    monkeypatch.setenv("XDG_DATA_HOME", "/theirs/data")
    monkeypatch.setenv("SECRET_OF_OURS", "x")
    assert environment(Options())["XDG_DATA_HOME"] == "/theirs/data"
    env = environment(Options(home="/own", env={"A": "1"}), tmp_path)
    assert (env["HOME"], env["A"], env["TMPDIR"]) == ("/own", "1", str(tmp_path))
    assert not {"XDG_DATA_HOME", "SECRET_OF_OURS"} & set(env)


@pytest.mark.slow
@pytest.mark.req("R65")
def test_an_agent_is_able_to_what_it_says_and_the_protocol_demands(
    tmp_path: Path,
) -> None:
    keeping = AcpDriver().probe(options(tmp_path, "keeping"))
    plain = AcpDriver().probe(options(tmp_path, "plain"))
    assert (keeping.version, keeping.resume) == ("Keeper 2.5", True)
    assert (plain.version, plain.resume) == ("unnamed, ACP 1", False)
    for able in (keeping, plain):
        assert (able.interrupt, able.approval_cancel) == (Interrupt.turn, True)
        assert (able.evidence, able.steer) == (EvidenceLevel.answered, Steer.none)
        assert (able.tools, able.rewind, able.maintenance) == (False, False, False)


@pytest.mark.slow
@pytest.mark.req("R65")
@pytest.mark.parametrize(
    ("way", "why"),
    [
        ("dies", "no model is configured"),
        ("refuses", "speaks no ACP: Method not found"),
        ("newer", "version 2 of ACP, not 1"),
        ("mute", "did not say within 1 s what it is"),
    ],
)
def test_what_is_no_agent_that_we_speak_with_is_told_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, way: str, why: str
) -> None:
    monkeypatch.setattr(introductions, "PROBE_SECONDS", 1.0)
    with pytest.raises(RuntimeMissing) as missing:
        AcpDriver().probe(options(tmp_path, way))
    assert why in missing.value.problem
    assert missing.value.what_to_do


@pytest.mark.slow
def test_what_an_agent_is_is_asked_once_while_its_program_is_the_same(
    tmp_path: Path,
) -> None:
    program = tmp_path / "agent"
    count = tmp_path / "count"
    words = " ".join(acp_program.PROGRAM)
    program.write_text(f"#!/bin/sh\necho >>{count}; exec {words} plain\n")
    program.chmod(0o755)
    asked = Options(command=(str(program),), home=str(tmp_path))
    for _ in range(2):
        AcpDriver().probe(asked)
    assert count.read_text().count("\n") == 1
    AcpDriver().probe(evolve(asked, env={"OTHER": "1"}))
    program.write_text(f"#!/bin/sh\necho >>{count}\nexec {words} keeping\n")
    assert AcpDriver().probe(asked).resume
    assert count.read_text().count("\n") == 3


# Its sessions.


@pytest.mark.slow
@pytest.mark.req("R44", "R45")
async def test_an_agent_that_keeps_nothing_has_turns_and_is_never_resumed(
    tmp_path: Path, seen: SeenEvents
) -> None:
    async with opened(tmp_path, seen, "plain", model="large") as runtime:
        ended = await whole_turn(runtime, seen, "k1")
        assert runtime.containment is not None
    assert (ended.status, ended.text) == (
        TurnStatus.completed,
        "Heard: text of k1 (large)",
    )
    assert [e.key for e in seen.of(Surfaced)] == ["k1"]
    assert seen.of(SessionNamed) == []
    assert seen.of(Exited)[0].returncode == 0
    assert not (tmp_path / "tmp").exists()
    with pytest.raises(RuntimeRefused, match="earlier session"):
        async with opened(tmp_path, seen, "plain", "ses-1"):
            pass


@pytest.mark.slow
@pytest.mark.req("R44", "R66")
async def test_a_loaded_session_goes_on_and_knows_what_it_had_read(
    tmp_path: Path, seen: SeenEvents
) -> None:
    async with opened(tmp_path, seen) as runtime:
        await whole_turn(runtime, seen, "k1")
    name = seen.of(SessionNamed)[0].resume
    told = len(seen.all)
    async with opened(tmp_path, seen, resume=name, model="large") as runtime:
        assert seen.all[told:] == [SessionNamed(name)], "its past is not told again"
        first, other = an_item("k1"), an_item("never")
        history = await runtime.history({first.key: first.id, other.key: other.id})
        ended = await whole_turn(runtime, seen, "k2")
    assert history == {
        first.id: ItemOutcome.surfaced,
        other.id: ItemOutcome.dropped,
    }
    assert ended.text == "Heard: text of k2 (large)"


@pytest.mark.slow
async def test_an_agent_is_made_on_a_session_that_a_person_has(
    tmp_path: Path, seen: SeenEvents
) -> None:
    theirs = tmp_path / "sessions" / "ses-theirs"
    theirs.parent.mkdir()
    theirs.write_text('["text of k1"]')
    async with opened(tmp_path, seen, adopt="ses-theirs") as runtime:
        assert seen.all == [SessionNamed("ses-theirs")]
        await whole_turn(runtime, seen, "k1")
    assert theirs.read_text() == '["text of k1", "text of k1"]'
    # Once only: an agent that has lost its session begins anew.
    async with opened(tmp_path, seen, adopt="ses-theirs") as runtime:
        await whole_turn(runtime, seen, "k2")
    assert theirs.read_text().count("text") == 2


@pytest.mark.slow
@pytest.mark.req("R67")
async def test_a_session_that_is_gone_is_told_apart_from_one_that_fails(
    tmp_path: Path, seen: SeenEvents
) -> None:
    async with opened(tmp_path, seen) as runtime:
        await whole_turn(runtime, seen, "k1")
    with pytest.raises(ResumeRefused):
        async with opened(tmp_path, seen, resume="ses-0"):
            pass
    with pytest.raises(RuntimeRefused) as refused:
        # It is listed, so it exists, and may be loaded another time.
        async with opened(tmp_path, seen, resume="ses-of-another"):
            pass
    assert refused.value.message == "Internal error"


@pytest.mark.slow
async def test_a_start_that_cannot_be_says_why(
    tmp_path: Path, seen: SeenEvents
) -> None:
    with pytest.raises(RuntimeRefused, match="wants a login: set A_KEY"):
        async with opened(tmp_path, seen, "locked"):
            pass
    with pytest.raises(RuntimeRefused, match="no model none"):
        async with opened(tmp_path, seen, model="none"):
            pass
    with pytest.raises(RuntimeMissing, match="version 2"):
        async with opened(tmp_path, seen, "newer"):
            pass
    assert seen.all == []
