"""The whole product as a process of its own, and a person's way to it: HTTP."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
from contextlib import asynccontextmanager, contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx
import psutil
import trio
from attrs import define, field
from tests.kit.product_agent import Person
from tests.kit.service import COMMAND

from agentteam_runtimes import wiretap

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Generator, Sequence

START_SECONDS = 30
END_SECONDS = 40
# What the service says of a fault of its own.
_TRACE = re.compile(r"Traceback \(most recent call last\)|fault of the supervisor")

_popen = partial(
    subprocess.Popen,  # noqa: TID251 - the command itself, which is no runtime
    stdin=subprocess.DEVNULL,
    stdout=subprocess.PIPE,
    text=True,
)


@define(eq=False)
class Up:
    """
    `agentteam up` with a state directory of its own, from its start to its end.

    Everything it starts inherits `HOME`, which is how its processes are found again,
    whoever their parents are by then.
    """

    place: Path
    url: str = ""
    process: subprocess.Popen[str] | None = field(default=None)  # noqa: TID251

    @property
    def state(self) -> Path:
        return self.place / "state"

    @property
    def temporary(self) -> Path:
        return self.place / "tmp"

    @property
    def log(self) -> str:
        return (self.place / "stderr").read_text(errors="replace")

    def forget_log(self) -> None:
        """Begin a new log, for a test that caused what stands in this one."""
        (self.place / "stderr").write_text("")

    @property
    def environment(self) -> dict[str, str]:
        names = ("PATH", "PYTHONPATH", wiretap.DIRECTORY)
        kept = {name: os.environ[name] for name in names if name in os.environ}
        home = {"HOME": str(self.place), "TMPDIR": str(self.temporary)}
        return {**home, "LANG": "C.UTF-8", **kept}

    def start(self, *arguments: str) -> None:
        """Start it; it is ready when this returns."""
        command = [COMMAND, "up", "--port", "0", "--state-dir", self.state, *arguments]
        self.temporary.mkdir(exist_ok=True)
        with (self.place / "stderr").open("ab") as stderr:
            self.process = _popen(command, env=self.environment, stderr=stderr)
        assert self.process.stdout is not None
        line = self.process.stdout.readline()  # ends with the process, so it is bounded
        assert line.startswith("listening on "), f"it did not start: {line}{self.log}"
        self.url = line.split()[-1]

    def processes(self) -> list[psutil.Process]:
        """Find what it started and lives, itself not among them."""
        mine = f"HOME={self.place}".encode()
        own = self.process.pid if self.process else 0
        pids = [pid for pid in psutil.pids() if pid != own and _has(pid, mine)]
        if own and psutil.pid_exists(own):
            pids += [p.pid for p in psutil.Process(own).children(recursive=True)]
        return [p for p in map(_living, sorted(set(pids))) if p is not None]

    def commands(self) -> list[str]:
        """Show the command lines of what it started and lives."""
        return [_line(p) for p in self.processes()]

    def kill9(self) -> None:
        """Kill it, and only it; what it started has to end by itself."""
        self._end(signal.SIGKILL)

    def terminate(self) -> int:
        """End it as a service manager would; gives its exit code."""
        return self._end(signal.SIGTERM)

    def _end(self, by: int) -> int:
        assert self.process is not None
        self.process.send_signal(by)
        rest, _ = self.process.communicate(timeout=END_SECONDS)
        assert rest == "", f"more than one line on standard output: {rest}"
        return self.process.returncode

    def alive(self) -> bool:
        return self.process is not None and self.process.poll() is None

    def close(self) -> None:
        """End it if it still runs; nothing may live on, no fault may be in its log."""
        if self.alive():
            assert self.terminate() == 0, self.log
        elif self.process is not None and self.process.stdout is not None:
            self.process.stdout.close()
        self.nothing_lives()
        assert not _TRACE.search(self.log), self.log

    def nothing_lives(self, within: float = 5.0) -> None:
        """Insist that whatever it started is gone soon."""
        psutil.wait_procs(self.processes(), timeout=within)
        assert self.commands() == []


@define(eq=False)
class Product(Person):
    """A running product and a person at it."""

    up: Up

    async def kill9(self) -> None:
        await trio.to_thread.run_sync(self.up.kill9)

    async def terminate(self) -> int:
        return await trio.to_thread.run_sync(self.up.terminate)

    async def start(self) -> None:
        """Start it again on the same state; the port is another one."""
        await trio.to_thread.run_sync(self.up.start)
        self.client.base_url = httpx.URL(self.up.url)

    async def all_gone(self, within: float = 5.0) -> None:
        await trio.to_thread.run_sync(self.up.nothing_lives, within)

    async def restart(self) -> None:
        """Kill it, see that nothing of it is left, start it again."""
        await self.kill9()
        await self.all_gone()
        await self.start()

    def named(self, part: str) -> list[psutil.Process]:
        """Find living processes of it by a part of their command line."""
        return [p for p in self.up.processes() if part in _line(p)]


@contextmanager
def open_up(place: Path, *arguments: str) -> Generator[Up]:
    up = Up(place)
    up.start(*arguments)
    try:
        yield up
    finally:
        up.close()


@contextmanager
def open_patient_up(place: Path) -> Generator[Up]:
    """Start one for which a runtime that a busy machine starts slowly has not failed."""
    state = place / "state"
    state.mkdir(mode=0o700)
    (state / "agentteam.toml").write_text("[limits]\nstart = 300\n")
    with open_up(place) as up:
        yield up


@asynccontextmanager
async def person_at(up: Up) -> AsyncGenerator[Product]:
    """Give a person a client for a product that runs already."""
    async with httpx.AsyncClient(base_url=up.url, timeout=70) as client:
        yield Product(client, up)


@asynccontextmanager
async def open_product(place: Path, *arguments: str) -> AsyncGenerator[Product]:
    """Start a product of one's own; at the end nothing of it may be left."""
    up = Up(place)
    await trio.to_thread.run_sync(partial(up.start, *arguments))
    try:
        async with person_at(up) as product:
            yield product
    finally:
        with trio.CancelScope(shield=True):  # bounded by END_SECONDS
            await trio.to_thread.run_sync(up.close)


def do(*steps: dict[str, Any]) -> str:
    """Write the body that plays these steps."""
    return f"#do {json.dumps(steps)}"


def of_kind(events: Sequence[dict[str, Any]], *kinds: str) -> list[dict[str, Any]]:
    return [event for event in events if event["kind"] in kinds]


def _has(pid: int, mark: bytes) -> bool:
    try:
        environment = Path(f"/proc/{pid}/environ").read_bytes()
    except OSError:
        return False
    return mark in environment.split(b"\0")


def _living(pid: int) -> psutil.Process | None:
    try:
        process = psutil.Process(pid)
        return None if process.status() == psutil.STATUS_ZOMBIE else process
    except psutil.NoSuchProcess:
        return None


def _line(process: psutil.Process) -> str:
    try:
        return " ".join(process.cmdline())
    except psutil.NoSuchProcess:
        return ""
