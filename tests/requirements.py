"""
Print which numbered statements no test carries: `python3 tests/requirements.py`.

    --bugs              the faults of data/bugs.md instead of the requirements
    --check R1-R20 R44  only these; exit code 1 if a test is missing
    --tests R14         which tests carry these

Reads the tests as text trees and imports nothing of them, so that any Python runs it.
"""

from __future__ import annotations

import argparse
import ast
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

TESTS = Path(__file__).parent

# What no test can prove: the reason, and where to look instead.
BY_INSPECTION = {
    "R31": "an absence of meaning: no code reads a body to decide anything; see"
    " session/machine.py, which never looks at Item.body, and the noise-body test",
    "R58": "an absence of a promise: see the words in protocol/activity.py and the"
    " help of `agentteam stop`; nothing offers to undo",
    "R69": "a permission, not a duty: see Capabilities.interrupt in runtimes/driver.py,"
    " where a driver may declare none",
    "R87": "the reason behind R86 and R120, which have tests",
}


def statements(path: Path) -> dict[str, str]:
    """Read the numbered statements of a data file, in its order."""
    found = re.findall(r"^- \*\*([RB]\d+)\*\* (.*)$", path.read_text(), re.MULTILINE)
    return dict(found)


def carried(kind: str, root: Path = TESTS) -> dict[str, list[str]]:
    """Map each number to the tests that carry it in a `pytest.mark.<kind>`."""
    found: dict[str, list[str]] = {}
    for path in sorted(root.rglob("test_*.py")):
        where = path.relative_to(root).as_posix()
        for name, numbers in _marks(ast.parse(path.read_text()), kind):
            for number in numbers:
                found.setdefault(number, []).append(f"{where}::{name}")
    return found


def _marks(tree: ast.Module, kind: str) -> Iterator[tuple[str, list[str]]]:
    for node in ast.walk(tree):
        match node:
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
                for decorator in node.decorator_list:
                    yield node.name, _numbers(decorator, kind)
            case ast.Assign(targets=[ast.Name("pytestmark")]):
                yield "(whole file)", _numbers(node.value, kind)
            case ast.Call(func=ast.Attribute(attr="param")):
                for keyword in node.keywords:
                    if keyword.arg == "marks":
                        yield "(parameter)", _numbers(keyword.value, kind)
            case _:
                pass


def _numbers(node: ast.expr, kind: str) -> list[str]:
    return [
        str(argument.value)
        for call in ast.walk(node)
        if isinstance(call, ast.Call)
        and ast.unparse(call.func) == f"pytest.mark.{kind}"
        for argument in call.args
        if isinstance(argument, ast.Constant)
    ]


def expand(words: Iterable[str]) -> list[str]:
    """Spell out ranges: `R1-R3` is R1, R2, R3; commas are allowed."""
    numbers: list[str] = []
    for word in re.split(r"[,\s]+", " ".join(words).strip()):
        first, _, last = word.partition("-")
        low, high = int(first[1:]), int((last or first).lstrip("RB"))
        width = len(first) - 1 if first[1] == "0" else 0
        numbers += [f"{first[0]}{n:0{width}}" for n in range(low, high + 1)]
    return numbers


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[1])
    parser.add_argument("--bugs", action="store_true")
    parser.add_argument("--check", nargs="+", metavar="N")
    parser.add_argument("--tests", nargs="+", metavar="N")
    options = parser.parse_args(arguments)
    bugs = options.bugs or (options.check or options.tests or ["R"])[0][0] == "B"
    known = statements(TESTS / "data" / ("bugs.md" if bugs else "requirements.md"))
    with_test = carried("bug" if bugs else "req")
    if options.tests:
        for number in expand(options.tests):
            print(number, *with_test.get(number, ["-"]), sep="\n  ")
        return 0
    return _report(known, with_test, options.check)


def _report(
    known: dict[str, str], with_test: dict[str, list[str]], check: list[str] | None
) -> int:
    asked = expand(check) if check else list(known)
    unknown = [n for n in [*asked, *with_test] if n not in known]
    missing = [n for n in asked if n not in with_test and n not in BY_INSPECTION]
    for number in missing:
        print(number, known.get(number, "")[:100])
    for number in dict.fromkeys(unknown):
        print(f"{number} is not a number of the list", file=sys.stderr)
    inspected = sum(n in BY_INSPECTION for n in asked)
    total = f"{len(asked)} statements, {len(missing)} without a test"
    print(f"{total}, {inspected} by inspection", file=sys.stderr)
    return 1 if unknown or (check and missing) else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
