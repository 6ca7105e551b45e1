"""
Real runtimes as the agents of a campaign, each with a home and a scripted model.

What they read is judged by what their models were told: every message of a campaign
bears a number, and the number is looked for in each request.
"""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Callable
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from attrs import define, field, frozen

from agentteam_protocol.errors import RuntimeMissing
from agentteam_supervisor.chaos import homes
from agentteam_supervisor.chaos.models import chat, messages, responses
from agentteam_supervisor.chaos.models.responses import ModelServer, open_model
from agentteam_supervisor.chaos.observations import Told
from agentteam_supervisor.chaos.scripts import NUMBERED

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from agentteam_supervisor.chaos.models.responses import ModelRequest

AGENTS = 2  # the second one asks before it runs a command


@frozen
class Troupe:
    """A runtime that can be played: its program, its model, and how it is set up."""

    runtime: str
    program: str
    model: Callable[[int], Any]
    serve: Callable[..., Any]
    options: Callable[[Path, str, bool], dict[str, Any]]


def _codex(home: Path, base_url: str, asks: bool) -> dict[str, Any]:
    homes.write_codex_home(home, base_url)
    config = {"sandbox_mode": "danger-full-access"}
    config |= {"approval_policy": "untrusted"} if asks else {}
    return {"env": homes.codex_env(), "config": config}


def _claude(home: Path, base_url: str, asks: bool) -> dict[str, Any]:
    config = {} if asks else {"permissions": {"allow": ["Bash"]}}
    return {"env": homes.claude_env(base_url), "config": config}


def _opencode(home: Path, base_url: str, asks: bool) -> dict[str, Any]:
    homes.write_opencode_home(home)
    config = homes.opencode_config(base_url)
    config |= {"permission": {"bash": "ask"}} if asks else {}
    return {"env": {"PATH": homes.PATH}, "config": config}


TROUPES = {
    troupe.runtime: troupe
    for troupe in (
        Troupe(
            "codex",
            "codex",
            responses.ModelServer,
            responses.serve_connection,
            _codex,
        ),
        Troupe(
            "claude",
            "claude",
            messages.MessagesModel,
            messages.serve_connection,
            _claude,
        ),
        Troupe(
            "opencode",
            "opencode",
            chat.ChatModel,
            chat.serve_connection,
            _opencode,
        ),
    )
}


@define(eq=False)
class Heard:
    """What one model was told, by the numbers of the messages."""

    model: ModelServer
    _ever: Counter[str] = field(factory=Counter[str])
    _last: Counter[str] = field(factory=Counter[str])
    _read: int = 0

    def look(self) -> dict[str, Told]:
        """Give for each number how often a request held it, at most and at last."""
        for request in self.model.requests[self._read :]:
            found = _numbers(request)
            self._ever |= found
            if request.tools:  # else it only sums up, or makes a title
                self._last = found
        self._read = len(self.model.requests)
        return {n: Told(most, self._last[n]) for n, most in self._ever.items()}


def _numbers(request: ModelRequest) -> Counter[str]:
    return Counter(n for text in request.user_texts for n in NUMBERED.findall(text))


@define(eq=False)
class Company:
    """The real agents of one world: what to make them of, and what they were told."""

    runtime: str
    settings: list[dict[str, Any]] = field(factory=list[dict[str, Any]])
    heard: list[Heard] = field(factory=list[Heard])

    def told(self, place: int, body: str) -> Told:
        """Tell how often the model of an agent was told this message."""
        (number,) = NUMBERED.findall(body)
        return self.heard[place].look().get(number, Told(0, 0))


def find_program(runtime: str, named: str | None) -> str:
    """Find the program of a runtime; raises `RuntimeMissing`."""
    troupe = TROUPES[runtime]
    if found := named or shutil.which(troupe.program):
        return str(Path(found).absolute())
    raise RuntimeMissing(f"no {troupe.program} on PATH", "name it with --bin")


@asynccontextmanager
async def open_company(
    runtime: str, program: str, place: Path
) -> AsyncGenerator[Company]:
    """Serve the models and write the homes, below `place`, until the block is left."""
    troupe = TROUPES[runtime]
    company = Company(runtime)
    async with AsyncExitStack() as stack:
        for n in range(AGENTS):
            opened = open_model(troupe.model, partial(troupe.serve))
            model = await stack.enter_async_context(opened)
            home = place / f"home{n}"
            workdir = home / "work"
            workdir.mkdir(parents=True)
            options = troupe.options(home, model.base_url, n > 0)
            settings = {
                "runtime": runtime,
                "workdir": str(workdir),
                "approvalPolicy": "ask",
                "options": {"bin": program, "home": str(home), **options},
            }
            company.settings.append(settings)
            company.heard.append(Heard(model))
        yield company
