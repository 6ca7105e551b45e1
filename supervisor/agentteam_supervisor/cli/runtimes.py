"""`agentteam runtimes`: what is found here, what it can do, how to get the rest."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from attrs import asdict, frozen

from agentteam_runtimes.driver import Capabilities
from agentteam_supervisor.cli.failure import CommandFailed
from agentteam_supervisor.cli.output import print_json, print_table
from agentteam_supervisor.cli.reach import json_option, state_dir_option
from agentteam_supervisor.cli.recording import record_wire
from agentteam_supervisor.cli.speech import say
from agentteam_supervisor.cli.state_dir import prepare

if TYPE_CHECKING:
    from collections.abc import Sequence

MANAGED = click.Choice(["builtin"])


@frozen
class Found:
    """One runtime: its capabilities, or what is missing and how to get it."""

    name: str
    capabilities: Capabilities | None = None
    problem: str = ""
    what_to_do: str = ""
    unset: bool = False  # nothing is missing: each agent says what it runs on

    @property
    def usable(self) -> bool:
        return self.capabilities is not None or self.unset

    def as_json(self) -> dict[str, Any]:
        able = asdict(self.capabilities) if self.capabilities else None
        return {
            "name": self.name,
            "found": able is not None,
            "version": self.capabilities.version if self.capabilities else None,
            "capabilities": able,
            "problem": self.problem or None,
            "whatToDo": self.what_to_do or None,
        }


@click.group()
def runtimes() -> None:
    """List, check, install and remove what agents run on."""


@runtimes.command("list")
@state_dir_option
@json_option
def list_runtimes(state_dir: Path, as_json: bool) -> None:
    """List the runtimes and what is missing."""
    found = find_runtimes()
    if as_json:
        print_json({"runtimes": [one.as_json() for one in found]})
        return
    header = say("RUNTIME VERSION DETAIL", "运行时 版本 详情").split()
    print_table(header, [_row(one) for one in found])


@runtimes.command()
@click.argument("name", required=False)
@click.option(
    "--record",
    type=click.Path(path_type=Path, file_okay=False),
    help="Record its wire below this directory instead; needs a checkout.",
)
@state_dir_option
@json_option
def check(
    name: str | None, record: Path | None, state_dir: Path, as_json: bool
) -> None:
    """Show what the runtime NAME can do, or all; fails when it cannot be used."""
    if record is not None:
        if name is None:
            raise click.UsageError(say("which runtime?", "哪个运行时？"))
        record_wire(name, record)
        return
    found = find_runtimes(name, state_dir)
    if as_json:
        print_json({"runtimes": [one.as_json() for one in found]})
    else:
        for one in found:
            click.echo("\n".join(_described(one)))
    if not all(one.usable for one in found):
        raise SystemExit(1)


@runtimes.command()
@click.argument("name", type=MANAGED)
@click.option(
    "--from",
    "source",
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    help="The vendor's archive or program, where npm is not to fetch it.",
)
@state_dir_option
@json_option
def install(name: str, source: Path | None, state_dir: Path, as_json: bool) -> None:
    """Put the pinned build of NAME below the state directory; also an upgrade."""
    from agentteam_protocol.errors import RuntimeMissing
    from agentteam_runtimes.opencode import managed

    prepare(state_dir)
    try:
        program = managed.install(state_dir, source)
    except RuntimeMissing as missing:
        raise CommandFailed(str(missing)) from missing
    if as_json:
        print_json({"name": name, "version": managed.VERSION, "program": str(program)})
    else:
        click.echo(
            say(
                f"{name}: OpenCode {managed.VERSION}, checksum verified",
                f"{name}：OpenCode {managed.VERSION}，校验通过",
            )
        )


@runtimes.command()
@click.argument("name", type=MANAGED)
@state_dir_option
@json_option
def remove(name: str, state_dir: Path, as_json: bool) -> None:
    """Remove the managed builds of NAME; agents on it can no longer start."""
    from agentteam_runtimes.opencode import managed

    gone = managed.remove(state_dir)
    if as_json:
        print_json({"name": name, "removed": gone})
    elif gone:
        versions = ", ".join(gone)
        click.echo(say(f"removed {name} {versions}", f"已移除 {name} {versions}"))
    else:
        click.echo(say(f"{name} was not installed", f"{name} 未安装"))


def find_runtimes(name: str | None = None, verify: Path | None = None) -> list[Found]:
    """
    Look at each runtime, or at one, as it is found without options.

    With a state directory the managed build's checksum is verified, too.
    """
    from agentteam_runtimes.plugins import find_plugins

    plugins = find_plugins()
    return [_find(n, verify) for n in ([name] if name else plugins.names)]


def _find(name: str, verify: Path | None) -> Found:
    from agentteam_protocol.errors import RuntimeFailure, RuntimeMissing, RuntimeUnset
    from agentteam_runtimes.driver import Options
    from agentteam_runtimes.opencode import managed
    from agentteam_runtimes.plugins import find_plugins

    try:
        capabilities = find_plugins().load(name).probe(Options())
        if verify is not None and name == "builtin":
            managed.verify(managed.program(verify))
    except RuntimeMissing as missing:
        unset = isinstance(missing, RuntimeUnset)
        return Found(name, None, missing.problem, missing.what_to_do, unset)
    except RuntimeFailure as failure:
        return Found(name, None, str(failure), say("see the reason", "见原因"))
    return Found(name, capabilities)


def _row(found: Found) -> Sequence[str]:
    able = found.capabilities
    if able is None:
        by_agent, missing = say("by agent", "按智能体"), say("missing", "缺失")
        state = by_agent if found.unset else missing
        return (found.name, state, f"{found.problem}; {found.what_to_do}")
    claims = f"interrupt {able.interrupt}, evidence {able.evidence}, steer {able.steer}"
    return (found.name, able.version, claims)


def _described(found: Found) -> list[str]:
    able = found.capabilities
    if able is None:
        return [f"{found.name}: {found.problem}", f"  {found.what_to_do}"]
    lines = [f"{found.name} {able.version}"]
    for key, value in asdict(able).items():
        if key != "version":
            shown = {True: say("yes", "是"), False: say("no", "否")}.get(value, value)
            lines.append(f"  {key.replace('_', ' ')}: {shown}")
    return lines
