"""The session that a person already had, for an agent that is made on it."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from attrs import frozen

if TYPE_CHECKING:
    from agentteam_runtimes.driver import SessionSpec


@frozen
class Adoption:
    """
    What `options.resume` names.

    It is taken up once. Later the agent's own token names it; without one it is lost.
    """

    session: str | None
    path: Path

    @classmethod
    def of(cls, spec: SessionSpec) -> Adoption:
        return cls(spec.options.resume, spec.state_dir / "adopted")

    @property
    def due(self) -> str | None:
        with suppress(OSError):
            if self.path.read_text() == self.session:
                return None
        return self.session

    def done(self, session: str) -> None:
        if session == self.session:
            with suppress(OSError):
                self.path.write_text(session)
