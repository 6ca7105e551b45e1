"""What to do about a disk that takes nothing more, in the person's language."""

from __future__ import annotations

from typing import TYPE_CHECKING

from agentteam_supervisor.cli.speech import say
from agentteam_supervisor.server.disk import ROOM

if TYPE_CHECKING:
    from pathlib import Path

    from agentteam_supervisor.server.disk import Disk


def disk_advice(directory: Path, disk: Disk) -> str:
    if disk.read_only:
        return say(
            f"the disk of the state directory {directory} is read-only: mount it for"
            " writing again, then start again",
            f"状态目录 {directory} 所在磁盘是只读的：请重新以可写方式挂载，然后重新启动",
        )
    return say(
        f"the disk of the state directory {directory} is full ({disk.left} left): free"
        f" at least {ROOM} MiB; a service that runs goes on by itself, else start it"
        " again",
        f"状态目录 {directory} 所在磁盘已满（剩余 {disk.left}）：请至少释放 {ROOM} MiB；"
        "运行中的服务会自行恢复，否则请重新启动",
    )
