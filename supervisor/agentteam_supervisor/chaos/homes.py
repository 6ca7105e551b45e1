"""Homes in which real runtimes take a scripted model for theirs: fake keys, no login."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pathlib import Path

PATH = "/usr/local/bin:/usr/bin:/bin"
CODEX = """\
model = "scripted"
model_provider = "scripted"
check_for_update_on_startup = false
features.plugins = false

[analytics]
enabled = false

[model_providers.scripted]
name = "scripted"
base_url = "{base_url}"
wire_api = "responses"
env_key = "SCRIPTED_MODEL_KEY"
request_max_retries = 0
stream_max_retries = 0
supports_websockets = false
"""
# OpenCode installs this package into every config directory, unless it finds that done.
PLUGIN = "@opencode-ai/plugin"


def write_codex_home(home: Path, base_url: str) -> None:
    """Write what Codex reads at its start; `home` is to be its `HOME`."""
    (home / ".codex").mkdir(parents=True)
    (home / ".codex" / "config.toml").write_text(CODEX.format(base_url=base_url))


def codex_env() -> dict[str, str]:
    return {"SCRIPTED_MODEL_KEY": "fake", "PATH": PATH}


def claude_env(base_url: str) -> dict[str, str]:
    return {
        "ANTHROPIC_API_KEY": "fake",
        "ANTHROPIC_BASE_URL": base_url,
        "CLAUDE_CODE_MAX_RETRIES": "0",
        "PATH": PATH,
    }


def write_opencode_home(home: Path) -> None:
    """Write what keeps OpenCode from fetching packages at its start."""
    config = home / ".config" / "opencode"
    (config / "node_modules").mkdir(parents=True)
    wanted = {"dependencies": {PLUGIN: "*"}}
    (config / "package.json").write_text(json.dumps(wanted))
    locked = {"lockfileVersion": 3, "packages": {"": wanted}}
    (config / "package-lock.json").write_text(json.dumps(locked))


def opencode_config(base_url: str) -> dict[str, Any]:
    """Give the configuration of an OpenCode that asks nobody but this model."""
    model = {"name": "scripted", "tool_call": True}
    model |= {"limit": {"context": 100_000, "output": 4_000}}
    provider = {
        "npm": "@ai-sdk/openai-compatible",  # comes with it
        "name": "Scripted",
        "options": {"baseURL": base_url, "apiKey": "fake"},
        "models": {"scripted": model},
    }
    return {
        "model": "scripted/scripted",
        "small_model": "scripted/scripted",
        "enabled_providers": ["scripted"],
        "provider": {"scripted": provider},
        "permission": {"bash": "allow", "edit": "allow"},
    }
