"""`server.json`: how a command finds the server of a state directory."""

from __future__ import annotations

import contextlib
import json
import os
from typing import TYPE_CHECKING, Any, cast

from attrs import asdict, frozen

from agentteam_supervisor.cli.failure import CommandFailed
from agentteam_supervisor.cli.speech import say

if TYPE_CHECKING:
    from collections.abc import Generator
    from pathlib import Path

FILE = "server.json"


@frozen
class ServerRecord:
    """`daemon`: the same process runs the daemon too."""

    url: str
    pid: int
    started: str
    version: str
    daemon: bool = False


def read_record(directory: Path) -> ServerRecord | None:
    """Read the record; a missing or damaged file is no record."""
    try:
        data = json.loads((directory / FILE).read_text())
    except (OSError, ValueError):
        return None
    match data:
        case {"url": str(url), "pid": int(pid)}:
            rest = cast("dict[str, Any]", data)
            started, version = str(rest.get("started")), str(rest.get("version"))
            return ServerRecord(url, pid, started, version, rest.get("daemon") is True)
        case _:
            return None


def _unwritable(path: Path, exc: OSError) -> str:
    return say(
        f"{path} cannot be written: {exc.strerror}; see that the disk has room and that"
        " the directory is yours to write, then start again",
        f"无法写入 {path}：{exc.strerror}；请检查磁盘空间与目录权限，然后重新启动",
    )


@contextlib.contextmanager
def announced(directory: Path, record: ServerRecord) -> Generator[None]:
    """Keep the record in place while the server runs; readers never see half of it."""
    path = directory / FILE
    fresh = path.with_suffix(".new")
    try:
        fresh.write_text(json.dumps(asdict(record)) + "\n")
        os.replace(fresh, path)
    except OSError as exc:
        raise CommandFailed(_unwritable(path, exc)) from exc
    try:
        yield
    finally:
        with contextlib.suppress(OSError):
            path.unlink(missing_ok=True)
