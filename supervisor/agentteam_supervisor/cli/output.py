"""What goes to standard output: JSON for programs, aligned columns for people."""

from __future__ import annotations

import json
import unicodedata
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from collections.abc import Sequence


def print_json(value: Any) -> None:
    """Print one JSON value on one line."""
    click.echo(json.dumps(value, ensure_ascii=False))


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
