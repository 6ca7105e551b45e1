"""`agentteam server` and `agentteam daemon`: the two halves of `up`, each alone."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from agentteam_supervisor.cli.limits import declared_limits
from agentteam_supervisor.cli.reach import json_option, port_option, state_dir_option
from agentteam_supervisor.cli.settings import read_settings
from agentteam_supervisor.cli.start import get_up

if TYPE_CHECKING:
    from pathlib import Path


@click.command()
@port_option
@state_dir_option
@json_option
def server(port: int, state_dir: Path, as_json: bool) -> None:
    """Start the server alone; agents run once a daemon has joined."""
    get_up()
    from agentteam_supervisor.cli.services import run_server_alone

    run_server_alone(state_dir, port, as_json)


@click.command()
@click.option(
    "--server", "server_url", help="Its URL; default: of the state directory."
)
@state_dir_option
@json_option
def daemon(server_url: str | None, state_dir: Path, as_json: bool) -> None:
    """Start a daemon alone; it joins the server and comes back when the link breaks."""
    limits = declared_limits(read_settings(state_dir))
    get_up()
    from agentteam_supervisor.cli.services import run_daemon_alone

    run_daemon_alone(state_dir, server_url, as_json, limits)
