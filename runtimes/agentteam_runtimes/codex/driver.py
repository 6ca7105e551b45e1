"""
Codex: one `codex app-server` per session, JSON-RPC on its standard streams.

Its sandbox and approval policy are given with every `thread/start` and
`thread/resume`: a resumed thread had its sandbox turned read-only without them.
"""

from __future__ import annotations

import re
from contextlib import asynccontextmanager
from importlib.metadata import version as installed_version
from typing import TYPE_CHECKING

import trio

from agentteam_protocol.approval import ApprovalPolicy
from agentteam_protocol.errors import (
    RuntimeExited,
    RuntimeFailure,
    RuntimeRefused,
    RuntimeTooSlow,
)
from agentteam_runtimes import jsonfields
from agentteam_runtimes.adoption import Adoption
from agentteam_runtimes.codex import wire
from agentteam_runtimes.codex.command import command, environment, version
from agentteam_runtimes.codex.session import CodexSession
from agentteam_runtimes.codex.tools import SPECS
from agentteam_runtimes.codex.turns import Turns
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
    Steer,
)
from agentteam_runtimes.incarnation import open_incarnation
from agentteam_runtimes.last_words import closing, dropped, last_words, write_or_refuse

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Sequence

    from agentteam_runtimes.connection import Received
    from agentteam_runtimes.incarnation import Exit, Incarnation
    from agentteam_runtimes.jsonlines import JsonObject
    from agentteam_runtimes.lines import Overlong

START_SECONDS = 30.0
STOP_SECONDS = 2.0

# Any other refusal is not "the session does not exist": a file that may only be locked
# or unreadable for now is no reason to begin anew. One without a single record is.
GONE = re.compile(
    r"no rollout found|thread not found|invalid (thread|session) id"
    r"|rollout at .* is empty"
)


class CodexDriver:
    """The driver of Codex."""

    name = "codex"
    contract = 1

    def probe(self, options: Options) -> Capabilities:
        return Capabilities(
            version=version(options),
            steer=Steer.ack,
            interrupt=Interrupt.turn,
            evidence=EvidenceLevel.recorded,
            approval_cancel=True,
            resume=True,
            batch_input=True,
            tools=True,
        )

    @asynccontextmanager
    async def open(
        self, spec: SessionSpec, resume: str | None, emit: Emit
    ) -> AsyncGenerator[Runtime, None]:
        failure: RuntimeFailure | None = None
        adoption = Adoption.of(spec)
        resume = resume or adoption.due
        line = _Line(emit)
        async with open_incarnation(
            command(spec.options),
            cwd=spec.workdir,
            env=environment(spec.options),
            on_lines=line.connection.feed,
            on_overlong=line.overlong,
            on_exit=line.exited,
        ) as incarnation:
            line.incarnation = incarnation
            async with trio.open_nursery() as nursery:
                contained = Contained(incarnation)
                # There before the thread is: what codex asks meanwhile is answered.
                session = line.session = CodexSession(
                    line.connection, Turns(""), contained, emit, nursery
                )
                try:
                    await _shake_hands(spec, resume, session)
                    line.ready = True
                    if resume is not None:
                        session.turns.resumable = True
                        adoption.done(resume)
                        emit([SessionNamed(session.turns.thread)])
                except RuntimeExited as error:
                    failure = await last_words(incarnation, error)
                except RuntimeFailure as error:
                    # Raised below, where the nursery does not make a group of it.
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
        self.connection = Connection(self._write, self._received)
        self.incarnation: Incarnation | None = None
        self.session: CodexSession | None = None

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
    spec: SessionSpec, resume: str | None, session: CodexSession
) -> None:
    """Initialize, then start or resume the thread."""
    with trio.move_on_after(START_SECONDS):
        ours = wire.initialize(installed_version("agentteam-supervisor"))
        await session.connection.call(wire.INITIALIZE, ours)
        await session.connection.notify(wire.INITIALIZED)
        thread = await _open_thread(spec, resume, session.connection)
        session.turns.thread = thread
        return
    raise RuntimeTooSlow(f"codex did not shake hands within {START_SECONDS:g} s")


async def _open_thread(
    spec: SessionSpec, resume: str | None, connection: Connection
) -> str:
    params = thread_settings(spec)
    if resume is None:
        # A resumed thread keeps them; it cannot be given others.
        offering = params | {"dynamicTools": SPECS}
        opened = await connection.call(wire.THREAD_START, offering)
    else:
        try:
            again = params | {"threadId": resume, "excludeTurns": True}
            opened = await connection.call(wire.THREAD_RESUME, again)
        except RuntimeRefused as refused:
            if GONE.search(refused.message):
                raise ResumeRefused(refused.message) from refused
            raise
    if not (thread := jsonfields.text(jsonfields.mapping(opened, "thread"), "id")):
        raise RuntimeRefused("codex opened no thread")
    return thread


def thread_settings(spec: SessionSpec) -> JsonObject:
    """
    Say how the thread may act; the agent's `config` wins over our defaults.

    The policy `never` never asks: what its sandbox forbids just fails.
    """
    config = spec.options.config
    asks = spec.approval_policy is ApprovalPolicy.ask
    policy = config.get("approval_policy", "on-request") if asks else "never"
    settings: JsonObject = {
        "cwd": str(spec.workdir),
        "approvalPolicy": policy,
        "sandbox": config.get("sandbox_mode", "workspace-write"),
    }
    model = spec.model or config.get("model")
    return settings | ({"model": model} if model else {})


async def _stop(incarnation: Incarnation) -> None:
    """Let it end by itself: at the end of its input it also ends its commands."""
    with trio.CancelScope(shield=True), trio.move_on_after(STOP_SECONDS):
        incarnation.close_stdin()
        await incarnation.wait()
