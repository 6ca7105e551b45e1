"""`agentteam up`: server and daemon in one process, until SIGTERM or Ctrl-C."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from agentteam_supervisor.cli.declared import declared_agents
from agentteam_supervisor.cli.reach import json_option, port_option, state_dir_option

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
    declared = declared_agents(state_dir)
    from agentteam_supervisor.cli.services import run_here  # slow import (trio)

    run_here(state_dir, port, as_json, declared)
