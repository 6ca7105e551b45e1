"""
Rehearsal: an agent that plays a script, in a real process, without a key or a network.

The embedded default of the first start, and the victim of every hostile test.
"""

from __future__ import annotations

import os
import shutil
import sys
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import trio
from attrs import define

from agentteam_protocol.errors import (
    RuntimeMissing,
    RuntimeRefused,
    RuntimeTooSlow,
)
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
from agentteam_runtimes.incarnation import Limits, open_incarnation
from agentteam_runtimes.rehearsal import wire
from agentteam_runtimes.rehearsal.conversation import HELLO, Conversation
from agentteam_runtimes.rehearsal.session import RehearsalSession
from agentteam_runtimes.start_settings import check_options, shown

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

PROGRAM = Path(__file__).with_name("program.py")
INHERITED = ("HOME", "PATH", "LANG", "LC_ALL", "TERM", "TMPDIR")
HANDSHAKE_SECONDS = 30.0


@define(eq=False)
class RehearsalDriver:
    """The driver of the scripted runtime."""

    name: str = "rehearsal"
    handshake_seconds: float = HANDSHAKE_SECONDS
    limits: Limits | None = None
    contract: int = 1

    def probe(self, options: Options) -> Capabilities:
        _program(options)
        wire.check_config(options.config)
        config = options.config
        return Capabilities(
            version=wire.VERSION,
            steer=Steer(config.get("steer", "ack")),
            interrupt=Interrupt(config.get("interrupt", "turn")),
            evidence=EvidenceLevel(config.get("evidence", "recorded")),
            approval_cancel=True,
            resume=config.get("resume", True),
            batch_input=config.get("batchInput", True),
            tools=config.get("tools", True),
            maintenance=True,
        )

    @asynccontextmanager
    async def open(
        self, spec: SessionSpec, resume: str | None, emit: Emit
    ) -> AsyncGenerator[Runtime]:
        wire.check_config(spec.options.config)
        failure: Exception | None = None
        conversation = Conversation(emit)
        async with open_incarnation(
            _command(spec.options),
            cwd=spec.workdir,
            env=_environment(spec.options),
            on_lines=conversation.feed,
            on_overlong=conversation.overlong,
            on_exit=conversation.ended,
            limits=self.limits,
        ) as incarnation:
            conversation.incarnation = incarnation
            async with trio.open_nursery() as nursery:
                nursery.start_soon(conversation.end_on_fault)
                try:
                    session = await self._shake_hands(spec, resume, conversation)
                    emit([SessionNamed(session)])
                    yield RehearsalSession(conversation, Contained(incarnation))
                except Exception as error:
                    # Raised below, where the nursery does not make a group of it.
                    failure = error
                nursery.cancel_scope.cancel()
        if failure is not None:
            raise failure

    async def _shake_hands(
        self, spec: SessionSpec, resume: str | None, conversation: Conversation
    ) -> str:
        """Say hello; returns the name of the session that the program opened."""
        with trio.move_on_after(self.handshake_seconds):
            await conversation.tell(**wire.hello(spec, resume))
            try:
                ready = await conversation.reply(HELLO)
            except RuntimeRefused as refused:
                if refused.code == wire.NO_SESSION:
                    raise ResumeRefused(refused.message) from refused
                raise
            conversation.ready = True
            return str(ready["session"])
        seconds = f"{self.handshake_seconds:g} s"
        raise RuntimeTooSlow(f"rehearsal did not shake hands within {seconds}")


def _command(options: Options) -> list[str]:
    return [_program(options), "-I", "-S", str(PROGRAM), *options.args]


def _program(options: Options) -> str:
    """Find the Python that plays; raises `RuntimeMissing`."""
    check_options(options)
    wanted = options.bin or sys.executable
    found = shutil.which(wanted, path=_environment(options).get("PATH"))
    if found is None:
        raise RuntimeMissing(
            f"there is no program {shown(wanted)}",
            "take the agent's option bin away (agentteam agents set NAME --options"
            " '{}'), or let it name a Python 3.11 or newer",
        )
    return found


def _environment(options: Options) -> dict[str, str]:
    """Build the environment: little is inherited, the agent's own comes on top."""
    env = {name: os.environ[name] for name in INHERITED if name in os.environ}
    if options.home is not None:
        env["HOME"] = options.home
    return env | dict(options.env)
