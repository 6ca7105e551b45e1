"""One supervisor per state directory, whatever a file in it says."""

from __future__ import annotations

import json
import os
import platform
import signal
import stat
import subprocess
import sys
import time
from typing import TYPE_CHECKING, Any

import pytest

from agentteam_supervisor.daemon.lock import (
    StateDirectoryBusy,
    StateDirectoryUnwritable,
    StateDirectoryVersion,
    owned,
)

if TYPE_CHECKING:
    from pathlib import Path

# Plain children of the test: they are to be killed, not contained.
Child = subprocess.Popen[str]  # noqa: TID251

OWNER = """
import sys, time
from pathlib import Path
from agentteam_supervisor.daemon.lock import StateDirectoryError, owned
try:
    while not Path(sys.argv[2]).exists():
        time.sleep(0.0005)
    with owned(Path(sys.argv[1])):
        print("mine", flush=True)
        sys.stdin.read()
except StateDirectoryError as exc:
    print(exc, flush=True)
    sys.exit(3)
"""


def start(directory: Path, gate: Path) -> Child:
    pipe = subprocess.PIPE
    command = [sys.executable, "-c", OWNER, str(directory), str(gate)]
    return Child(command, stdin=pipe, stdout=pipe, text=True)


def first_line(child: Child) -> str:
    assert child.stdout is not None
    return child.stdout.readline().strip()


def finish(child: Child) -> int:
    child.communicate(timeout=10)
    return child.returncode


def test_a_state_directory_is_made_for_its_owners_eyes_only(tmp_path: Path) -> None:
    directory = tmp_path / "deep" / "state"
    with owned(directory) as state:
        assert stat.S_IMODE(directory.stat().st_mode) == 0o700
        assert stat.S_IMODE(state.session("agt_1").stat().st_mode) == 0o700
        for name in ("..", "../../etc", "a/b", "."):
            assert state.session(name).parent == directory / "sessions"
    directory.chmod(0o755)
    with owned(directory):
        assert stat.S_IMODE(directory.stat().st_mode) == 0o700


@pytest.mark.bug("B12")
def test_the_second_is_refused_and_told_who_owns_it(tmp_path: Path) -> None:
    with owned(tmp_path):
        with pytest.raises(StateDirectoryBusy) as caught, owned(tmp_path):
            pass
        assert caught.value.owner == f"process {os.getpid()}"
        assert "agentteam down" in str(caught.value)
    with owned(tmp_path):
        pass


@pytest.mark.bug("B12")
@pytest.mark.parametrize(
    "left",
    [
        {"pid": 1, "host": platform.node(), "born": 1.0},
        {"pid": os.getppid(), "host": platform.node(), "born": 1.0},
        {"pid": 4, "host": "elsewhere", "born": 1.0},
        "garbage",
    ],
)
def test_a_lock_file_that_names_somebody_stops_nobody(
    tmp_path: Path, left: Any
) -> None:
    (tmp_path / "supervisor.lock").write_text(json.dumps(left))
    with owned(tmp_path):
        named = json.loads((tmp_path / "supervisor.lock").read_text())
        assert named["pid"] == os.getpid()


@pytest.mark.slow
@pytest.mark.bug("B12")
def test_of_two_at_the_same_moment_one_owns_and_the_other_names_it(
    tmp_path: Path,
) -> None:
    for number in range(50):
        directory, gate = tmp_path / f"state{number}", tmp_path / f"gate{number}"
        both = [start(directory, gate) for _ in range(2)]
        gate.touch()
        lines = [first_line(child) for child in both]
        winner = lines.index("mine")
        loser = both[1 - winner]
        assert f"process {both[winner].pid}" in lines[1 - winner]
        assert finish(loser) == 3
        # The loser has left; what the first one owns is untouched.
        with pytest.raises(StateDirectoryBusy), owned(directory):
            pass
        assert (directory / "version").read_text() == "1\n"
        assert finish(both[winner]) == 0


@pytest.mark.slow
@pytest.mark.bug("B12")
def test_after_kill_9_of_the_owner_the_next_one_starts_at_once(tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    gate.touch()
    child = start(tmp_path / "state", gate)
    assert first_line(child) == "mine"
    child.send_signal(signal.SIGKILL)
    finish(child)
    began = time.monotonic()
    with owned(tmp_path / "state"):
        assert time.monotonic() - began < 1.0


def test_a_directory_of_another_version_is_refused_with_what_to_do(
    tmp_path: Path,
) -> None:
    (tmp_path / "version").write_text("2\n")
    words = r"version '2'.*use the program"
    with pytest.raises(StateDirectoryVersion, match=words), owned(tmp_path):
        pass
    (tmp_path / "version").write_text("1\n")
    with owned(tmp_path):
        pass


def test_an_unwritable_place_is_a_clear_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    place = tmp_path / "file" / "state"
    words = "cannot be written"
    with pytest.raises(StateDirectoryUnwritable, match=words), owned(place):
        pass
