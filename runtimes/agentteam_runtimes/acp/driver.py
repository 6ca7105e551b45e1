"""
Any agent that speaks the Agent Client Protocol, one process per session.

Which program that is, the agent's option `command` says. What it can do it says in its
answer to `initialize`; what it does not say is not claimed here either. The protocol
itself gives the rest: a prompt is answered when its turn is over, an agent must heed
`session/cancel` and the reply `cancelled`, and its model's words come as updates, which
are the evidence. A second prompt to a busy agent is left open: none is sent. Files and
terminals of ours are not offered.

Measured with `opencode acp` 1.18.33: the answer to a cancelled prompt comes after 60 to
160 ms and nothing of the turn after it; a cancel that crosses the end of its turn does
not hit the next one; one in the first 50 ms of a turn is answered by an error, or as an
end of its own, and cancels all the same; a session that is loaded while it lives goes
on, after 70 ms; the end of its input ends it and its commands in 0.13 s.
"""

from __future__ import annotations

import re
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import trio

from agentteam_protocol.errors import (
    RuntimeExited,
    RuntimeFailure,
    RuntimeRefused,
    RuntimeTooSlow,
)
from agentteam_runtimes import jsonfields
from agentteam_runtimes.acp import wire
from agentteam_runtimes.acp.command import command, environment, introduction
from agentteam_runtimes.acp.introductions import initialize, introduce, remember
from agentteam_runtimes.acp.record import Memory, Record
from agentteam_runtimes.acp.session import AcpSession
from agentteam_runtimes.adoption import Adoption
from agentteam_runtimes.connection import Connection
from agentteam_runtimes.contained import Contained
from agentteam_runtimes.driver import (
    Capabilities,
    Emit,
    EvidenceLevel,
    Interrupt,
    Options,
    ResumeRefused,
    Runtime,
    SessionNamed,
    SessionSpec,
)
from agentteam_runtimes.incarnation import open_incarnation
from agentteam_runtimes.jsonrpc import Peer
from agentteam_runtimes.last_words import closing, dropped, last_words, write_or_refuse
from agentteam_runtimes.scratch import scratch

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Sequence

    from agentteam_runtimes.acp.command import Introduction
    from agentteam_runtimes.connection import Received
    from agentteam_runtimes.incarnation import Exit, Incarnation
    from agentteam_runtimes.lines import Overlong

START_SECONDS = 60.0
STOP_SECONDS = 2.0
MOST_PAGES = 50
GONE = re.compile(r"not found|no such|unknown session|does not exist", re.IGNORECASE)


