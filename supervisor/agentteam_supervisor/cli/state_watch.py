"""
Sees that a running service still stands on the files that it opened.

A file that was removed takes writes in silence, or refuses them all, and what it took is
lost. So the service ends, and says why, while people still know what they did.
"""

from __future__ import annotations

import logging
import os
from typing import TYPE_CHECKING

import trio

from agentteam_supervisor.cli.failure import CommandFailed
from agentteam_supervisor.cli.speech import say

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

_log = logging.getLogger(__name__)

PAUSE = 2.0
SERVER = ("server.lock", "server.sqlite3")
DAEMON = ("supervisor.lock", "journal.sqlite3")


async def watch_files(
    directory: Path, names: Sequence[str], pause: float = PAUSE
) -> None:
    """
    Return never; raises `CommandFailed` when one of the files is no longer there.

    A directory that lets nothing new be made is told once, in the log: what is open
    can be written on, and a full disk is waited for.
    """
    known = {name: _identity(directory / name) for name in names}
    told = False
    while True:
        await trio.sleep(pause)
        for name, identity in known.items():
            if _identity(directory / name) != identity:
                raise CommandFailed(_gone(directory, name))
        open_to_us = os.access(directory, os.W_OK | os.X_OK)
        if not open_to_us and not told:
            _log.error("the state directory %s cannot be written any more", directory)
        told = not open_to_us


def _identity(path: Path) -> tuple[int, int] | None:
    try:
        found = path.stat()
    except PermissionError:
        raise CommandFailed(_shut(path.parent)) from None
    except OSError:
        return None
    return found.st_dev, found.st_ino


def _gone(directory: Path, name: str) -> str:
    return say(
        f"{directory / name} was removed or replaced while the service ran; what was"
        " written since may be lost, so the service has ended: put the state directory"
        " back if you can, then start again",
        f"服务运行期间 {directory / name} 被删除或替换，此后写入的内容可能丢失，"
        "服务已停止：请尽可能恢复状态目录，然后重新启动",
    )


def _shut(directory: Path) -> str:
    return say(
        f"the state directory {directory} cannot be entered any more; the service has"
        " ended: give it back its permissions, then start again",
        f"状态目录 {directory} 已无法访问；服务已停止：请恢复其权限，然后重新启动",
    )
