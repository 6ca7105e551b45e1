"""How much room the disk below the state directory has, and what to do when it is full."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from attrs import frozen

if TYPE_CHECKING:
    from pathlib import Path

MIB = 1 << 20
# A commit of the journal and the store must fit, and their logs until they are merged.
FULL = 4 * MIB
# Some hundred thousand messages.
LOW = 1024 * MIB
# What to make free: days of work, and no rounding.
ROOM = 64


@frozen
class Disk:
    free: int
    read_only: bool = False
    inodes: bool = True

    @property
    def full(self) -> bool:
        return self.free < FULL or not self.inodes

    @property
    def low(self) -> bool:
        return self.free < LOW

    @property
    def left(self) -> str:
        return f"{self.free / MIB:.1f} MiB" if self.inodes else "no file"


def look_at_disk(directory: Path) -> Disk:
    """Raises OSError for a directory that is not there."""
    found = os.statvfs(directory)
    free = found.f_bavail * found.f_frsize
    # A file system without a fixed number of files says that it has none at all.
    inodes = found.f_files == 0 or found.f_favail > 0
    return Disk(free, bool(found.f_flag & os.ST_RDONLY), inodes)


def what_is_wrong(directory: Path, said: str) -> tuple[str, str]:
    """
    Say why the store takes nothing, and what to do about it.

    `said` are the database's own words, for what is no full disk.
    """
    try:
        disk = look_at_disk(directory)
    except OSError as exc:
        return f"the state directory cannot be looked at: {exc.strerror}", _MEND
    if disk.read_only:
        return "the disk of the state directory is read-only", _MOUNT
    if disk.full:
        return f"the disk of the state directory is full ({disk.left} left)", _FREE
    return said, _MEND


_FREE = f"free at least {ROOM} MiB on it, and the service goes on by itself"
_MOUNT = "mount it for writing again, and the service goes on by itself"
_MEND = "free the disk, and see that it can be written"
