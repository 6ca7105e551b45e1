"""The table that is printed: a line per measurement, both raw numbers, the verdict."""

from __future__ import annotations

import os
import platform
import sqlite3
import sys
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING, Any

from attrs import asdict

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bench.measure import Line, Spread

HEAD = ("#", "what", "unit", "floor p50 / p99", "ours p50 / p99", "ratio", "goal")
PACKAGES = ("agentteam-supervisor", "trio", "attrs", "orjson", "starlette", "hypercorn")


def surroundings() -> dict[str, Any]:
    """Say where and on what it was measured."""
    return {
        "python": platform.python_version(),
        "sqlite": sqlite3.sqlite_version,
        "kernel": platform.release(),
        "cores": os.cpu_count(),
        "load": [round(load, 1) for load in os.getloadavg()],
        **{name: _version(name) for name in PACKAGES},
    }


def show(lines: Sequence[Line]) -> str:
    """Lay the lines out as a table that is also Markdown."""
    rows = [HEAD, *map(_cells, lines)]
    widths = [max(len(row[n]) for row in rows) for n in range(len(HEAD))]
    shown = [_row(row, widths) for row in rows]
    shown.insert(1, _row(["-" * width for width in widths], widths))
    return "\n".join([*shown, "", *_remarks(lines)])


def plain(lines: Sequence[Line]) -> list[dict[str, Any]]:
    """Give the lines as JSON can hold them."""
    return [
        asdict(line)
        | {"ratio": asdict(line.ratio) if line.ratio else None}
        | {"met": [goal.met for goal in line.goals]}
        for line in lines
    ]


def _version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return "missing"


def _cells(line: Line) -> tuple[str, ...]:
    return (
        line.row,
        line.what,
        line.unit,
        _shown(line.floor),
        _shown(line.ours),
        _shown(line.ratio, "x"),
        "; ".join(
            f"{goal.words} {'met' if goal.met else 'MISSED'}" for goal in line.goals
        ),
    )


def _remarks(lines: Sequence[Line]) -> list[str]:
    remarks: list[str] = []
    for line in lines:
        floor = [f"floor: {line.floor_is}"] if line.floor_is else []
        said = "; ".join([*floor, *line.notes])
        remarks.append(f"{line.row} {line.what}: {said}")
    return remarks


def _row(cells: Sequence[str], widths: Sequence[int]) -> str:
    padded = (cell.ljust(width) for cell, width in zip(cells, widths, strict=True))
    return f"| {' | '.join(padded)} |"


def _shown(spread: Spread | None, suffix: str = "") -> str:
    if spread is None:
        return ""
    figures = [spread.p50] if spread.p99 is None else [spread.p50, spread.p99]
    return " / ".join(f"{_figure(figure)}{suffix}" for figure in figures)


def _figure(value: float) -> str:
    if value >= 10_000:
        return f"{value:,.0f}"
    if value >= 100:
        return f"{value:.0f}"
    return f"{value:.2f}" if value < 10 else f"{value:.1f}"


def say(words: str) -> None:
    print(words, file=sys.stderr, flush=True)
