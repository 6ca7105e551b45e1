"""
The one command: `python -m agentteam_runtimes.conformance NAME --stage MODULE:NAME`.

What else stands there goes to pytest, `-k interrupt` for example. It brings its own
settings: those of the project it is run in do not apply.
"""

from __future__ import annotations

import sys
from pathlib import Path

HERE = Path(__file__).parent


def main(arguments: list[str]) -> int:
    """Run the checks; returns the exit status of pytest."""
    try:
        import pytest
    except ImportError:
        print("the kit needs pytest: pip install 'agentteam-supervisor[conformance]'")
        return 2
    if arguments and not arguments[0].startswith("-"):
        arguments = ["--runtime", *arguments]
    plugin = f"{__package__}.plugin"
    settings = ["-c", str(HERE / "pytest.ini"), "--rootdir", str(HERE)]
    return int(pytest.main([str(HERE), "-p", plugin, *settings, *arguments]))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
