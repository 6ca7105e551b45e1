"""How Claude Code is started: its program, flags, environment, and its version."""

from __future__ import annotations

import json
import os
import re
from typing import TYPE_CHECKING, Any

from agentteam_protocol.errors import RuntimeMissing
from agentteam_runtimes import jsonfields
from agentteam_runtimes.claude import wire
from agentteam_runtimes.message_tools import READ, SEND
from agentteam_runtimes.programs import ask_version, find_program, inherited
from agentteam_runtimes.start_settings import SET_BIN

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from agentteam_runtimes.driver import Options

OLDEST = (2, 1, 197)
INSTALL = f"install it with `npm install -g @anthropic-ai/claude-code`, or {SET_BIN}"

INHERITED = (
    *("HOME", "PATH", "LANG", "LC_ALL", "TERM"),
    *("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY"),
    *("http_proxy", "https_proxy", "all_proxy", "no_proxy"),
    *("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN", "ANTHROPIC_BASE_URL"),
    *("CLAUDE_CODE_OAUTH_TOKEN", "CLAUDE_CONFIG_DIR"),
)

# It looks nothing up outside but its model. The agent's own `env` wins.
QUIET = {
    # What works on after its turn makes Claude begin another that nobody asked for, and
    # that nobody can stop. So sub-agents and commands are waited for in their turn.
    "CLAUDE_CODE_DISABLE_BACKGROUND_TASKS": "1",
    "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
    "DISABLE_AUTOUPDATER": "1",
    "DISABLE_TELEMETRY": "1",
    "DISABLE_ERROR_REPORTING": "1",
}

STREAMS = (
    *("--print", "--verbose"),
    *("--input-format", "stream-json", "--output-format", "stream-json"),
    *("--replay-user-messages", "--include-partial-messages"),
    *("--permission-prompt-tool", "stdio"),
)


def environment(options: Options, temporary: Path | None = None) -> dict[str, str]:
    """
    Build the environment: little is inherited, the agent's own comes on top.

    `temporary` is for its sockets and scratch files, which stay behind after a kill.
    """
    env = inherited(INHERITED) | QUIET
    if options.home is not None:
        env |= {
            "HOME": options.home,
            "CLAUDE_CONFIG_DIR": os.path.join(options.home, ".claude"),
        }
    if temporary is not None:
        env["TMPDIR"] = str(temporary)
    return env | dict(options.env)


def program(options: Options) -> str:
    """Find the executable; raises `RuntimeMissing`."""
    return find_program(options, "claude", environment(options), INSTALL)


def command(
    options: Options, session: str, *, resume: bool, model: str | None
) -> list[str]:
    """Build the command line of one incarnation of a session."""
    server = {"type": "sdk", "name": wire.SERVER, "alwaysLoad": True}
    return [
        program(options),
        *STREAMS,
        *("--resume" if resume else "--session-id", session),
        *("--mcp-config", json.dumps({"mcpServers": {wire.SERVER: server}})),
        *("--settings", json.dumps(settings(options.config))),
        *(("--model", model) if model else ()),
        *options.args,
    ]


def settings(config: Mapping[str, Any]) -> dict[str, Any]:
    """Make Claude's settings of the agent's `config`; our own tools need no approval."""
    ours = [f"mcp__{wire.SERVER}__{tool}" for tool in (SEND, READ)]
    given = jsonfields.mapping(config, "permissions")
    allowed = [*jsonfields.strings(given, "allow"), *ours]
    return {**config, "permissions": {**given, "allow": allowed}}


def version(options: Options) -> str:
    """Ask the program for its version; raises `RuntimeMissing`."""
    path = program(options)
    said = ask_version(path, environment(options), INSTALL)
    found = re.match(r"(\d+)\.(\d+)\.(\d+)\S* \(Claude Code\)", said)
    if found is None:
        problem = f"{path} is no Claude Code: it says {said[:80]!r}"
        raise RuntimeMissing(problem, INSTALL)
    if tuple(map(int, found.groups())) < OLDEST:
        oldest = ".".join(map(str, OLDEST))
        raise RuntimeMissing(f"{said} is older than {oldest}", INSTALL)
    return said.split()[0]
