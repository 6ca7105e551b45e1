"""What goes to standard output: JSON for programs, aligned columns for people."""

from __future__ import annotations

import json
import shutil
import sys
import textwrap
import unicodedata
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from collections.abc import Sequence


def print_json(value: Any) -> None:
    """Print one JSON value on one line."""
    click.echo(json.dumps(value, ensure_ascii=False))


def print_wrapped(header: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print a table whose last column is prose: on a terminal below one another."""
    if not sys.stdout.isatty():
        print_table(header, rows)
        return
    columns = list(zip(header, *rows, strict=True))[:-1]
    indent = sum(max(map(_width, column)) + 2 for column in columns)
    room = max(shutil.get_terminal_size().columns - indent, 30)
    lines: list[Sequence[str]] = []
    for *cells, prose in rows:
        first, *more = _wrapped(prose, room)
        lines.append([*cells, first])
        lines += [[""] * len(cells) + [line] for line in more]
    print_table(header, lines)


def _wrapped(text: str, room: int) -> list[str]:
    if _width(text) != len(text):  # words without spaces between them
        room //= 2
    return textwrap.wrap(text, room, break_on_hyphens=False) or [""]


def print_table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    widths = [max(map(_width, column)) for column in zip(header, *rows, strict=True)]
    for row in (header, *rows):
        cells = (_padded(cell, width) for cell, width in zip(row, widths, strict=True))
        click.echo("  ".join(cells).rstrip())


def clean(text: str) -> str:
    """
    Take the control characters out of text that an agent or a person wrote.

    What is printed must not move the cursor, retitle the window or hide lines.
    """
    return "".join(
        c if c in "\n\t" or unicodedata.category(c) != "Cc" else "?" for c in text
    )


def _width(text: str) -> int:
    return sum(2 if unicodedata.east_asian_width(c) in "WF" else 1 for c in text)


def _padded(text: str, width: int) -> str:
    return text + " " * (width - _width(text))
