"""
Taps on the wire between a driver and its runtime, in both directions; none by default.

A tap is set where incarnations are opened, and hears each of them: how it is started,
the lines that go in and come out, and the requests, answers and events of one that is
served over HTTP. It hears them as they are, secrets included: whoever keeps them scrubs
them. `AGENTTEAM_WIRE=DIR` sets one that writes all of it there, a file per incarnation.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Sequence
from contextvars import ContextVar
from itertools import count
from pathlib import Path
from typing import Any

Entry = dict[str, Any]
Tap = Callable[[Entry], None]
Lines = Callable[[list[bytes]], None]

TAP: ContextVar[Tap | None] = ContextVar("TAP", default=None)
DIRECTORY = "AGENTTEAM_WIRE"

_numbers = count(1)


def current_tap() -> Tap | None:
    """Give the tap that is set here."""
    if (tap := TAP.get()) is not None:
        return tap
    directory = os.environ.get(DIRECTORY)
    return _writing_to(Path(directory)) if directory else None


def started(tap: Tap, command: Sequence[str]) -> None:
    """Tell of a start: its arguments, without the program's place."""
    tap({"dir": "in", "start": list(command[1:])})


def wrote(tap: Tap, data: bytes) -> None:
    for line in data.splitlines():
        tap({"dir": "in", "line": line.decode("utf-8", "replace")})


def hearing(tap: Tap, on_lines: Lines) -> Lines:
    """Tell of lines before they are handed on."""

    def hear(lines: list[bytes]) -> None:
        for line in lines:
            tap({"dir": "out", "line": line.decode("utf-8", "replace")})
        on_lines(lines)

    return hear


def _writing_to(directory: Path) -> Tap:
    directory.mkdir(parents=True, exist_ok=True, mode=0o700)
    file = directory / f"{os.getpid()}-{next(_numbers)}.jsonl"

    def write(entry: Entry) -> None:
        with open(
            os.open(file, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600), "a"
        ) as out:
            out.write(json.dumps({**entry, "at": round(time.monotonic(), 6)}) + "\n")

    return write
