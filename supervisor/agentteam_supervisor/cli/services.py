"""The only composition of server and daemon in one process, and of each alone."""

from __future__ import annotations

import datetime
import errno
import functools
import os
import signal
from contextlib import contextmanager
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

import click
import trio

from agentteam_protocol.errors import AgentTeamError
from agentteam_supervisor.chaos import points
from agentteam_supervisor.cli import state_watch
from agentteam_supervisor.cli.client import Client
from agentteam_supervisor.cli.ending import let_go, output_lost
from agentteam_supervisor.cli.failure import CommandFailed
from agentteam_supervisor.cli.first_start import make_agents
from agentteam_supervisor.cli.logs import log_to_stderr
from agentteam_supervisor.cli.output import print_json
from agentteam_supervisor.cli.reach import connect
from agentteam_supervisor.cli.server_record import ServerRecord, announced
from agentteam_supervisor.cli.speech import say
from agentteam_supervisor.cli.start import settle_down
from agentteam_supervisor.cli.state_dir import locked, prepare
from agentteam_supervisor.daemon.lock import check_version
from agentteam_supervisor.session.faults import first_of

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Generator, Mapping, Sequence
    from pathlib import Path


# The terminal's end (SIGHUP) is an end like the others.
ENDING = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)

# What a disk says that takes nothing more.
DISK = (errno.ENOSPC, errno.EDQUOT, errno.EROFS)


def run_here(
    directory: Path,
    port: int,
    as_json: bool,
    declared: Sequence[dict[str, Any]],
    limits: Mapping[str, float],
) -> None:
    """Run both; the daemon ends first, so that its last words reach the server."""

    from agentteam_supervisor.daemon.app import run_daemon  # not for `server`
    from agentteam_supervisor.daemon.config import DaemonConfig
    from agentteam_supervisor.session.deadlines import Limits

    config = DaemonConfig(directory, limits=Limits(**limits))

    async def both(stopped: trio.Event) -> None:
        async with trio.open_nursery() as outer:
            url = await _start_server(outer, directory, port)
            async with trio.open_nursery() as inner:
                await inner.start(run_daemon, config, url)
                await trio.to_thread.run_sync(_make_agents, url, directory, declared)
                files = (*state_watch.SERVER, *state_watch.DAEMON)
                await _ready(directory, url, as_json, stopped, files, own=True)
                inner.cancel_scope.cancel()
            outer.cancel_scope.cancel()

    log_to_stderr(as_json)
    prepare(directory)
    with locked(directory, "server"):
        _check_version(directory)
        _run(both)


def run_server_alone(directory: Path, port: int, as_json: bool) -> None:
    async def server(stopped: trio.Event) -> None:
        async with trio.open_nursery() as nursery:
            url = await _start_server(nursery, directory, port)
            await _ready(directory, url, as_json, stopped, state_watch.SERVER)
            nursery.cancel_scope.cancel()

    log_to_stderr(as_json)
    prepare(directory)
    with locked(directory, "server"):
        _check_version(directory)
        _run(server)


def run_daemon_alone(
    directory: Path, url: str | None, as_json: bool, limits: Mapping[str, float]
) -> None:
    from agentteam_supervisor.daemon.app import run_daemon  # not for `server`
    from agentteam_supervisor.daemon.config import DaemonConfig
    from agentteam_supervisor.session.deadlines import Limits

    config = DaemonConfig(directory, limits=Limits(**limits))
    with connect(directory, url) as client:
        address = client.url

    async def daemon(stopped: trio.Event) -> None:
        async with trio.open_nursery() as nursery:
            await nursery.start(run_daemon, config, address)
            line = say(f"joined {address}", f"已连接 {address}")
            _say_ready(line, {"joined": address}, as_json)
            await _stand_on(directory, state_watch.DAEMON, stopped)
            nursery.cancel_scope.cancel()

    log_to_stderr(as_json)
    prepare(directory)
    _run(daemon)


def _check_points() -> None:
    try:
        points.check()
    except AgentTeamError as exc:
        raise CommandFailed(str(exc)) from exc


def _check_version(directory: Path) -> None:
    try:
        check_version(directory)
    except AgentTeamError as exc:
        raise CommandFailed(str(exc)) from exc


async def _start_server(nursery: trio.Nursery, directory: Path, port: int) -> str:
    from agentteam_supervisor.page.routes import page_routes  # not for `daemon`
    from agentteam_supervisor.server.app import run_server
    from agentteam_supervisor.server.config import ServerConfig

    config = ServerConfig(directory, port=port)
    serve = functools.partial(run_server, config, extra_routes=page_routes())
    bound = await nursery.start(serve)
    return f"http://127.0.0.1:{bound}"


def _make_agents(url: str, directory: Path, declared: Sequence[dict[str, Any]]) -> None:
    with Client(url) as client:
        make_agents(client, directory, declared)


async def _ready(
    directory: Path,
    url: str,
    as_json: bool,
    stopped: trio.Event,
    files: Sequence[str],
    own: bool = False,
) -> None:
    now = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
    record = ServerRecord(url, os.getpid(), now, version("agentteam-supervisor"), own)
    with announced(directory, record):
        _say_ready(f"listening on {url}", {"listening": url}, as_json)
        await _stand_on(directory, files, stopped)


async def _stand_on(directory: Path, files: Sequence[str], stopped: trio.Event) -> None:
    """Wait for the end, or raise when there is nothing left to stand on."""
    async with trio.open_nursery() as nursery:
        nursery.start_soon(state_watch.watch_files, directory, files)
        await stopped.wait()
        nursery.cancel_scope.cancel()


def _say_ready(line: str, value: dict[str, str], as_json: bool) -> None:
    # One line, the same in every language: programs wait for it.
    try:
        if as_json:
            print_json(value)
        else:
            click.echo(line)
    except BrokenPipeError:
        let_go()  # nobody reads it any more, which is no reason to end
    except OSError as exc:
        raise output_lost(exc, as_json) from exc
    settle_down()


def _run(service: Callable[[trio.Event], Awaitable[None]]) -> None:
    """Run until a signal; a known fault becomes a sentence, an unknown one a trace."""
    _check_points()
    with _known_faults():
        trio.run(_until_signal, service, strict_exception_groups=True)


async def _until_signal(service: Callable[[trio.Event], Awaitable[None]]) -> None:
    stopped = trio.Event()
    with trio.open_signal_receiver(*ENDING) as signals:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(_serve, service, stopped, nursery.cancel_scope)
            async for _ in signals:
                if stopped.is_set():
                    continue  # the end is bounded; haste would leave processes behind
                stopped.set()


async def _serve(
    service: Callable[[trio.Event], Awaitable[None]],
    stopped: trio.Event,
    scope: trio.CancelScope,
) -> None:
    await service(stopped)
    scope.cancel()


@contextmanager
def _known_faults() -> Generator[None]:
    try:
        yield
    except BaseExceptionGroup as group:
        known, unknown = group.split(_known)
        if known is None or unknown is not None:
            raise
        first = first_of(known)
        if isinstance(first, CommandFailed):
            raise first from group
        raise CommandFailed(_words(first)) from group


def _known(error: BaseException) -> bool:
    if isinstance(error, OSError):
        return error.errno in DISK
    return isinstance(error, AgentTeamError | CommandFailed)


def _words(error: BaseException) -> str:
    if isinstance(error, OSError):
        return say(
            f"the state directory cannot be written: {error.strerror};"
            " free the disk, then start again",
            f"无法写入状态目录：{error.strerror}；请释放磁盘空间后重新启动",
        )
    return str(error)
