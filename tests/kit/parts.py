"""Where the parts are that this project does not bring: looked up, never assumed."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from attrs import frozen

# `.ci/run` installs the pinned command-line tools here; git ignores it.
PARTS_DIR = Path(__file__).parents[2] / ".parts" / "node_modules"


@frozen
class Part:
    program: str
    variable: str
    vendored: str  # a pattern below PARTS_DIR
    install: str


PARTS = {
    "codex": Part(
        "codex",
        "AGENTTEAM_CODEX_BIN",
        "@openai/codex-*/vendor/*/bin/codex",
        "npm install --prefix .parts @openai/codex@0.171.0",
    ),
    "claude": Part(
        "claude",
        "AGENTTEAM_CLAUDE_BIN",
        "../claude-2.1.332/node_modules/@anthropic-ai/claude-code-linux-*/claude",
        "npm install --prefix .parts/claude-2.1.332 @anthropic-ai/claude-code@2.1.332",
    ),
    "claude-2.1.197": Part(
        "claude-2.1.197",
        "AGENTTEAM_CLAUDE_197_BIN",
        "../claude-2.1.197/node_modules/@anthropic-ai/claude-code-linux-*/claude",
        "npm install --prefix .parts/claude-2.1.197 @anthropic-ai/claude-code@2.1.197",
    ),
    "opencode": Part(
        "opencode",
        "AGENTTEAM_OPENCODE_BIN",
        "opencode-linux-x64/bin/opencode",
        "npm install --prefix .parts opencode-ai@1.18.33",
    ),
    "chromium": Part(
        "chromium", "AGENTTEAM_CHROMIUM_BIN", "", "apt-get install chromium"
    ),
    "postgresql": Part("pg_ctl", "AGENTTEAM_PG_CTL", "", "apt-get install postgresql"),
}


def find_part(name: str) -> Path | None:
    """Find an outside part: its variable, then the pinned copy, then PATH."""
    part = PARTS[name]
    if named := os.environ.get(part.variable):
        return Path(named)
    if part.vendored:
        for path in sorted(PARTS_DIR.glob(part.vendored)):
            return path
    found = shutil.which(part.program)
    return Path(found) if found else None
