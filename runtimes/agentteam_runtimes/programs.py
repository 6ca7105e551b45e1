"""The program of a runtime: what it inherits, where it is, and which version it says."""

from __future__ import annotations

import os
import shutil
import subprocess
from typing import TYPE_CHECKING

from agentteam_protocol.errors import RuntimeMissing
from agentteam_runtimes.start_settings import check_options, shown

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from agentteam_runtimes.driver import Options

PROBE_SECONDS = 20


def inherited(names: Iterable[str]) -> dict[str, str]:
    """Take these variables, and no others, from our own environment."""
    return {name: os.environ[name] for name in names if name in os.environ}


def find_program(
    options: Options, name: str, env: Mapping[str, str], install: str
) -> str:
    """Find the agent's own `bin`, or the program; `RuntimeMissing` says `install`."""
    check_options(options)
    wanted = options.bin or name
    found = shutil.which(wanted, path=env.get("PATH"))
    if found is None:
        raise RuntimeMissing(f"there is no program {shown(wanted)}", install)
    return found


def ask_version(path: str, env: Mapping[str, str], install: str) -> str:
    """Give what it says to `--version`; `RuntimeMissing` says `install`."""
    try:
        done = subprocess.run(
            [path, "--version"],
            env=env,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=PROBE_SECONDS,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as exc:
        raise RuntimeMissing(f"{path} does not run: {exc}", install) from exc
    return done.stdout.decode("utf-8", "replace").strip()
