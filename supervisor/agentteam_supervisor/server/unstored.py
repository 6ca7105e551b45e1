"""
What is known and the disk did not take: shown, until it can be written.

The store keeps what it last wrote. While it takes nothing more, a run that has died
would be shown as running for as long as that lasts.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from attrs import define, field

from agentteam_protocol.codec import to_wire
from agentteam_protocol.frames import AgentTroubled, Frame, StatusReported
from agentteam_protocol.ids import AgentId
from agentteam_supervisor.server.disk import what_is_wrong

if TYPE_CHECKING:
    from collections.abc import Iterable


DOWN: dict[str, Any] = {"running": False, "phase": "offline"}


@define
class Unstored:
    """`trouble` are the words of the last write, None when it was well."""

    directory: Path
    trouble: str | None = None
    _statuses: dict[AgentId, dict[str, Any]] = field(
        factory=dict[AgentId, dict[str, Any]], init=False
    )

    @property
    def problem(self) -> dict[str, str] | None:
        """Say what is wrong with the disk, as it is now."""
        if self.trouble is None:
            return None
        problem, todo = what_is_wrong(self.directory, self.trouble)
        return {"problem": problem, "whatToDo": todo}

    def keep(self, frames: Iterable[Frame]) -> None:
        """Keep what a daemon said of its sessions when it could not be written."""
        for frame in frames:
            match frame:
                case StatusReported():
                    self._statuses[frame.agent] = dict(to_wire(frame))
                case AgentTroubled():
                    self.ended(frame.agent)
                case _:
                    pass

    def ended(self, agent: AgentId) -> None:
        """Keep that nothing runs there; its daemon said so, or has no session of it."""
        self._statuses[agent] = dict(DOWN)

    def stored(self, frames: Iterable[Frame]) -> None:
        """Drop what the store knows better by now."""
        for frame in frames:
            if isinstance(frame, StatusReported):
                self._statuses.pop(frame.agent, None)

    def runs(self, agent: AgentId) -> bool | None:
        """Tell whether a run is there; None: only the store knows."""
        status = self._statuses.get(agent)
        return None if status is None else bool(status["running"])

    def over(self, agent: dict[str, Any], connected: bool) -> dict[str, Any]:
        """Lay it over the view of an agent, as the store has it."""
        if self.trouble is None and not self._statuses:
            return agent
        status = self._statuses.get(agent["id"])
        if status is not None and not status["running"]:
            detail = {**agent["detail"], "phase": status["phase"]}
            agent = {**agent, "status": "idle", "currentRun": None, "detail": detail}
        if self.trouble is None:
            return agent
        daemon = {**agent["daemon"], "connected": connected}
        return {**agent, "problem": self.problem, "daemon": daemon}
