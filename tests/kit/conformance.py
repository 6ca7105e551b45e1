"""The conformance kit as its user runs it: one command in a process of its own."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
LONGEST_SECONDS = 600


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