class AcpDriver:
    """The driver of whatever speaks the protocol."""

    name = "acp"
    contract = 1

    def probe(self, options: Options) -> Capabilities:
        said = introduce(options)
        return Capabilities(
            version=said.version,
            interrupt=Interrupt.turn,
            evidence=EvidenceLevel.answered,
            approval_cancel=True,
            resume=said.loads,
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
        words = command(spec.options)
        with scratch(spec.state_dir / "tmp") as temporary:
            async with (
                open_incarnation(
                    words,
                    cwd=spec.workdir,
                    env=environment(spec.options, temporary),
                    on_lines=line.connection.feed,
                    on_overlong=line.overlong,
                    on_exit=line.exited,
                ) as incarnation,
                trio.open_nursery() as nursery,
            ):
                session = line.begin(spec, incarnation, nursery)
                try:
                    said = await _shake_hands(spec, resume, session)
                    remember(words, spec.options, said)
                    line.ready = True
                    if resume is not None:
                        adoption.done(resume)
                        emit([SessionNamed(resume)])
                except RuntimeExited as error:
                    failure = await last_words(incarnation, error)
                except RuntimeFailure as error:
                    # Raised below, where the nursery makes no group of it.
                    failure = error
                else:
                    try:
                        yield session
                    finally:
                        await _stop(incarnation)
                nursery.cancel_scope.cancel()
        if failure is not None:
            raise failure


class _Line:
    """What joins the pipes to the session."""

    def __init__(self, emit: Emit) -> None:
        self.emit = emit
        self.ready = False
        peer = Peer(wire.JSON_RPC)
        self.connection = Connection(self._write, self._received, peer=peer)
        self.incarnation: Incarnation | None = None
        self.session: AcpSession | None = None

    def begin(
        self, spec: SessionSpec, incarnation: Incarnation, nursery: trio.Nursery
    ) -> AcpSession:
        """Make the session; it is there before the agent says a word."""
        self.incarnation = incarnation
        self.session = AcpSession(
            self.connection,
            Contained(incarnation),
            spec.workdir,
            Memory(spec.state_dir / "acp.json"),
            self.emit,
            nursery,
        )
        return self.session

    async def _write(self, data: bytes) -> None:
        await write_or_refuse(self.incarnation, data)

    def _received(self, received: Sequence[Received]) -> None:
        if self.session is not None:
            self.session.receive(received)

    def overlong(self, line: Overlong) -> None:
        self.emit([dropped(line)])

    def exited(self, end: Exit) -> None:
        self.connection.exited(RuntimeExited(end.returncode, end.stderr_tail))
        if self.ready:  # else the handshake raises it
            self.emit(closing(end))


async def _shake_hands(
    spec: SessionSpec, resume: str | None, session: AcpSession
) -> Introduction:
    """Initialize, then make or load the session."""
    with trio.move_on_after(START_SECONDS):
        asked = initialize()
        initialized = await session.connection.call(
            wire.INITIALIZE, asked, START_SECONDS
        )
        said = introduction(initialized)
        session.loads = said.loads
        if said.logins:
            session.turns.how_to_log_in = "; ".join(said.logins)
        try:
            if resume is None:
                opened = await _new(session)
            else:
                opened = await _load(resume, said, session)
        except RuntimeRefused as refused:
            if refused.code == wire.LOGIN_WANTED and said.logins:
                how = f"the agent wants a login: {'; '.join(said.logins)}"
                raise RuntimeRefused(how, refused.code) from refused
            raise
        if spec.model:
            await _choose_model(spec.model, opened, session)
        return said
    raise RuntimeTooSlow(f"the agent did not shake hands within {START_SECONDS:g} s")


async def _new(session: AcpSession) -> object:
    params = wire.session_new(session.workdir)
    opened = await session.connection.call(wire.SESSION_NEW, params, START_SECONDS)
    if not (name := jsonfields.text(opened, "sessionId")):
        raise RuntimeRefused("the agent opened no session")
    session.id = name
    session.turns.record = Record(name, known=True)
    return opened


async def _load(resume: str, said: Introduction, session: AcpSession) -> object:
    if not said.loads:
        raise RuntimeRefused("this agent cannot go on with an earlier session")
    session.id, session.named = resume, True
    session.turns.record = session.memory.read(resume)
    try:
        return await session.load()
    except RuntimeRefused as refused:
        gone = refused.code == wire.NOT_FOUND or GONE.search(refused.message)
        # OpenCode says that it failed, of a session that is not there (measured).
        if gone or (said.lists and not await _lists(resume, session)):
            raise ResumeRefused(refused.message) from refused
        raise


async def _lists(wanted: str, session: AcpSession) -> bool:
    """Tell whether the agent lists the session; also when that cannot be told."""
    cursor: dict[str, object] = {}
    for _ in range(MOST_PAGES):
        page = await session.connection.call(wire.SESSION_LIST, cursor)
        if wanted in wire.sessions(page):
            return True
        if not (following := jsonfields.text(page, "nextCursor")):
            return False
        cursor = {"cursor": following}
    return True


async def _choose_model(model: str, opened: object, session: AcpSession) -> None:
    if option := wire.model_option(opened):
        chosen = {"sessionId": session.id, "configId": option, "value": model}
        await session.connection.call(wire.SET_OPTION, chosen)
    else:
        chosen = {"sessionId": session.id, "modelId": model}
        await session.connection.call(wire.SET_MODEL, chosen)


async def _stop(incarnation: Incarnation) -> None:
    """Let it end by itself: at the end of its input it also ends its commands."""
    with trio.CancelScope(shield=True), trio.move_on_after(STOP_SECONDS):
        incarnation.close_stdin()
        await incarnation.wait()
