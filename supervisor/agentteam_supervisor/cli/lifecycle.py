"""`agentteam status` and `agentteam down`: what runs, and its end."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from agentteam_supervisor.cli.agents import print_agents
from agentteam_supervisor.cli.failure import CommandFailed, ExitCode
from agentteam_supervisor.cli.json_object import part
from agentteam_supervisor.cli.lines import problem_line
from agentteam_supervisor.cli.output import print_json
from agentteam_supervisor.cli.reach import (
    connect,
    json_option,
    server_options,
    state_dir_option,
    timeout_option,
)
from agentteam_supervisor.cli.server_record import read_record
from agentteam_supervisor.cli.speech import say

if TYPE_CHECKING:
    from pathlib import Path


@click.command()
@server_options
def status(state_dir: Path, url: str | None, as_json: bool) -> None:
    """Show the server, its agents and what waits for a person."""
    record = read_record(state_dir) if url is None else None
    with connect(state_dir, url) as client:
        client.get("/healthz")
        found = client.get("/api/agents", limit=1000)
        agents, trouble = found["agents"], part(found, "problem")
        pending = client.get("/api/approvals", state="pending")["approvals"]
        address = client.url
    if as_json:
        head = {"url": address, "pid": record.pid if record else None}
        body = {"agents": agents, "approvals": pending, "problem": trouble or None}
        print_json(head | body)
        return
    click.echo(address + (f"  pid {record.pid}" if record else ""))
    if trouble:
        click.echo(_stale(trouble))
        agents = [_without(trouble, agent) for agent in agents]
    elif record and record.daemon and any(_is_apart(agent) for agent in agents):
        agents = [
            agent | {"problem": None} if _is_apart(agent) else agent for agent in agents
        ]
        click.echo(
            say(
                "the daemon of this `agentteam up` has trouble: look at what `up` prints,"
                " and run `agentteam doctor`; what you send is kept meanwhile",
                "此 `agentteam up` 的守护端有问题：请查看 `up` 的输出并运行 `agentteam doctor`；"
                "期间发送的消息会保留",
            )
        )
    print_agents(agents)
    if pending:
        count = len(pending)
        click.echo(
            say(
                f"{count} waiting for approval: see `agentteam approvals`",
                f"{count} 项待审批：请运行 `agentteam approvals`",
            )
        )


def _stale(trouble: dict[str, Any]) -> str:
    words = problem_line(trouble)
    return say(
        f"{words}. Nothing is recorded meanwhile; below is what is known",
        f"{words}。期间不会记录任何内容；以下为已知状态",
    )


def _without(trouble: dict[str, Any], agent: dict[str, Any]) -> dict[str, Any]:
    """What is wrong with all of them is said once."""
    return agent | {"problem": None} if agent.get("problem") == trouble else agent


def _is_apart(agent: dict[str, Any]) -> bool:
    """Tell whether all that is wrong is that its daemon is not connected."""
    connected = part(agent, "daemon").get("connected", True)
    return not connected and bool(part(agent, "problem"))


@click.command()
@timeout_option(60)
@state_dir_option
@json_option
def down(timeout: float, state_dir: Path, as_json: bool) -> None:
    """Stop the server and daemon of the state directory, and wait until they are gone."""
    from agentteam_supervisor.cli.processes import ask_to_leave, holders

    found = holders(state_dir)
    alive = ask_to_leave(found, timeout)
    if alive:
        raise CommandFailed(_still_there([p.pid for p in alive]), ExitCode.timeout)
    pids = [process.pid for process in found]
    if as_json:
        print_json({"stopped": pids})
    elif pids:
        click.echo(say("stopped", "已停止"))
    else:
        click.echo(say("nothing is running", "没有正在运行的服务"))


def _still_there(pids: list[int]) -> str:
    names = ", ".join(map(str, pids))
    return say(
        f"still alive: pid {names}; run `agentteam down` again, or look at what they do",
        f"仍未退出：pid {names}；请再次运行 `agentteam down`，或检查这些进程",
    )
