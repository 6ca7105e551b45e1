"""`agentteam replay`: the ledger of an agent's turns, for people."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from agentteam_supervisor.cli.failure import CommandFailed
from agentteam_supervisor.cli.ledger import ledger_lines
from agentteam_supervisor.cli.output import print_json
from agentteam_supervisor.cli.reach import connect, server_options
from agentteam_supervisor.cli.speech import language, say

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from agentteam_supervisor.cli.client import Client

PAGE = 1000


@click.command()
@click.argument("agent")
@click.option("--turns", type=click.IntRange(1), help="Only the last so many turns.")
@click.option("--svg", metavar="RUN", help="Print a run as a picture: its id, or last.")
@server_options
def replay(
    agent: str,
    turns: int | None,
    svg: str | None,
    state_dir: Path,
    url: str | None,
    as_json: bool,
) -> None:
    """Show what AGENT was told, did and said, turn by turn."""
    from agentteam_supervisor.cli.client import agent_path

    path = agent_path(agent)
    with connect(state_dir, url) as client:
        runs = list(_all(client, f"{path}/runs", "runs"))
        events = list(_all(client, f"{path}/journal", "events"))
    if svg is not None:
        click.echo(_picture(agent, runs, events, svg))
        return
    if as_json:
        print_json({"runs": runs, "events": events})
        return
    for line in ledger_lines(runs, events, turns):
        click.echo(line)


def _picture(
    agent: str, runs: list[dict[str, Any]], events: list[dict[str, Any]], run: str
) -> str:
    from agentteam_supervisor.page.timeline import draw_run

    if run == "last" and runs:
        run = runs[-1]["id"]
    picture = draw_run(events, run, language())
    if picture is None:
        known = ", ".join(dict.fromkeys(each["id"] for each in runs[-5:])) or "none"
        raise CommandFailed(
            say(
                f"{agent} has no run {run}; the newest are: {known}",
                f"{agent} 没有 {run} 这个 run；最近的有：{known}",
            )
        )
    return picture


def _all(client: Client, path: str, name: str) -> Iterator[dict[str, Any]]:
    after = 0
    while True:
        page: Sequence[dict[str, Any]] = client.get(path, after=after, limit=PAGE)[name]
        yield from page
        if len(page) < PAGE or "seq" not in page[-1]:
            return
        after = int(page[-1]["seq"])
