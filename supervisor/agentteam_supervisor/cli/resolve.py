"""`agentteam resolve`: a person decides about a delivery that goes no further."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import click

from agentteam_protocol.control import Resolution
from agentteam_supervisor.cli.failure import CommandFailed, ExitCode
from agentteam_supervisor.cli.lines import delivery_line
from agentteam_supervisor.cli.output import clean, print_json
from agentteam_supervisor.cli.reach import connect, server_options
from agentteam_supervisor.cli.speech import say

if TYPE_CHECKING:
    from pathlib import Path

    from agentteam_supervisor.cli.client import Client

# The daemon alone knows whether a withdrawal came in time; how long to wait for it.
DECIDED = 3.0
LOOK = 0.1


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
        if resolution == Resolution.dismiss.value:
            answer = _withdrawn(client, answer)
    if as_json:
        print_json(answer)
    else:
        click.echo(delivery_line(answer))


def _withdrawn(client: Client, asked: dict[str, Any]) -> dict[str, Any]:
    """Wait until it is withdrawn, or it is known that it was too late (exit code 1)."""
    deadline = time.monotonic() + DECIDED
    before = len(asked.get("history", ()))
    now = asked
    while now["state"] != "cancelled":
        told = [e["note"] for e in now.get("history", ())[before:] if e.get("note")]
        if told or now["state"] not in ("queued", "accepted"):
            why = clean(told[-1]) if told else _too_late()
            line = f"{delivery_line(now)}; {why}"
            raise CommandFailed(line, problem={**now, "type": "too_late"})
        if time.monotonic() > deadline:
            raise CommandFailed(_undecided(now), ExitCode.timeout, now)
        time.sleep(LOOK)
        now = client.delivery(str(asked["id"]))
    return now


def _too_late() -> str:
    return say("it was too late to withdraw it", "已来不及撤回")


def _undecided(delivery: dict[str, Any]) -> str:
    name = delivery["id"]
    return say(
        f"{name} is still {delivery['state']}: the daemon has not said yet whether the withdrawal"
        " came in time; look again with the same command",
        f"{name} 仍为 {delivery['state']}：守护端尚未确认撤回是否及时；请稍后再次运行同一命令",
    )
