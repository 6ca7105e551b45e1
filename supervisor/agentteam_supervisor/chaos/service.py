"""The product as its own processes: started, killed, stopped, and started again."""

from __future__ import annotations

import os
import resource
import signal
from pathlib import Path

import trio
from attrs import define, field

from agentteam_supervisor.chaos.births import Births, Forked, ForkServer, Process
from agentteam_supervisor.chaos.forkserver import ARM, ARM_VARIABLE
from agentteam_supervisor.chaos.points import VARIABLE
from agentteam_supervisor.chaos.proxy import Proxy

START_SECONDS = 40.0
END_SECONDS = 60.0
HEEDED_SECONDS = 10.0


@define(eq=False)
class Part:
    """One process of the service: `up`, or `server` or `daemon`."""

    verb: str
    process: Process
    ready: trio.Event = field(factory=trio.Event)
    over: trio.Event = field(factory=trio.Event)
    port: int = 0
    ended_by_us: bool = False

    @property
    def crashed(self) -> bool:
        """It came to its crash point."""
        killed = self.process.returncode == -signal.SIGKILL
        return not self.alive and killed and not self.ended_by_us

    @property
    def pid(self) -> int:
        return self.process.pid

    @property
    def alive(self) -> bool:
        return self.process.poll() is None

    def send(self, number: int) -> None:
        if self.process.poll() is None:
            self.process.send_signal(number)

    async def ready_or_over(self) -> bool:
        """Wait until it serves; False: it ended first, or did not come up in time."""
        with trio.move_on_after(START_SECONDS):
            async with trio.open_nursery() as nursery:
                for event in (self.ready, self.over):
                    nursery.start_soon(_cancel_after, event, nursery.cancel_scope)
        return self.ready.is_set()

    async def die(self, by: int = signal.SIGKILL) -> int | None:
        """End it, with SIGKILL if it will not go; gives its exit code."""
        self.ended_by_us |= self.alive and by == signal.SIGKILL
        self.send(by)
        with trio.move_on_after(END_SECONDS):
            await self.process.wait()
        if self.process.returncode is None:
            self.ended_by_us = True
            self.process.send_signal(signal.SIGKILL)
            await self.process.wait()
        return self.process.returncode

    def fill_disk(self, full: bool) -> None:
        """Let no file of it grow any more, or let them grow again."""
        limit = 0 if full else resource.RLIM_INFINITY
        try:
            _, hard = resource.prlimit(self.pid, resource.RLIMIT_FSIZE)
            resource.prlimit(self.pid, resource.RLIMIT_FSIZE, (limit, hard))
        except ProcessLookupError:
            pass


async def _cancel_after(event: trio.Event, scope: trio.CancelScope) -> None:
    await event.wait()
    scope.cancel()


@define(eq=False)
class Service:
    """
    `agentteam up`, or `server` and `daemon` apart with a proxy between them.

    `nursery` outlives the processes; `place` holds all they write, and is their HOME.
    """

    place: Path
    nursery: trio.Nursery
    proxy: Proxy
    births: Births = field(factory=Births)
    parts: dict[str, Part] = field(factory=dict[str, Part])

    @property
    def state(self) -> Path:
        return self.place / "state"

    @property
    def log(self) -> Path:
        return self.place / "stderr"

    @property
    def url(self) -> str | None:
        """Where the API is; None while it is down."""
        for verb in ("up", "server"):
            part = self.parts.get(verb)
            if part is not None and part.alive and part.port:
                return f"http://127.0.0.1:{part.port}"
        return None

    @property
    def alive(self) -> bool:
        return any(part.alive for part in self.parts.values())

    @property
    def pids(self) -> tuple[int, ...]:
        return tuple(part.pid for part in self.parts.values() if part.alive)

    async def start(self, verb: str, crash: str = "", log: Path | None = None) -> bool:
        """Start one part; True: it serves, False: it has ended before."""
        process = await self.births.start(
            self._arguments(verb), self._environment(verb, crash, log)
        )
        part = self.parts[verb] = Part(verb, process)
        self.nursery.start_soon(self._follow, part)
        return await part.ready_or_over()

    async def arm(self, verb: str, crash: str) -> bool:
        """Have a part that serves die at this point; False: it cannot be told."""
        part = self.parts.get(verb)
        if part is None or not part.alive or not isinstance(part.process, Forked):
            return False
        order = self._order(verb)
        order.write_text(crash)
        part.send(ARM)
        with trio.move_on_after(HEEDED_SECONDS):
            while part.alive:
                if not order.exists():
                    return True
                await trio.sleep(0.002)
        order.unlink(missing_ok=True)
        return False

    def _order(self, verb: str) -> Path:
        return self.place / f"arm-{verb}"

    def _arguments(self, verb: str) -> list[str]:
        where = ["--state-dir", str(self.state)]
        if verb == "daemon":
            where += ["--server", f"http://127.0.0.1:{self.proxy.port}"]
        else:
            where += ["--port", "0"]
        return [verb, *where]

    def _environment(self, verb: str, crash: str, log: Path | None) -> dict[str, str]:
        kept = {n: os.environ[n] for n in ("PATH", "PYTHONPATH") if n in os.environ}
        environment = {"HOME": str(self.place), "LANG": "C.UTF-8", **kept}
        if isinstance(self.births, ForkServer):
            environment[ARM_VARIABLE] = str(self._order(verb))
        if crash:
            environment[VARIABLE] = crash
        if log is not None:
            environment[f"{VARIABLE}_LOG"] = str(log)
        return environment

    async def _follow(self, part: Part) -> None:
        process = part.process
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._read_output, part)
                nursery.start_soon(self._keep_errors, part)
                await process.wait()
                # A child that has the pipe still must not keep us from seeing the end.
                nursery.cancel_scope.deadline = trio.current_time() + 1.0
        finally:
            part.over.set()
        if part.verb == "server" and self.parts.get("server") is part:
            self.proxy.upstream = None

    async def _read_output(self, part: Part) -> None:
        text = b""
        async for data in part.process.stdout:
            text += data
            if b"\n" in text and not part.ready.is_set():
                self._ready(part, text.split(b"\n")[0].decode())

    def _ready(self, part: Part, line: str) -> None:
        if line.startswith("listening on "):
            part.port = int(line.rpartition(":")[2])
            if part.verb == "server":
                self.proxy.upstream = part.port
        part.ready.set()

    async def _keep_errors(self, part: Part) -> None:
        async for data in part.process.stderr:
            append(self.log, bytes(data))


def append(file: Path, data: bytes) -> None:
    with file.open("ab") as log:
        log.write(data)
