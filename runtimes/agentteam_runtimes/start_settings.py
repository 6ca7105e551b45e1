"""What of an agent's settings no process can be started with, by the setting's name."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from agentteam_protocol.errors import RuntimeMissing

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from agentteam_runtimes.driver import Options

LONGEST_SHOWN = 80
# As people type it; it takes the place of all options that were set.
SET_BIN = """set its path (agentteam agents set NAME --options '{"bin": "PATH"}')"""


def check_options(options: Options) -> None:
    """Raise `RuntimeMissing` for options that no system call would take."""
    if options.bin is not None:
        _check("the agent's option `bin`", options.bin)
    if options.home is not None:
        _check("the agent's option `home`", options.home)
    for word in options.command:
        _check("the agent's option `command`", word)
    for argument in options.args:
        _check("the agent's option `args`", argument)
    check_environment(options.env)


def check_start(
    command: Sequence[str], cwd: Path, environment: Mapping[str, str]
) -> None:
    """Raise `RuntimeMissing` for what a process cannot be started with."""
    _check("the agent's `workdir`", str(cwd))
    if not cwd.is_absolute():
        # It would be relative to whatever directory this program was started in.
        raise RuntimeMissing(
            f"the working directory {shown(str(cwd))} is not an absolute path",
            "give the agent's `workdir` from the root on",
        )
    for word in command:
        _check("the agent's `bin` or `args`", word)
    check_environment(environment)


def check_environment(environment: Mapping[str, str]) -> None:
    where = "the agent's option `env`"
    for name, value in environment.items():
        _check(where, name)
        _check(where, value)
        if not name or "=" in name:
            raise RuntimeMissing(
                f"{where} has the name {shown(name)!r}, which no variable can have",
                "give the variable a name without `=`",
            )


def shown(text: str) -> str:
    """Shorten what somebody wrote, so that it fits into a diagnostic."""
    return text if len(text) <= LONGEST_SHOWN else f"{text[:LONGEST_SHOWN]}..."


def _check(where: str, text: str) -> None:
    if "\0" in text:
        problem = f"{where} holds a NUL byte: {shown(text)!r}"
        raise RuntimeMissing(problem, "take the NUL byte out")
    try:
        os.fsencode(text)
    except UnicodeEncodeError:
        problem = f"{where} is no Unicode text: {shown(text)!r}"
        raise RuntimeMissing(problem, "write it as Unicode text") from None
