"""The state directory: private, writable, held by one, and read without faith."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from functools import partial
from typing import TYPE_CHECKING

import pytest

from agentteam_supervisor.cli.failure import CommandFailed
from agentteam_supervisor.cli.processes import ask_to_leave, holders
from agentteam_supervisor.cli.server_record import (
    FILE,
    ServerRecord,
    announced,
    read_record,
)
from agentteam_supervisor.cli.state_dir import holder, locked, prepare
from agentteam_supervisor.daemon.lock import owned

if TYPE_CHECKING:
    from pathlib import Path

    from tests.supervisor.cli.conftest import Run

# A process of the test's own that is no runtime.
_popen = partial(
    subprocess.Popen,  # noqa: TID251 - no runtime, so not the runtimes' module
    stdout=subprocess.PIPE,
    text=True,
)

RECORD = ServerRecord("http://127.0.0.1:1", 1, "2026-01-01T00:00:00Z", "0.1.0")

HOLD = """
import sys, time
from pathlib import Path
from agentteam_supervisor.cli.state_dir import locked
with locked(Path(sys.argv[1]), "server"):
    print("held", flush=True)
    time.sleep(60)
"""


def test_it_is_made_for_its_owner_alone(tmp_path: Path) -> None:
    directory = tmp_path / "a" / "b"
    prepare(directory)
    assert stat.S_IMODE(directory.stat().st_mode) == 0o700
    directory.chmod(0o755)
    prepare(directory)
    assert stat.S_IMODE(directory.stat().st_mode) == 0o700
    assert list(directory.iterdir()) == []


def test_what_cannot_be_a_directory_is_refused_with_advice(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(CommandFailed, match="choose another with --state-dir"):
        prepare(tmp_path / "file" / "state")


def test_a_second_holder_is_refused_by_name(tmp_path: Path) -> None:
    with locked(tmp_path, "server"):
        assert holder(tmp_path, "server") == os.getpid()
        mine = f"in use by pid {os.getpid()}"
        with (
            pytest.raises(CommandFailed, match=mine),
            locked(tmp_path, "server"),
        ):
            pass
    assert holder(tmp_path, "server") is None


def test_the_daemons_lock_names_its_holder_too(tmp_path: Path) -> None:
    with owned(tmp_path):
        assert holder(tmp_path, "supervisor") == os.getpid()


def test_the_record_is_there_exactly_while_the_server_runs(tmp_path: Path) -> None:
    with announced(tmp_path, RECORD):
        assert read_record(tmp_path) == RECORD
    assert read_record(tmp_path) is None
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("text", ["", "{", "[]", '{"url": 1, "pid": 2}'])
def test_a_damaged_record_is_no_record(tmp_path: Path, text: str) -> None:
    (tmp_path / FILE).write_text(text)
    assert read_record(tmp_path) is None


def test_down_says_that_nothing_runs(run: Run, tmp_path: Path) -> None:
    # A record that a kill left behind names a pid that may be anybody's by now.
    (tmp_path / FILE).write_text(f'{{"url": "http://x", "pid": {os.getpid()}}}')
    result = run("down", "--state-dir", str(tmp_path))
    assert (result.exit_code, result.stdout) == (0, "nothing is running\n")


@pytest.mark.slow
def test_down_ends_who_holds_the_locks_and_waits_for_it(
    run: Run, tmp_path: Path
) -> None:
    command = [sys.executable, "-c", HOLD, str(tmp_path)]
    with _popen(command) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "held\n"
        assert [p.pid for p in holders(tmp_path)] == [process.pid]
        result = run("down", "--state-dir", str(tmp_path))
        assert (result.exit_code, result.stdout) == (0, "stopped\n")
        assert process.poll() is not None
    assert holders(tmp_path) == []


@pytest.mark.slow
def test_who_does_not_leave_in_time_is_named_not_killed(tmp_path: Path) -> None:
    deaf = "import signal; signal.signal(15, signal.SIG_IGN)\n" + HOLD
    command = [sys.executable, "-c", deaf, str(tmp_path)]
    with _popen(command) as process:
        assert process.stdout is not None
        process.stdout.readline()
        try:
            alive = ask_to_leave(holders(tmp_path), 0.2)
            assert [p.pid for p in alive] == [process.pid]
        finally:
            process.kill()


def test_a_record_that_cannot_be_written_is_a_sentence(tmp_path: Path) -> None:
    (tmp_path / "server.new").mkdir()
    record = ServerRecord("http://127.0.0.1:1", 1, "", "")
    refused = pytest.raises(CommandFailed, match="start again")
    with refused, announced(tmp_path, record):
        pass
