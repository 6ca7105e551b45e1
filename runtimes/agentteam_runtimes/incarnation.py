"""
Run one incarnation of a runtime as a child of this program.

The incarnation is everything that comes of one start: the runtime, its tools and
whatever those leave behind. A warden (`warden.py`) holds it together; this side
owns the pipes. Four tasks serve it, in a nursery that ends with it: the reader of
stdout, the drain of stderr, the writer of stdin, the listener to the warden.

Leaving `open_incarnation`, by whatever way and at whatever moment, kills the tree
and waits, shielded and bounded, until it is empty.
"""

from __future__ import annotations

import json
import os
from contextlib import asynccontextmanager, suppress
from itertools import count
from typing import TYPE_CHECKING, Any

import trio
from attrs import evolve, frozen

from agentteam_protocol.errors import RuntimeExited, RuntimeMissing, RuntimeTooSlow
from agentteam_runtimes import orphans, process_table
from agentteam_runtimes.containment import remove_cgroup
from agentteam_runtimes.lines import DEFAULT_LIMIT, LineFramer, Overlong
from agentteam_runtimes.old_trees import end_tree
from agentteam_runtimes.pipes import InputClosed, InputWriter, Tail, drain, read_lines
from agentteam_runtimes.process_tree import (
    ProcessIdentity,
    Swept,
    TreeIdentity,
    TreeProcess,
    read_boot,
)
from agentteam_runtimes.warden_start import WardenLink, start_error, start_warden
from agentteam_runtimes.wiretap import current_tap, hearing, started, wrote

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Iterable, Mapping, Sequence
    from pathlib import Path

    from agentteam_runtimes.wiretap import Tap

Report = dict[str, Any]

# How often a warden that owes us an answer is looked at: one that is stopped is mute.
LOOK_EVERY = 0.1

# Warden processes that outlived their incarnation because something below them
# could not be killed; they end with it. Kept, so that they are reaped one day.
_lingering: list[trio.Process] = []


@frozen
class Limits:
    """Bounds of one incarnation, in bytes and seconds."""

    line: int = DEFAULT_LIMIT
    stderr: int = 64 * 1024
    queue: int = 64 * 1024 * 1024
    start: float = 10.0
    # A word the runtime was given may still be answered by its exit.
    last_words: float = 0.5
    # How long a survivor that holds stdout open may delay the exit.
    drain: float = 1.0
    # How long a runtime may live on that has closed its stdout: it cannot speak.
    mute: float = 5.0
    answer: float = 1.0
    # How long a warden may take to say that it took the order to kill.
    heed: float = 0.5
    kill: float = 5.0
    lease: float = 30.0


@frozen
class Exit:
    """How an incarnation ended; `returncode` is None when nobody could tell."""

    returncode: int | None
    stderr_tail: str
    half_line: bytes | None
    survivors: tuple[TreeProcess, ...]
    # "" by itself | told | closed | lease (our heartbeat stopped) | warden (it died)
    # | mute (it closed its stdout)
    why: str

    @property
    def by_itself(self) -> bool:
        return self.why == ""


@asynccontextmanager
async def open_incarnation(
    command: Sequence[str],
    *,
    cwd: Path,
    env: Mapping[str, str],
    on_lines: Callable[[list[bytes]], None],
    on_overlong: Callable[[Overlong], None],
    on_exit: Callable[[Exit], None],
    limits: Limits | None = None,
) -> AsyncGenerator[Incarnation]:
    """
    Start a runtime, and end it with everything it started.

    The callbacks are plain functions, called from the reading tasks: they must not
    wait. `on_exit` is called once for a runtime that had started, also for an end
    that was ordered. Raises `RuntimeMissing` for what cannot be started at all.
    """
    limits = limits or Limits()
    failure: Exception | None = None
    if (tap := current_tap()) is not None:
        started(tap, command)
        on_lines = hearing(tap, on_lines)
    link = await start_warden(command, cwd=cwd, env=env, lease=limits.lease)
    incarnation = Incarnation(link, limits, tap)
    async with trio.open_nursery() as nursery:
        try:
            await incarnation.begin(command, cwd)
            nursery.start_soon(incarnation.serve, on_lines, on_overlong, on_exit)
            yield incarnation
        except Exception as error:
            # Raised below, where the nursery does not make a group of it.
            failure = error
        finally:
            await incarnation.aclose()
    if failure is not None:
        raise failure


