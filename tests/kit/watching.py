"""The oracle of the pure machine, put around the machine of a live actor."""

from __future__ import annotations

from typing import TYPE_CHECKING

from attrs import define, field
from tests.kit.oracle import Oracle

from agentteam_supervisor.session import effects as fx
from agentteam_supervisor.session.machine import step

if TYPE_CHECKING:
    from agentteam_supervisor.session.events import Event
    from agentteam_supervisor.session.state import Session


@define
class Watched:
    """A `step` for an actor: every event and effect passes the oracle first."""

    oracle: Oracle = field(factory=Oracle)
    armed: dict[str, None] = field(factory=dict)

    def begin(self, session: Session) -> None:
        self.oracle._opens(session.ledger.gen)

    def __call__(
        self, session: Session, event: Event
    ) -> tuple[Session, list[fx.Effect]]:
        self.oracle.told(event, session)
        after, effects = step(session, event)
        for effect in effects:
            self._keep(effect)
        self.oracle.stepped(after, self)
        return after, effects

    def _keep(self, effect: fx.Effect) -> None:
        self.oracle.saw(effect)
        match effect:
            case fx.SetDeadline(name):
                self.armed[name] = None
            case fx.ClearDeadline(name):
                self.armed.pop(name, None)
            case _:
                pass
