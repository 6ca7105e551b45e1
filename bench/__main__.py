"""`python -m bench [ROW...]`: measure, print the table, say what misses its goal."""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

import trio

from bench.measure import Line, Scale
from bench.table import plain, say, show, surroundings

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    Measure = Callable[[Scale, Path], Awaitable[list[Line]]]

ROWS = {
    "1": "interrupt:row_1",
    "2": "interrupt:row_2",
    "3": "interrupt:row_3",
    "4": "kill:row_4",
    "5": "stream:row_5",
    "6": "stream:row_6",
    "7": "deliveries:row_7",
    "10": "idle:row_10",
    "11": "restart:row_11",
    "R": "codex:row_r",
    "R-claude": "claude:row_r",
    "M": "product:row_m",
    "50": "interrupt:row_50",
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the rows that are named, or all; 1 when a self-check failed."""
    options = _parser().parse_args(arguments)
    rounds = options.rounds or (1 if options.quick else 5)
    scale = Scale(rounds, options.quick)
    around = surroundings()
    lines: list[Line] = []
    failed: list[str] = []
    for row in options.rows or ROWS:
        say(f"row {row} ...")
        try:
            lines += _take(row, scale, options.dir)
        except Exception as error:
            # One row's fault must not hide the others' figures.
            failed.append(f"row {row} FAILED: {error!r}")
            if options.debug:
                raise
    around["load after"] = surroundings()["load"]
    print(show(lines))
    print(" ".join(f"{name}={value}" for name, value in around.items()))
    print("\n".join(failed))
    if options.json is not None:
        found = {"around": around, "lines": plain(lines), "failed": failed}
        options.json.write_text(json.dumps(found, indent=1) + "\n")
    return 1 if failed else 0


def _take(row: str, scale: Scale, directory: Path | None) -> list[Line]:
    module, _, name = ROWS[row].partition(":")
    measure: Measure = getattr(import_module(f"bench.{module}"), name)
    with tempfile.TemporaryDirectory(dir=directory, prefix="bench-") as place:
        return trio.run(partial(measure, scale, Path(place)))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser("python -m bench", description=__doc__)
    parser.add_argument("rows", nargs="*", choices=[*ROWS, []], metavar="ROW")
    parser.add_argument("--rounds", type=int, help="how often each side is taken (5)")
    parser.add_argument("--quick", action="store_true", help="only show that it runs")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write it there, too")
    parser.add_argument("--dir", type=Path, help="a directory on the disk to measure")
    parser.add_argument("--debug", action="store_true", help="stop at the first fault")
    return parser


if __name__ == "__main__":
    sys.exit(main())
