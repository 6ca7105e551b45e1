"""Settings that no process can be started with are told by their name."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import trio
from attrs import evolve
from tests.kit.trees import ENVIRONMENT, Ears

from agentteam_protocol.errors import RuntimeMissing
from agentteam_protocol.ids import AgentId
from agentteam_runtimes.codex.driver import CodexDriver
from agentteam_runtimes.driver import Driver, Options, SessionSpec
from agentteam_runtimes.rehearsal.driver import RehearsalDriver

if TYPE_CHECKING:
    from collections.abc import Callable

NUL = "a\0b"
LONG = "d" * 5000
GARBAGE: list[tuple[dict[str, Any], str]] = [
    ({"args": (NUL,)}, "`args`"),
    ({"env": {"NAME": NUL}}, "`env`"),
    ({"env": {NUL: "value"}}, "`env`"),
    ({"env": {"A=B": "value"}}, "`env`"),
    ({"env": {"": "value"}}, "`env`"),
    ({"env": {"NAME": "\ud800"}}, "`env`"),
    ({"home": NUL}, "`home`"),
    ({"bin": NUL}, "`bin`"),
    ({"bin": LONG}, "bin"),
    ({"bin": "/" + LONG}, "bin"),
    ({"bin": "/etc/passwd"}, "bin"),
    ({"bin": "/etc"}, "bin"),
]


@pytest.mark.parametrize(("options", "setting"), GARBAGE)
@pytest.mark.parametrize("make", [RehearsalDriver, CodexDriver])
async def test_garbage_in_the_options_is_told_by_probe_and_by_open(
    make: Callable[[], Driver], options: dict[str, Any], setting: str, tmp_path: Path
) -> None:
    driver, given = make(), Options(**{"bin": sys.executable} | options)
    with pytest.raises(RuntimeMissing) as probing:
        driver.probe(given)
    spec = SessionSpec(AgentId("agt_1"), "demo", tmp_path, tmp_path, options=given)
    with trio.fail_after(20), pytest.raises(RuntimeMissing) as opening:
        async with driver.open(spec, None, lambda _: None):
            pass
    for failure in (probing.value, opening.value):
        assert setting in str(failure)
        assert len(str(failure)) < 400
        assert failure.what_to_do


@pytest.mark.slow
@pytest.mark.parametrize(
    "workdir", ["/a\0b", "/" + LONG, "/etc/passwd", "relative", ".", "/\ud800"]
)
async def test_garbage_for_a_workdir_is_told(workdir: str, tmp_path: Path) -> None:
    ears = Ears()
    with trio.fail_after(20):
        with pytest.raises(RuntimeMissing) as failure:
            async with ears.open(["true"], cwd=Path(workdir)):
                pass
        assert "`workdir`" in str(failure.value)
        assert len(str(failure.value)) < 400
        options = Options()
        spec = SessionSpec(AgentId("a"), "demo", tmp_path, tmp_path, options=options)
        driver = RehearsalDriver()
        with pytest.raises(RuntimeMissing):
            async with driver.open(
                evolve(spec, workdir=Path(workdir)), None, lambda _: None
            ):
                pass
    assert ears.exits == []


@pytest.mark.slow
@pytest.mark.parametrize(
    ("command", "env"),
    [
        (["true", NUL], {}),
        (["/" + LONG], {}),
        (["/" + LONG + "/x"], {}),
        ([LONG], {}),
        (["true"], {"A=B": "c"}),
        (["true"], {"A": NUL}),
        (["true", "x" * 4_000_000], {}),
    ],
)
async def test_garbage_in_a_command_is_told(
    command: list[str], env: dict[str, str]
) -> None:
    ears = Ears()
    with trio.fail_after(20):
        with pytest.raises(RuntimeMissing) as failure:
            async with ears.open(command, env=ENVIRONMENT | env):
                pass
    assert failure.value.what_to_do
    assert len(str(failure.value)) < 400
