"""The conformance kit as its user runs it: one command in a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
LONGEST_SECONDS = 600


def do(command: tuple[str, ...]) -> None:
    """Run a command that must succeed; what it says is the failure."""
    ran = subprocess.run(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        env={**os.environ, "PIP_DISABLE_PIP_VERSION_CHECK": "1"},
        text=True,
        timeout=LONGEST_SECONDS,
        check=False,
    )
    assert ran.returncode == 0, f"{command}\n{ran.stdout}"


def run_kit(
    *arguments: str, python: str = sys.executable, cwd: Path = ROOT
) -> subprocess.CompletedProcess[str]:
    """Run the command; what it printed is in `stdout`."""
    return subprocess.run(
        [python, "-m", "agentteam_runtimes.conformance", *arguments, "-q"],
        cwd=cwd,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=LONGEST_SECONDS,
        check=False,
    )
