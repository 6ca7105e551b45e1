"""`agentteam doctor`: what of this machine, or of what runs, stands in the way."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import click
from attrs import asdict

from agentteam_supervisor.cli.check import Check
from agentteam_supervisor.cli.disk import disk_advice
from agentteam_supervisor.cli.failure import CommandFailed
from agentteam_supervisor.cli.output import print_json, print_wrapped
from agentteam_supervisor.cli.reach import json_option, state_dir_option
from agentteam_supervisor.cli.speech import say
from agentteam_supervisor.cli.state_dir import prepare
from agentteam_supervisor.server.disk import MIB, look_at_disk

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@click.command()
@click.option(
    "--port",
    type=click.IntRange(1, 65535),
    help="To look at; default: that of the state directory's server, else 8642.",
)
@state_dir_option
@json_option
def doctor(port: int | None, state_dir: Path, as_json: bool) -> None:
    """
    Check the machine, the state directory, the service that runs on it, its agents.

    Everything is looked at anew, nothing is remembered. Ends with code 1 when
    something is bad.
    """
    checks = list(examine(state_dir, port))
    if as_json:
        print_json({"checks": [asdict(check) for check in checks]})
    else:
        rows = [[c.name, c.state, c.detail] for c in checks]
        print_wrapped(say("CHECK STATE DETAIL", "检查 结果 详情").split(), rows)
    if any(check.state == "bad" for check in checks):
        raise SystemExit(1)


def examine(state_dir: Path, port: int | None = None) -> Iterator[Check]:
    from agentteam_supervisor.cli.check_agents import agents_checked
    from agentteam_supervisor.cli.check_files import files_checked
    from agentteam_supervisor.cli.check_service import port_checked, service_checked

    yield _python()
    yield _containment()
    yield from _runtimes()
    yield _state_dir(state_dir)
    yield from _disk(state_dir)
    yield from files_checked(state_dir)
    service = service_checked(state_dir)
    yield service
    yield port_checked(state_dir, port)
    yield from agents_checked(state_dir, ask=service.state != "bad")


def _python() -> Check:
    found = sys.version.split()[0]
    good = sys.version_info >= (3, 11)
    return Check("python", "ok" if good else "bad", found)


def _containment() -> Check:
    """Say which level of process ownership holds here, and what it does not hold."""
    from agentteam_runtimes.containment import containment_level

    level = containment_level()
    if level == "group":
        detail = say(
            "group: a tool that hides from its process group may outlive its run",
            "group：脱离进程组的工具进程可能残留",
        )
        return Check("containment", "warn", detail)
    detail = say(
        f"{level}: nothing that a runtime starts outlives it; only where its warden and"
        " the service are killed in one moment, detached commands live until the next"
        " start",
        f"{level}：运行时启动的进程不会残留；仅当 warden 与服务同时被杀死时，"
        "已脱离的命令会存活到下次启动",
    )
    return Check("containment", "ok", detail)


def _runtimes() -> Iterator[Check]:
    from agentteam_protocol.errors import RuntimeFailure, RuntimeUnset
    from agentteam_runtimes.driver import Options
    from agentteam_runtimes.plugins import find_plugins

    plugins = find_plugins()
    for name in plugins.names:
        try:
            capabilities = plugins.load(name).probe(Options())
        except RuntimeUnset as exc:
            yield Check(f"runtime {name}", "ok", str(exc))
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


def _disk(directory: Path) -> Iterator[Check]:
    try:
        disk = look_at_disk(directory)
    except OSError:
        return  # the check of the directory says why
    if disk.full or disk.read_only:
        yield Check("disk", "bad", disk_advice(directory, disk))
    else:
        state = "warn" if disk.low else "ok"
        free = f"{disk.free / MIB / 1024:.1f} GiB"
        yield Check("disk", state, say(f"{free} free", f"剩余 {free}"))
