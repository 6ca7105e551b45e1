"""`agentteam resolve`: a person decides about a delivery that goes no further."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from agentteam_protocol.control import Resolution
from agentteam_supervisor.cli.lines import delivery_line
from agentteam_supervisor.cli.output import print_json
from agentteam_supervisor.cli.reach import connect, server_options

if TYPE_CHECKING:
    from pathlib import Path


@click.command()
@click.argument("delivery")
@click.option(
    "--as",
    "resolution",
    type=click.Choice([r.value for r in Resolution]),
    required=True,
    help="Deliver it again, or withdraw it.",
)
@server_options
def resolve(
    delivery: str, resolution: str, state_dir: Path, url: str | None, as_json: bool
) -> None:
    """Deliver DELIVERY again, or withdraw it."""
    from agentteam_supervisor.cli.client import segment

    with connect(state_dir, url) as client:
        path = f"/api/deliveries/{segment(delivery)}/resolve"
        answer = client.post(path, {"as": resolution})
    if as_json:
        print_json(answer)
    else:
        click.echo(delivery_line(answer))
