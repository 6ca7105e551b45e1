"""The real OpenCode as an agent of the Agent Client Protocol, on a scripted model."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from attrs import frozen
from tests.kit.opencode_home import OpenCodeHome, make_opencode_home

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

# It would ask the model for a title with the first prompt.
NO_TITLE = {"agent": {"title": {"disable": True}}}


@frozen
class AcpHome:
    """A home of OpenCode, and how an agent of the runtime acp is told of it."""

    opencode: OpenCodeHome

    @property
    def path(self) -> Path:
        return self.opencode.path

    @property
    def workdir(self) -> Path:
        return self.opencode.workdir

    def options(self, config: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """Give the `options` of an agent, as in its HTTP body."""
        given = self.opencode.config() | NO_TITLE | dict(config or {})
        return {
            "command": [str(self.opencode.bin), "acp"],
            "home": str(self.path),
            "env": {
                "PATH": "/usr/local/bin:/usr/bin:/bin",
                "OPENCODE_CONFIG_CONTENT": json.dumps(given),
                "OPENCODE_DISABLE_AUTOUPDATE": "1",
            },
        }


def make_acp_home(path: Path, base_url: str) -> AcpHome:
    """Write a private home below `path` for an agent that asks this model."""
    return AcpHome(make_opencode_home(path, base_url))
