"""The floors: the same child and the same disk, by blocking code and nothing else."""

from __future__ import annotations

import os
import select
import sqlite3
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import orjson

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

CHILD = Path(__file__).with_name("child.py")
COMMAND = (sys.executable, "-I", "-S", str(CHILD))

spawn = partial(
    subprocess.Popen,  # noqa: TID251 - the floor is what one would write without us
    stdin=subprocess.PIPE,
    stdout=subprocess.PIPE,
    stderr=subprocess.DEVNULL,
    bufsize=0,
)


class RawChild:
    """A child's pipes; `read` gives the next message, of which none is skipped."""

    def __init__(
        self,
        command: Sequence[str] = COMMAND,
        env: Mapping[str, str] | None = None,
        cwd: Path | None = None,
        patience: float | None = None,
    ) -> None:
        self._patience = patience
        self.process = spawn(command, env=env, cwd=cwd, start_new_session=True)
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self._in = self.process.stdin.fileno()
        self._out = self.process.stdout.fileno()
        self._pending = b""
        self._messages: list[dict[str, Any]] = []

    def write(self, message: dict[str, Any]) -> None:
        os.write(self._in, orjson.dumps(message) + b"\n")

    def read(self) -> dict[str, Any]:
        while not self._messages:
            self._be_patient()
            data = os.read(self._out, 1 << 16)
            if not data:
                raise EOFError("the child has ended")
            *lines, self._pending = (self._pending + data).split(b"\n")
            self._messages = [orjson.loads(each) for each in lines]
        return self._messages.pop(0)

    def _be_patient(self) -> None:
        """Wait at most so long, where that is asked for: it costs a system call."""
        if self._patience is not None:
            ready, _, _ = select.select([self._out], [], [], self._patience)
            if not ready:
                raise TimeoutError("the child is silent")

    def until(self, **wanted: Any) -> dict[str, Any]:
        """Read until a message has all these fields."""
        while True:
            message = self.read()
            if wanted.items() <= message.items():
                return message

    def lines(self) -> Iterator[dict[str, Any]]:
        """Read on with the standard library's line reader; a line is never left half."""
        yield from self._messages
        self._messages = []
        rest, self._pending = self._pending, b""
        with open(self._out, "rb", closefd=False) as lines:
            for line in lines:
                yield orjson.loads(rest + line)
                rest = b""

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        for pipe in (self.process.stdin, self.process.stdout):
            assert pipe is not None
            pipe.close()


class RawDriver:
    """The protocol of the child, written down once, without anything around it."""

    def __init__(self) -> None:
        self.child = RawChild()
        self._ids = 0
        self.turn = ""
        self.child.write({"op": "hello", "id": 0})
        self.child.until(type="ready")

    def start(self, text: str) -> None:
        """Submit a turn; returns when it is acknowledged."""
        self._ids += 1
        item = {"key": f"key-{self._ids}", "text": text}
        batch = f"batch-{self._ids}"
        self.child.write(
            {"op": "turn", "id": self._ids, "batch": batch, "items": [item]}
        )
        self.turn = self.child.until(type="reply", id=self._ids)["turn"]

    def interrupt(self) -> None:
        """Cut the turn; returns when it is over."""
        self._ids += 1
        self.child.write({"op": "interrupt", "id": self._ids, "turn": self.turn})
        self.child.until(type="reply", id=self._ids)
        self.child.until(type="turn_ended", turn=self.turn)


class RawLog:
    """The journal's tables and pragmas, with nobody between the caller and SQLite."""

    def __init__(self, path: Path) -> None:
        self.db = sqlite3.connect(path, isolation_level=None)
        self.db.execute("PRAGMA journal_mode = WAL")
        self.db.execute("PRAGMA synchronous = FULL")
        self.db.execute(
            "CREATE TABLE entries (agent TEXT, seq INTEGER, at TEXT, event BLOB,"
            " PRIMARY KEY (agent, seq)) WITHOUT ROWID"
        )
        self.db.execute("CREATE TABLE outbound (seq INTEGER PRIMARY KEY, frame BLOB)")
        self._seq = 0

    def commit(
        self, rows: Sequence[tuple[str, bytes]], frames: Sequence[bytes] = ()
    ) -> None:
        """Insert rows of (agent, event) and frames in one durable transaction."""
        first = self._seq + 1
        self._seq += len(rows) + len(frames)
        self.db.execute("BEGIN IMMEDIATE")
        self.db.executemany(
            "INSERT INTO entries VALUES (?, ?, ?, ?)",
            [
                (agent, n, "2026-11-30T00:00:00.000Z", event)
                for n, (agent, event) in enumerate(rows, first)
            ],
        )
        if frames:
            self.db.executemany(
                "INSERT INTO outbound VALUES (?, ?)", list(enumerate(frames, first))
            )
        self.db.execute("COMMIT")

    def close(self) -> None:
        self.db.close()
