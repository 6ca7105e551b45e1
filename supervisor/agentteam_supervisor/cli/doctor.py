"""`agentteam doctor`: what of this machine would stand in the way."""

from __future__ import annotations

import shutil
import socket
import sys
from typing import TYPE_CHECKING

import click
from attrs import asdict, frozen

from agentteam_supervisor.cli.failure import CommandFailed
from agentteam_supervisor.cli.output import print_json, print_table
from agentteam_supervisor.cli.reach import json_option, state_dir_option
from agentteam_supervisor.cli.server_record import read_record
from agentteam_supervisor.cli.speech import say
from agentteam_supervisor.cli.state_dir import prepare

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

LOW_DISK = 1 << 30


@frozen
class Check:
    """`state`: ok, warn (works, with less) or bad (does not work)."""

    name: str
    state: str
    detail: str


@click.command()
@click.option("--port", type=click.IntRange(1, 65535), default=8642, show_default=True)
@state_dir_option
@json_option
def doctor(port: int, state_dir: Path, as_json: bool) -> None:
    """Check Python, containment, runtimes, state directory, port and disk."""
    checks = list(examine(state_dir, port))
    if as_json:
        print_json({"checks": [asdict(check) for check in checks]})
    else:
        rows = [[c.name, c.state, c.detail] for c in checks]
        print_table(say("CHECK STATE DETAIL", "检查 结果 详情").split(), rows)
    if any(check.state == "bad" for check in checks):
        raise SystemExit(1)


def examine(state_dir: Path, port: int) -> Iterator[Check]:
    yield _python()
    yield _containment()
    yield from _runtimes()
    directory = _state_dir(state_dir)
    yield directory
    yield _port(state_dir, port)
    if directory.state != "bad":
        yield _disk(state_dir)


def _python() -> Check:
    found = sys.version.split()[0]
    good = sys.version_info >= (3, 11)
    return Check("python", "ok" if good else "bad", found)


def _containment() -> Check:
    """Say which level of process ownership holds here."""
    from agentteam_runtimes.containment import containment_level

    level = containment_level()
    if level == "group":
        detail = say(
            "group: a tool that hides from its process group may outlive its run",
            "group：脱离进程组的工具进程可能残留",
        )
        return Check("containment", "warn", detail)
    detail = say(
        f"{level}: nothing that a runtime starts outlives it",
        f"{level}：运行时启动的进程不会残留",
    )
    return Check("containment", "ok", detail)


def _runtimes() -> Iterator[Check]:
    from agentteam_protocol.errors import RuntimeFailure
    from agentteam_runtimes.driver import Options
    from agentteam_runtimes.plugins import find_plugins

    plugins = find_plugins()
    for name in plugins.names:
        try:
            capabilities = plugins.load(name).probe(Options())
        except RuntimeFailure as exc:
            yield Check(f"runtime {name}", "warn", str(exc))
        else:
            yield Check(f"runtime {name}", "ok", capabilities.version)


def _state_dir(directory: Path) -> Check:
    try:
        prepare(directory)
    except CommandFailed as exc:
        return Check("state directory", "bad", exc.message)
    return Check("state directory", "ok", str(directory))


def _port(directory: Path, port: int) -> Check:
    record = read_record(directory)
    if record is not None and record.url.endswith(f":{port}"):
        return Check("port", "ok", say(f"{port}, our own server", f"{port}，本服务"))
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError as exc:
            return Check("port", "warn", f"{port}: {exc.strerror}; --port")
    return Check("port", "ok", say(f"{port} is free", f"{port} 可用"))


def _disk(directory: Path) -> Check:
    free = shutil.disk_usage(directory).free
    state = "ok" if free >= LOW_DISK else "warn"
    return Check("disk", state, f"{free / (1 << 30):.1f} GiB")
