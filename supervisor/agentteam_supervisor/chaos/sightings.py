"""Find the processes of a product, whoever their parents are by now."""

from __future__ import annotations

import os
import re
from pathlib import Path

import psutil
import trio
from attrs import define, field, frozen

RUNTIME = re.compile(
    r"program\.py|codex\S* app-server|claude\S* --print|opencode\S* serve"
)


@frozen
class Found:
    """A living process; its start time tells it from a later one of the same pid."""

    pid: int
    born: float
    command: str

    @property
    def kind(self) -> str:
        """Tell a warden from its runtime, and both from what that started."""
        if "runtimes.warden import" in self.command:
            return "warden"
        return "runtime" if RUNTIME.search(self.command) else "tool"

    def is_alive(self) -> bool:
        return _look(self.pid) == self

    def send(self, number: int) -> bool:
        """Send it a signal, unless it has gone."""
        if not self.is_alive():
            return False
        try:
            os.kill(self.pid, number)
        except ProcessLookupError:
            return False
        return True


@define
class Sightings:
    """
    All whose `HOME` is this directory or in it, and whatever was ever seen below them.

    The service itself is named by `leave_out`.
    """

    home: Path
    known: set[Found] = field(factory=set[Found])

    def look(self, *leave_out: int) -> list[Found]:
        """Find who is alive now, the oldest first."""
        mark = f"HOME={self.home}".encode()
        for pid in psutil.pids():
            if _has(pid, mark) and (found := _look(pid)) is not None:
                self.known.add(found)
        for pid in leave_out:
            self.known.update(_below(pid))
        self.known = {found for found in self.known if found.is_alive()}
        alive = [found for found in self.known if found.pid not in leave_out]
        return sorted(alive, key=lambda found: (found.born, found.pid))

    async def wait_gone(self, within: float, *leave_out: int) -> list[Found]:
        """Wait until nothing is alive; gives who still is when the time is up."""
        alive = self.look(*leave_out)
        with trio.move_on_after(within):
            while alive:
                await trio.sleep(0.02)
                alive = self.look(*leave_out)
        return alive


def _has(pid: int, mark: bytes) -> bool:
    try:
        given = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:
        return False
    return any(each == mark or each.startswith(mark + b"/") for each in given)


def _below(pid: int) -> set[Found]:
    try:
        children = psutil.Process(pid).children(recursive=True)
    except psutil.Error:
        return set()
    return {f for child in children if (f := _look(child.pid)) is not None}


def _look(pid: int) -> Found | None:
    try:
        process = psutil.Process(pid)
        if process.status() == psutil.STATUS_ZOMBIE:
            return None
        return Found(pid, process.create_time(), " ".join(process.cmdline()))
    except psutil.Error:
        return None
