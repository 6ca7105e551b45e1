"""`agentteam send`: an ordinary message; it never interrupts anybody."""

from __future__ import annotations

import sys
import time
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import click

from agentteam_supervisor.cli.failure import CommandFailed, ExitCode
from agentteam_supervisor.cli.json_object import part
from agentteam_supervisor.cli.lines import (
    SETTLED,
    delivery_line,
    message_line,
    problem_line,
)
from agentteam_supervisor.cli.output import print_json
from agentteam_supervisor.cli.reach import connect, server_options, timeout_option
from agentteam_supervisor.cli.speech import say

if TYPE_CHECKING:
    from pathlib import Path

    from agentteam_supervisor.cli.client import Client
    from agentteam_supervisor.cli.event_stream import EventStream

# Between two looks at whether the agent can run at all.
LOOK = 2.0
# How long after its turn's end a reply may still be on its way.
LATE = 1.0


@click.command()
@click.argument("target")
@click.argument("body")
@click.option("--author", help="Your name as the agents see it.")
@click.option("--wait", is_flag=True, help="Until the agents have read it, with proof.")
@click.option("--follow", is_flag=True, help="Until an agent replied; print the reply.")
@timeout_option(300)
@server_options
def send(
    target: str,
    body: str,
    author: str | None,
    wait: bool,
    follow: bool,
    timeout: float,
    state_dir: Path,
    url: str | None,
    as_json: bool,
) -> None:
    """Send BODY (`-`: standard input) to TARGET, an agent's or a group's name."""
    text = _standard_input() if body == "-" else body
    wanted = {"body": text} | ({} if author is None else {"author": author})
    with connect(state_dir, url) as client, ExitStack() as stack:
        events = stack.enter_context(client.events(timeout)) if follow else None
        message = client.at_target(
            target, lambda path: client.post(f"{path}/messages", wanted)
        )
        _print_sent(message, target, as_json)
        if wait:
            for delivery in message["deliveries"]:
                _print_settled(settled(client, delivery, timeout), as_json)
        if events is not None:
            _print_reply(reply_to(client, message, events), target, as_json)


def _standard_input() -> str:
    if sys.stdin is None:  # closed by whoever started us
        return ""
    return sys.stdin.buffer.read().decode().replace("\r\n", "\n")


def _print_sent(message: dict[str, Any], target: str, as_json: bool) -> None:
    if as_json:
        print_json(message)
    else:
        click.echo(
            say(f"sent {message['id']}", f"已发送 {message['id']}")
            + f" ({target} {message['targetSeq']})"
        )


def settled(client: Client, delivery: dict[str, Any], seconds: float) -> dict[str, Any]:
    """
    Wait until the delivery goes no further by itself; exit code 4 otherwise.

    An agent that cannot run ends the wait early, with what to do about it.
    """
    deadline = time.monotonic() + seconds
    while delivery["state"] not in SETTLED:
        left = deadline - time.monotonic()
        if left <= 0:
            raise CommandFailed(_still(delivery), ExitCode.timeout, delivery)
        delivery = client.delivery(str(delivery["id"]), wait=min(left, LOOK))
        if delivery["state"] == "queued":
            _check_agent(client, delivery)
    return delivery


def _check_agent(client: Client, delivery: dict[str, Any]) -> None:
    agent = client.get(f"/api/agents/{delivery['agentId']}")
    if problem := part(agent, "problem"):
        waits = say(f"{delivery['id']} stays queued", f"{delivery['id']} 仍在排队")
        line = f"{agent['name']}: {problem_line(problem)} ({waits})"
        raise CommandFailed(line, problem=delivery | {"diagnostic": problem})


def _still(delivery: dict[str, Any]) -> str:
    name, state = delivery["id"], delivery["state"]
    return say(
        f"{name} is still {state} and is kept; look again with `agentteam status`, or"
        f" withdraw it with `agentteam resolve {name} --as dismiss`",
        f"{name} 仍为 {state}，投递已保留；可用 `agentteam status` 查看，或用"
        f" `agentteam resolve {name} --as dismiss` 撤回",
    )


def _print_settled(delivery: dict[str, Any], as_json: bool) -> None:
    """Print the final state; anything but surfaced ends the command with code 1."""
    if delivery["state"] != "surfaced":
        raise CommandFailed(delivery_line(delivery), problem=delivery)
    if as_json:
        print_json(delivery)
    else:
        click.echo(delivery_line(delivery))


def reply_to(
    client: Client, message: dict[str, Any], events: EventStream
) -> dict[str, Any] | None:
    """
    Wait for the first agent's message after this one in the same target.

    None: every agent that read it has ended its turn, and none said anything. An agent
    that has a problem ends the wait with what to do about it.
    """
    silent: set[str] = set()
    waiting = {str(d["agentId"]): str(d["id"]) for d in message["deliveries"]}
    for delivery in waiting.values():
        _check_on_its_way(client, client.delivery(delivery, wait=LOOK))
    for event in events:
        item = event.data
        match event.name:
            case "message" if _answers(item, message):
                return item
            case "agent" if waiting.get(item["id"]) and part(item, "problem"):
                _check_on_its_way(client, client.delivery(waiting[item["id"]]))
            case "delivery" if item["id"] in waiting.values():
                _check_on_its_way(client, item)
            case "activity" if item["kind"] == "run_ended":
                agent = str(item["agentId"])
                if _is_done(client, agent, waiting.get(agent)):
                    silent.add(agent)
            case _:
                pass
        if waiting and silent == set(waiting):
            reply = _late_reply(client, message)
            if reply is None:
                _check_well(client, silent)
            return reply
    raise AssertionError("unreachable: the stream ends by raising")


def _check_on_its_way(client: Client, delivery: dict[str, Any]) -> None:
    if delivery["state"] == "queued":
        _check_agent(client, delivery)
    elif delivery["state"] in SETTLED - {"surfaced", "superseded"}:
        raise CommandFailed(delivery_line(delivery), problem=delivery)


def _answers(item: dict[str, Any], message: dict[str, Any]) -> bool:
    later = item["target"] == message["target"]
    later = later and item["targetSeq"] > message["targetSeq"]
    return bool(later and item["author"]["kind"] == "agent")


def _is_done(client: Client, agent: str, delivery: str | None) -> bool:
    """Tell whether the agent has read the message and runs no more."""
    if delivery is None or client.delivery(delivery)["state"] not in SETTLED:
        return False
    return bool(client.get(f"/api/agents/{agent}")["status"] != "running")


def _check_well(client: Client, agents: set[str]) -> None:
    """Fail with what went wrong, if the run of one of them did not end well."""
    for name in sorted(agents):
        agent = client.get(f"/api/agents/{name}")
        if problem := part(agent, "problem"):
            line = f"{agent['name']}: {problem_line(problem)}"
            raise CommandFailed(line, problem={"diagnostic": problem})


def _late_reply(client: Client, message: dict[str, Any]) -> dict[str, Any] | None:
    """Look once more: a reply is published a moment after its turn has ended."""
    time.sleep(LATE)
    path = f"/api/targets/{message['target']}/messages"
    found = client.get(path, after=message["targetSeq"], limit=100)["messages"]
    return next((m for m in found if _answers(m, message)), None)


def _print_reply(message: dict[str, Any] | None, target: str, as_json: bool) -> None:
    if message is None:
        words = say("the turn ended without a text", "回合已结束，没有文字回复")
        click.echo(words, err=as_json)
    elif as_json:
        print_json(message)
    else:
        click.echo(message_line(message, target))
