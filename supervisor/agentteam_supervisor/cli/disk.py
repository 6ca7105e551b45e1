"""How much room the disk below the state directory has, and what to do when it is full."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from attrs import frozen

from agentteam_supervisor.cli.speech import say

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


def look_at_disk(directory: Path) -> Disk:
    """Raises OSError for a directory that is not there."""
    found = os.statvfs(directory)
    free = found.f_bavail * found.f_frsize
    # A file system without a fixed number of files says that it has none at all.
    inodes = found.f_files == 0 or found.f_favail > 0
    return Disk(free, bool(found.f_flag & os.ST_RDONLY), inodes)


def disk_advice(directory: Path, disk: Disk) -> str:
    """Say what is wrong with a disk that takes nothing more, and what to do."""
    if disk.read_only:
        return say(
            f"the disk of the state directory {directory} is read-only: mount it for"
            " writing again, then start again",
            f"状态目录 {directory} 所在磁盘是只读的：请重新以可写方式挂载，然后重新启动",
        )
    left = f"{disk.free / MIB:.1f} MiB" if disk.inodes else say("no file", "无可用文件")
    return say(
        f"the disk of the state directory {directory} is full ({left} left): free at"
        f" least {ROOM} MiB; a service that runs goes on by itself, else start it again",
        f"状态目录 {directory} 所在磁盘已满（剩余 {left}）：请至少释放 {ROOM} MiB；"
        "运行中的服务会自行恢复，否则请重新启动",
    )
