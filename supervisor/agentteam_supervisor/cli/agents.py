"""`agentteam agents`: who is there, and who comes and goes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click

from agentteam_supervisor.cli.json_object import part
from agentteam_supervisor.cli.lines import problem_line
from agentteam_supervisor.cli.output import print_json, print_table
from agentteam_supervisor.cli.reach import connect, server_options
from agentteam_supervisor.cli.speech import say

workdir_option = click.option(
    "--workdir",
    type=click.Path(path_type=Path, file_okay=False, resolve_path=True),
    help="Where the agent works; default: chosen by the service.",
)


@click.group()
def agents() -> None:
    """Add, list, change (set) and remove (rm) agents."""


@agents.command("add")
@click.argument("name")
@click.option("--runtime", required=True, help="rehearsal, codex, ...")
@workdir_option
@click.option("--model", help="The runtime's own name of a model.")
@click.option("--approvals", type=click.Choice(["ask", "never"]), help="Default: ask.")
@click.option("--no-auto-reply", is_flag=True, help="Do not publish final texts.")
@click.option("--resume", metavar="SESSION", help="Go on with a session you have.")
@click.option(
    "--options",
    "options_json",
    help="JSON: bin, command, env, home, config, args, resume.",
)
@server_options
def add(
    name: str,
    runtime: str,
    workdir: Path | None,
    model: str | None,
    approvals: str | None,
    no_auto_reply: bool,
    resume: str | None,
    options_json: str | None,
    state_dir: Path,
    url: str | None,
    as_json: bool,
) -> None:
    """Create the agent NAME; `@NAME` is where it is talked to."""
    body: dict[str, Any] = {
        "name": name,
        "runtime": runtime,
        **_settings(workdir, model, approvals, options_json),
    }
    if no_auto_reply:
        body["autoReply"] = False
    if resume is not None:
        body["options"] = {**part(body, "options"), "resume": resume}
    with connect(state_dir, url) as client:
        agent = client.post("/api/agents", body)
    _warn(workdir)
    _warn_of_runtime(agent, here=url is None)
    if as_json:
        print_json(agent)
    else:
        click.echo(
            say(
                f"agent {name} on {runtime}; talk to it with `agentteam send @{name} ...`",
                f"已创建 agent {name}（{runtime}）；用 `agentteam send @{name} ...` 与它对话",
            )
        )


def _warn(workdir: Path | None) -> None:
    if workdir is not None and not workdir.is_dir():
        words = say(
            f"warning: {workdir} does not exist; create it before you send",
            f"警告：{workdir} 不存在；发送消息前请先创建",
        )
        click.echo(words, err=True)


def _warn_of_runtime(agent: dict[str, Any], here: bool) -> None:
    """Say what the daemon found when it looked; `here` it may be there by now."""
    from agentteam_supervisor.cli.runtimes import find_runtimes

    problem = part(agent, "capabilities").get("problem")
    if problem and here:
        (found,) = find_runtimes(str(agent["runtime"]))
        problem = None if found.capabilities else problem
    if problem:
        click.echo(say(f"warning: {problem}", f"警告：{problem}"), err=True)


@agents.command("set")
@click.argument("agent")
@workdir_option
@click.option("--model", help="The runtime's own name of a model.")
@click.option("--approvals", type=click.Choice(["ask", "never"]))
@click.option("--options", "options_json", help="JSON; takes the place of all options.")
@server_options
def change(
    agent: str,
    workdir: Path | None,
    model: str | None,
    approvals: str | None,
    options_json: str | None,
    state_dir: Path,
    url: str | None,
    as_json: bool,
) -> None:
    """Change settings of AGENT; they hold once its current run has ended."""
    from agentteam_supervisor.cli.client import agent_path

    wanted = _settings(workdir, model, approvals, options_json)
    if not wanted:
        raise click.UsageError("say what to change, such as --workdir")
    with connect(state_dir, url) as client:
        changed = client.patch(agent_path(agent), wanted)
    _warn(workdir)
    _warn_of_runtime(changed, here=url is None)
    if as_json:
        print_json(changed)
    else:
        click.echo(say(f"agent {agent} is changed", f"已更改 agent {agent}"))


def _settings(
    workdir: Path | None,
    model: str | None,
    approvals: str | None,
    options_json: str | None,
) -> dict[str, Any]:
    """Give what was said, and nothing else, in the words of the API."""
    said: dict[str, Any] = {
        "workdir": str(workdir) if workdir else None,
        "model": model,
        "approvalPolicy": approvals,
        "options": _options(options_json),
    }
    return {key: value for key, value in said.items() if value is not None}


def _options(text: str | None) -> Any:
    if text is None:
        return None
    try:
        return json.loads(text)
    except ValueError as exc:
        raise click.BadParameter(f"not JSON: {exc}", param_hint="--options") from exc


@agents.command("list")
@server_options
def list_agents(state_dir: Path, url: str | None, as_json: bool) -> None:
    """List the agents and what they do."""
    with connect(state_dir, url) as client:
        found = client.get("/api/agents", limit=1000)
    if as_json:
        print_json(found)
        return
    print_agents(found["agents"])


def print_agents(found: list[dict[str, Any]]) -> None:
    """Print a table, and below it what is wrong with whom and what to do."""
    header = say("AGENT RUNTIME STATUS RUN", "AGENT 运行时 状态 RUN").split()
    print_table(header, [_row(agent) for agent in found])
    for agent in found:
        if problem := part(agent, "problem"):
            click.echo(f"{agent['name']}: {problem_line(problem)}")


def _row(agent: dict[str, Any]) -> list[str]:
    run = part(agent, "currentRun")
    status = str(agent["status"])
    if agent.get("parked"):
        status += say(" (parked)", "（已暂停）")
    return [
        str(agent["name"]),
        str(agent["runtime"]),
        status,
        str(run.get("id", "-")),
    ]


@agents.command("rm")
@click.argument("agent")
@server_options
def remove(agent: str, state_dir: Path, url: str | None, as_json: bool) -> None:
    """
    End the session of AGENT and forget its settings.

    What waits for it is cancelled. Its messages and its turns stay and are read by id,
    which is printed; its name is free for another agent.
    """
    from agentteam_supervisor.cli.client import agent_path

    with connect(state_dir, url) as client:
        path = agent_path(agent)
        gone = client.get(path)
        client.delete(path)
    kept = {"agent": gone["id"], "target": part(gone, "target").get("id")}
    if as_json:
        print_json({"removed": agent, "kept": kept})
    else:
        click.echo(_gone(agent, kept))


def _gone(agent: str, kept: dict[str, Any]) -> str:
    return say(
        f"agent {agent} is gone; its history stays:\n"
        f"  agentteam messages {kept['target']}\n"
        f"  agentteam replay {kept['agent']}",
        f"已移除 agent {agent}；历史记录仍保留：\n"
        f"  agentteam messages {kept['target']}\n"
        f"  agentteam replay {kept['agent']}",
    )
