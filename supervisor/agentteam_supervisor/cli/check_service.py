"""The doctor's look at the service of a state directory: alive, answering, able."""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from agentteam_supervisor.cli.check import Check
from agentteam_supervisor.cli.failure import CommandFailed, ExitCode
from agentteam_supervisor.cli.json_object import part
from agentteam_supervisor.cli.server_record import ServerRecord, read_record
from agentteam_supervisor.cli.speech import say
from agentteam_supervisor.cli.state_dir import holder

if TYPE_CHECKING:
    from pathlib import Path

DEFAULT_PORT = 8642
# A server that is well answers within that also on a busy machine.
SECONDS = 5.0


def service_checked(directory: Path) -> Check:
    """The locks tell who lives: a file may be left of a service that was killed."""
    server, daemon = holder(directory, "server"), holder(directory, "supervisor")
    record = read_record(directory)
    if server is not None and record is not None:
        return _answering(record, server)
    if server is not None:
        return Check("service", "warn", _silent_start(server))
    if daemon is not None:
        return Check("service", "ok", _daemon_alone(daemon))
    if record is not None:
        return Check("service", "warn", _dead(record))
    return Check("service", "ok", _none())


def _answering(record: ServerRecord, pid: int) -> Check:
    from agentteam_supervisor.cli.client import Client  # slow import (httpx)

    try:
        with Client(record.url, seconds=SECONDS) as client:
            ready = client.get("/readyz")
    except CommandFailed as exc:
        if exc.exit_code == ExitCode.timeout:
            return Check("service", "bad", _mute(record, pid))
        return Check("service", "bad", exc.message)
    if not part(ready, "daemon").get("connected"):
        return Check("service", "warn", _no_daemon(record))
    here = say(f"pid {pid} answers at {record.url}", f"pid {pid} 在 {record.url} 应答")
    return Check("service", "ok", here)


def port_checked(directory: Path, port: int | None) -> Check:
    """Look at the port of the recorded server, or at the one that was asked for."""
    record = read_record(directory)
    recorded = None if record is None else urlsplit(record.url).port
    port = port or recorded or DEFAULT_PORT
    if port == recorded and holder(directory, "server") is not None:
        return Check("port", "ok", say(f"{port}, our own server", f"{port}，本服务"))
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError as exc:
            return Check("port", "warn", _taken(port, exc))
    return Check("port", "ok", say(f"{port} is free", f"{port} 可用"))


def _is_stopped(pid: int) -> bool:
    import psutil

    try:
        return bool(psutil.Process(pid).status() == psutil.STATUS_STOPPED)
    except psutil.Error:
        return False


def _mute(record: ServerRecord, pid: int) -> str:
    if _is_stopped(pid):
        return say(
            f"pid {pid} is stopped (by SIGSTOP or Ctrl-Z) and answers nobody at"
            f" {record.url}: let it go on with `kill -CONT {pid}`",
            f"pid {pid} 已被挂起（SIGSTOP 或 Ctrl-Z），{record.url} 没有应答："
            f"请用 `kill -CONT {pid}` 恢复",
        )
    return say(
        f"pid {pid} lives, but does not answer at {record.url} within {SECONDS:.0f} s:"
        " see what the machine is busy with, or `agentteam down` and start again",
        f"pid {pid} 仍在运行，但 {record.url} 在 {SECONDS:.0f} 秒内没有应答："
        "请检查系统负载，或 `agentteam down` 后重新启动",
    )


def _no_daemon(record: ServerRecord) -> str:
    if record.daemon:
        todo = say("look at what `agentteam up` prints", "请查看 `agentteam up` 的输出")
    else:
        todo = say("start one with `agentteam daemon`", "请运行 `agentteam daemon`")
    return say(
        f"the server answers at {record.url}, but no daemon is connected, so no agent"
        f" runs: {todo}",
        f"{record.url} 的服务有应答，但没有守护端连接，agent 无法运行：{todo}",
    )


def _silent_start(pid: int) -> str:
    return say(
        f"pid {pid} holds the state directory and has not said yet where it listens:"
        " look again in a moment; if it stays so, `agentteam down` and start again",
        f"pid {pid} 占用状态目录，但尚未公布地址：请稍后再看；若持续如此，"
        "请 `agentteam down` 后重新启动",
    )


def _daemon_alone(pid: int) -> str:
    return say(f"a daemon alone, pid {pid}", f"只有守护端在运行，pid {pid}")


def _dead(record: ServerRecord) -> str:
    return say(
        f"the service of pid {record.pid} ({record.url}) is dead and did not end"
        " cleanly: `agentteam up` starts it again, and loses nothing that was accepted",
        f"pid {record.pid}（{record.url}）的服务已异常终止："
        "`agentteam up` 可重新启动，已接受的内容不会丢失",
    )


def _none() -> str:
    return say("none runs; start with `agentteam up`", "未运行；用 `agentteam up` 启动")


def _taken(port: int, exc: OSError) -> str:
    return say(
        f"{port} is taken by another program ({exc.strerror}): choose another with"
        " `agentteam up --port N`",
        f"{port} 被其他程序占用（{exc.strerror}）：请用 `agentteam up --port N` 另选",
    )
