"""Options that every verb shares, and the way from them to the server."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import urlsplit

import click

from agentteam_supervisor.cli.failure import CommandFailed, ExitCode
from agentteam_supervisor.cli.server_record import read_record
from agentteam_supervisor.cli.speech import say
from agentteam_supervisor.cli.state_dir import VARIABLE, default_state_dir

if TYPE_CHECKING:
    from agentteam_supervisor.cli.client import Client

# A month and more; whoever waits longer asks again.
LONGEST = 3_000_000

F = TypeVar("F", bound=Callable[..., Any])

json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON.")


def _export(_: click.Context, __: click.Parameter, state_dir: Path) -> Path:
    """Let a driver that keeps something of its own there find the same place."""
    os.environ[VARIABLE] = str(state_dir)
    return state_dir


state_dir_option = click.option(
    "--state-dir",
    type=click.Path(path_type=Path, file_okay=False),
    callback=_export,
    envvar=VARIABLE,
    default=default_state_dir,
    show_default="~/.local/state/agentteam",
    help=f"Where everything is kept (also {VARIABLE}).",
)
port_option = click.option(
    "--port",
    type=click.IntRange(0, 65535),
    default=8642,
    show_default=True,
    help="On loopback; 0: any free one.",
)
url_option = click.option(
    "--url",
    envvar="AGENTTEAM_URL",
    help="The server; default: the one of the state directory.",
)


def _check_seconds(_: click.Context, __: click.Parameter, value: float) -> float:
    if 0 < value <= LONGEST:  # nan is not, either
        return value
    raise click.BadParameter(_no_seconds(value))


def _no_seconds(value: float) -> str:
    return say(
        f"{value} must be a number of seconds above 0, at most {LONGEST}",
        f"{value} 应为大于 0 且不超过 {LONGEST} 的秒数",
    )


def timeout_option(default: float) -> Callable[[F], F]:
    return click.option(
        "--timeout",
        type=float,
        callback=_check_seconds,
        default=default,
        show_default=True,
        help="Seconds to wait; exit code 4 afterwards.",
    )


def server_options(function: F) -> F:
    """Add --state-dir, --url and --json to a verb that talks to the server."""
    return json_option(url_option(state_dir_option(function)))


def connect(state_dir: Path, url: str | None) -> Client:
    """Open a client of the named server, or of the one that `server.json` names."""
    from agentteam_supervisor.cli.client import Client  # slow import (httpx)

    if url is None:
        record = read_record(state_dir)
        if record is None:
            raise CommandFailed(_no_server(state_dir), ExitCode.unreachable)
        return Client(record.url, find=lambda: _recorded(state_dir))
    if not _is_address(url):
        raise click.BadParameter(_no_url(url), param_hint="--url")
    return Client(url)


def _recorded(state_dir: Path) -> str | None:
    record = read_record(state_dir)
    return None if record is None else record.url


def _is_address(url: str) -> bool:
    try:
        parts = urlsplit(url)
        host = parts.hostname if parts.port != 0 else None
    except ValueError:  # a port that is none, half an IPv6 address
        return False
    return parts.scheme in ("http", "https") and bool(host)


def _no_url(url: str) -> str:
    return say(
        f"{url!r} is no address; it looks like http://127.0.0.1:8642",
        f"{url!r} 不是地址；应类似 http://127.0.0.1:8642",
    )


def _no_server(state_dir: Path) -> str:
    return say(
        f"no server runs in {state_dir}; start one with `agentteam up`",
        f"{state_dir} 中没有正在运行的服务；请先运行 `agentteam up`",
    )
