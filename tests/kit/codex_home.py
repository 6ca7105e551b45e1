"""The real Codex, pointed at a scripted model: a private home and the options for it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from attrs import frozen
from tests.kit.parts import PARTS, find_part

from agentteam_supervisor.chaos.homes import codex_env, write_codex_home

if TYPE_CHECKING:
    from collections.abc import Mapping


# Becomes the real binary, with a pipe before it that keeps what an app-server is told,
# before it is told: what it answers has been kept. On hold it is told nothing.
# The app-server is the process that was started: its death is seen at once.
RECORDER = """\
#!/bin/sh
if [ "$1" = app-server ]; then
    mkfifo "{log}.$$"
    exec 3<&0
    {{
        while [ -e "{hold}" ]; do sleep 0.05; done
        exec tee -a "{log}.$$" <&3 >>"{log}"
    }} 4>"{log}.$$" 2>/dev/null &
    exec "{bin}" "$@" <"{log}.$$" 3<&-
else
    exec "{bin}" "$@"
fi
"""


@frozen
class CodexHome:
    """A home that no other Codex uses: fake key, no login, no outside look-ups."""

    path: Path
    bin: Path

    @property
    def env(self) -> dict[str, str]:
        """A whole environment for running this Codex by hand."""
        return {
            **codex_env(),
            "HOME": str(self.path),
            "CODEX_HOME": str(self.path / ".codex"),
            "LANG": "C.UTF-8",
        }

    @property
    def workdir(self) -> Path:
        return self.path / "work"

    @property
    def wire(self) -> list[dict[str, Any]]:
        """All that was written to the app-servers of this home, in order."""
        if not (log := self.path / "wire.jsonl").exists():
            return []
        return [json.loads(line) for line in log.read_text().splitlines()]

    @property
    def calls(self) -> list[str]:
        """The methods that were called on the app-servers of this home, in order."""
        return [message["method"] for message in self.wire if "method" in message]

    def hold(self) -> None:
        """Let no app-server that starts from now on hear anything."""
        self._hold.touch()

    def let_go(self) -> None:
        self._hold.unlink()

    @property
    def _hold(self) -> Path:
        return self.path / "hold"

    def options(self, config: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """
        Give the `options` of an agent, as in its HTTP body.

        The sandbox is off unless `config` says otherwise: not every machine that runs
        the tests lets a process make the namespaces that it needs.
        """
        open_sandbox = {"sandbox_mode": "danger-full-access"}
        return {
            "bin": str(self.path / "codex"),
            "home": str(self.path),
            "env": codex_env(),
            "config": open_sandbox | dict(config or {}),
        }


def make_codex_home(path: Path, base_url: str) -> CodexHome:
    """Write a private home below `path` for a Codex that asks the model at `base_url`."""
    binary = find_part("codex")
    if binary is None:
        raise FileNotFoundError(f"no codex: {PARTS['codex'].install}")
    home = CodexHome(path / "home", binary)
    write_codex_home(home.path, base_url)
    home.workdir.mkdir()
    program = home.path / "codex"
    program.write_text(
        RECORDER.format(
            log=home.path / "wire.jsonl", hold=home.path / "hold", bin=binary
        )
    )
    program.chmod(0o755)
    return home
