"""
Claude Code: one `claude --print` per session, stream-json on its standard streams.

What a version can do is read from what it says itself when a round begins. Before the
first one its version must do; one that does not say it is treated as the older ones are.
"""

from __future__ import annotations

import os
import uuid
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import trio
from attrs import define, field

from agentteam_protocol.errors import (
    RuntimeExited,
    RuntimeFailure,
    RuntimeTooSlow,
)
from agentteam_runtimes import jsonfields
from agentteam_runtimes.adoption import Adoption
from agentteam_runtimes.claude import wire
from agentteam_runtimes.claude.asks import FENCE
from agentteam_runtimes.claude.branches import name_the_end
from agentteam_runtimes.claude.command import command, environment, version
from agentteam_runtimes.claude.dialogue import Dialogue
from agentteam_runtimes.claude.record import Memory, Tail, find_tail
from agentteam_runtimes.claude.session import ClaudeSession
from agentteam_runtimes.claude.turns import Turns
from agentteam_runtimes.contained import Contained
from agentteam_runtimes.driver import (
    Capabilities,
    Emit,
    EvidenceLevel,
    Interrupt,
    Noticed,
    Options,
    ResumeRefused,
    Runtime,
    SessionNamed,
    SessionSpec,
    Steer,
)
from agentteam_runtimes.incarnation import Incarnation, open_incarnation
from agentteam_runtimes.last_words import closing, dropped, last_words, write_or_refuse
from agentteam_runtimes.scratch import scratch

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Sequence

    from agentteam_runtimes.incarnation import Exit
    from agentteam_runtimes.jsonlines import JsonObject
    from agentteam_runtimes.lines import Overlong

START_SECONDS = 30.0
STOP_SECONDS = 2.0


class ClaudeDriver:
    """The driver of Claude Code."""

    name = "claude"
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
            tools=True,
        )

    @asynccontextmanager
    async def open(
        self, spec: SessionSpec, resume: str | None, emit: Emit
    ) -> AsyncGenerator[Runtime, None]:
        adoption = Adoption.of(spec)
        resume = resume or adoption.due
        name = resume or str(uuid.uuid4())
        opening = _Opening(spec, name, resume is not None, emit)
        await opening.look_back()
        async with AsyncExitStack() as stack:
            try:
                session = await stack.enter_async_context(_begun(opening))
            except _RowUnknown as unknown:
                emit(
                    [Noticed("claude does not know a row of its record", str(unknown))]
                )
                # What follows that row it does not know either.
                gone = opening.left_out
                opening = _Opening(spec, name, resume is not None, emit, left_out=gone)
                session = await stack.enter_async_context(_begun(opening))
            if resume is not None:
                adoption.done(resume)
                emit([SessionNamed(resume)])
            yield session


class _RowUnknown(RuntimeFailure):
    """It does not know the row that it is to resume at: it drops some when it reads."""


@asynccontextmanager
async def _begun(opening: _Opening) -> AsyncGenerator[ClaudeSession, None]:
    """Start its process and shake hands; the process is ended at the end."""
    failure: RuntimeFailure | None = None
    with scratch(opening.scratch):
        async with (
            open_incarnation(
                opening.command(),
                cwd=opening.spec.workdir,
                env=opening.env,
                on_lines=opening.dialogue.feed,
                on_overlong=opening.overlong,
                on_exit=opening.exited,
            ) as incarnation,
            trio.open_nursery() as nursery,
        ):
            session = opening.begin(incarnation, nursery)
            try:
                await _shake_hands(session)
                opening.ready = True
            except RuntimeExited as error:
                failure = await _why_ended(incarnation, session, error)
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


