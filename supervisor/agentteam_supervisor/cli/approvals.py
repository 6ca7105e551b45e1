"""`agentteam approvals` and `agentteam approve`: what agents ask people for."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from agentteam_protocol.approval import ApprovalOutcome
from agentteam_supervisor.cli.lines import approval_line
from agentteam_supervisor.cli.output import clean, print_json
from agentteam_supervisor.cli.reach import connect, server_options
from agentteam_supervisor.cli.speech import say

if TYPE_CHECKING:
    from pathlib import Path


@click.command()
@server_options
def approvals(state_dir: Path, url: str | None, as_json: bool) -> None:
    """List the approvals that wait for a person."""
    with connect(state_dir, url) as client:
        found = client.get("/api/approvals", state="pending")
    if as_json:
        print_json(found)
        return
    if not found["approvals"]:
        click.echo(say("nothing waits for approval", "没有待审批项"))
    for approval in found["approvals"]:
        click.echo(approval_line(approval))
        click.echo(f"  {clean(str(approval.get('input', '')))}")


@click.command()
@click.argument("approval")
@click.option("--reject", is_flag=True, help="Say no.")
@server_options
def approve(
    approval: str, reject: bool, state_dir: Path, url: str | None, as_json: bool
) -> None:
    """Allow the one action that APPROVAL asks for, once; or --reject it."""
    from agentteam_supervisor.cli.client import segment

    outcome = ApprovalOutcome.rejected if reject else ApprovalOutcome.allowed_once
    with connect(state_dir, url) as client:
        path = f"/api/approvals/{segment(approval)}/decision"
        answer = client.post(path, {"outcome": outcome.value})
    if as_json:
        print_json(answer)
    else:
        click.echo(f"{approval}: {outcome.value}")
