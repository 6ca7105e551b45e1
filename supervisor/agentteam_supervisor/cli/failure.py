"""How a command ends when it does not end well: one sentence and a documented code."""

from __future__ import annotations

import enum
import json
from typing import IO, TYPE_CHECKING, Any

import click

from agentteam_supervisor.cli.speech import say

if TYPE_CHECKING:
    from collections.abc import Mapping


class ExitCode(enum.IntEnum):
    """Documented in `agentteam --help`; scripts rely on them."""

    ok = 0
    failed = 1
    usage = 2
    unreachable = 3
    timeout = 4
    interrupted = 130
    unread = 141


class CommandFailed(click.ClickException):
    """
    A sentence for people, with what to do, and the code for scripts.

    With `--json` the same goes to standard error as one JSON object.
    """

    def __init__(
        self,
        message: str,
        code: ExitCode = ExitCode.failed,
        problem: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(message)
        self.exit_code = int(code)  # type: ignore[misc]  # click reads the instance's
        self.problem = problem or {}
        context = click.get_current_context(silent=True)
        self.as_json = bool(context and context.params.get("as_json"))

    def show(self, file: IO[Any] | None = None) -> None:
        if self.as_json:
            body = {**self.problem, "detail": self.message, "exitCode": self.exit_code}
            click.echo(json.dumps(body, ensure_ascii=False), file=file, err=True)
        else:
            line = f"{say('error', '错误')}: {self.message}"
            click.echo(line, file=file, err=True)
