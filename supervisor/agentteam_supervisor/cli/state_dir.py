"""The state directory: found, made private, and locked by one process per role."""

from __future__ import annotations

import fcntl
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
ROLES = ("server", "daemon")


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
def locked(directory: Path, *roles: str) -> Generator[None]:
    """
    Hold the locks of these roles; the kernel lets go of them when the process dies.

    The file stays: removing it would let two processes lock two files of one name.
    """
    held: list[int] = []
    try:
        for role in roles:
            held.append(_lock(directory, role))
        yield
    finally:
        for fd in held:
            os.ftruncate(fd, 0)
            os.close(fd)


def _lock(directory: Path, role: str) -> int:
    path = lock_path(directory, role)
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as exc:
        os.close(fd)
        raise CommandFailed(_in_use(directory, role)) from exc
    os.ftruncate(fd, 0)
    os.pwrite(fd, f"{os.getpid()}\n".encode(), 0)
    return fd


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
    except OSError:
        text = os.pread(fd, 32, 0).decode().strip()
        return int(text) if text.isdecimal() else None
    else:
        return None
    finally:
        os.close(fd)
