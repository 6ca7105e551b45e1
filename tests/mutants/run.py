"""
Play each hand-made fault against the fast tests: every one must be caught.

`python -m tests.mutants.run [name...]` copies the supervisor package, applies one
patch, and runs the tests on the copy.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).parent
ROOT = HERE.parent.parent
PACKAGE = "agentteam_supervisor"
TABLE = (
    "tests/supervisor/session/test_table.py",
    "tests/supervisor/session/test_table_cuts.py",
    "tests/supervisor/session/test_table_ends.py",
)
PURE = (
    "tests/supervisor/session/test_regressions.py",
    "tests/supervisor/session/test_races.py",
    "tests/supervisor/session/test_edges.py",
    "tests/supervisor/session/test_pending.py",
    "tests/supervisor/session/test_fold.py",
    "tests/supervisor/session/test_repair.py",
)


def names() -> list[str]:
    return sorted(path.stem for path in HERE.glob("*.patch"))


def caught(name: str, tests: tuple[str, ...] = (*TABLE, *PURE)) -> bool:
    """Tell whether a test fails on the copy that has this fault."""
    with tempfile.TemporaryDirectory() as directory:
        source = Path(directory)
        shutil.copytree(ROOT / "supervisor" / PACKAGE, source / PACKAGE)
        patch = HERE / f"{name}.patch"
        subprocess.run(
            ["patch", "--quiet", "-p2", "-i", str(patch)],
            cwd=source,
            check=True,
        )
        return fails(source, tests)


def fails(source: Path, tests: tuple[str, ...]) -> bool:
    """Run the tests with the package of this folder."""
    found = [test for test in tests if (ROOT / test).exists()]
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider"]
    path = os.pathsep.join([str(source), str(ROOT)])
    ran = subprocess.run(
        [*command, *found],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": path, "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    # 1: tests ran and some failed; anything else is no proof of a catch.
    assert ran.returncode in (0, 1), ran.stdout + ran.stderr
    return ran.returncode == 1


def main(chosen: list[str]) -> int:
    missed = [name for name in chosen or names() if not caught(name)]
    for name in missed:
        print(f"not caught: {name}")
    return len(missed)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
