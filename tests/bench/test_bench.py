"""Each row of the measurements runs, its self-checks hold, its figures are printed."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
PLAIN = ["1", "2", "3", "5", "6", "7", "10", "11", "50", "M"]


def measured(row: str, place: Path) -> list[dict[str, Any]]:
    """Run one row the quick way; its lines. Never looks at a time."""
    file = place / "found.json"
    command = [sys.executable, "-m", "bench", row, "--quick", "--json", str(file)]
    done = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, timeout=100, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    found = json.loads(file.read_text())
    assert found["failed"] == []
    lines: list[dict[str, Any]] = found["lines"]
    for line in lines:
        assert line["what"] in done.stdout
        assert line["ours"]["p50"] >= 0
    return lines


@pytest.mark.slow
@pytest.mark.parametrize("row", PLAIN)
def test_a_row_prints_its_figures_and_its_checks_hold(row: str, tmp_path: Path) -> None:
    lines = measured(row, tmp_path)
    assert {line["row"] for line in lines} == {row}


@pytest.mark.slow
@pytest.mark.needs("codex")
@pytest.mark.parametrize("row", ["4", "R"])
def test_a_row_on_codex_prints_its_figures_and_its_checks_hold(
    row: str, tmp_path: Path
) -> None:
    lines = measured(row, tmp_path)
    assert {line["row"] for line in lines} == {row}


def test_a_row_that_nobody_knows_is_refused() -> None:
    command = [sys.executable, "-m", "bench", "no-such-row"]
    done = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 2
    assert "no-such-row" in done.stderr
