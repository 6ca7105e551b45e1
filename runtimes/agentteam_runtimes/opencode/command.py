"""How OpenCode is started: its program, its flags, its environment, its version."""

from __future__ import annotations

import json
import os
import re
import tempfile
from typing import TYPE_CHECKING, Any, cast

from agentteam_protocol.approval import ApprovalPolicy
from agentteam_protocol.errors import RuntimeMissing
from agentteam_runtimes.programs import ask_version, find_program, inherited
from agentteam_runtimes.start_settings import SET_BIN

if TYPE_CHECKING:
    from pathlib import Path

    from agentteam_runtimes.driver import Options, SessionSpec

OLDEST = (1, 18)
INSTALL = f"install it with `npm install -g opencode-ai`, or use the runtime builtin, or {SET_BIN}"

_XDG = {
    "XDG_CONFIG_HOME": ".config",
    "XDG_DATA_HOME": ".local/share",
    "XDG_STATE_HOME": ".local/state",
    "XDG_CACHE_HOME": ".cache",
}
INHERITED = (
    *("HOME", "PATH", "LANG", "LC_ALL", "TERM", *_XDG),
    *("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY"),
    *("http_proxy", "https_proxy", "all_proxy", "no_proxy"),
    *("OPENCODE_API_KEY", "ANTHROPIC_API_KEY", "OPENAI_API_KEY", "GEMINI_API_KEY"),
    *("GOOGLE_GENERATIVE_AI_API_KEY", "OPENROUTER_API_KEY", "GROQ_API_KEY"),
    *("MISTRAL_API_KEY", "DEEPSEEK_API_KEY", "XAI_API_KEY"),
)

# A version that changes under us, and a web page that nobody opens.
SWITCHES = {
    "OPENCODE_DISABLE_AUTOUPDATE": "1",
    "OPENCODE_DISABLE_EMBEDDED_WEB_UI": "1",
}

# The agent's own `config` comes after these and wins.
DEFAULTS: dict[str, Any] = {"autoupdate": False, "share": "disabled"}
ASKS = {"bash": "ask", "edit": "ask", "webfetch": "ask"}


def environment(options: Options) -> dict[str, str]:
    """Build the environment: little is inherited, the agent's own comes on top."""
    env = inherited(INHERITED)
    if options.home is not None:
        env |= {"HOME": options.home}
        env |= {name: os.path.join(options.home, below) for name, below in _XDG.items()}
    return env | SWITCHES | dict(options.env)


def serving(spec: SessionSpec, password: str, temporary: Path) -> dict[str, str]:
    """Build the environment of a server; its commands see the password, too."""
    return environment(spec.options) | {
        "OPENCODE_SERVER_PASSWORD": password,
        "OPENCODE_CONFIG_CONTENT": json.dumps(config(spec)),
        # Each process leaves a library of 5 MB there.
        "TMPDIR": str(temporary),
    }


def config(spec: SessionSpec) -> dict[str, Any]:
    """
    Say how the agent may act; the agent's `config` wins over our defaults.

    With the policy `never` OpenCode's own permissions hold, and what still asks is
    refused without asking anybody.
    """
    given = dict(spec.options.config)
    if spec.approval_policy is ApprovalPolicy.ask:
        wanted = given.get("permission", {})
        if isinstance(wanted, dict):
            given["permission"] = ASKS | cast("dict[str, Any]", wanted)
    if spec.model:
        given["model"] = spec.model
    return DEFAULTS | given


def program(options: Options) -> str:
    """Find the executable; raises `RuntimeMissing`."""
    return find_program(options, "opencode", environment(options), INSTALL)


def command(options: Options) -> list[str]:
    """Build the command line of a server on a loopback port of its choice."""
    serve = ["serve", "--hostname", "127.0.0.1", "--port", "0"]
    return [program(options), *serve, *options.args]


def version(options: Options) -> str:
    """Ask the program for its version; raises `RuntimeMissing`."""
    path = program(options)
    with tempfile.TemporaryDirectory(prefix="agentteam-") as temporary:
        env = {**environment(options), "TMPDIR": temporary}
        said = ask_version(path, env, INSTALL)
    found = re.search(r"(?:^|\s)v?(\d+)\.(\d+)\.\d+\S*$", said)
    if found is None:
        raise RuntimeMissing(f"{path} is no OpenCode: it says {said[:80]!r}", INSTALL)
    if (int(found[1]), int(found[2])) < OLDEST:
        oldest = ".".join(map(str, OLDEST))
        raise RuntimeMissing(f"OpenCode {said} is older than {oldest}", INSTALL)
    return found[0].strip().removeprefix("v")
