"""How an agent is started, which its own option says, and what it says that it is."""

from __future__ import annotations

from typing import TYPE_CHECKING

from attrs import frozen

from agentteam_protocol.errors import RuntimeMissing, RuntimeUnset
from agentteam_runtimes import jsonfields
from agentteam_runtimes.acp import wire
from agentteam_runtimes.programs import find_program, inherited

if TYPE_CHECKING:
    from pathlib import Path

    from agentteam_runtimes.driver import Options

SET_COMMAND = (
    "set the agent's command (agentteam agents set NAME --options"
    """ '{"command": ["opencode", "acp"]}', with the program you use)"""
)

INHERITED = (
    *("HOME", "PATH", "LANG", "LC_ALL", "TERM", "TMPDIR"),
    *("XDG_CONFIG_HOME", "XDG_DATA_HOME", "XDG_STATE_HOME", "XDG_CACHE_HOME"),
    *("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY"),
    *("http_proxy", "https_proxy", "all_proxy", "no_proxy"),
    *("ANTHROPIC_API_KEY", "OPENAI_API_KEY", "GEMINI_API_KEY", "GOOGLE_API_KEY"),
)


@frozen
class Introduction:
    """What an agent said of itself in its answer to `initialize`."""

    version: str
    loads: bool  # a session of an earlier process
    lists: bool  # the sessions it has
    logins: tuple[str, ...] = ()  # what it says of how people log in


def environment(options: Options, temporary: Path | None = None) -> dict[str, str]:
    """Build the environment: little is inherited, the agent's own comes on top."""
    env = inherited(INHERITED)
    if options.home is not None:
        env = {k: v for k, v in env.items() if not k.startswith("XDG_")}
        env["HOME"] = options.home
    if temporary is not None:
        # OpenCode leaves a library of 5 MB there with each process.
        env["TMPDIR"] = str(temporary)
    return env | dict(options.env)


def command(options: Options) -> list[str]:
    """Build the command line; raises `RuntimeMissing`."""
    program, *words = options.command or ("",)
    if not (options.bin or program):
        raise RuntimeUnset("the option `command` says which agent to run", SET_COMMAND)
    if options.config:
        raise RuntimeMissing(
            "an agent of the runtime acp takes no `config`: each has a way of its own",
            "say what it needs by the options `command` and `env`",
        )
    found = find_program(options, program, environment(options), SET_COMMAND)
    return [found, *words, *options.args]


def introduction(initialized: object) -> Introduction:
    """Read the answer to `initialize`; raises `RuntimeMissing` for another protocol."""
    protocol = jsonfields.number(initialized, "protocolVersion")
    if protocol != wire.PROTOCOL:
        problem = f"the agent speaks version {protocol} of ACP, not {wire.PROTOCOL}"
        raise RuntimeMissing(problem, "install a version of it that fits this one")
    info = jsonfields.mapping(initialized, "agentInfo")
    name, version = jsonfields.text(info, "name"), jsonfields.text(info, "version")
    methods = jsonfields.objects(initialized, "authMethods")
    return Introduction(
        version=f"{name} {version}".strip() or f"unnamed, ACP {protocol}",
        loads=wire.offers(initialized, "loadSession"),
        lists=wire.offers(initialized, "sessionCapabilities", "list"),
        logins=tuple(filter(None, (_login(method) for method in methods))),
    )


def _login(method: object) -> str:
    return jsonfields.text(method, "description", "name")
