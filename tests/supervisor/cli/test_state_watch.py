"""A service whose files are taken from under it says so and ends."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

import psutil
import pytest
import trio
from tests.kit.service import open_service, run_command

from agentteam_supervisor.cli.failure import CommandFailed, ExitCode
from agentteam_supervisor.cli.state_watch import DAEMON, watch_files

if TYPE_CHECKING:
    from pathlib import Path

    from trio.testing import MockClock


@pytest.fixture
def files(tmp_path: Path) -> Path:
    for name in DAEMON:
        (tmp_path / name).write_text("")
    return tmp_path


def _fails(words: str) -> pytest.RaisesGroup[CommandFailed]:
    return pytest.RaisesGroup(pytest.RaisesExc(CommandFailed, match=words))


async def test_files_that_stay_are_watched_without_a_word(
    files: Path, autojump_clock: MockClock
) -> None:
    with trio.move_on_after(60) as scope:
        await watch_files(files, DAEMON)
    assert scope.cancelled_caught


@pytest.mark.parametrize("name", DAEMON)
async def test_a_file_that_was_removed_is_noticed_in_time(
    files: Path, name: str, autojump_clock: MockClock
) -> None:
    (files / "other").write_text("")
    with trio.fail_after(5), _fails(name):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(watch_files, files, DAEMON)
            await trio.testing.wait_all_tasks_blocked()
            (files / name).unlink()


async def test_a_file_that_was_replaced_is_not_the_one_we_write(
    files: Path, autojump_clock: MockClock
) -> None:
    with trio.fail_after(5), _fails("replaced"):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(watch_files, files, DAEMON)
            await trio.testing.wait_all_tasks_blocked()
            fresh = files / "fresh"
            fresh.write_text("")
            fresh.replace(files / DAEMON[1])


@pytest.mark.slow
@pytest.mark.bug("B01")
def test_up_ends_when_its_state_directory_is_removed(tmp_path: Path) -> None:
    state = tmp_path / "state"
    with open_service(state) as service:
        sent = run_command(state, "send", "@demo", '#do [{"run": "sleep 300"}]')
        assert sent.code == 0, sent.stderr
        tree = service.tree()
        shutil.rmtree(state)
        stdout, stderr = service.process.communicate(timeout=60)
    assert service.process.returncode == ExitCode.failed, stdout
    assert "was removed or replaced while the service ran" in stderr
    assert "Traceback" not in stderr, stderr[:9000]
    _, alive = psutil.wait_procs(tree, timeout=5)
    assert alive == []