class Incarnation:
    """A live runtime: its stdin, its end, and what can be done to its tree."""

    def __init__(
        self, link: WardenLink, limits: Limits, tap: Tap | None = None
    ) -> None:
        process = link.process
        self._tap = tap
        self._link = link
        self._limits = limits
        self._ids = count(1)
        self._answers: dict[int, Report] = {}
        self._asked: dict[int, trio.Event] = {}
        self._stdin = InputWriter(link.stdin, limits.queue)
        self._stderr = Tail(limits.stderr)
        self._framer = LineFramer(limits.line)
        self._reports = LineFramer()
        self._streams_ended = [trio.Event(), trio.Event()]
        self._gone = trio.Event()
        self._ending = trio.Event()
        self._overthrown = False
        self._over = trio.Event()
        self._served = trio.Event()
        self._serving = False
        self._returncode: int | None = None
        self._why = ""
        self._survivors: tuple[TreeProcess, ...] = ()
        self._exit: Exit | None = None
        unknown = ProcessIdentity(0, 0)
        born = process_table.read_process(process.pid)
        self.identity = TreeIdentity(
            ProcessIdentity(process.pid, born.ticks if born else 0),
            unknown,
            read_boot(),
            link.cgroup,
        )

    @property
    def pid(self) -> int:
        return self.identity.runtime.pid

    @property
    def start_ticks(self) -> int:
        return self.identity.runtime.ticks

    @property
    def stderr_tail(self) -> str:
        return self._stderr.text

    @property
    def stderr_bytes(self) -> int:
        """How much the runtime has written there so far."""
        return self._stderr.total

    def mark(self) -> int:
        """Tell the time in ticks, to remember when a turn began."""
        return process_table.ticks_now()

    @property
    def alone(self) -> bool:
        """
        Tell at once whether nothing but the runtime lives below the warden.

        Without asking the warden: most turns leave nothing, and this is a few reads.
        """
        runtime, warden = self.identity.runtime, self.identity.warden
        if not process_table.is_childless(runtime.pid):
            return False
        try:
            # After it: what is orphaned moves up to the warden, and nothing down.
            return process_table.read_own_children(warden.pid) == [runtime.pid]
        except OSError:
            return False

    # What a driver does with it

    async def write(self, data: bytes) -> None:
        """
        Write to the runtime's stdin; returns when all of it is in the pipe.

        Raises `RuntimeExited` when nobody reads it any more, at once when that is
        known already, and `QueueFull`, with nothing written, when too much waits.
        If cancelled, what has begun is finished, what has not is never written.
        """
        known = self._stdin.broken
        if self._tap is not None:
            wrote(self._tap, data)
        try:
            await self._stdin.write(data)
        except InputClosed:
            if not known:
                # The pipe breaks a moment before the exit code is known.
                with trio.move_on_after(self._limits.last_words):
                    await self._gone.wait()
            raise RuntimeExited(self._returncode, self.stderr_tail) from None

    def close_stdin(self) -> None:
        """Close the runtime's stdin behind what is written already."""
        self._stdin.close()

    async def wait(self) -> Exit:
        """Wait for the end of the whole incarnation, its output read to the end."""
        await self._served.wait()
        if self._exit is None:
            raise RuntimeExited(self._returncode, self.stderr_tail)
        return self._exit

    async def terminate(self) -> None:
        """Send SIGTERM to the runtime's group and the rest of the tree."""
        # Unanswered, the signal is on its way; `kill` deals with a warden that hangs.
        with suppress(RuntimeTooSlow):
            await self._ask("terminate", within=self._limits.answer)
        if self._mute:
            await self._overthrow(self._limits.kill)

    async def kill(self, within: float | None = None) -> tuple[TreeProcess, ...]:
        """Kill the incarnation until it is empty; names each survivor."""
        within = self._limits.kill if within is None else within
        if self._over.is_set():
            return self._survivors
        self._tell("kill", within)
        heeded = await self._owed(self._ending, self._limits.heed)
        if not heeded or not await self._owed(self._over, within + self._limits.answer):
            await self._overthrow(within)
        return self._survivors

    async def sweep(
        self,
        born_after: int,
        keep: Iterable[ProcessIdentity] = (),
        *,
        grace: float = 0.5,
        within: float = 2.0,
    ) -> Swept:
        """
        End what a cut turn left: born since `mark()`, in another session than ours.

        TERM, a grace, then KILL. The runtime, its session, and the kept processes
        with what is below them stay. All of it is ended when the warden is stopped:
        who did that could not be told from the rest.
        """
        try:
            report = await self._ask(
                "sweep",
                born_after,
                grace,
                within,
                *(f"{one.pid}:{one.ticks}" for one in keep),
                within=grace + within + self._limits.answer,
            )
        except RuntimeTooSlow:
            if not self._mute:
                raise
            return await self._overthrow(within)
        return Swept(_processes(report, "ended"), _processes(report, "processes"))

    async def processes(self) -> tuple[TreeProcess, ...]:
        """List the living tree, the runtime first."""
        report = await self._ask("list", within=self._limits.answer)
        return _processes(report, "processes")

    # Its life

    async def begin(self, command: Sequence[str], cwd: Path) -> None:
        """Wait until the runtime is started, or raise why it cannot be."""
        with trio.move_on_after(self._limits.start):
            while (reports := await self._hear()) is not None:
                for report in reports:
                    self._take(report)
                    if report["report"] == "failed":
                        raise start_error(report, command, cwd)
                if self.pid:
                    # From here on `serve` is sure to run, if only to hear the end.
                    self._serving = True
                    return
            raise RuntimeMissing(
                "the process that guards a runtime did not start",
                f"check that {self._link.program} can be run",
            )
        raise RuntimeTooSlow(f"{command[0]} did not start in {self._limits.start} s")

    async def serve(
        self,
        on_lines: Callable[[list[bytes]], None],
        on_overlong: Callable[[Overlong], None],
        on_exit: Callable[[Exit], None],
    ) -> None:
        """Run the tasks of the incarnation until it is over."""
        try:
            # Shielded: the end of the tree is heard by these tasks.
            with trio.CancelScope(shield=True):
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(self._read, on_lines, on_overlong)
                    nursery.start_soon(self._drain)
                    nursery.start_soon(self._stdin.run)
                    nursery.start_soon(self._listen)
                    nursery.start_soon(self._beat)
                    await self._over.wait()
                    with trio.move_on_after(self._limits.drain):
                        for ended in self._streams_ended:
                            await ended.wait()
                    nursery.cancel_scope.cancel()
            self._exit = Exit(
                self._returncode,
                self.stderr_tail,
                self._framer.finish(),
                self._survivors,
                self._why,
            )
            on_exit(self._exit)
        finally:
            self._over.set()
            self._served.set()

    async def aclose(self) -> None:
        """Kill the tree, wait until it is empty, close everything; bounded."""
        bound = 3 * self._limits.kill + self._limits.drain + self._limits.answer
        try:
            with trio.CancelScope(shield=True, deadline=trio.current_time() + bound):
                if self._serving:
                    await self.kill()
                    await self._served.wait()
                self._link.hang_up()
                await self._bury()
        finally:
            remove_cgroup(self._link.cgroup)
            self._link.close()

    async def _bury(self) -> None:
        """Reap the warden, unless it stays to guard what could not be killed."""
        process = self._link.process
        with trio.move_on_after(0.1 if self._survivors else self._limits.kill):
            await process.wait()
            orphans.release(process.pid)
        if process.returncode is None:
            _lingering.append(process)

    async def _read(
        self,
        on_lines: Callable[[list[bytes]], None],
        on_overlong: Callable[[Overlong], None],
    ) -> None:
        await read_lines(self._link.stdout, self._framer, on_lines, on_overlong)
        self._streams_ended[0].set()
        with trio.move_on_after(self._limits.mute):
            await self._gone.wait()
        if not self._gone.is_set():
            self._why = "mute"
            self._tell("kill", self._limits.kill)

    async def _drain(self) -> None:
        await drain(self._link.stderr, self._stderr)
        self._streams_ended[1].set()

    async def _beat(self) -> None:
        every = self._limits.lease / 4
        # In step with the other incarnations: one wake-up serves many of them.
        step = every / 4
        while True:
            await trio.sleep_until((trio.current_time() + every) // step * step)
            self._link.send(b"beat\n")

    # The warden

    def _tell(self, verb: str, *arguments: object) -> int:
        """Send a command; it has left when this returns. Returns its id."""
        number = next(self._ids)
        words = " ".join(map(str, (number, verb, *arguments)))
        self._link.send(words.encode() + b"\n")
        return number

    async def _ask(self, verb: str, *arguments: object, within: float) -> Report:
        """Send a command and wait for its answer; empty when all is over."""
        number = self._tell(verb, *arguments)
        answered = self._asked[number] = trio.Event()
        if self._over.is_set():
            answered.set()
        try:
            if await self._owed(answered, within):
                return self._answers.pop(number, {})
        finally:
            del self._asked[number]
        raise RuntimeTooSlow(f"the warden did not answer {verb} in {within} s")

    @property
    def _mute(self) -> bool:
        """Tell whether the warden is stopped: by its own tree, or by a debugger."""
        warden = self.identity.warden.find()
        return warden is not None and warden.state in "Tt"

    async def _owed(self, event: trio.Event, within: float) -> bool:
        """Wait for what the warden owes us; False when it is overdue, or mute."""
        with trio.move_on_after(within):
            while not event.is_set():
                with trio.move_on_after(LOOK_EVERY):
                    await event.wait()
                if self._mute:
                    break
        return event.is_set()

    async def _overthrow(self, within: float) -> Swept:
        """
        End the tree over the head of a warden that does not do it, and the warden.

        It goes last: while it lives all that is orphaned below it stays below it. What
        survives is found again by those who hear of its death.
        """
        self._overthrown = True
        swept = await end_tree(self.identity, within=within)
        self._survivors = swept.survivors
        self._link.process.kill()
        with trio.move_on_after(2 * within + self._limits.answer):
            await self._over.wait()
        return swept

    async def _hear(self) -> list[Report] | None:
        """Wait for reports of the warden; None when it hung up."""
        data = await self._link.receive()
        if not data:
            return None
        return [json.loads(line) for line in self._reports.feed(data)]

    async def _listen(self) -> None:
        while (reports := await self._hear()) is not None:
            for report in reports:
                self._take(report)
        if not self._over.is_set():
            await self._mourn()
        self._gone.set()
        self._ending.set()
        self._over.set()
        for answered in self._asked.values():
            answered.set()

    def _take(self, report: Report) -> None:
        match report["report"]:
            case "started":
                runtime = ProcessIdentity(report["pid"], report["ticks"])
                self.identity = evolve(self.identity, runtime=runtime)
            case "exited":
                self._returncode = os.waitstatus_to_exitcode(report["status"])
                self._gone.set()
                self._stdin.abandon()
            case "ending":
                self._ending.set()
            case "answer":
                answered = self._asked.get(report["id"])
                if answered is not None:
                    self._answers[report["id"]] = report
                    answered.set()
            case "over":
                self._why = self._why or report["why"]
                self._survivors = _processes(report, "processes")
                self._ending.set()
                self._over.set()
            case _:
                pass

    async def _mourn(self) -> None:
        """
        End what a dead warden left.

        The runtime got SIGKILL from the kernel. Where this program is a subreaper,
        it is our child now, and so is all that was orphaned below the warden.
        """
        self._why = self._why or "warden"
        runtime = self.identity.runtime
        # What an overthrow could not end in its time needs no such time again.
        within = self._limits.heed if self._overthrown else self._limits.kill
        orphans.guard(runtime.pid)
        left = await end_tree(self.identity, within=within)
        status = orphans.reap(runtime.pid)
        if status is not None:
            self._returncode = os.waitstatus_to_exitcode(status)
        orphans.release(runtime.pid)
        self._stdin.abandon()
        strays = await orphans.end_strays(runtime.ticks, within)
        self._survivors = left.survivors + strays


def _processes(report: Report, key: str) -> tuple[TreeProcess, ...]:
    return tuple(TreeProcess(**row) for row in report.get(key, ()))
