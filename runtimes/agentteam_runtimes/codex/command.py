"""How an app-server is started: its program, its flags, its environment, its version."""

from __future__ import annotations

import json
import os
import re
from typing import TYPE_CHECKING, Any, cast

from agentteam_protocol.errors import RuntimeMissing
from agentteam_runtimes.programs import ask_version, find_program, inherited
from agentteam_runtimes.start_settings import SET_BIN

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from agentteam_runtimes.driver import Options

OLDEST = (0, 171)
INSTALL = f"install it with `npm install -g @openai/codex`, or {SET_BIN}"

INHERITED = (
    *("HOME", "PATH", "LANG", "LC_ALL", "TERM", "TMPDIR"),
    *("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY"),
    *("http_proxy", "https_proxy", "all_proxy", "no_proxy"),
    *("OPENAI_API_KEY", "OPENAI_BASE_URL", "CODEX_API_KEY", "CODEX_HOME"),
)

# The agent's own `config` comes after these and wins.
DEFAULTS: dict[str, Any] = {
    # By default a steer cuts and erases streaming text: an ordinary message never may.
    "features.instant_interrupt": False,
    # Both look things up outside, at every start.
    "features.plugins": False,
    "check_for_update_on_startup": False,
}

# Given to `thread/start` and `thread/resume` instead: a resumed thread forgets them.
THREAD_KEYS = frozenset({"sandbox_mode", "approval_policy", "model"})


def environment(options: Options) -> dict[str, str]:
    """Build the environment: little is inherited, the agent's own comes on top."""
    env = inherited(INHERITED)
    if options.home is not None:
        env |= {
            "HOME": options.home,
            "CODEX_HOME": os.path.join(options.home, ".codex"),
        }
    return env | dict(options.env)


def program(options: Options) -> str:
    """Find the executable; raises `RuntimeMissing`."""
    return find_program(options, "codex", environment(options), INSTALL)


def command(options: Options) -> list[str]:
    """Build the command line of the app-server."""
    given = {k: v for k, v in options.config.items() if k not in THREAD_KEYS}
    flags = [f"{key}={value}" for key, value in _settings(DEFAULTS | given)]
    pairs = [word for flag in flags for word in ("-c", flag)]
    return [program(options), "app-server", *pairs, *options.args]


def version(options: Options) -> str:
    """Ask the program for its version; raises `RuntimeMissing`."""
    path = program(options)
    said = ask_version(path, environment(options), INSTALL)
    found = re.search(r"codex\S* (\d+)\.(\d+)(\.\S+)?", said)
    if found is None:
        raise RuntimeMissing(f"{path} is no Codex: it says {said[:80]!r}", INSTALL)
    if (int(found[1]), int(found[2])) < OLDEST:
        oldest = ".".join(map(str, OLDEST))
        raise RuntimeMissing(f"{said} is older than {oldest}", INSTALL)
    return said.split()[-1]


def _settings(config: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, str]]:
    """Flatten a config into dotted keys and TOML values."""
    for key, value in config.items():
        if value and isinstance(value, dict):
            yield from _settings(cast("dict[str, Any]", value), f"{prefix}{key}.")
        elif value is not None:
            yield prefix + key, _toml(cast("object", value))


def _toml(value: object) -> str:
    """Write a value as TOML; for all but objects that is how JSON writes it."""
    if isinstance(value, dict):
        pairs = cast("dict[str, object]", value).items()
        return "{" + ", ".join(f"{json.dumps(k)} = {_toml(v)}" for k, v in pairs) + "}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(_toml, cast("list[object]", value))) + "]"
    return json.dumps(value, ensure_ascii=False)
