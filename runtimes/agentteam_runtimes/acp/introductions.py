"""
Asking an agent what it is, before it is used.

Only its answer to `initialize` tells, so it is started for that, in a place of its own,
and ended. That takes as long as its start does (2 s for OpenCode), so what an agent
said at its last start is remembered for as long as its program is the same.
"""

from __future__ import annotations

import tempfile
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from importlib.metadata import version as installed_version
from pathlib import Path
from typing import TYPE_CHECKING

import trio

from agentteam_protocol.errors import (
    RuntimeExited,
    RuntimeMissing,
    RuntimeRefused,
    RuntimeTooSlow,
)
from agentteam_runtimes.acp import wire
from agentteam_runtimes.acp.command import (
    SET_COMMAND,
    Introduction,
    command,
    environment,
    introduction,
)
from agentteam_runtimes.connection import Connection
from agentteam_runtimes.incarnation import open_incarnation
from agentteam_runtimes.jsonrpc import Peer
from agentteam_runtimes.last_words import last_words
from agentteam_runtimes.start_settings import shown

if TYPE_CHECKING:
    from agentteam_runtimes.driver import Options
    from agentteam_runtimes.incarnation import Exit

PROBE_SECONDS = 60.0
MOST_REMEMBERED = 64

Key = tuple[object, ...]
_known: dict[Key, Introduction] = {}


def introduce(options: Options) -> Introduction:
    """Give what the agent says it is; raises `RuntimeMissing`. Blocks until it said so."""
    words = command(options)
    if (known := _known.get(_key(words, options))) is not None:
        return known
    with (
        tempfile.TemporaryDirectory(
            prefix="agentteam-", ignore_cleanup_errors=True
        ) as temporary,
        # Whoever asks may be in a loop of his own.
        ThreadPoolExecutor(1) as pool,
    ):
        asking = partial(_ask, words, environment(options, Path(temporary)), temporary)
        said = introduction(pool.submit(trio.run, asking).result())
    remember(words, options, said)
    return said


def remember(words: list[str], options: Options, said: Introduction) -> None:
    """Keep what an agent said when it was started; the newest word counts."""
    if len(_known) >= MOST_REMEMBERED:
        _known.clear()
    _known[_key(words, options)] = said


def initialize() -> dict[str, object]:
    """Params of `initialize`, with the version that is installed."""
    return wire.initialize(installed_version("agentteam-supervisor"))


def _key(words: list[str], options: Options) -> Key:
    try:
        found = Path(words[0]).stat()
    except OSError:
        return (*words, options.home, *sorted(options.env.items()))
    identity = (found.st_ino, found.st_mtime_ns, found.st_size)
    return (*words, *identity, options.home, *sorted(options.env.items()))


async def _ask(words: list[str], env: dict[str, str], cwd: str) -> object:
    """Start it, ask, and end it with all that it started."""

    async def write(data: bytes) -> None:
        await incarnation.write(data)

    def exited(end: Exit) -> None:
        connection.exited(RuntimeExited(end.returncode, end.stderr_tail))

    connection = Connection(write, lambda _: None, peer=Peer(wire.JSON_RPC))
    async with open_incarnation(
        words,
        cwd=Path(cwd),
        env=env,
        on_lines=connection.feed,
        on_overlong=lambda _: None,
        on_exit=exited,
    ) as incarnation:
        try:
            asked = initialize()
            return await connection.call(wire.INITIALIZE, asked, PROBE_SECONDS)
        except RuntimeExited as error:
            said = (await last_words(incarnation, error)).stderr_tail.strip()
            problem = f"{words[0]} ended when it was asked what it is"
            problem += f": {shown(said)}" if said else ""
            raise RuntimeMissing(problem, SET_COMMAND) from error
        except RuntimeTooSlow as slow:
            problem = f"{words[0]} did not say within {PROBE_SECONDS:g} s what it is"
            raise RuntimeMissing(problem, SET_COMMAND) from slow
        except RuntimeRefused as refused:
            problem = f"{words[0]} speaks no ACP: {shown(refused.message)}"
            raise RuntimeMissing(problem, SET_COMMAND) from refused
