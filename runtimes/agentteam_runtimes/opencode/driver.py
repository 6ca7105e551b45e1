"""
OpenCode: one `opencode serve` per session, on loopback and behind a password.

Two traps stand at its start. A request in the moment its port opens is never answered,
so we wait for the line that says where it listens. An abort while it still sets itself
up breaks it for good, so it is made to before the first prompt.

It keeps its sessions in its data directory: the user's own, or one below the agent's
`home`. Another server on the same directory is not prevented, but by our lease.
"""

from __future__ import annotations

import re
import secrets
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

import trio

from agentteam_protocol.errors import (
    RuntimeExited,
    RuntimeFailure,
    RuntimeRefused,
    RuntimeTooSlow,
)
from agentteam_runtimes import jsonfields
from agentteam_runtimes.adoption import Adoption
from agentteam_runtimes.contained import Contained
from agentteam_runtimes.driver import (
    Capabilities,
    Emit,
    EvidenceLevel,
    Exited,
    Interrupt,
    Options,
    ResumeRefused,
    Runtime,
    SessionNamed,
    SessionSpec,
    Steer,
)
from agentteam_runtimes.incarnation import open_incarnation
from agentteam_runtimes.last_words import dropped, last_words
from agentteam_runtimes.opencode import wire
from agentteam_runtimes.opencode.command import command, serving, version
from agentteam_runtimes.opencode.server import Server
from agentteam_runtimes.opencode.session import OpenCodeSession
from agentteam_runtimes.opencode.turns import Turns
from agentteam_runtimes.scratch import scratch

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from agentteam_runtimes.incarnation import Exit, Incarnation
    from agentteam_runtimes.lines import Overlong

LISTEN_SECONDS = 28.0
WARM_SECONDS = 15.0
WARM_TRIES = 3
STOP_SECONDS = 2.0

LISTENING = re.compile(rb"listening on (http://127\.0\.0\.1:\d+)\s*$")


class OpenCodeDriver:
    """The driver of OpenCode."""

    name = "opencode"
    contract = 1

    def probe(self, options: Options) -> Capabilities:
        return Capabilities(
            version=version(options),
            steer=Steer.ack,
            interrupt=Interrupt.turn,
            evidence=EvidenceLevel.answered,
            approval_cancel=True,
            resume=True,
            batch_input=True,
        )

    @asynccontextmanager
    async def open(
        self, spec: SessionSpec, resume: str | None, emit: Emit
    ) -> AsyncGenerator[Runtime, None]:
        failure: RuntimeFailure | None = None
        adoption = Adoption.of(spec)
        resume = resume or adoption.due
        line = _Line(emit)
        with scratch(spec.state_dir / "opencode-tmp") as temporary:
            async with open_incarnation(
                command(spec.options),
                cwd=spec.workdir,
                env=serving(spec, line.password, temporary),
                on_lines=line.lines,
                on_overlong=line.overlong,
                on_exit=line.exited,
            ) as incarnation:
                async with trio.open_nursery() as nursery:
                    try:
                        session = await _set_up(
                            spec, resume, line, incarnation, nursery
                        )
                        line.ready = True
                        adoption.done(session.turns.session)
                        emit([SessionNamed(session.turns.session)])
                    except RuntimeExited as error:
                        failure = await last_words(incarnation, error)
                    except RuntimeFailure as error:
                        # Raised below, where the nursery does not make a group of it.
                        failure = error
                    else:
                        try:
                            yield session
                        finally:
                            await _stop(incarnation, session.server)
                    nursery.cancel_scope.cancel()
                if line.server is not None:
                    with trio.CancelScope(shield=True):
                        await line.server.aclose()
        if failure is not None:
            raise failure


class _Line:
    """What joins the process to the session."""

    def __init__(self, emit: Emit) -> None:
        self.emit = emit
        self.ready = False
        self.password = secrets.token_urlsafe(24)
        self.url = ""
        self.listening = trio.Event()
        self.server: Server | None = None
        self.exit: RuntimeExited | None = None

    def lines(self, lines: list[bytes]) -> None:
        """Learn the address from the one line that tells it."""
        for line in lines:
            if not self.url and (found := LISTENING.search(line)):
                self.url = found[1].decode()
                self.listening.set()

    def overlong(self, line: Overlong) -> None:
        self.emit([dropped(line)])

    def exited(self, end: Exit) -> None:
        self.exit = RuntimeExited(end.returncode, end.stderr_tail)
        self.listening.set()
        if self.server is not None:
            self.server.exited(self.exit)
        if self.ready:  # else whoever starts it raises it
            self.emit([Exited(end.returncode, end.stderr_tail)])


async def _set_up(
    spec: SessionSpec,
    resume: str | None,
    line: _Line,
    incarnation: Incarnation,
    nursery: trio.Nursery,
) -> OpenCodeSession:
    server = line.server = await _reach(line)
    await _warm_up(server)
    session = await _open_session(spec, resume, server)
    turns = Turns(session)
    runtime = OpenCodeSession(server, turns, Contained(incarnation), line.emit, nursery)
    listening = trio.Event()

    def connected() -> None:
        if listening.is_set():
            runtime.connected()
        listening.set()

    nursery.start_soon(server.follow, runtime.receive, connected)
    with trio.move_on_after(LISTEN_SECONDS):
        await listening.wait()
        return runtime
    raise RuntimeTooSlow("OpenCode gives no events")


async def _reach(line: _Line) -> Server:
    """Wait for the line that says where it listens."""
    with trio.move_on_after(LISTEN_SECONDS):
        await line.listening.wait()
    if line.exit is not None:
        raise line.exit
    if not line.url:
        raise RuntimeTooSlow(f"OpenCode did not listen within {LISTEN_SECONDS:g} s")
    return Server(line.url, line.password)


async def _warm_up(server: Server) -> None:
    """Have it set itself up; one that broke while doing so is made anew."""
    failure: RuntimeFailure | None = None
    for _ in range(WARM_TRIES):
        try:
            await server.get(wire.PROVIDERS, WARM_SECONDS)
        except RuntimeRefused as refused:
            failure = refused
            await server.post(wire.DISPOSE_INSTANCE)
        else:
            return
    assert failure is not None
    raise failure


async def _open_session(spec: SessionSpec, resume: str | None, server: Server) -> str:
    if resume is None:
        # Untitled, it would ask the model for a title with every first prompt.
        body = {"title": f"AgentTeam: {spec.agent_name}"}
        opened = await server.post(wire.SESSION, body)
    else:
        try:
            opened = await server.get(wire.session(resume))
        except RuntimeRefused as refused:
            if refused.code in ("400", "404"):
                raise ResumeRefused(refused.message) from refused
            raise
        _check_place(spec, jsonfields.text(opened, "directory"))
    if not (session := jsonfields.text(opened, "id")):
        raise RuntimeRefused("OpenCode opened no session")
    return session


def _check_place(spec: SessionSpec, directory: str) -> None:
    """A server works for the directory it was started in, and hears of no other."""
    if directory and spec.workdir.resolve() != Path(directory).resolve():
        raise RuntimeRefused(
            f"the session belongs to {directory}: give the agent that workdir"
        )


async def _stop(incarnation: Incarnation, server: Server) -> None:
    """Have it end its commands, which it would leave behind; then end it."""
    with trio.CancelScope(shield=True), trio.move_on_after(STOP_SECONDS):
        with suppress(RuntimeFailure):  # what is left is killed with it
            await server.post(wire.DISPOSE)
        await incarnation.terminate()
        await incarnation.wait()
