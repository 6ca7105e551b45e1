"""The doctor's look at each agent: its own program, its place, what its session says."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

from agentteam_supervisor.cli.check import Check
from agentteam_supervisor.cli.check_files import STORE, open_to_read
from agentteam_supervisor.cli.failure import CommandFailed
from agentteam_supervisor.cli.json_object import as_object, part
from agentteam_supervisor.cli.lines import problem_line
from agentteam_supervisor.cli.server_record import read_record
from agentteam_supervisor.cli.speech import say
from agentteam_supervisor.cli.state_dir import holder

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

# From the store, since the doctor is also called when no server runs.
QUERY = "SELECT name, runtime, workdir, options FROM agents WHERE deleted_at IS NULL"


def agents_checked(directory: Path, ask: bool) -> Iterator[Check]:
    """
    Say of each agent what is wrong; who has a program of its own is always told.

    `ask` the service, too: not one that answers nobody.
    """
    told = _problems(directory) if ask else {}
    for name, runtime, workdir, options in _stored(directory):
        wrong = _place_wrong(name, workdir)
        own, failed = _program(runtime, _options(options))
        if problem := wrong or failed or told.get(name):
            yield Check(f"agent {name}", "warn", problem)
        elif own:
            yield Check(f"agent {name}", "ok", own)


def _stored(directory: Path) -> list[tuple[str, str, str | None, str]]:
    try:
        with closing(open_to_read(directory / STORE)) as db:
            return db.execute(QUERY).fetchall()
    except sqlite3.DatabaseError:
        return []  # the check of the file says why


def _options(text: str | None) -> dict[str, Any]:
    try:
        return as_object(json.loads(text or "{}")) or {}
    except ValueError:
        return {}


def _place_wrong(name: str, workdir: str | None) -> str | None:
    if workdir is None or Path(workdir).expanduser().is_dir():
        return None
    return say(
        f"its directory {workdir} is not there: create it, or choose another with"
        f" `agentteam agents set {name} --workdir DIR`",
        f"工作目录 {workdir} 不存在：请创建，或用 "
        f"`agentteam agents set {name} --workdir DIR` 另选",
    )


def _program(runtime: str, options: Mapping[str, Any]) -> tuple[str | None, str | None]:
    """Look at what the agent's own options name: its version, or what is wrong."""
    from agentteam_protocol.codec import from_wire
    from agentteam_protocol.errors import RemoteProtocolError, RuntimeFailure
    from agentteam_runtimes.driver import Options
    from agentteam_runtimes.plugins import find_plugins

    if not {"bin", "command", "home"} & set(options):
        return None, None  # the check of the runtime holds for it
    try:
        chosen = from_wire(dict(options), Options)
        found = find_plugins().load(runtime).probe(chosen)
    except (RuntimeFailure, RemoteProtocolError) as exc:
        return None, str(exc)
    return f"{runtime} {found.version}, {chosen.bin or ' '.join(chosen.command)}", None


def _problems(directory: Path) -> dict[str, str]:
    """Ask the service that runs, if it answers: a session knows its own trouble."""
    record = read_record(directory)
    if record is None or holder(directory, "server") is None:
        return {}
    from agentteam_supervisor.cli.client import Client  # slow import (httpx)

    try:
        with Client(record.url, seconds=5.0) as client:
            agents = client.get("/api/agents", limit=1000)["agents"]
    except CommandFailed:
        return {}  # the check of the service says why
    found = {str(agent["name"]): part(agent, "problem") for agent in agents}
    return {name: problem_line(problem) for name, problem in found.items() if problem}
