"""One step under way: a working copy of the session and the effects so far."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from agentteam_protocol import journal as j
from agentteam_protocol.ids import Generation, RunId
from agentteam_runtimes.driver import Interrupt, Steer, TurnRef
from agentteam_supervisor.session import effects as fx
from agentteam_supervisor.session.fold import fold
from agentteam_supervisor.session.state import (
    Fence,
    Ledger,
    Live,
    OpenTurn,
    Phase,
    Session,
    changed,
)

if TYPE_CHECKING:
    from agentteam_protocol.delivery import DeliveryState, Diagnostic, Evidence
    from agentteam_protocol.inbox import Item


class Work:
    """
    Lives inside one call of `step`, which stays pure as seen from outside.

    The ledger changes through `record` alone.
    """

    def __init__(self, session: Session) -> None:
        self._session = session
        self.ledger: Ledger = session.ledger
        self.live: Live = session.live
        self.effects: list[fx.Effect] = []

    def done(self) -> Session:
        return changed(self._session, ledger=self.ledger, live=self.live)

    # --- changes -----------------------------------------------------------------

    def record(self, *events: j.JournalEvent) -> None:
        for event in events:
            self.ledger = fold(self.ledger, event)
            self.effects.append(fx.Record(event, self.ledger))

    def do(self, *effects: fx.Effect) -> None:
        self.effects.extend(effects)

    def set(self, **changes: Any) -> None:
        self.live = changed(self.live, **changes)

    def reply(self, ref: int | None, value: Any = None, error: str = "") -> None:
        if ref is not None:
            self.do(fx.Reply(ref, value, error))

    def serial(self, prefix: str) -> str:
        """Mint an id that no other incarnation or epoch of the session repeats."""
        self.set(serial=self.live.serial + 1)
        agent = self.ledger.agent.removeprefix("agt_")
        return f"{prefix}_{agent}_{self.gen.epoch}_{self.live.serial}"

    def park(self, position: int | None = None, urgent: int | None = None) -> None:
        position = self.ledger.position if position is None else position
        marks = (position, self.ledger.urgent_park if urgent is None else urgent)
        if marks != (self.ledger.park, self.ledger.urgent_park):
            self.record(j.RunParked(position, urgent))

    def change(
        self,
        item: Item,
        state: DeliveryState,
        diagnostic: Diagnostic | None = None,
        note: str = "",
        evidence: Evidence | None = None,
    ) -> None:
        """Record the new state of an entry's delivery, if it has one."""
        if item.delivery is not None:
            self.record(
                j.DeliveryChanged(
                    item.delivery,
                    state,
                    item.attempt,
                    self.gen,
                    evidence=evidence,
                    diagnostic=diagnostic,
                    note=note,
                )
            )

    def drop(
        self,
        items: tuple[Item, ...],
        reason: j.SpliceReason,
        state: DeliveryState,
        diagnostic: Diagnostic | None = None,
    ) -> None:
        """Take waiting entries out of the lanes for good, each with its state told."""
        if not items:
            return
        self.record(j.InboxSpliced(reason, tuple(i.id for i in items)))
        for item in items:
            self.change(item, state, diagnostic)

    # --- questions ---------------------------------------------------------------

    @property
    def gen(self) -> Generation:
        return self.ledger.gen

    @property
    def phase(self) -> Phase:
        return self.live.phase

    @property
    def open_turn(self) -> OpenTurn | None:
        return self.ledger.turn

    @property
    def is_open(self) -> bool:
        return self.ledger.fence is Fence.open

    @property
    def auto_reply(self) -> bool:
        return self._session.auto_reply

    @property
    def runtime(self) -> str:
        return self._session.runtime or "the runtime"

    @property
    def asks_nobody(self) -> bool:
        policy = self.ledger.policy or self._session.default_policy
        return policy.value == "never"

    @property
    def steers(self) -> bool:
        caps = self.live.capabilities
        return caps is not None and caps.steer is not Steer.none

    @property
    def interrupts(self) -> bool:
        caps = self.live.capabilities
        return caps is not None and caps.interrupt is not Interrupt.none

    @property
    def together(self) -> bool:
        caps = self.live.capabilities
        return caps is not None and caps.batch_input

    def gen_of(self, turn: TurnRef | None) -> Generation | None:
        """Map the runtime's turn to its generation; None: nobody knows the turn."""
        return self.live.turns.get(turn.id) if turn is not None else None

    def next_run_id(self) -> RunId:
        agent = self.ledger.agent.removeprefix("agt_")
        return RunId(f"run_{agent}_{self.gen.epoch}_{self.ledger.turns + 1}")