@define(eq=False)
class _Opening:
    """What joins the pipes of an incarnation to its session."""

    spec: SessionSpec
    name: str
    resumes: bool
    emit: Emit
    ready: bool = False
    dialogue: Dialogue = field(init=False)
    incarnation: Incarnation | None = None
    session: ClaudeSession | None = None
    memory: Memory = field(init=False)
    tail: Tail | None = None
    left_out: tuple[str, ...] = ()  # keys that are in the record and not in its input

    def __attrs_post_init__(self) -> None:
        self.dialogue = Dialogue(self._write, self._received, self.emit)
        self.memory = Memory(self.spec.state_dir / "claude.json")

    async def look_back(self) -> None:
        """Find what the last process of the session had begun with, and no more."""
        if self.resumes:
            where = _projects(self.env), self.name
            await trio.to_thread.run_sync(name_the_end, *where)
        if self.resumes and (waiting := self.memory.read(self.name).waiting):
            self.tail = await trio.to_thread.run_sync(
                find_tail, _projects(self.env), self.name, waiting
            )
            self.left_out = self.tail.keys if self.tail else ()

    @property
    def scratch(self) -> Path:
        return self.spec.state_dir / "tmp"

    @property
    def env(self) -> dict[str, str]:
        return environment(self.spec.options, self.scratch)

    def command(self) -> list[str]:
        options, model = self.spec.options, self.spec.model
        words = command(options, self.name, resume=self.resumes, model=model)
        at = ("--resume-session-at", self.tail.at) if self.tail else ()
        return [*words, *at]

    def begin(self, incarnation: Incarnation, nursery: trio.Nursery) -> ClaudeSession:
        """Make the session; it is there before Claude says a word."""
        turns = Turns(self.name, named=self.resumes)
        turns.carry(self.memory.read(self.name).carried.items())
        self.incarnation = incarnation
        self.session = ClaudeSession(
            self.dialogue,
            turns,
            Contained(incarnation),
            _projects(self.env),
            self.memory,
            self.left_out,
            self.emit,
            nursery,
        )
        return self.session

    async def _write(self, data: bytes) -> None:
        await write_or_refuse(self.incarnation, data)

    def _received(self, lines: Sequence[JsonObject]) -> None:
        if self.session is not None:
            self.session.receive(lines)

    def overlong(self, line: Overlong) -> None:
        self.emit([dropped(line)])

    def exited(self, end: Exit) -> None:
        self.dialogue.exited(RuntimeExited(end.returncode, end.stderr_tail))
        if self.ready:  # else the handshake raises it
            self.emit(closing(end))


async def _shake_hands(session: ClaudeSession) -> None:
    """
    Initialize: the fence before every call of a tool, and our tool server.

    A session that it does not know is not answered but ended, with a result.
    """
    hooks = {"PreToolUse": [{"matcher": None, "hookCallbackIds": [FENCE]}]}
    asking = session.dialogue.prepare(
        wire.INITIALIZE, hooks=hooks, sdkMcpServers=[wire.SERVER]
    )
    await session.dialogue.put(asking)
    with trio.move_on_after(START_SECONDS):
        await session.dialogue.until(
            lambda: asking.answered or bool(session.no_session)
        )
        if session.no_session:
            raise ResumeRefused(session.no_session)
        session.turns.greeted(jsonfields.text(asking.result, "claude_code_version"))
        return
    raise RuntimeTooSlow(f"claude did not shake hands within {START_SECONDS:g} s")


def _projects(env: dict[str, str]) -> Path:
    """Tell where Claude keeps its record of sessions."""
    home = env.get("CLAUDE_CONFIG_DIR")
    return Path(home or os.path.join(env.get("HOME", "/"), ".claude")) / "projects"


async def _why_ended(
    incarnation: Incarnation, session: ClaudeSession, known: RuntimeExited
) -> RuntimeFailure:
    """Tell whether it ended since it does not know its session."""
    said = await last_words(incarnation, known)
    if wire.NO_ROW in said.stderr_tail:
        return _RowUnknown(said.stderr_tail)
    if wire.NO_SESSION in said.stderr_tail or session.no_session:
        return ResumeRefused(session.no_session or said.stderr_tail)
    return said


async def _stop(incarnation: Incarnation) -> None:
    """Let it end by itself: at the end of its input it would first finish its work."""
    with trio.CancelScope(shield=True), trio.move_on_after(STOP_SECONDS):
        await incarnation.terminate()
        await incarnation.wait()
