"""`agentteam up`: server and daemon in one process, until SIGTERM or Ctrl-C."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from agentteam_supervisor.cli.declared import declared_agents
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
def up(port: int, state_dir: Path, as_json: bool) -> None:
    """
    Start server and daemon in one process; SIGTERM or Ctrl-C ends both.

    Prints one line when it is ready. Nothing that it started outlives it.
    """
    settings = read_settings(state_dir)
    declared, limits = declared_agents(settings), declared_limits(settings)
    get_up()
    from agentteam_supervisor.cli.services import run_here  # slow import (trio)

    run_here(state_dir, port, as_json, declared, limits)
