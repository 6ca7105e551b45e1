"""
One supervisor per state directory, by a lock that the kernel holds for the process.

What the lock file says is only shown: a number in a file proves nothing, since pids
are reused and directories are shared between hosts and containers.
"""

from __future__ import annotations

import fcntl
import json
import os
import platform
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import psutil
from attrs import frozen

from agentteam_protocol.errors import AgentTeamError

if TYPE_CHECKING:
    from collections.abc import Generator

# What the directory holds; a newer number is written by a newer program.
VERSION = 1
# How long the loser of a race waits for the winner to write its name.
NAMED_WITHIN = 0.5


class StateDirectoryError(AgentTeamError):
    """The state directory cannot be used; the message says what to do."""


class StateDirectoryBusy(StateDirectoryError):
    """Another supervisor owns it. `owner` names it, as far as it said who it is."""

    def __init__(self, directory: Path, owner: str) -> None:
        super().__init__(
            f"the state directory {directory} is in use by {owner};"
            " stop that one (`agentteam down`) or choose another state directory"
        )
        self.owner = owner


class StateDirectoryVersion(StateDirectoryError):
    """Another version of this program wrote it."""


class StateDirectoryUnwritable(StateDirectoryError):
    """The file system refuses."""


@frozen
class StateDirectory:
    """A directory that this process owns; gives the places of what is in it."""

    path: Path

    @property
    def journal(self) -> Path:
        return self.path / "journal.sqlite3"

    @property
    def identity(self) -> Path:
        return self.path / "daemon.json"

    def session(self, name: str) -> Path:
        """Make the private directory of one session; its name may hold anything."""
        path = self.path / "sessions" / quote(name, safe="").replace(".", "%2E")
        path.mkdir(parents=True, exist_ok=True, mode=0o700)
        return path


@contextmanager
def owned(directory: Path) -> Generator[StateDirectory]:
    """
    Own the directory until the block ends, or the process does.

    Makes it (for its owner's eyes only) when it is not there. The lock file is never
    removed: removing it would let two processes lock two files of one name.
    """
    try:
        directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        directory.chmod(0o700)
        lock = os.open(directory / "supervisor.lock", os.O_RDWR | os.O_CREAT, 0o600)
    except OSError as exc:
        raise _unwritable(directory, exc) from exc
    try:
        _lock(directory, lock)
        try:
            os.ftruncate(lock, 0)
            os.pwrite(lock, json.dumps(_self()).encode(), 0)
        except OSError as exc:
            raise _unwritable(directory, exc) from exc
        check_version(directory)
        yield StateDirectory(directory)
    finally:
        os.close(lock)


def _lock(directory: Path, lock: int) -> None:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise StateDirectoryBusy(directory, _owner(lock)) from None
    except OSError as exc:
        raise _unwritable(directory, exc) from exc


def _self() -> dict[str, Any]:
    pid = os.getpid()
    born = psutil.Process(pid).create_time()
    return {"pid": pid, "host": platform.node(), "born": round(born, 2)}


def _owner(lock: int) -> str:
    """Name the owner. What a dead owner left behind is not mistaken for its name."""
    deadline = time.monotonic() + NAMED_WITHIN
    while time.monotonic() < deadline:
        match _read(lock):
            case {"pid": int(pid), "host": str(host), "born": float(born)}:
                if host != platform.node():
                    return f"process {pid} on host {host}"
                if _alive(pid, born):
                    return f"process {pid}"
            case _:
                pass
        time.sleep(0.01)
    return "another process"


def _read(lock: int) -> Any:
    try:
        return json.loads(os.pread(lock, 1000, 0))
    except ValueError:
        return None


def _alive(pid: int, born: float) -> bool:
    try:
        return abs(psutil.Process(pid).create_time() - born) < 0.1
    except psutil.Error:
        return False


def check_version(directory: Path) -> None:
    """Raise for a directory of another version, before anything is put into it."""
    try:
        found = _version(directory)
    except OSError as exc:
        raise _unwritable(directory, exc) from exc
    if found != str(VERSION):
        raise StateDirectoryVersion(
            f"the state directory {directory} has version {found[:20]!r} and this"
            f" program reads version {VERSION}; use the program that wrote it, or"
            " choose another state directory"
        )


def _version(directory: Path) -> str:
    path = directory / "version"
    try:
        return path.read_text().strip()
    except FileNotFoundError:
        fresh = directory / "version.new"
        fresh.write_text(f"{VERSION}\n")
        fresh.replace(path)
        return str(VERSION)


def _unwritable(directory: Path, exc: OSError) -> StateDirectoryUnwritable:
    return StateDirectoryUnwritable(
        f"the state directory {directory} cannot be written"
        f" ({exc.strerror or exc}); free space on the disk, change its owner or"
        " choose another state directory"
    )
