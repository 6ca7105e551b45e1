"""The real OpenCode, pointed at a scripted model: a private home and its options."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from attrs import frozen
from tests.kit.parts import PARTS, find_part

if TYPE_CHECKING:
    from collections.abc import Mapping

# OpenCode installs this package into every config directory, unless it finds that done.
PLUGIN = "@opencode-ai/plugin"


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
        model = {"name": "scripted", "tool_call": True}
        model |= {"limit": {"context": 100_000, "output": 4_000}}
        provider = {
            "npm": "@ai-sdk/openai-compatible",  # comes with it
            "name": "Scripted",
            "options": {"baseURL": self.base_url, "apiKey": "fake"},
            "models": {"scripted": model},
        }
        return {
            "model": "scripted/scripted",
            "small_model": "scripted/scripted",
            "enabled_providers": ["scripted"],
            "provider": {"scripted": provider},
            # The tests of approvals ask for them.
            "permission": {"bash": "allow", "edit": "allow"},
        }

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
    config = home.path / ".config" / "opencode"
    (config / "node_modules").mkdir(parents=True)
    wanted = {"dependencies": {PLUGIN: "*"}}
    (config / "package.json").write_text(json.dumps(wanted))
    locked = {"lockfileVersion": 3, "packages": {"": wanted}}
    (config / "package-lock.json").write_text(json.dumps(locked))
    return home
