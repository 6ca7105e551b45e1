"""
What a session has in its history: a file of lines. Standard library only.

A line is in the file before the host is told, so a process that was killed in between
has the entry although nobody heard of it. It outlives the process, not the machine.
"""

from __future__ import annotations

import json
import os
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


class NoSession(Exception):
    """There is no session of that name here."""


class Record:
    """The history of one session, and how many turns it has begun."""

    def __init__(self, directory: str, session: str) -> None:
        self.session = session
        self.turns = 0
        self.surfaced: set[str] = set()
        self._path = os.path.join(directory, f"{session}.jsonl")
        self._fd = -1

    def open(self, *, resume: bool) -> None:
        """Open the file of the session, or make it; raises `NoSession`, `OSError`."""
        if not _is_name(self.session):
            raise NoSession(self.session)
        flags = os.O_RDWR | os.O_APPEND | (0 if resume else os.O_CREAT | os.O_EXCL)
        try:
            self._fd = os.open(self._path, flags | os.O_CLOEXEC, 0o600)
        except FileNotFoundError:
            if not resume:
                raise
            raise NoSession(self.session) from None
        if resume:
            self._fold()

    def begin(self, batch: str) -> int:
        """Count a turn; returns its number, which no later process uses again."""
        self.turns += 1
        self._append({"turn": self.turns, "batch": batch})
        return self.turns

    def surface(self, key: str) -> None:
        """Take an entry into the history."""
        self.surfaced.add(key)
        self._append({"surfaced": key})

    def show(self, text: str) -> None:
        """Take what a tool answered into the history."""
        self._append({"shown": text, "at": time.time()})

    def _append(self, line: dict[str, Any]) -> None:
        os.write(self._fd, json.dumps(line).encode() + b"\n")

    def _fold(self) -> None:
        with open(self._path, "rb") as file:
            lines = file.read().split(b"\n")
        if lines[-1]:
            os.write(self._fd, b"\n")  # a torn tail must not swallow the next line
        for line in lines[:-1]:
            try:
                self._apply(json.loads(line))
            except ValueError:
                continue

    def _apply(self, line: dict[str, Any]) -> None:
        if "turn" in line:
            self.turns = line["turn"]
        elif "surfaced" in line:
            self.surfaced.add(line["surfaced"])


def new_session() -> str:
    """Make a name that no other session has."""
    return f"rehearsal-{os.urandom(8).hex()}"


def _is_name(session: str) -> bool:
    return bool(session) and session.replace("-", "").isalnum() and session.isascii()
