"""The real OpenCode, pointed at a scripted model: a private home and its options."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from attrs import frozen
from tests.kit.parts import PARTS, find_part

from agentteam_supervisor.chaos.homes import opencode_config, write_opencode_home

if TYPE_CHECKING:
    from collections.abc import Mapping


@frozen
class OpenCodeHome:
    """A home that no other OpenCode uses: fake key, no login, no outside look-ups."""

    path: Path
    bin: Path
    base_url: str

    @property
    def workdir(self) -> Path:
        return self.path / "work"

    def config(self) -> dict[str, Any]:
        return opencode_config(self.base_url)

    def options(self, config: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """Give the `options` of an agent, as in its HTTP body."""
        return {
            "bin": str(self.bin),
            "home": str(self.path),
            "env": {"PATH": "/usr/local/bin:/usr/bin:/bin"},
            "config": self.config() | dict(config or {}),
        }


def make_opencode_home(path: Path, base_url: str) -> OpenCodeHome:
    """Write a private home below `path` for an OpenCode that asks this model."""
    binary = find_part("opencode")
    if binary is None:
        raise FileNotFoundError(f"no opencode: {PARTS['opencode'].install}")
    home = OpenCodeHome(path / "home", binary, base_url)
    home.workdir.mkdir(parents=True)
    write_opencode_home(home.path)
    return home
