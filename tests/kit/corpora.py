"""The runtimes whose wire is recorded, and where the recordings are."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from contextlib import AbstractAsyncContextManager
from functools import partial
from pathlib import Path
from typing import Any

from attrs import define, field, frozen
from tests.kit.acp_desk import AcpDesk, open_acp_desk
from tests.kit.acp_home import AcpHome
from tests.kit.claude_desk import ClaudeDesk, open_claude_desk
from tests.kit.claude_home import ClaudeHome
from tests.kit.codex_desk import CodexDesk, open_codex_desk
from tests.kit.codex_home import CodexHome
from tests.kit.desk import Desk
from tests.kit.opencode_desk import OpenCodeDesk, open_opencode_desk
from tests.kit.opencode_home import OpenCodeHome
from tests.kit.parts import find_part
from tests.kit.scenarios import SCENARIOS

from agentteam_runtimes.driver import Options
from agentteam_runtimes.plugins import find_plugins
from agentteam_supervisor.chaos.models.chat import ChatModel
from agentteam_supervisor.chaos.models.messages import MessagesModel
from agentteam_supervisor.chaos.models.responses import ModelServer

Entry = dict[str, Any]

CORPORA = Path(__file__).parents[1] / "corpora"
NOBODY = "http://127.0.0.1:1"


@frozen
class Performer:
    """A runtime to record, and its driver to replay to."""

    runtime: str
    part: str
    open_desk: Callable[[Path], AbstractAsyncContextManager[Desk[Any, Any]]]
    empty_desk: Callable[[Path], Desk[Any, Any]]  # without a runtime, without a model
    asking: Mapping[str, Any] = field(factory=dict[str, Any])
    refused: int = 400
    without: frozenset[str] = frozenset()  # scenarios of what it cannot do
    races: frozenset[str] = frozenset()  # two recordings of these differ by themselves

    @property
    def scenarios(self) -> list[str]:
        return [name for name in SCENARIOS if name not in self.without]

    def version(self) -> str:
        """Ask the program that would be recorded."""
        options = Options(bin=str(find_part(self.part)))
        if self.runtime == "acp":  # whose version is that of the agent
            agent = find_plugins().load(self.part).probe(options)
            return f"{self.part}-{agent.version}"
        return find_plugins().load(self.runtime).probe(options).version


def _codex(path: Path) -> CodexDesk:
    return CodexDesk(ModelServer(1), CodexHome(path / "home", path))


def _claude(path: Path) -> ClaudeDesk:
    return ClaudeDesk(MessagesModel(1), ClaudeHome(path / "home", path, NOBODY))


def _opencode(path: Path) -> OpenCodeDesk:
    home = OpenCodeHome(path / "home", path / "home" / "opencode", NOBODY)
    return OpenCodeDesk(ChatModel(1), home)


def _acp(path: Path) -> AcpDesk:
    return AcpDesk(ChatModel(1), AcpHome(_opencode(path).home))


BASH_ASKS = {"permission": {"bash": "ask"}}
PERFORMERS = {
    "codex": Performer(
        "codex", "codex", open_codex_desk, _codex, {"approval_policy": "untrusted"}
    ),
    "claude": Performer("claude", "claude", open_claude_desk, _claude, refused=401),
    "claude-2.1.197": Performer(
        "claude",
        "claude-2.1.197",
        partial(open_claude_desk, part="claude-2.1.197"),
        _claude,
        refused=401,
    ),
    "opencode": Performer(
        "opencode", "opencode", open_opencode_desk, _opencode, BASH_ASKS
    ),
    "acp": Performer(
        "acp",
        "opencode",
        open_acp_desk,
        _acp,
        BASH_ASKS,
        without=frozenset({"steer"}),
        # Our cancel races what the agent does of it: its tool ends in two ways.
        races=frozenset({"cut-while-asking", "cut-in-a-tool"}),
    ),
}


@define(frozen=True)
class Recording:
    """One scenario on one version: what was on the wire, what its driver made of it."""

    wire: list[Entry]
    events: list[Entry]

    @classmethod
    def read(cls, folder: Path) -> Recording:
        return cls(_read(folder / "wire.jsonl"), _read(folder / "events.jsonl"))

    def write(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        _write(folder / "wire.jsonl", self.wire)
        _write(folder / "events.jsonl", self.events)


def stored() -> list[Path]:
    """Name the folders of all recordings: `runtime/version/scenario`."""
    return sorted(path.parent for path in CORPORA.glob("*/*/*/wire.jsonl"))


def performer_of(folder: Path) -> Performer:
    """Find the runtime of such a folder."""
    runtime = folder.parts[-3]
    return next(p for p in PERFORMERS.values() if p.runtime == runtime)


def _read(file: Path) -> list[Entry]:
    return [json.loads(line) for line in file.read_text().splitlines()]


def _write(file: Path, entries: list[Entry]) -> None:
    lines = [json.dumps(e, sort_keys=True, ensure_ascii=False) for e in entries]
    file.write_text("".join(f"{line}\n" for line in lines))
