"""`agentteam watch`: everything as it happens, until Ctrl-C."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import click

from agentteam_supervisor.cli.json_object import part
from agentteam_supervisor.cli.output import print_json
from agentteam_supervisor.cli.reach import connect, server_options
from agentteam_supervisor.cli.screen import Screen
from agentteam_supervisor.cli.waiting import tell_people

if TYPE_CHECKING:
    from pathlib import Path

    from agentteam_supervisor.cli.client import Client
    from agentteam_supervisor.cli.event_stream import Event
    from agentteam_supervisor.cli.screen import Write


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

    tell = _json_line if as_json else tell_people
    with connect(state_dir, url) as client, client.events(tell=tell) as events:
        of = client.get(f"/api/agents/{segment(agent)}") if agent else None
        screen = None if as_json else Screen(_writer(), _names(client))
        seen = 0
        try:
            for event in events:
                if of is not None and not concerns(event, of):
                    continue
                seen += _json_event(event) if screen is None else screen.show(event)
                if seen == limit:
                    return
        except KeyboardInterrupt:
            return  # the way to end it, so no failure
        finally:
            if screen is not None:
                screen.end_line()


def concerns(event: Event, agent: dict[str, Any]) -> bool:
    """Tell whether the event is about this agent; a gap concerns everybody."""
    data = event.data
    match event.name:
        case "agent":
            return bool(data.get("id") == agent["id"])
        case "message":
            mine = {d["agentId"] for d in data.get("deliveries", ())}
            wrote = part(data, "author") == {"kind": "agent", "name": agent["name"]}
            return wrote or agent["id"] in mine
        case "delivery" | "activity" | "approval":
            return bool(data.get("agentId") == agent["id"])
        case _:
            return True


def _json_event(event: Event) -> bool:
    print_json({"event": event.name, "id": event.id, "data": event.data})
    return True


def _json_line(url: str, lost: bool, seconds: float) -> None:
    data = {"url": url, "state": "lost" if lost else "back", "seconds": round(seconds)}
    print_json({"event": "connection", "id": "", "data": data})


def _names(client: Client) -> dict[str, str]:
    """Learn what agents and targets are called."""
    agents = client.get("/api/agents", limit=1000)["agents"]
    targets = client.get("/api/targets", limit=1000)["targets"]
    return {str(thing["id"]): str(thing["name"]) for thing in [*agents, *targets]}


def _writer() -> Write:
    if not sys.stdout.isatty():
        return lambda text, _: click.echo(text, nl=False)
    from rich.console import Console  # slow import, only for a terminal

    console = Console(highlight=False, markup=False, soft_wrap=True)
    return lambda text, style: console.print(text, style=style, end="")
