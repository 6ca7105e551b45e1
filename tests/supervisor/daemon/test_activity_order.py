"""The lines of urgents in sessions that are driven at random, across crashes."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import invariant, precondition, rule
from tests.kit.driving import AGENT, Drive
from tests.kit.people import TARGETS
from tests.supervisor.session.test_invariants import SETTINGS, Sessions

from agentteam_protocol import journal as j
from agentteam_protocol.activity import ActivityKind as K, Language, render
from agentteam_protocol.delivery import DeliveryState
from agentteam_protocol.frames import ActivityReported, DeliveryReported, Frame
from agentteam_supervisor.daemon.reports import Reporting, begin, report

if TYPE_CHECKING:
    from agentteam_protocol.ids import DeliveryId

pytestmark = [pytest.mark.inv(22), pytest.mark.req("R32")]

AT = "2026-11-30T12:00:00Z"
# What may come after each line of one attempt; `started` and `failed` are the last.
AFTER: dict[K | None, set[K]] = {
    None: {K.requested},
    K.requested: {K.stopping, K.started, K.failed},
    K.stopping: {K.interrupted, K.started, K.failed},
    K.interrupted: {K.started, K.failed},
    K.started: set(),
    K.failed: set(),
}
SIGNALS = re.compile(r"\bSIG[A-Z]+\b|\bTERM\b|\bKILL\b|signal", re.IGNORECASE)


class Lines:
    """What the server has been told of one session's urgents, and the order of it."""

    def __init__(self) -> None:
        self.reporting: Reporting = begin(AGENT)
        self.last: dict[DeliveryId, K | None] = {}
        self.read = 0

    def follow(self, log: list[j.JournalEvent]) -> None:
        """Read what is new in the log."""
        for event in log[self.read :]:
            self.reporting, frames = report(self.reporting, event, AT)
            for frame in frames:
                self._told(event, frame, frames)
            self._accepted(event)
        self.read = len(log)

    def _accepted(self, event: j.JournalEvent) -> None:
        """No urgent is taken in silence."""
        if isinstance(event, j.InboxSpliced) and event.reason == "accepted":
            for item in event.added:
                if item.policy is not None and item.delivery is not None:
                    last = self.last.get(item.delivery)
                    assert last in (K.requested, K.stopping), "taken in silence"

    def _told(self, event: j.JournalEvent, frame: Frame, all_: list[Frame]) -> None:
        if not isinstance(frame, ActivityReported):
            return
        for language in Language:
            line = render(frame.kind, dict(frame.words), language)
            assert not SIGNALS.search(line), line
        if frame.delivery is None:
            return
        before = self.last.get(frame.delivery)
        if frame.kind is K.requested and self._retried(event, before):
            before = None
        assert frame.kind in AFTER[before], f"{before} then {frame.kind}"
        self.last[frame.delivery] = frame.kind
        if frame.kind is K.started:
            states = [f.state for f in all_ if isinstance(f, DeliveryReported)]
            assert states == [DeliveryState.surfaced], "started without evidence"

    def _retried(self, event: j.JournalEvent, before: K | None) -> bool:
        attempts = [i.attempt for i in getattr(event, "added", ())]
        return before is K.failed and attempts != [1]


class ToldSessions(Sessions):
    """The same sessions, each of them reported as the daemon does it."""

    lines: Lines

    def take(self, drive: Drive) -> None:
        """Reload: the log, maybe shorter, is folded from its first event."""
        super().take(drive)
        self.lines = Lines()
        self.lines.follow(drive.log)

    @rule(where=TARGETS, newest=st.just(-1), accepts=st.booleans())
    def hurry(self, where: str, newest: int, accepts: bool) -> None:
        """Urgents are what this is about, so there are more of them."""
        self.deliver_ordinary(where, "now", again=False)
        self.mark_urgent(newest, retry=False, other=False)
        if accepts:
            self.drive.answer_all()

    @precondition(lambda self: self.drive.held and self.alive())
    @rule()
    def all_surfaced(self) -> None:
        for item in tuple(self.drive.held):
            if self.drive.turn is not None:
                self.drive.surface(item)

    @invariant()
    def the_lines_keep_their_order(self) -> None:
        if hasattr(self, "lines"):
            self.lines.follow(self.drive.log)

    def _ended(self, drive: Drive, urgents: list[DeliveryId]) -> None:
        super()._ended(drive, urgents)
        lines = Lines()
        lines.follow(drive.log)
        for delivery in urgents:
            view = drive.session.ledger.deliveries[delivery]
            if view.state is DeliveryState.surfaced and view.item.attempt == 1:
                assert lines.last[delivery] in (K.started, K.failed), view

    def teardown(self) -> None:
        super().teardown()
        self.the_lines_keep_their_order()


TestToldSessions = ToldSessions.TestCase
TestToldSessions.settings = SETTINGS
