"""`agentteam messages`: the history of a target."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from agentteam_supervisor.cli.lines import message_line
from agentteam_supervisor.cli.output import print_json
from agentteam_supervisor.cli.reach import connect, server_options

if TYPE_CHECKING:
    from pathlib import Path


@click.command()
@click.argument("target")
@click.option("--after", type=int, help="Only what follows this sequence number.")
@click.option("--limit", type=click.IntRange(1, 1000), default=100, show_default=True)
@server_options
def messages(
    target: str,
    after: int | None,
    limit: int,
    state_dir: Path,
    url: str | None,
    as_json: bool,
) -> None:
    """Show the messages of TARGET, the newest last."""
    with connect(state_dir, url) as client:

        def page(first: int, count: int) -> dict[str, object]:
            return client.at_target(
                target,
                lambda path: client.get(f"{path}/messages", after=first, limit=count),
            )

        if after is None:
            head = int(str(page(0, 1)["head"]))
            after = max(0, head - limit)
        found = client.at_target(
            target,
            lambda path: client.get(f"{path}/messages", after=after, limit=limit),
        )
    if as_json:
        print_json(found)
        return
    for message in found["messages"]:
        click.echo(message_line(message, target))
