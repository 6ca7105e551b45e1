"""The real Claude Code, pointed at a scripted model: a private home, and its options."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from attrs import frozen
from tests.kit.parts import PARTS, find_part

from agentteam_supervisor.chaos.homes import claude_env

if TYPE_CHECKING:
    from collections.abc import Mapping

# The newest, and the last one that knows neither receipts nor requests that name inputs.
VERSIONS = ("claude", "claude-2.1.197")

# Becomes the real binary, with a pipe before it that keeps what it is told.
RECORDER = """\
#!/bin/sh
if [ "$1" = --version ]; then exec "{bin}" "$@"; fi
mkfifo "{log}.$$"
exec 3<&0
tee -a "{log}" <&3 2>/dev/null {filter} >"{log}.$$" &
exec "{bin}" "$@" <"{log}.$$" 3<&-
"""
ALL = ""
# As if the version knew no interrupt: it answers what it does not know, or nothing.
REFUSING = """| sed -u 's/"subtype":"interrupt"/"subtype":"unheard_of"/'"""
DEAF = """| grep --line-buffered -v '"subtype":"interrupt"'"""


@frozen
class ClaudeHome:
    """A home that no other Claude uses: fake key, no login, no outside look-ups."""

    path: Path
    bin: Path
    base_url: str

    @property
    def workdir(self) -> Path:
        return self.path / "work"

    @property
    def wire(self) -> list[dict[str, Any]]:
        """All that was written to the processes of this home, in order."""
        if not (log := self.path / "wire.jsonl").exists():
            return []
        return [json.loads(line) for line in log.read_text().splitlines()]

    @property
    def told(self) -> list[str]:
        """The kinds of what was written: `user`, `interrupt`, `initialize`, ..."""
        return [
            message.get("request", {}).get("subtype") or message["type"]
            for message in self.wire
        ]

    @property
    def records(self) -> list[Path]:
        """What Claude keeps of its sessions, a file each."""
        return sorted((self.path / ".claude" / "projects").glob("*/*.jsonl"))

    def options(self, config: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """Give the `options` of an agent: it may run commands, unless `config` says not."""
        allowed = {"permissions": {"allow": ["Bash"]}}
        return {
            "bin": str(self.path / "claude"),
            "home": str(self.path),
            "env": claude_env(self.base_url),
            "config": allowed if config is None else dict(config),
        }


def make_claude_home(
    path: Path, base_url: str, part: str = "claude", hears: str = ALL
) -> ClaudeHome:
    """
    Write a private home below `path` for a Claude that asks the model at `base_url`.

    `hears` is a filter of the lines that it is told.
    """
    binary = find_part(part)
    if binary is None:
        raise FileNotFoundError(f"no {part}: {PARTS[part].install}")
    home = ClaudeHome(path / "home", binary, base_url)
    home.workdir.mkdir(parents=True)
    program = home.path / "claude"
    log = home.path / "wire.jsonl"
    program.write_text(RECORDER.format(log=log, bin=binary, filter=hears))
    program.chmod(0o755)
    return home
