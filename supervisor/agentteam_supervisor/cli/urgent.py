"""`agentteam urgent`: interrupt the current run with a message that was already sent."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from agentteam_supervisor.cli.failure import CommandFailed
from agentteam_supervisor.cli.json_object import part, parts
from agentteam_supervisor.cli.lines import SETTLED, activity_line, delivery_line
from agentteam_supervisor.cli.output import print_json
from agentteam_supervisor.cli.reach import connect, server_options, timeout_option
from agentteam_supervisor.cli.speech import say

if TYPE_CHECKING:
    from pathlib import Path

    from agentteam_supervisor.cli.client import Client
    from agentteam_supervisor.cli.event_stream import EventStream

LINES = frozenset({"requested", "stopping", "interrupted", "started", "failed"})

# After these the last line of the urgent's activity is still to come.
LAST_LINE = {"surfaced": "started", "failed": "failed", "blocked": "failed"}


@click.command()
@click.argument("message", required=False)
@click.option("--last", is_flag=True, help="The newest message that a person sent.")
@click.option("--agent", help="Which agent, when the target has several.")
@click.option("--no-wait", is_flag=True, help="Do not wait for the outcome.")
@timeout_option(120)
@server_options
def urgent(
    message: str | None,
    last: bool,
    agent: str | None,
    no_wait: bool,
    timeout: float,
    state_dir: Path,
    url: str | None,
    as_json: bool,
) -> None:
    """
    Mark MESSAGE (an id, or --last) urgent.

    The agent's current run is interrupted and the message is the next thing that it
    reads. Prints how it goes and ends with the proof, or with why not.
    """
    if (message is None) != last:
        raise click.UsageError("give a message id or --last")
    with connect(state_dir, url) as client, client.events(timeout) as events:
        chosen = message or newest_message(client, agent)
        delivery = mark(client, chosen, agent)
        if before := told_before(delivery):
            click.echo(before, err=as_json)
        if not no_wait:
            delivery = follow(client, delivery, events, as_json)
        elif as_json:
            print_json(delivery)
        if not as_json:
            click.echo(delivery_line(delivery))


def mark(client: Client, message: str, agent: str | None) -> dict[str, Any]:
    from agentteam_supervisor.cli.client import segment

    body = {"interruptPolicy": "interrupt_current_run"}
    if agent is not None:
        body["agentId"] = agent.removeprefix("@")
    try:
        return client.post(f"/api/messages/{segment(message)}/agent-delivery", body)
    except CommandFailed as refused:
        raise _in_words(refused, agent) from None


def _in_words(refused: CommandFailed, agent: str | None) -> CommandFailed:
    """Say what a person can type; the server's words speak of fields."""
    found = parts(refused.problem, "candidates")
    names = ", ".join(str(c.get("name")) for c in found)
    nobody = say("no agent gets this message", "没有 agent 会收到这条消息")
    match refused.problem.get("type"):
        case "agent_required" if names:
            words = say(
                f"several agents get this message; choose one with --agent: {names}",
                f"有多个 agent 会收到这条消息；请用 --agent 指定其一：{names}",
            )
        case "agent_required":
            words = nobody
        case "not_a_member" if names:
            words = say(
                f"{agent} does not get this message; --agent can be: {names}",
                f"{agent} 不会收到这条消息；--agent 可以是：{names}",
            )
        case "not_a_member":
            words = nobody
        case _:
            return refused
    return CommandFailed(words, problem=refused.problem)


def told_before(delivery: dict[str, Any]) -> str | None:
    """Say that the message was read before, or marked before; None: it is new."""
    read = part(delivery, "readBefore")
    proof = part(read, "evidence").get("kind", "?")
    by = f"{read.get('deliveryId')}, {proof}"
    if delivery.get("made", True) and read:
        return say(
            f"the agent has read this message already ({by}); it will read it again",
            f"agent 此前已读过这条消息（{by}）；将再次读取",
        )
    if delivery.get("made", True):
        return None
    if read and read.get("deliveryId") == delivery["id"]:
        return say(
            f"it was marked urgent before and the agent has read it ({by}); it is not"
            " delivered again",
            f"此前已加急，agent 已读（{by}）；不会再次投递",
        )
    return say("it was marked urgent before", "此前已加急")


def newest_message(client: Client, agent: str | None) -> str:
    """Find the newest message of a person, in the agent's own target or anywhere."""
    if agent is not None:
        paths = [f"@{agent.removeprefix('@')}"]
    else:
        targets = client.get("/api/targets", limit=1000)["targets"]
        paths = [str(target["id"]) for target in targets]
    found = [m for path in paths if (m := _newest_in(client, path)) is not None]
    if not found:
        raise CommandFailed(
            say(
                "nobody has sent a message yet; send one with `agentteam send`",
                "还没有人发送过消息；请先用 `agentteam send` 发送",
            )
        )
    # Sequences order one target only; between targets the time must do.
    return str(max(found, key=lambda m: str(m["createdAt"]))["id"])


def _newest_in(client: Client, target: str) -> dict[str, Any] | None:
    from agentteam_supervisor.cli.client import segment

    path = f"/api/targets/{segment(target)}/messages"
    head = int(client.get(path, limit=1)["head"])
    while head > 0:
        after = max(0, head - 100)
        page = client.get(path, after=after, limit=head - after)["messages"]
        for message in reversed(page):
            if message["author"]["kind"] == "user":
                return dict(message)
        head = after
    return None


def follow(
    client: Client, delivery: dict[str, Any], events: EventStream, as_json: bool
) -> dict[str, Any]:
    """Print the lines of this urgent until it has settled; failure is exit code 1."""
    if delivery["state"] not in SETTLED:
        _print_lines(client, delivery, events, as_json)
        delivery = client.delivery(str(delivery["id"]))
    if as_json:
        print_json(delivery)
    if delivery["state"] != "surfaced":
        raise CommandFailed(delivery_line(delivery), problem=delivery)
    return delivery


def _print_lines(
    client: Client, delivery: dict[str, Any], events: EventStream, as_json: bool
) -> None:
    awaited: str | None = None
    for event in events:
        item = event.data
        if event.name == "delivery" and item["id"] == delivery["id"]:
            if item["state"] in SETTLED:
                awaited = LAST_LINE.get(item["state"], "")
        elif event.name == "activity" and item.get("deliveryId") == delivery["id"]:
            if item["kind"] in LINES:
                _print_line(item, as_json)
            if item["kind"] in ("started", "failed"):
                return
        elif event.name == "gap":
            # The lines are lost, the outcome is not.
            state = client.delivery(str(delivery["id"]), wait=60)["state"]
            awaited = "" if state in SETTLED else awaited
        if awaited == "":
            return


def _print_line(item: dict[str, Any], as_json: bool) -> None:
    if not as_json:  # that is one object: the outcome
        click.echo(activity_line(item))
