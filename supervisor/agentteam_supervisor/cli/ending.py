"""
Every way in which a command ends, made into a sentence and a documented exit code.

The verbs raise what happens to them; here alone it is decided how it is told. What is
not listed here is a fault of ours and keeps its traceback.
"""

from __future__ import annotations

import errno
import os
import sys
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

import click

from agentteam_supervisor.cli.failure import CommandFailed, ExitCode
from agentteam_supervisor.cli.speech import say

if TYPE_CHECKING:
    from collections.abc import Generator, Sequence


def wants_json(args: Sequence[str]) -> bool:
    """Tell whether errors go out as JSON; also before the options are parsed."""
    options = args[: args.index("--")] if "--" in args else args
    return "--json" in options


@contextmanager
def endings(as_json: bool) -> Generator[None]:
    """Translate what the block raises; click prints the sentence and leaves."""
    try:
        yield
    except CommandFailed as exc:
        exc.as_json = exc.as_json or as_json
        raise
    except click.ClickException as exc:
        if not as_json:
            raise
        raise _told(exc.format_message(), ExitCode(exc.exit_code), "usage") from exc
    except UnicodeError as exc:
        if as_json:
            raise _told(_not_text(), ExitCode.usage, "not_text") from exc
        raise click.UsageError(_not_text()) from exc
    except OSError as exc:
        if exc.errno == errno.EPIPE:
            let_go()
            raise click.exceptions.Exit(int(ExitCode.unread)) from exc
        if exc.filename is not None:
            raise _told(f"{exc.filename}: {exc.strerror}", as_json=as_json) from exc
        raise output_lost(exc, as_json) from exc
    except KeyboardInterrupt as exc:
        click.echo(err=True)  # below the ^C that the terminal shows
        raise click.exceptions.Exit(int(ExitCode.interrupted)) from exc


def _told(
    message: str,
    code: ExitCode = ExitCode.failed,
    slug: str = "system",
    as_json: bool = True,
) -> CommandFailed:
    failed = CommandFailed(message, code, {"type": slug})
    failed.as_json = as_json
    return failed


def output_lost(exc: OSError, as_json: bool) -> CommandFailed:
    let_go()
    return _told(_unwritten(exc), slug="output_lost", as_json=as_json)


def let_go() -> None:
    """Write to nowhere from now on: the interpreter flushes once more at its end."""
    with suppress(OSError, ValueError, AttributeError):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())
        os.close(nowhere)


def _not_text() -> str:
    return say(
        "what you gave is not UTF-8 text, and messages are text; convert it first,"
        " for instance with `iconv -t UTF-8`",
        "输入不是 UTF-8 文本，而消息必须是文本；请先转换，例如用 `iconv -t UTF-8`",
    )


def _unwritten(exc: OSError) -> str:
    return say(
        f"the output cannot be written: {exc.strerror}; what you asked for may have been"
        " done, see `agentteam status` and `agentteam messages`",
        f"无法写入输出：{exc.strerror}；命令本身可能已执行，"
        "请用 `agentteam status` 和 `agentteam messages` 查看",
    )
