"""The line of a TOML file where a table or a key stands, for people who correct it."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator


def line_of(text: str, where: str, key: str | None = None) -> int | None:
    """
    Find the line of `where` (`agents[2]`, `agents[2].options`, `limits`, or nothing).

    With a key: its line, if it can be found, else that of its table. None: not found,
    as for what stands inside a value that goes over several lines.
    """
    table, number, rest = _parts(where)
    lines = list(_within(text, table, number))
    first = next((at for at, _, __ in lines), None)
    names = [name for name in (rest, key) if name]
    for name in reversed(names):
        for at, path, line in lines:
            if _names(line, name) or path.endswith(f"{table}.{name}"):
                return at
    return first


def _parts(where: str) -> tuple[str, int, str]:
    found = re.fullmatch(r"(\w*)(?:\[(\d+)\])?(?:\.(.*))?", where)
    if found is None:
        return "", 1, ""
    return found[1], int(found[2] or 1), found[3] or ""


def _within(text: str, table: str, number: int) -> Iterator[tuple[int, str, str]]:
    """Give the lines of the table and of those below it: number, header, text."""
    path, seen = "", 0
    for at, line in enumerate(text.splitlines(), 1):
        if header := re.match(r"\s*(\[\[?)\s*([^\]]*?)\s*\]", line):
            path = header[2].replace('"', "").replace(" ", "")
            seen += path == table
        mine = path == table or path.startswith(f"{table}.")
        if not table:
            mine = True
        elif not path and _names(line, table):
            mine, seen = True, number  # `agents = [...]`, inline
        if mine and (not table or seen == number or not path):
            yield at, path, line


def _names(line: str, key: str) -> bool:
    quoted = re.escape(key)
    return bool(
        re.search(rf"""(?:^|[\s{{,.\[])["']?{quoted}["']?\s*(?:=|\]|\.)""", line)
    )
