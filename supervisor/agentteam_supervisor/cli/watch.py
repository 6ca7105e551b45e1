"""`agentteam watch`: everything as it happens, until Ctrl-C."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import click

from agentteam_supervisor.cli.json_object import part
from agentteam_supervisor.cli.lines import (
    activity_line,
    approval_line,
    delivery_line,
    message_line,
)
from agentteam_supervisor.cli.output import print_json
from agentteam_supervisor.cli.reach import connect, server_options
from agentteam_supervisor.cli.speech import say

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from agentteam_supervisor.cli.event_stream import Event

STYLES = {
    "message": "bold",
    "delivery": "dim",
    "activity": "cyan",
    "approval": "yellow",
    "gap": "red",
}


@click.command()
@click.argument("agent", required=False)
@click.option("--limit", type=click.IntRange(1), help="End after so many events.")
@server_options
def watch(
    agent: str | None,
    limit: int | None,
    state_dir: Path,
    url: str | None,
    as_json: bool,
) -> None:
    """Follow what happens to all agents, or to AGENT."""
    from agentteam_supervisor.cli.client import segment

    printer = _json_event if as_json else _line_printer()
    with connect(state_dir, url) as client:
        of = client.get(f"/api/agents/{segment(agent)}") if agent else None
        with client.events() as events:
            seen = 0
            for event in events:
                if of is not None and not concerns(event, of):
                    continue
                printer(event)
                seen += 1
                if seen == limit:
                    return


def concerns(event: Event, agent: dict[str, Any]) -> bool:
    """Tell whether the event is about this agent; a gap concerns everybody."""
    data = event.data
    match event.name:
        case "agent":
            return bool(data.get("id") == agent["id"])
        case "message":
            mine = {d["agentId"] for d in data.get("deliveries", ())}
            author = part(data, "author")
            wrote = author == {"kind": "agent", "name": agent["name"]}
            return wrote or agent["id"] in mine
        case "delivery" | "activity" | "approval":
            return bool(data.get("agentId") == agent["id"])
        case _:
            return True


def _json_event(event: Event) -> None:
    print_json({"event": event.name, "id": event.id, "data": event.data})


def event_line(event: Event) -> str:
    match event.name:
        case "message":
            return message_line(event.data)
        case "delivery":
            return delivery_line(event.data)
        case "activity":
            return activity_line(event.data)
        case "approval":
            return approval_line(event.data)
        case "agent":
            return f"{event.data.get('name')}: {event.data.get('status')}"
        case "gap":
            return say(
                "(some events were missed; `agentteam messages` has the messages)",
                "（有事件遗漏；消息请用 `agentteam messages` 查看）",
            )
        case name:
            return name


def _line_printer() -> Callable[[Event], None]:
    if not sys.stdout.isatty():
        return lambda event: click.echo(event_line(event))
    from rich.console import Console  # slow import, only for a terminal

    console = Console(highlight=False, markup=False)
    return lambda event: console.print(
        event_line(event), style=STYLES.get(event.name, "")
    )
