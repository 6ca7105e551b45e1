"""The doctor's look at the two databases of a state directory; it writes nothing."""

from __future__ import annotations

import sqlite3
import time
from contextlib import closing
from typing import TYPE_CHECKING
from urllib.parse import quote

from agentteam_supervisor.cli.check import Check
from agentteam_supervisor.cli.speech import say

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

STORE = "server.sqlite3"
JOURNAL = "journal.sqlite3"
# A big file is looked through for so long; what was seen until then was sound.
SECONDS = 5.0
STEPS = 10_000  # of SQLite's machine, between two looks at the clock


def open_to_read(path: Path) -> sqlite3.Connection:
    return sqlite3.connect(f"file:{quote(str(path))}?mode=ro", uri=True, timeout=2)


def files_checked(directory: Path) -> Iterator[Check]:
    for name, kind in ((STORE, "store"), (JOURNAL, "journal")):
        path = directory / name
        if not path.exists():
            continue
        damage = damage_of(path)
        if damage is None:
            yield Check(kind, "ok", say(f"{path} is sound", f"{path} 完好"))
        elif kind == "store":
            yield Check(kind, "bad", _lost(path, damage))
        else:
            yield Check(kind, "bad", _salvageable(path, damage))


def damage_of(path: Path) -> str | None:
    """Say what is wrong with the file, None for nothing."""
    until = time.monotonic() + SECONDS
    try:
        with closing(open_to_read(path)) as db:
            db.set_progress_handler(lambda: time.monotonic() > until, STEPS)
            verdict = str(db.execute("PRAGMA quick_check(1)").fetchone()[0])
    except sqlite3.OperationalError as exc:
        slow = getattr(exc, "sqlite_errorname", "") == "SQLITE_INTERRUPT"
        return None if slow else str(exc)
    except sqlite3.DatabaseError as exc:
        return str(exc)
    return None if verdict == "ok" else verdict


def _lost(path: Path, damage: str) -> str:
    return say(
        f"{path} cannot be read ({damage}): `agentteam down`, put a copy of it back, or"
        " move it away and start with no messages",
        f"{path} 无法读取（{damage}）：请先 `agentteam down`，再恢复备份，"
        "或移走该文件后从空白开始",
    )


def _salvageable(path: Path, damage: str) -> str:
    return say(
        f"{path} is damaged ({damage}): restart the service (`agentteam down`,"
        " `agentteam up`), which keeps the file aside and takes what can be read",
        f"{path} 已损坏（{damage}）：请重启服务（`agentteam down`、`agentteam up`），"
        "服务会保留原文件并取回可读部分",
    )
