"""Crash points: each is named, each is reached, and at none of them a message is lost."""

from __future__ import annotations

import typing
from collections import Counter
from pathlib import Path

import pytest
import trio
from attrs import frozen
from tests.kit.crashing import count_points, open_crashing
from tests.kit.service import run_command

from agentteam_protocol.errors import AgentTeamError
from agentteam_runtimes import driver
from agentteam_supervisor.chaos import points
from agentteam_supervisor.chaos.births import Births, open_fork_server
from agentteam_supervisor.chaos.checker import judge
from agentteam_supervisor.chaos.registry import NO_POINTS, PATH, POINTS, STAGES
from agentteam_supervisor.session import effects, events


@pytest.mark.parametrize(
    "text",
    [
        "nowhere:before",
        "effect/submit",
        "effect/submit:between",
        "effect/submit:before:0",
        "effect/submit:before:x",
        "effect/submit:before:1:1",
    ],
)
def test_what_names_no_point_is_refused_with_what_to_do(text: str) -> None:
    with pytest.raises(AgentTeamError, match="agentteam chaos list"):
        points.parse(text)


def test_a_point_is_read_as_it_is_written() -> None:
    crash = points.parse("effect/submit:before")
    assert points.parse(str(crash)) == crash
    assert str(points.parse("effect/submit:after:3")) == "effect/submit:after:3"


@pytest.mark.parametrize(
    ("stage", "things"),
    [
        ("effect", effects.Effect),
        ("event", events.Event),
        ("event", driver.RuntimeEvent),
    ],
)
def test_whatever_passes_the_session_is_a_point_or_said_to_be_none(
    stage: str, things: object
) -> None:
    classes = [c for c in typing.get_args(things) if c is not events.FromRuntime]
    names = {points.name_of(stage, cls.__new__(cls)) for cls in classes}
    assert names <= {*POINTS, *NO_POINTS}, names - {*POINTS, *NO_POINTS}


@pytest.mark.slow
def test_a_typo_is_a_clear_error_at_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "tests.kit.service.environment",
        lambda place: {
            "HOME": str(place),
            "PATH": "",
            points.VARIABLE: "efect/x:after",
        },
    )
    refused = run_command(tmp_path, "up", "--port", "0", "--state-dir", str(tmp_path))
    assert refused.code == 1
    assert "efect/x:after names no crash point" in refused.stderr
    assert "Traceback" not in refused.stderr


def test_the_command_lists_every_point(tmp_path: Path) -> None:
    listed = run_command(tmp_path, "chaos", "list")
    names = [line.split()[0] for line in listed.stdout.splitlines()[1:]]
    assert names == list(POINTS)


@frozen
class Undisturbed:
    """A state directory to copy, its agent, and the points before the mark."""

    place: Path
    agent: str
    passed: Counter[str]


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Undisturbed:
    return trio.run(make_journey, tmp_path_factory.mktemp("crashing"))


async def make_journey(place: Path) -> Undisturbed:
    """Make an agent, then the journey on a copy of its state, without a crash."""
    async with open_crashing(place) as world:
        await world.make_agent()
        agent = world.agent
    log = place / "points"
    async with open_crashing(place / "whole", place, agent) as world:
        await world.service.start("up", log=log)
        passed = await world.journey(log)
    reached = {line.rpartition(":")[0] for line in count_points(log)}
    assert set(PATH) <= reached, set(PATH) - reached
    return Undisturbed(place, agent, passed)


@pytest.mark.slow
@pytest.mark.req("R11", "R40", "R118", "R121", "R132")
@pytest.mark.bug("B01", "B02", "B36")
@pytest.mark.inv(6, 7, 8, 12, 13, 15, 22, 31, 32, 35)
@pytest.mark.parametrize("stage", STAGES)
async def test_killed_at_any_point_an_urgent_message_is_neither_lost_nor_doubled(
    undisturbed: Undisturbed, stage: str
) -> None:
    two = trio.CapacityLimiter(2)
    with trio.fail_after(300):
        async with open_fork_server() as births, trio.open_nursery() as nursery:
            for name in STAGES[stage][1].split():
                for side in ("before", "after"):
                    point = f"{stage}/{name}"
                    # The first time after the message was marked.
                    nth = undisturbed.passed[f"{point}:{side}"] + 1
                    crash = points.Crash(point, side, nth)
                    nursery.start_soon(killed_at, undisturbed, crash, two, births)


async def killed_at(
    undisturbed: Undisturbed,
    crash: points.Crash,
    two: trio.CapacityLimiter,
    births: Births,
) -> None:
    template, agent = undisturbed.place, undisturbed.agent
    async with two:
        for nth in (crash.nth, 1):
            place = template / f"{crash.point}-{crash.side}-{nth}"
            async with open_crashing(place, template, agent, births) as world:
                seen = await world.crash(f"{crash.point}:{crash.side}:{nth}")
                assert judge(seen) == [], crash
                urgent = [each for each in seen.accepted if each.urgent]
                assert seen.deliveries[urgent[0].delivery]["state"] == "surfaced"
            if world.crashed:
                return  # else its work was grouped otherwise: the first time, then
    raise AssertionError(f"{crash} was never reached")


def test_every_point_has_words() -> None:
    assert all(meaning for meaning, _, _ in STAGES.values())
    assert len(POINTS) == sum(len(f"{p} {o}".split()) for _, p, o in STAGES.values())
