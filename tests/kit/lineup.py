"""
The runtimes of the matrix: how an agent on each is set up to ask, with a tool server.

All else that differs between them is read from the capabilities that they declare. To
take part, a runtime adds an `Entrant` to `LINEUP`.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
import trio
from attrs import field, frozen
from tests.kit import mcp_server
from tests.kit.acp_coder import AcpCoder
from tests.kit.acp_home import make_acp_home
from tests.kit.claude_coder import ClaudeCoder
from tests.kit.claude_home import make_claude_home
from tests.kit.coder import ASKS, Coder
from tests.kit.codex_home import make_codex_home
from tests.kit.opencode_home import make_opencode_home
from tests.kit.opencoder import OpenCoder
from tests.kit.parts import find_part
from tests.kit.service import run_command

from agentteam_supervisor.chaos.models import chat, messages, responses
from agentteam_supervisor.chaos.models.responses import ModelServer

Options = dict[str, Any]


@frozen
class Entrant:
    """
    A runtime of the matrix.

    `tool_server` makes the options with which it starts the command it is given.
    """

    name: str
    runtime: str
    part: str
    agent: type[Any]  # a `RealAgent`
    model: type[ModelServer]
    serve: Callable[[Any, trio.SocketStream], Awaitable[None]]
    home: Callable[[Path, str], Any]
    tool_server: Callable[[list[str]], Options]
    asks: Options = field(factory=dict[str, Any])  # its own `config` to ask a person
    install: tuple[str, ...] = ()  # words of the command that brings it

    def options(self, home: Any) -> Options:
        """Give the options of an agent that asks before each command."""
        command = [sys.executable, "-I", "-S", mcp_server.__file__, str(home.path)]
        served = self.tool_server(command)
        config = {**self.asks, **served.pop("config", {})}
        wanted = {**home.options(config), **served}
        if self.install:
            del wanted["bin"]  # it brings its program
        return wanted

    def bring(self, state: Path) -> None:
        """Install it below a state directory, if that is how it comes."""
        if self.install:
            done = run_command(state, *self.install, str(find_part(self.part)))
            assert done.code == 0, done


def _codex_server(command: list[str]) -> Options:
    served = {"command": command[0], "args": command[1:]}
    return {"config": {"mcp_servers": {"idle": served}}}


def _claude_server(command: list[str]) -> Options:
    served = {"command": command[0], "args": command[1:]}
    return {"args": ["--mcp-config", json.dumps({"mcpServers": {"idle": served}})]}


def _opencode_server(command: list[str]) -> Options:
    return {"config": {"mcp": {"idle": {"type": "local", "command": command}}}}


def _codex() -> Entrant:
    return Entrant(
        name="codex",
        runtime="codex",
        part="codex",
        agent=Coder,
        model=responses.ModelServer,
        serve=responses.serve_connection,
        home=make_codex_home,
        tool_server=_codex_server,
        asks=ASKS,
    )


def _claude(part: str) -> Entrant:
    return Entrant(
        name=part,
        runtime="claude",
        part=part,
        agent=ClaudeCoder,
        model=messages.MessagesModel,
        serve=messages.serve_connection,
        home=lambda path, url: make_claude_home(path, url, part),
        tool_server=_claude_server,
    )


def _opencode(runtime: str, *install: str) -> Entrant:
    return Entrant(
        name=runtime,
        runtime=runtime,
        part="opencode",
        agent=OpenCoder,
        model=chat.ChatModel,
        serve=chat.serve_connection,
        home=make_opencode_home,
        tool_server=_opencode_server,
        asks={"permission": {"bash": "ask"}},
        install=install,
    )


def _acp() -> Entrant:
    return Entrant(
        name="acp",
        runtime="acp",
        part="opencode",
        agent=AcpCoder,
        model=chat.ChatModel,
        serve=chat.serve_connection,
        home=make_acp_home,
        tool_server=_opencode_server,
        asks={"permission": {"bash": "ask"}},
    )


LINEUP = [
    _codex(),
    _claude("claude"),
    _claude("claude-2.1.197"),
    _opencode("opencode"),
    _opencode("builtin", "runtimes", "install", "builtin", "--from"),
    _acp(),
]
EACH = [pytest.param(e, id=e.name, marks=pytest.mark.needs(e.part)) for e in LINEUP]
