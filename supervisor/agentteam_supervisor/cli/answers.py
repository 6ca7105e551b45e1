"""What a server's answer means, or that none came: an object, or a sentence."""

from __future__ import annotations

import json
from contextlib import contextmanager
from typing import TYPE_CHECKING

import httpx

from agentteam_supervisor.cli.failure import CommandFailed, ExitCode
from agentteam_supervisor.cli.json_object import JsonObject, as_object
from agentteam_supervisor.cli.speech import say

if TYPE_CHECKING:
    from collections.abc import Generator


@contextmanager
def translated(url: str) -> Generator[None]:
    """Make a `CommandFailed` of what the connection to this server raises."""
    try:
        yield
    except httpx.ConnectTimeout as exc:
        raise unreachable(url) from exc
    except httpx.TimeoutException as exc:
        raise too_slow(url) from exc
    except (httpx.RequestError, httpx.StreamError, httpx.InvalidURL) as exc:
        raise unreachable(url) from exc


def object_of(response: httpx.Response) -> JsonObject:
    if not response.content:
        return {}
    try:
        body = as_object(response.json())
    except ValueError:
        body = None
    if body is None:
        raise CommandFailed(not_ours(str(response.url)))
    return body


def refused(response: httpx.Response) -> CommandFailed:
    """Make a failure of a problem document; its `detail` is made for people."""
    try:
        problem = as_object(json.loads(response.content))
    except ValueError:
        problem = None
    if problem is None:
        problem = {"detail": f"HTTP {response.status_code} {response.reason_phrase}"}
    problem = {**problem, "status": response.status_code}
    detail = problem.get("detail") or problem.get("title") or problem.get("type")
    return CommandFailed(str(detail), ExitCode.failed, problem)


def unreachable(url: str) -> CommandFailed:
    return CommandFailed(
        say(
            f"no server answers at {url}; start one with `agentteam up`",
            f"{url} 没有服务应答；请先运行 `agentteam up`",
        ),
        ExitCode.unreachable,
    )


def too_slow(url: str) -> CommandFailed:
    return CommandFailed(
        say(
            f"the server at {url} took too long to answer; what you asked for may still"
            " be done when it goes on: run `agentteam doctor`, and look before you"
            " repeat it",
            f"{url} 的服务应答超时；恢复后命令可能仍会执行："
            "请运行 `agentteam doctor`，重复操作前先查看",
        ),
        ExitCode.timeout,
    )


def not_ours(url: str) -> str:
    return say(
        f"{url} does not speak our protocol; check --url or the port",
        f"{url} 不是 AgentTeam 服务；请检查 --url 或端口",
    )
