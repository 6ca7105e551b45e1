"""
`agentteam runtimes check NAME --record DIR`: record the wire of a runtime anew.

A recording needs scripted models that play on loopback, for there is no key of a person
here. They come with the tests, not with the package: who records drivers has a checkout.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

from agentteam_supervisor.cli.failure import CommandFailed
from agentteam_supervisor.cli.speech import say

CHECKOUT = Path(__file__).parents[3]
RECORDER = "tests.kit.recorder"
KEPT = ("PATH", "LANG", "LC_ALL")


def record_wire(name: str, directory: Path) -> None:
    """Play all scenarios on the real runtime; what was on the wire stands below DIR."""
    if not (CHECKOUT / "tests" / "kit" / "recorder.py").exists():
        raise CommandFailed(
            say(
                "recording needs the scripted models of a checkout:"
                " clone the repository and `pip install -e '.[test]'` there",
                "录制需要源码检出中的脚本模型：克隆仓库并在其中运行"
                " `pip install -e '.[test]'`",
            )
        )
    with tempfile.TemporaryDirectory() as home:
        env = recording_environment(home)
        command = [sys.executable, "-m", RECORDER, name, str(directory.resolve())]
        done = subprocess.run(command, cwd=CHECKOUT, env=env, check=False)
    if done.returncode:
        raise CommandFailed(say(f"{name} was not recorded", f"{name} 未录制"))


def recording_environment(home: str) -> dict[str, str]:
    """Leave nothing of the person's: no key, no settings, only where programs are."""
    kept = {
        key: value
        for key, value in os.environ.items()
        if key in KEPT or (key.startswith("AGENTTEAM_") and key.endswith("_BIN"))
    }
    return {**kept, "HOME": home}
