"""`agentteam stop` and `agentteam resume`: the run of an agent, without a message."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import click

from agentteam_supervisor.cli.failure import CommandFailed
from agentteam_supervisor.cli.json_object import part
from agentteam_supervisor.cli.lines import activity_line, problem_line
from agentteam_supervisor.cli.output import print_json
from agentteam_supervisor.cli.reach import connect, server_options, timeout_option
from agentteam_supervisor.cli.speech import say

# How long a resumed agent may take to fail again, and the looks at it meanwhile.
RESUMED = 2.0
LOOK = 0.1
COMING = ("Starting", "Recovering")
UNSETTLED = (*COMING, "Converging")

if TYPE_CHECKING:
    from pathlib import Path

    from agentteam_supervisor.cli.client import Client
    from agentteam_supervisor.cli.event_stream import EventStream


@click.command()
@click.argument("agent")
@click.option("--run", "run_id", help="Only if this run is still the current one.")
@click.option("--no-wait", is_flag=True, help="Do not wait until it has ended.")
@timeout_option(60)
@server_options
def stop(
    agent: str,
    run_id: str | None,
    no_wait: bool,
    timeout: float,
    state_dir: Path,
    url: str | None,
    as_json: bool,
) -> None:
    """
    Stop the current run of AGENT.

    What it already did (files, commits, calls) stays done. Waiting messages stay too.
    """
    from agentteam_supervisor.cli.client import agent_path

    path = agent_path(agent)
    with connect(state_dir, url) as client, client.events(timeout) as events:
        run_id = run_id or _current_run(agent, client.get(path))
        body = {"runId": run_id, "action": "interrupt_current_run"}
        answer = client.post(f"{path}/control", body)
        if as_json:
            print_json(answer | {"runId": run_id})
        if answer.get("recorded") is False:
            click.echo(_unrecorded(), err=True)  # and no event will come to wait for
        elif not no_wait:
            _follow(run_id, events, as_json)
            _tell_waiting(client, path, as_json)


def _tell_waiting(client: Client, path: str, as_json: bool) -> None:
    """Say how many messages wait now, and that nothing but a resume sets them off."""
    deadline = time.monotonic() + RESUMED
    agent = client.get(path)
    while part(agent, "detail").get("phase") in UNSETTLED:
        if time.monotonic() > deadline:
            return
        time.sleep(LOOK)
        agent = client.get(path)
    if not agent.get("parked"):
        return
    name, count = agent["name"], int(agent.get("waiting", 0))
    one = "1 message waits" if count == 1 else f"{count} messages wait"
    line = say(
        f"{name} is parked; {one} (agentteam resume {name})",
        f"{name} 已暂停；{count} 条消息在等待（agentteam resume {name}）",
    )
    click.echo(line, err=as_json)


def _unrecorded() -> str:
    return say(
        "the run is being stopped, but the server cannot write and keeps no record of"
        " it; free its disk",
        "正在停止该 run，但服务器无法写入，未留下记录；请释放其磁盘空间",
    )


def _current_run(name: str, agent: dict[str, Any]) -> str:
    if run := agent.get("currentRun"):
        return str(run["id"])
    raise CommandFailed(
        say(
            f"{name} is idle: there is no run to stop",
            f"{name} 处于空闲状态：没有可停止的 run",
        ),
        problem={"type": "not_running"},
    )


def _follow(run_id: str, events: EventStream, as_json: bool) -> None:
    for event in events:
        item = event.data
        if event.name != "activity" or item.get("runId") != run_id:
            continue
        if item["kind"] not in ("stopping", "interrupted", "run_ended", "notice"):
            continue
        if as_json:
            print_json(item)
        else:
            click.echo(activity_line(item))
        if item["kind"] == "run_ended":
            return


@click.command()
@click.argument("agent")
@server_options
def resume(agent: str, state_dir: Path, url: str | None, as_json: bool) -> None:
    """Let AGENT go on with what waits since it was stopped."""
    from agentteam_supervisor.cli.client import agent_path

    with connect(state_dir, url) as client:
        path = agent_path(agent)
        answer = client.post(f"{path}/control", {"action": "resume"})
        problem = _still_wrong(client, path)
    if problem:
        words = say(f"{agent} cannot go on", f"{agent} 无法继续")
        line = f"{words}: {problem_line(problem)}"
        raise CommandFailed(line, problem={"diagnostic": problem})
    if as_json:
        print_json(answer)
    else:
        click.echo(say(f"{agent} goes on", f"{agent} 继续运行"))


def _still_wrong(client: Client, path: str) -> dict[str, Any]:
    """Look for a while whether the agent fails once more; it was cleared before."""
    deadline = time.monotonic() + RESUMED
    while True:
        agent = client.get(path)
        problem = part(agent, "problem")
        coming = part(agent, "detail").get("phase") in COMING
        if not problem and not agent.get("parked") and not coming:
            return {}
        if time.monotonic() > deadline:
            return problem
        time.sleep(LOOK)
