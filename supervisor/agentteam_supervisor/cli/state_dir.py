"""
The state directory: found, made private, and the lock of its server.

The daemon's own lock (`supervisor.lock`, see `daemon/lock.py`) is only read here.
"""

from __future__ import annotations

import fcntl
import json
import os
import stat
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from agentteam_supervisor.cli.failure import CommandFailed
from agentteam_supervisor.cli.speech import say

if TYPE_CHECKING:
    from collections.abc import Generator

VARIABLE = "AGENTTEAM_STATE_DIR"
ROLES = ("server", "supervisor")


def default_state_dir() -> Path:
    return Path.home() / ".local" / "state" / "agentteam"


def prepare(directory: Path) -> None:
    """Make the directory, for its owner's eyes only, and see that it can be written."""
    try:
        directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        if stat.S_IMODE(directory.stat().st_mode) & 0o077:
            directory.chmod(0o700)
        probe = directory / f".writable-{os.getpid()}"
        probe.write_bytes(b"")
        probe.unlink()
    except OSError as exc:
        raise CommandFailed(_unwritable(directory, exc)) from exc


def _unwritable(directory: Path, exc: OSError) -> str:
    reason = exc.strerror or str(exc)
    return say(
        f"the state directory {directory} cannot be written ({reason});"
        " free the disk, change its owner or choose another with --state-dir",
        f"状态目录 {directory} 无法写入（{reason}）；请清理磁盘、修改属主，或用 --state-dir 另选目录",
    )


def lock_path(directory: Path, role: str) -> Path:
    return directory / f"{role}.lock"


@contextmanager
def locked(directory: Path, role: str) -> Generator[None]:
    """
    Hold the lock of this role; the kernel lets go of it when the process dies.

    The file stays: removing it would let two processes lock two files of one name.
    """
    fd = os.open(
        lock_path(directory, role), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600
    )
    try:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as exc:
            raise CommandFailed(_in_use(directory, role)) from exc
        try:
            os.ftruncate(fd, 0)
            os.pwrite(fd, json.dumps({"pid": os.getpid()}).encode(), 0)
        except OSError as exc:
            raise CommandFailed(_unwritable(directory, exc)) from exc
        yield
    finally:
        os.close(fd)


def _in_use(directory: Path, role: str) -> str:
    pid = holder(directory, role)
    who = f"pid {pid}" if pid else say("another process", "另一个进程")
    return say(
        f"the state directory {directory} is in use by {who};"
        " stop it with `agentteam down`, or choose another with --state-dir",
        f"状态目录 {directory} 正被 {who} 使用；用 `agentteam down` 停止它，或用 --state-dir 另选目录",
    )


def holder(directory: Path, role: str) -> int | None:
    """Name the process that holds the lock, None when nobody does."""
    try:
        fd = os.open(lock_path(directory, role), os.O_RDWR | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return _named(os.pread(fd, 1000, 0))
    else:
        return None
    finally:
        os.close(fd)


def _named(text: bytes) -> int | None:
    try:
        match json.loads(text):
            case {"pid": int(pid)}:
                return pid
            case _:
                return None
    except ValueError:
        return None  # its holder is about to write its name
