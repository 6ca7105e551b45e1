"""Sessions read back from the journal: folded, repaired, ready to go on."""

from __future__ import annotations

import gc
import json
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

import trio
from attrs import evolve

from agentteam_protocol.frontier import Frontier
from agentteam_protocol.journal import EpochBegun, FrontierMoved, JournalEvent
from agentteam_supervisor.daemon.reports import Reporting, begin, report
from agentteam_supervisor.daemon.restarts import Intensity, judge
from agentteam_supervisor.daemon.translation import notice
from agentteam_supervisor.journal.log import Journal, now
from agentteam_supervisor.session.repair import SUPERVISOR_ENDED, repair
from agentteam_supervisor.session.state import Ledger, Live, Session

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable, Iterator

    from agentteam_protocol.delivery import Diagnostic
    from agentteam_protocol.frames import AgentGranted, Frame
    from agentteam_protocol.ids import AgentId
    from agentteam_protocol.journal import Entry

PAGE = 1000
SHELF = 100

_DAMAGED = "records that could not be read were set aside; the rest is in use"
_SESSION = "its session failed: "


class Reporter:
    """Reports one session: it remembers what was told before. `take` is the port."""

    def __init__(self, reporting: Reporting, damaged: int = 0) -> None:
        self.reporting = reporting
        self.damaged = damaged

    def take(
        self, event: JournalEvent, at: str, after: Ledger | None = None
    ) -> list[Frame]:
        self.reporting, frames = report(self.reporting, event, at, after)
        return frames

    @property
    def ledger(self) -> Ledger:
        return self.reporting.ledger


async def load_all(journal: Journal) -> dict[AgentId, Reporter]:
    """Fold the logs of all agents of this daemon, many short ones at a time."""
    await journal.flushed()
    kept = await journal.kept()
    loaded: dict[AgentId, Reporter] = {}
    with _no_rounds_of_the_collector():
        for agents in _shelves(journal, kept):
            if len(agents) == 1:
                loaded[agents[0]] = await load(journal, agents[0])
                continue
            for agent, entries in (await journal.logs(agents)).items():
                reporting = _folded(begin(agent), entries)
                loaded[agent] = Reporter(reporting, journal.damaged(agent))
    return {agent: loaded[agent] for agent in kept}


def _shelves(journal: Journal, agents: Iterable[AgentId]) -> Iterator[list[AgentId]]:
    """Put agents together whose logs make a page."""
    shelf: list[AgentId] = []
    length = 0
    for agent in agents:
        entries = journal.last(agent)
        if shelf and (length + entries > PAGE or len(shelf) == SHELF):
            yield shelf
            shelf, length = [], 0
        shelf.append(agent)
        length += entries
    if shelf:
        yield shelf


@contextmanager
def _no_rounds_of_the_collector() -> Generator[None]:
    """
    Keep the garbage collector out while very much is made that stays.

    It would look through all of it again and again: a third of the time of a start.
    """
    collects = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collects:
            gc.enable()


def _folded(reporting: Reporting, entries: Iterable[Entry]) -> Reporting:
    for entry in entries:
        reporting, _ = report(reporting, entry.event, entry.at)
    return reporting


async def load(journal: Journal, agent: AgentId) -> Reporter:
    """Fold the agent's log; what cannot be read was set aside and is marked in it."""
    reporting = begin(agent)
    after, more = 0, True
    while more:
        entries = await journal.entries(agent, after, PAGE)
        reporting = _folded(reporting, entries)
        more = len(entries) == PAGE
        after = entries[-1].seq if entries else after
    return Reporter(reporting, journal.damaged(agent))


async def reopen(
    journal: Journal,
    granted: AgentGranted,
    reporter: Reporter,
    failure: Diagnostic | None = None,
) -> Session:
    """
    Close what is open in the log and begin the epoch, durably; give the session.

    What the server knows as seen is seen: its frontier is the authority. `failure` is
    what ended the session before, when it was not the whole daemon.

    Raises `JournalUnwritable`: then nothing was begun.
    """
    agent, epoch = granted.agent, granted.epoch
    journal.reopen(agent)
    why = SUPERVISOR_ENDED if failure is None else f"{_SESSION}{failure.problem}"
    fresh = epoch > reporter.ledger.gen.epoch or journal.last(agent) == 0
    records = [
        record if fresh else _continued(record, reporter.ledger)
        for record in repair(reporter.ledger, epoch, reporter.damaged, why)
    ]
    records += _floors(granted, reporter.ledger)
    at = now()
    frames = [frame for record in records for frame in reporter.take(record, at)]
    if reporter.damaged:
        frames.append(notice(agent, "log damaged here", _DAMAGED))
    await journal.append(agent, records, frames, at).wait()
    # Ids count from here; in an epoch that goes on they must not come again.
    serial = 0 if fresh else time.time_ns() // 1_000_000
    return Session(reporter.ledger, Live(serial=serial))


def _floors(granted: AgentGranted, ledger: Ledger) -> list[JournalEvent]:
    return [
        FrontierMoved(target, floor=seen)
        for target, seen in granted.frontiers.items()
        if seen > ledger.frontiers.get(target, Frontier()).contiguous
    ]


def _continued(record: JournalEvent, ledger: Ledger) -> JournalEvent:
    """A session that crashed goes on in its lease's epoch, past every generation."""
    if isinstance(record, EpochBegun):
        return evolve(record, gen=ledger.gen.next())
    return record


class Pacer:
    """
    The port `pace`: restart intensity of one agent's runtime, kept in the journal.

    A restart of the supervisor must not give a crash loop a fresh budget.
    """

    def __init__(self, journal: Journal, agent: AgentId, intensity: Intensity) -> None:
        self._journal = journal
        self._name = f"failures/{agent}"
        self._intensity = intensity
        self._failures: tuple[float, ...] = ()

    async def remember(self) -> None:
        """Read the failures before the last restart, on the clock of this one."""
        kept = await self._journal.marked(self._name)
        shift = trio.current_time() - time.time()
        try:
            self._failures = tuple(float(t) + shift for t in json.loads(kept or "[]"))
        except (ValueError, TypeError):
            self._failures = ()

    def __call__(self, at: float) -> float | None:
        verdict = judge(self._failures, at, self._intensity)
        self._failures = verdict.failures
        shift = time.time() - trio.current_time()
        self._journal.mark(self._name, json.dumps([t + shift for t in self._failures]))
        return verdict.wait
