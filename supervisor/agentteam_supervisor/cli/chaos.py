"""`agentteam chaos`: break the product on purpose, and prove what holds."""

from __future__ import annotations

import json
import secrets
from functools import partial
from importlib.metadata import version
from typing import TYPE_CHECKING, TextIO

import click

from agentteam_protocol.errors import RuntimeMissing
from agentteam_supervisor.chaos.registry import PATH, POINTS
from agentteam_supervisor.cli.failure import CommandFailed
from agentteam_supervisor.cli.output import print_json, print_table
from agentteam_supervisor.cli.reach import json_option
from agentteam_supervisor.cli.speech import say

if TYPE_CHECKING:
    from collections.abc import Sequence

    from agentteam_supervisor.chaos.proof import Proof
    from agentteam_supervisor.chaos.rows import Row


@click.group(invoke_without_command=True)
@click.option("--seed", type=int, help="Repeats a campaign; default: a new one.")
@click.option(
    "--minutes",
    type=click.FloatRange(min=0, min_open=True),
    default=3.0,
    show_default=True,
    help="How long faults are injected.",
)
@click.option(
    "--jobs",
    type=click.IntRange(min=1),
    default=2,
    show_default=True,
    help="So many services at once.",
)
@click.option("--faults", type=click.IntRange(min=1), help="End after so many.")
@click.option("--life", type=click.IntRange(min=0), default=0, help="Begin there.")
@click.option("--keep", is_flag=True, help="Keep the state directories.")
@click.option(
    "--runtime",
    type=click.Choice(["rehearsal", "codex", "claude", "opencode"]),
    default="rehearsal",
    show_default=True,
    help="Who plays the agents; real ones ask a scripted model.",
)
@click.option("--bin", "program", help="The program of a real runtime.")
@json_option
@click.pass_context
def chaos(
    ctx: click.Context,
    seed: int | None,
    minutes: float,
    jobs: int,
    faults: int | None,
    life: int,
    keep: bool,
    runtime: str,
    program: str | None,
    as_json: bool,
) -> None:
    """
    Kill, stop and starve the product at random, and judge it from outside.

    Runs services of its own in temporary directories; yours are left alone. The last
    line is the proof; the exit code is 1 when something was found.
    """
    if ctx.invoked_subcommand is not None:
        return
    import trio

    from agentteam_supervisor.chaos.campaign import Campaign

    seed = secrets.randbelow(10**9) if seed is None else seed
    tell = partial(click.echo, err=True)
    tell(f"seed {seed}, version {version('agentteam-supervisor')}")
    real = None if runtime == "rehearsal" else _real(runtime, program)
    campaign = Campaign(seed, tell, minutes, faults, life, keep, jobs, real)
    proof = trio.run(campaign.run)
    _conclude(proof, as_json)


def _real(runtime: str, program: str | None) -> tuple[str, str]:
    from agentteam_supervisor.chaos.company import find_program

    try:
        return runtime, find_program(runtime, program)
    except RuntimeMissing as missing:
        raise CommandFailed(str(missing)) from missing


def _conclude(proof: Proof, as_json: bool, seeds: str = "", **more: object) -> None:
    """Print the proof line; raises `CommandFailed` when something was found."""
    if as_json:
        print_json(proof.as_json() | more)
    else:
        click.echo(proof.line(seeds))
    if not proof.ok:
        raise CommandFailed(
            say(
                f"{len(proof.findings)} findings; the story is above",
                f"发现 {len(proof.findings)} 处问题；经过见上",
            )
        )


@chaos.command("points")
@click.option("--seed", type=int, help="Repeats a tour; default: a new one.")
@click.option(
    "--seeds",
    type=click.IntRange(min=1),
    default=20,
    show_default=True,
    help="So many visits to each side of a point.",
)
@click.option("--point", "names", multiple=True, help="Only this point; repeatable.")
@click.option("--path", is_flag=True, help="Only the points of an urgent message.")
@click.option("--one-side", is_flag=True, help="The sides of a point take turns.")
@click.option("--minutes", type=click.FloatRange(min=0, min_open=True), help="At most.")
@click.option("--jobs", type=click.IntRange(min=1), default=2, show_default=True)
@click.option("--keep", is_flag=True, help="Keep the state directories.")
@json_option
def visit_points(
    seed: int | None,
    seeds: int,
    names: tuple[str, ...],
    path: bool,
    one_side: bool,
    minutes: float | None,
    jobs: int,
    keep: bool,
    as_json: bool,
) -> None:
    """
    Kill the product at every crash point, both sides, many times.

    Each visit draws what is done around the point. Half of each point's visits are
    armed again at the restart. Prints how often each point was come to, then the
    proof. Tours of several seeds are added up by `agentteam chaos sum`.
    """
    import trio

    from agentteam_supervisor.chaos.tour import Tour

    for name in names:
        if name not in POINTS:
            raise click.BadParameter(f"{name}: see `agentteam chaos list`")
    seed = secrets.randbelow(10**9) if seed is None else seed
    tell = partial(click.echo, err=True)
    tell(f"seed {seed}, version {version('agentteam-supervisor')}")
    points = names or (PATH if path else tuple(POINTS))
    tour = Tour(seed, tell, points, seeds, jobs, minutes, keep, one_side)
    proof = trio.run(tour.run)
    _show(tour.rows(), as_json)
    _conclude(proof, as_json, points=[row.as_json() for row in tour.rows()])


def _show(rows: Sequence[Row], as_json: bool) -> None:
    if not as_json:
        heads = [say("point", "位置"), say("visits", "访问"), say("killed", "被杀")]
        heads += [say("twice", "两次"), say("not reached", "未到达")]
        print_table(heads, [row.cells() for row in rows])


@chaos.command("sum")
@click.argument("files", nargs=-1, required=True, type=click.File())
@json_option
def sum_tours(files: tuple[TextIO, ...], as_json: bool) -> None:
    """Add up what `agentteam chaos points --json` printed for several seeds."""
    from agentteam_supervisor.chaos.rows import add_up

    proof, seeds, rows = add_up([json.load(file) for file in files])
    _show(rows, as_json)
    points = [row.as_json() for row in rows]
    words = f"seeds {', '.join(map(str, seeds))}"
    _conclude(proof, as_json, words, points=points, partSeeds=seeds)


@chaos.command("list")
@json_option
def list_points(as_json: bool) -> None:
    """List the crash points: AGENTTEAM_CRASH=POINT:before|after[:N]."""
    if as_json:
        points = [
            {"point": name, "meaning": meaning, "urgentPath": name in PATH}
            for name, meaning in POINTS.items()
        ]
        print_json({"points": points})
        return
    rows = [
        (name, "*" if name in PATH else "", meaning) for name, meaning in POINTS.items()
    ]
    print_table((say("point", "位置"), say("path", "加急"), say("what", "含义")), rows)
